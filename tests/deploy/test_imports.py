"""Serving needs nothing of training."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import sys
import graphbox.artifact, graphbox.deploy, graphbox.deploy.bench, graphbox.deploy.conformance
from graphbox.deploy import open_model, targets
targets()
loaded = {name.partition(".")[0] for name in sys.modules} & {"torch", "torch_geometric", "onnx", "onnxscript"}
own = ("graphbox._core", "graphbox.graph", "graphbox.models", "graphbox.train")
loaded |= {name for name in sys.modules if name.startswith(own)}
print(sorted(loaded))
"""

OPENED = """
import sys
from graphbox.deploy import open_encoder
with open_encoder("tests/formats/artifact-1/embedding/1") as model:
    model.neighbors([model.id_index()[0]], 1)
own = ("graphbox.graph", "graphbox.models", "graphbox.native", "graphbox.table", "graphbox.train")
loaded = {name for name in sys.modules if name.startswith(own)} | ({"torch"} & set(sys.modules))
print("graphbox._core" in sys.modules, sorted(loaded))
"""

BARE = """
import sys
import graphbox.deploy
print("onnxruntime" in sys.modules)
"""


def _output(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()


def test_deploy_loads_neither_torch_nor_the_native_core() -> None:
    assert _output(CHECK) == "[]"


def test_opening_rows_loads_the_native_core_alone() -> None:
    assert _output(OPENED) == "True []"


def test_the_runtime_is_loaded_when_it_is_needed() -> None:
    assert _output(BARE) == "False"
