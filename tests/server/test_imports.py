"""Modules that importing the server loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The C++ core and everything of training have no place in a serving image.
ABSENT = (
    "torch",
    "torch_geometric",
    "graphbox._core",
    "graphbox.train",
    "graphbox.models",
    "graphbox.sample",
)


@pytest.mark.parametrize("module", ["graphbox.server", "graphbox.server.app", "graphbox.server.process"])
def test_no_torch(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert module in loaded
    assert [name for name in ABSENT if name in loaded] == []


def test_the_package_alone_loads_nothing_heavy() -> None:
    code = "import sys, graphbox.server; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in ("numpy", "fastapi", "uvloop", "onnxruntime", "pyarrow") if name in loaded] == []


def test_public_names() -> None:
    import graphbox.server

    assert graphbox.server.__all__ == ["Settings", "create_app", "serve"]
    for name in graphbox.server.__all__:
        assert getattr(graphbox.server, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = graphbox.server.absent
