"""Modules that an import may and may not load, and the names under which the packages exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import graphbox

ROOT = Path(__file__).resolve().parents[2]


def modules_after(statement: str, cwd: Path = ROOT) -> set[str]:
    """Return the top-level and native modules a fresh interpreter holds after ``statement``."""
    program = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, check=True, capture_output=True, text=True, timeout=120
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("package", ["graphbox.deploy", "graphbox.server", "graphbox.artifact"])
def test_serving_loads_neither_torch_nor_the_native_core(package: str) -> None:
    loaded = modules_after(f"import {package}")
    assert not loaded & {"torch", "torch_geometric", "onnx", "sklearn", "graphbox._core", "graphbox.train"}


def test_the_served_application_loads_neither_torch_nor_the_native_core() -> None:
    loaded = modules_after("import graphbox.server.app, graphbox.deploy.select, graphbox.workspace")
    assert not loaded & {"torch", "torch_geometric", "onnx", "graphbox._core", "graphbox.train"}


@pytest.mark.parametrize("package", ["graphbox.sample", "graphbox.table"])
def test_samplers_and_tables_need_only_numpy_and_torch(package: str) -> None:
    loaded = modules_after(f"import {package}")
    assert not loaded & {"lmdb", "pydantic", "ruamel", "sqlalchemy", "fastapi", "pyarrow"}


def test_importing_graphbox_is_light() -> None:
    loaded = modules_after("import graphbox")
    assert not loaded & {"numpy", "torch", "pyarrow", "fastapi", "pydantic", "graphbox._core"}


@pytest.mark.parametrize("package", ["deploy", "compress", "server"])
def test_bare_names_are_refused(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {package}"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"import this package as `graphbox.{package}`" in done.stderr


def test_public_names_are_what_is_declared() -> None:
    assert set(graphbox.__all__) == {*graphbox._MODULE_OF, "__version__"}
    for name in graphbox.__all__:
        assert getattr(graphbox, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        graphbox.nothing  # noqa: B018 (the attribute access is the test)
