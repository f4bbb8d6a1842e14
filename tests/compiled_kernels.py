"""Kernels that the interpreter runs, compiled for a GPU without one: it accepts more than the compiler does.

Launches are recorded while the interpreter runs them, then compiled down to machine code in a process without
the interpreter, with the specializations that launches on a device have: once as they were, and once with all
integers 1, of which Triton makes constants.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

__all__ = ["CompiledLaunch", "compiled_launches", "entry_kernels"]

_TARGET = ("cuda", 90, 32)  # H100 and H200
_COMPILE_TIMEOUT_S = 280
_POINTER_RANGE_BYTES = 1 << 40
_ACCESS = re.compile(r"(?:ld|st)\.global[.\w:]*|cp\.async\.\w+\.shared\.global \[[^]]*\], \[[^]]*\], \w+")
_ADDRESS = re.compile(r"\[[^]]*\]")


@dataclass(frozen=True)
class CompiledLaunch:
    """Compiled code of a launch.

    Attributes:
        kernel: its name.
        arguments: arguments of the launch, as JSON holds them.
        accesses: number of instructions that access the memory of the device, by kind and width.
    """

    kernel: str
    arguments: dict[str, Any] = field(repr=False)
    accesses: dict[str, int]


@contextmanager
def compiled_launches(*modules: str, cache: Path) -> Iterator[list[CompiledLaunch]]:
    """Compile what the block launches: all kernels of ``modules``, and whatever else; see after the block.

    Args:
        modules: names of ``*_gpu`` modules.
        cache: keeps what was compiled.

    Raises:
        AssertionError: the compiler refuses a kernel or warns, or a kernel was not launched.
    """
    launches: dict[str, dict[str, Any]] = {}
    compiled: list[CompiledLaunch] = []
    with _recorded(launches):
        yield compiled
    launched = {(each["module"], each["kernel"]) for each in launches.values()}
    missing = {(module, kernel) for module in modules for kernel in entry_kernels(module)} - launched
    assert not missing, f"never launched, so not compiled: {sorted(missing)}"
    compiled += _compile_all([*launches.values()], cache)


def entry_kernels(module: str) -> list[str]:
    """Return the kernels of a module: those of its private jit functions that no other one calls."""
    found = {
        name: ast.parse(textwrap.dedent(inspect.getsource(value.fn)))
        for name, value in vars(importlib.import_module(module)).items()
        if type(value).__name__ in ("InterpretedFunction", "JITFunction") and value.fn.__module__ == module
    }
    called = {
        node.func.id
        for tree in found.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return [name for name in found if name.startswith("_") and name not in called]


@contextmanager
def _recorded(launches: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Collect launches of the block, those whose arguments are of the same kinds once, as JSON holds them."""
    from triton.runtime import interpreter

    run = interpreter.GridExecutor.__call__

    def record(executor: Any, *args: Any, **kwargs: Any) -> Any:
        values = {**dict(zip(executor.arg_names, args, strict=False)), **kwargs}
        encoded = {name: _encoded(value) for name, value in values.items()}
        fixed = {
            name: type(value).__name__ if _is_number(executor, name, value) else value
            for name, value in encoded.items()
        }
        where = {"module": executor.fn.__module__, "kernel": executor.fn.__name__}
        launches.setdefault(json.dumps([where, fixed]), {**where, "arguments": encoded})
        return run(executor, *args, **kwargs)

    with patch.object(interpreter.GridExecutor, "__call__", record):
        yield


def _is_number(executor: Any, name: str, value: Any) -> bool:
    is_argument = name in executor.arg_names and name not in executor.constexprs
    return is_argument and isinstance(value, int | float)


def _encoded(value: Any) -> Any:
    if hasattr(value, "data_ptr"):
        return {"tensor": str(value.dtype).removeprefix("torch."), "aligned": value.data_ptr() % 16 == 0}
    if type(value).__name__ == "dtype":
        return {"dtype": value.name}
    return value


def _compile_all(launches: Sequence[dict[str, Any]], cache: Path) -> list[CompiledLaunch]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiled_kernels"],
        input=json.dumps(launches),
        env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=_COMPILE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        CompiledLaunch(launch["kernel"], launch["arguments"], accesses)
        for launch, accesses in zip(launches, found, strict=True)
    ]


# --- In the process that compiles ------------------------------------------------------------------------


@dataclass
class _Pointer:
    """Tensor stand-in with the members that a launch reads."""

    dtype: Any
    address: int

    def data_ptr(self) -> int:
        return self.address

    def ptr_range(self) -> int:
        return _POINTER_RANGE_BYTES


class _Driver:
    """Stands where the driver of a GPU would: compiling needs nothing of it but the target."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(*_TARGET)


def _decoded(value: Any) -> Any:
    import torch
    import triton.language as tl

    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return tl.dtype(value["dtype"])
    return _Pointer(getattr(torch, value["tensor"]), 0 if value["aligned"] else 8)


def _compile(launch: dict[str, Any], *, ones: bool) -> Counter[str]:
    """Compile a launch; return how often each kind of instruction reads or writes memory of the device."""
    kernel = getattr(importlib.import_module(launch["module"]), launch["kernel"])
    variable = {each.name for each in kernel.params if not each.is_constexpr}
    arguments = {
        name: 1 if ones and name in variable and type(value) is int else _decoded(value)
        for name, value in launch["arguments"].items()
    }
    compiled = kernel.warmup(grid=(1,), **arguments)
    return Counter(_ADDRESS.sub("[]", each) for each in _ACCESS.findall(compiled.asm["ptx"]))


def _main() -> int:
    import triton

    launches = json.load(sys.stdin)
    triton.runtime.driver.set_active(_Driver())
    warnings.simplefilter("error")
    failures = 0
    accesses = []
    for launch in launches:
        for ones in (True, False):
            try:
                found = _compile(launch, ones=ones)
            except Exception as error:  # noqa: BLE001 - whatever the compiler says
                failures += 1
                print(f"{launch}{', its integers 1' if ones else ''}:\n{type(error).__name__}: {error}")
                print(f"{error.__cause__ or ''}\n")
                break
        else:
            accesses.append(found)
    print(json.dumps(accesses))
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(_main())
