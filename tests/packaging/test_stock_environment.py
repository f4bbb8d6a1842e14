"""Samplers, tables, kernels and their tests import where only PyTorch, Triton and NumPy are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Hides every installed package that is not of these, nor needed by one.
STOCK = ["torch", "triton", "numpy", "nanobind", "scikit-build-core", "cmake", "ninja", "pytest"]
HIDE_OTHERS = f"""
import importlib.metadata, re, sys

there, wanted = set(), {STOCK}
while wanted:
    name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
    if name in there:
        continue
    there.add(name)
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        continue
    for requirement in requirements:
        if "extra ==" not in requirement:
            wanted.append(re.match(r"[\\w.-]+", requirement)[0])
there.add("graphbox")
hidden = {{
    module for module, names in importlib.metadata.packages_distributions().items()
    if not there & {{re.sub(r"[-_.]+", "-", name).lower() for name in names}}
}} - set(sys.stdlib_module_names)
assert {{"lmdb", "pydantic", "ruamel", "pyarrow", "safetensors", "sqlalchemy", "scipy"}} <= hidden
assert not {{"torch", "triton", "numpy", "pytest", "sympy"}} & hidden

class Hiding:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def stock_python(code: str) -> str:
    """Run code; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", HIDE_OTHERS + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=250,
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_samplers_and_tables_import_without_torch() -> None:
    code = """
import graphbox.sample, graphbox.table, graphbox.device, graphbox.bandwidth
print([name for name in ("torch", "triton") if name in sys.modules])
"""
    assert stock_python(code) == "[]\n"


def test_kernels_and_their_benchmarks_import() -> None:
    paths = [ROOT / "graphbox" / "bandwidth_gpu.py", *(ROOT / "benchmarks").glob("gpu*.py")]
    for layer in ("sample", "table"):
        for pattern in ("*_gpu.py", "*device*.py"):
            paths += (ROOT / "graphbox" / layer).rglob(pattern)
    modules = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    assert {"graphbox.sample.neighbor_gpu", "graphbox.sample.device", "benchmarks.gpu_measure"} <= {*modules}
    stock_python(f"import importlib\nfor name in {modules}: importlib.import_module(name)\n")


def test_tests_of_a_gpu_are_collected() -> None:
    interpreted = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*_gpu.py"))]
    assert interpreted
    arguments = ["tests/gpu", *interpreted, "--collect-only", "-q", "-p", "no:cacheprovider"]
    assert "tests collected" in stock_python(f"import pytest\nsys.exit(pytest.main({arguments}))")
