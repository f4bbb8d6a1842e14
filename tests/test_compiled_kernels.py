"""That what compiles kernels finds what it should, and that every module of kernels is compiled by a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.compiled_kernels import entry_kernels

pytestmark = pytest.mark.gpu_kernel

ROOT = Path(__file__).parents[1]
_KERNEL = """
import triton
import triton.language as tl

@triton.jit
def _part(x, size):
    return {part}

@triton.jit
def _kernel(numbers, size, BLOCK: tl.constexpr):
    number = tl.arange(0, BLOCK)
    values = tl.load(numbers + number, mask=number < size, other=0)
    tl.store(numbers + number, _part(values, size), mask=number < size)
"""


def made_module(monkeypatch: pytest.MonkeyPatch, folder: Path, part: str) -> ModuleType:
    (folder / "made_gpu.py").write_text(_KERNEL.format(part=part))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delitem(sys.modules, "made_gpu", raising=False)
    return importlib.import_module("made_gpu")


@pytest.mark.races  # a number that all warps read and one writes
@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ("x + size", None),
        ("x + size.to(tl.int64)", "its integers 1"),  # 1 becomes a constant, which has no type
    ],
)
def test_what_the_compiler_refuses_fails(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    compiling: Callable[..., AbstractContextManager[None]],
    part: str,
    complaint: str | None,
) -> None:
    module: Any = made_module(monkeypatch, tmp_path, part)
    assert entry_kernels("made_gpu") == ["_kernel"]

    def launch() -> None:
        with compiling("made_gpu"):
            module._kernel[1,](torch.arange(8), 5, BLOCK=8, enable_fp_fusion=False)

    if complaint is None:
        launch()
        return
    with pytest.raises(AssertionError, match=complaint):
        launch()


def test_kernels_that_were_not_launched_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiling: Callable[..., AbstractContextManager[None]]
) -> None:
    made_module(monkeypatch, tmp_path, "x")
    with pytest.raises(AssertionError, match="never launched, so not compiled"), compiling("made_gpu"):
        pass


def test_every_module_of_kernels_is_compiled() -> None:
    tests = "".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
    modules = [path for path in (ROOT / "graphbox").rglob("*_gpu.py") if "@triton.jit" in path.read_text()]
    assert modules
    for path in modules:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if entry_kernels(name):
            assert f'"{name}"' in tests, f"no test compiles {name}: see the fixture `compiling`"
