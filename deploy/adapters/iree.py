"""IREE: models compiled to machine code ahead of time, for this processor or for 64-bit ARM.

The compiler's programs run in processes of their own, which keep its memory out of the server's.
"""

from __future__ import annotations

import functools
import queue
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import TensorSpec, inspect_onnx
from graphbox.deploy.adapters.processor import processor_features, processor_name
from graphbox.deploy.adapters.results import written
from graphbox.deploy.adapters.trial import TRIAL_MODEL, trial_failure
from graphbox.deploy.protocol import (
    API_VERSION,
    DTYPE_OF,
    Device,
    Effective,
    Feeds,
    Options,
    Package,
    Support,
)
from graphbox.errors import (
    BackendMissingError,
    FormatError,
    GraphboxError,
    InvalidRequestError,
    TimeLimitError,
    UnsupportedError,
)

_COMPILED = "model.vmfb"
_DRIVER = "local-sync"
_IMPORTER = "iree.compiler.tools.import_onnx"
_COMPILE_TIMEOUT_S = 600.0
_WRONG = frozenset({"MatMulInteger"})
"""Operators that IREE 3.13 compiles, and computes wrongly for one row."""
_OPTIONS = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")
_CROSS = "aarch64"
_PROCESSOR_OPTIONS = {
    "cpu": ("--iree-llvmcpu-target-cpu=host",),
    _CROSS: (
        "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
        "--iree-llvmcpu-target-cpu=neoverse-n1",
    ),
}


class IreeProgram:
    """A compiled module, opened once for each call that runs at a time; ``run`` is thread-safe."""

    def __init__(self, package: Package) -> None:
        folder = package.folder
        assert folder is not None  # noqa: S101 - this adapter builds ahead
        summary = inspect_onnx(package.model, "the model")
        self._path = folder / _COMPILED
        self._idle: queue.LifoQueue[_Opened] = queue.LifoQueue()
        self.inputs: Sequence[TensorSpec] = summary.input_tensors
        self.outputs: Sequence[TensorSpec] = summary.output_tensors
        self._idle.put(_Opened(self._path))
        self.effective: Effective = {
            "provider": f"{_DRIVER} of llvm-cpu",
            "device": package.device.name,
            "precision": summary.precision,  # the compiler keeps the types of the model
            "threads": 1,
            "fallback_nodes": [],  # all of it is compiled, or nothing
            "runtime": f"iree {_version('iree-base-runtime')}",
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.protocol.Program.run`."""
        try:
            opened = self._idle.get_nowait()
        except queue.Empty:
            opened = _Opened(self._path)
        try:
            values = opened.call([feeds[tensor.name] for tensor in self.inputs])
        except (RuntimeError, ValueError, IndexError) as error:  # IndexError: a size beyond a buffer
            raise InvalidRequestError(
                f"IREE refused the feeds: {' '.join(str(error).split())[:600]}"
            ) from error
        finally:
            self._idle.put(opened)
        given = {}
        for tensor, value in zip(self.outputs, values, strict=True):
            array = value.astype(DTYPE_OF[tensor.datatype], copy=False)
            given[tensor.name] = written(array, tensor.name, out)
        return given

    def close(self) -> None:
        """Drop the modules."""
        self._idle = queue.LifoQueue()


class _Opened:
    """A module with a state of its own, for one call at a time."""

    def __init__(self, path: Path) -> None:
        self._runtime: Any = _imported("iree.runtime")
        self._config = self._runtime.Config(_DRIVER)
        module = self._runtime.VmModule.mmap(self._config.vm_instance, str(path))
        context = self._runtime.SystemContext(vm_modules=[module], config=self._config)
        self._function: Any = context.modules[module.name][_function_of(module)]

    def call(self, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return the outputs, in order."""
        device = self._config.device
        given = [self._runtime.asdevicearray(device, np.ascontiguousarray(array)) for array in arrays]
        found = self._function(*given)
        values = found if isinstance(found, tuple | list) else [found]
        return [np.array(value.to_host()) for value in values]


class Iree:
    """Adapter for IREE's compiler; a package is the compiled module."""

    name = "iree"
    api = API_VERSION
    builds_ahead = True

    def probe(self) -> list[Device]:
        """Return the CPU, after compiling a model of one node and running it, and ARM to compile for."""
        details: dict[str, str] = {}
        try:
            details["runtime"] = f"iree {_version('iree-base-runtime')}"
            details["compiler"] = f"iree {_version('iree-base-compiler')}"
            reason = _trial()
        except GraphboxError as error:
            reason = error.message
        here = {"processor": processor_features(), **details}
        return [
            Device("cpu", "cpu", processor_name(), reason is None, reason, here),
            Device(
                _CROSS, "other", "files for 64-bit ARM Linux (Neoverse N1)", reason is None, reason, details
            ),
        ]

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether the compiler takes the model."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                self.build(model, device, Options(), Path(folder))
        except (UnsupportedError, FormatError) as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:  # noqa: ARG002 - one thread
        """Write the compiled module; see `graphbox.deploy.protocol.Adapter.build`."""
        _imported("iree.compiler")
        wrong = sorted(inspect_onnx(model, "the model").operators & _WRONG)
        if wrong:
            raise UnsupportedError(f"IREE computes {', '.join(wrong)} wrongly for one row")
        with tempfile.TemporaryDirectory() as scratch:
            source, intermediate = _imported_model(model, Path(scratch))
            _compile(intermediate, device.name, folder)
            here = folder
            if device.name == _CROSS:  # the compiler is the same, and its answers can be seen here
                here = Path(scratch)
                _compile(intermediate, "cpu", here)
            _check_answers(source, here)

    def load(self, package: Package) -> IreeProgram:
        """Return the module that was compiled; see `graphbox.deploy.protocol.Adapter.load`."""
        if package.device.name == _CROSS:
            raise UnsupportedError(
                "expected a device of this machine, received one that files are compiled for",
                where=f"target `iree/{_CROSS}`",
                hint="`graphbox targets build MODEL --target iree/aarch64 --out FOLDER` writes them",
            )
        try:
            return IreeProgram(package)
        except (RuntimeError, ValueError) as error:
            raise UnsupportedError(f"IREE cannot load the module: {error}") from error


@functools.cache
def _trial() -> str | None:
    """Return why a model cannot be compiled and run; None: it was. Once for each process: it takes a second.

    Raises:
        GraphboxError: the same, as an error.
    """
    device = Device("cpu", "cpu", processor_name(), available=True)
    with tempfile.TemporaryDirectory() as folder:
        _imported("iree.compiler")
        _compile(_imported_model(TRIAL_MODEL, Path(folder))[1], device.name, Path(folder))
        return trial_failure(adapter.load(Package(TRIAL_MODEL, device, Options(), Path(folder))))


def _imported_model(model: bytes, folder: Path) -> tuple[Path, Path]:
    """Write a model, and what the compiler reads of it, into a folder; return both files."""
    source, intermediate = folder / "model.onnx", folder / "model.mlir"
    source.write_bytes(model)
    _done([sys.executable, "-m", _IMPORTER, str(source), "-o", str(intermediate)])
    return source, intermediate


def _compile(intermediate: Path, device: str, folder: Path) -> None:
    """Write the module of an imported model into a folder."""
    compiler = [sys.executable, "-m", "iree.compiler.tools.scripts.iree_compile"]
    options = (*_OPTIONS, *_PROCESSOR_OPTIONS[device])
    _done([*compiler, str(intermediate), *options, "-o", str(folder / _COMPILED)])


def _check_answers(model: Path, folder: Path) -> None:
    """Compare the answers of a compiled module with ONNX Runtime's, in a process of its own.

    IREE 3.13 compiles some models with dimensions of any size wrongly, without a word: parts of an answer are
    what happens to be in memory, or the process ends.

    Raises:
        UnsupportedError: they differ.
    """
    command = [sys.executable, "-m", "graphbox.deploy.adapters.iree_answers", str(model), str(folder)]
    done = _ran(command)
    if done.returncode < 0:
        raise UnsupportedError(f"IREE compiles the model wrongly: it ends the process ({-done.returncode})")
    if done.returncode:
        raise UnsupportedError(f"IREE cannot run the model: {done.stderr.strip()[-600:]}")
    if done.stdout.strip():
        raise UnsupportedError(f"IREE computes {done.stdout.strip()} wrongly")


def _function_of(module: Any) -> str:
    """Return the name of the model's function; the others are of the compiler."""
    names = [name for name in module.function_names if not name.startswith("__") and "$" not in name]
    return str(next(name for name in names if not name.endswith("$async")))


def _done(command: list[str]) -> None:
    """Run a program of the compiler.

    Raises:
        UnsupportedError: it refuses the model.
        TimeLimitError: it does not end.
    """
    done = _ran(command)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[
            -1:
        ]
        raise UnsupportedError(f"IREE cannot compile the model: {' '.join(lines)[:600]}")


def _ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program.

    Raises:
        TimeLimitError: it does not end.
    """
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise TimeLimitError(
            f"expected IREE to compile the model, received a timeout after {_COMPILE_TIMEOUT_S:g} seconds"
        ) from None


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise BackendMissingError(
            f"expected the package `{name}`, which is not there ({error})",
            hint="`pip install 'graphbox[iree]'`",
        ) from error


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise BackendMissingError(
            f"expected the package `{distribution}`, which is not there",
            hint="`pip install 'graphbox[iree]'`",
        ) from error


adapter = Iree()
