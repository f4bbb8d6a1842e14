"""AOTInductor: models compiled ahead of time by PyTorch and a C++ compiler, for this processor.

Processes of their own translate and compile (`graphbox.export.aotinductor`). PyTorch is imported here when a
compiled program is loaded, and not before. A package holds the compiled program and ``model.pt2``, the
program as ``torch.export`` saves it, for PyTorch programs of a user's own; graphbox does not read that one.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import graphbox
from graphbox.artifact import OnnxSummary, TensorSpec, inspect_onnx
from graphbox.deploy.adapters.processor import processor_features, processor_name
from graphbox.deploy.adapters.results import written
from graphbox.deploy.protocol import API_VERSION, Device, Effective, Feeds, Options, Package, Support
from graphbox.errors import (
    BackendMissingError,
    FormatError,
    GraphboxError,
    InvalidRequestError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
)

_COMPILER_MODULE = "graphbox.export.aotinductor"
_TRANSLATOR = ("aotinductor", "onnx_operators", "onnx_to_torch")
_COMPILED, _SIZES = "compiled.pt2", "sizes.json"
_REFUSED = 3
_COMPILE_TIMEOUT_S = 1800.0
_TRIAL_TIMEOUT_S = 60.0
_COMPILER = "g++"
_TRIAL_SOURCE = """#include <omp.h>
#include <vector>
extern "C" int trial() { return std::vector<int>(omp_get_max_threads()).size(); }
"""
_TRIAL_FLAGS = ("-shared", "-fPIC", "-fopenmp", "-std=c++20")
_LOWER_PRECISION = {"high": "tf32", "medium": "bfloat16"}
_CONSTANT_INPUTS = {
    **dict.fromkeys(("Expand", "Reshape", "Split", "Squeeze", "TopK", "Unsqueeze"), (1,)),
    "Slice": (1, 2, 3, 4),
}
"""Inputs of operators that the result's shape depends on."""


class AotInductorProgram:
    """A compiled program; ``run`` is thread-safe."""

    def __init__(self, package: Package) -> None:
        folder = package.folder
        assert folder is not None  # noqa: S101 - this adapter builds ahead
        summary = inspect_onnx(package.model, "the model")
        self.inputs: Sequence[TensorSpec] = summary.input_tensors
        self.outputs: Sequence[TensorSpec] = summary.output_tensors
        self._equal_sizes = _equal_sizes(json.loads((folder / _SIZES).read_text()), self.inputs)
        self._torch = _torch()
        self._threads = _ThreadLimit(self._torch, package.options.threads)
        self._loaded: _LoadedPackage | None = _loaded(str(folder / _COMPILED))
        with self._threads.limited():
            threads = self._torch.get_num_threads()
        precision = _LOWER_PRECISION.get(self._torch.get_float32_matmul_precision(), summary.precision)
        self.effective: Effective = {
            "provider": "AOTInductor",
            "device": package.device.name,
            "precision": precision if summary.precision == "float32" else summary.precision,
            "threads": max(threads, package.options.threads),  # of torch's operators, and of compiled loops
            "fallback_nodes": [],  # all of it is compiled, or nothing
            "runtime": f"torch {self._torch.__version__}",
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.protocol.Program.run`."""
        loaded = self._loaded
        if loaded is None:
            raise UsageError("expected an open model, this one was closed")
        self._check_sizes(feeds)
        tensors = [self._tensor(feeds[each.name]) for each in self.inputs]
        try:
            with loaded.lock, self._threads.limited():
                values = loaded.program.loader.boxed_run(tensors)
        except RuntimeError as error:
            reason = next(iter(str(error).splitlines()), "")
            raise InvalidRequestError(f"AOTInductor refused the feeds: {reason}") from error
        found = zip(self.outputs, values, strict=True)
        return {each.name: written(value.numpy(), each.name, out) for each, value in found}

    def _check_sizes(self, feeds: Feeds) -> None:
        """Refuse sizes that differ and are one size in the compiled program, which does not check them."""
        for (name, axis), (first, first_axis) in self._equal_sizes:
            size, expected = feeds[name].shape[axis], feeds[first].shape[first_axis]
            if size != expected:
                raise InvalidRequestError(
                    f"expected {expected} as the size of dimension {axis}, as in dimension {first_axis} of "
                    f"input `{first}`, received {size}",
                    where=f"input `{name}`",
                )

    def _tensor(self, array: npt.NDArray[Any]) -> Any:
        row_major = np.asarray(array, order="C")
        # torch has no arrays for reading alone, and warns of them.
        return self._torch.from_numpy(row_major if row_major.flags.writeable else row_major.copy())

    def close(self) -> None:
        """Drop the model; its library stays in memory, for the next program of the package."""
        self._loaded = None


class _ThreadLimit:
    """Limits the threads of calls from the calling thread, without changing those of others.

    ``torch.set_num_threads`` changes the default of the whole process. The number that OpenMP keeps for each
    thread is what torch's operators use, so it is set for a call and restored.
    """

    def __init__(self, torch: Any, threads: int) -> None:
        self._torch, self._wanted = torch, threads
        # Symbols are looked up in what the library depends on: the OpenMP that torch itself uses.
        library = ctypes.CDLL(torch._C.__file__)
        self._set: Any = getattr(library, "omp_set_num_threads", None)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the calling thread; without OpenMP, do nothing."""
        before = self._torch.get_num_threads()  # the first call of a thread sets its number
        if self._set is None or before <= self._wanted:
            yield
            return
        self._set(self._wanted)
        try:
            yield
        finally:
            self._set(before)


class AotInductor:
    """Adapter for PyTorch's ahead-of-time compiler; a package is the compiled and the exported program."""

    name = "aotinductor"
    api = API_VERSION
    builds_ahead = True

    def probe(self) -> list[Device]:
        """Return the CPU: available where torch and onnx are installed and the C++ compiler's code loads.

        No model is compiled: that takes 10 seconds and more.
        """
        details = {"processor": processor_features(), "translator": _translator_digest()}
        try:
            details["runtime"] = f"torch {_version('torch')}"
            details["importer"] = f"onnx {_version('onnx')}"
            details["compiler"] = _tried_compiler(os.environ.get("CXX", _COMPILER))
        except GraphboxError as error:
            return [Device("cpu", "cpu", processor_name(), False, error.message, details)]
        return [Device("cpu", "cpu", processor_name(), True, None, details)]

    def supports(self, model: bytes, device: Device) -> Support:  # noqa: ARG002 - one device
        """Return whether each operator is translated; `build` refuses attributes and computed shapes."""
        try:
            _refuse_shapes_of_inputs(inspect_onnx(model, "the model"))
            _refuse_operators(inspect_onnx(model, "the model"))
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:  # noqa: ARG002
        """Write the exported and the compiled program; see `graphbox.deploy.protocol.Adapter.build`."""
        _refuse_shapes_of_inputs(inspect_onnx(model, "the model"))
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "model.onnx"
            source.write_bytes(model)
            _done(["compile", str(source), str(folder), "--threads", str(options.threads)], Path(scratch))

    def load(self, package: Package) -> AotInductorProgram:
        """Return the program that was compiled; see `graphbox.deploy.protocol.Adapter.load`."""
        try:
            return AotInductorProgram(package)
        except RuntimeError as error:
            raise UnsupportedError(f"AOTInductor cannot load the program: {error}") from error


@dataclass(frozen=True)
class _LoadedPackage:
    """A compiled program, and the lock under which it is called.

    PyTorch 2.13 calls a program with Python's global lock held, and releases it while tensors are freed. A
    second call would then wait in C++ for the first with the global lock, for which the first waits.
    """

    program: Any
    lock: threading.Lock


@functools.cache
def _loaded(path: str) -> _LoadedPackage:
    """Return the compiled program of a package, loaded once for each process.

    PyTorch 2.13 never unloads a library: each program that loaded it again would keep 300 kB and more.
    """
    return _LoadedPackage(import_module("torch._inductor").aoti_load_package(path), threading.Lock())


def _equal_sizes(
    sizes: Sequence[Sequence[int | str]], inputs: Sequence[TensorSpec]
) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """Return each dimension of an input with the first that has to be of its size."""
    first: dict[int | str, tuple[str, int]] = {}
    pairs = []
    for tensor, shape in zip(inputs, sizes, strict=True):
        for axis, size in enumerate(shape):
            if isinstance(size, str) and first.setdefault(size, (tensor.name, axis)) != (tensor.name, axis):
                pairs.append(((tensor.name, axis), first[size]))
    return pairs


def _refuse_shapes_of_inputs(summary: OnnxSummary) -> None:
    """Refuse a model whose inputs hold a shape or a number of results, without starting a process."""
    for node in summary.nodes:
        for number in _CONSTANT_INPUTS.get(node.operator, ()):
            if number < len(node.inputs) and node.inputs[number] in summary.dimensions:
                raise UnsupportedError(
                    f"{node.operator}: expected a constant as input {number}, received an input of the model",
                    where=f"node of `{node.outputs[0]}`",
                )


def _refuse_operators(summary: OnnxSummary) -> None:
    known = _operators()
    foreign = {name for name, domains in summary.domains.items() if domains - {"", "ai.onnx"}}
    if missing := sorted((summary.operators - known) | foreign):
        raise UnsupportedError(f"no torch function is known for the operators {', '.join(missing)}")


@functools.cache
def _operators() -> frozenset[str]:
    """Return the names of the operators that are translated."""
    with tempfile.TemporaryDirectory() as scratch:
        return frozenset(json.loads(_done(["operators"], Path(scratch))))


def _done(arguments: list[str], scratch: Path) -> str:
    """Run `graphbox.export.aotinductor`; return what it prints.

    Raises:
        UnsupportedError: it refuses the model.
        TimeLimitError: it does not end.
    """
    settings = {
        # Its default is a folder in /tmp whose name anybody can guess.
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Instruction sets are read from the processor's flags; compiling a trial of each takes 10 s.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "TMPDIR": str(scratch),
    }
    command = [sys.executable, "-P", "-m", _COMPILER_MODULE, *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMPILE_TIMEOUT_S,
            env=os.environ | settings,
        )
    except subprocess.TimeoutExpired:
        raise TimeLimitError(
            f"expected PyTorch to compile the model, received a timeout after {_COMPILE_TIMEOUT_S:g} seconds"
        ) from None
    if done.returncode == _REFUSED:
        refused = json.loads(done.stdout)
        raise UnsupportedError(refused["refused"], where=refused["where"])
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-1:]
        raise UnsupportedError(f"PyTorch cannot compile the model: {' '.join(lines)[:600]}")
    return done.stdout


@functools.cache
def _translator_digest() -> str:
    """Return the digest of the modules that translate, which may change under one version."""
    folder = Path(graphbox.__file__).parent / "export"
    content = b"".join((folder / f"{name}.py").read_bytes() for name in _TRANSLATOR)
    return hashlib.sha256(content).hexdigest()[:12]


@functools.cache
def _tried_compiler(compiler: str) -> str:
    """Return the C++ compiler's version, after compiling a function with it and calling that one.

    Raises:
        BackendMissingError: it is not there, or what it makes does not run.
    """
    hint = "install g++ with OpenMP (Debian: `apt install g++`), or name another compiler by CXX"
    if shutil.which(compiler) is None:
        raise BackendMissingError(f"expected a C++ compiler, `{compiler}` is not in PATH", hint=hint)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "trial.cpp", Path(folder) / "trial.so"
        source.write_text(_TRIAL_SOURCE)
        done = _output([compiler, *_TRIAL_FLAGS, str(source), "-o", str(library)])
        if done.returncode:
            line = next(iter(done.stderr.strip().splitlines()), "")
            raise BackendMissingError(
                f"expected a C++ compiler, `{compiler}` failed: {line[:200]}", hint=hint
            )
        try:
            ctypes.CDLL(str(library)).trial()
        except OSError as error:
            raise BackendMissingError(f"what `{compiler}` makes does not load: {error}", hint=hint) from error
    return next(iter(_output([compiler, "--version"]).stdout.splitlines()), compiler)


def _output(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TRIAL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BackendMissingError(
            f"expected `{command[0]}` to compile a function, received a timeout after {_TRIAL_TIMEOUT_S:g} s"
        ) from None


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise _missing("torch", str(error)) from error


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise _missing(distribution, str(error)) from error


def _missing(distribution: str, reason: str) -> BackendMissingError:
    return BackendMissingError(
        f"expected the package `{distribution}`, which is not there ({reason})",
        hint="`pip install 'graphbox[train]'`",
    )


adapter = AotInductor()
