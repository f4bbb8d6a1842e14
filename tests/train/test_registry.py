"""Every kind of model has a trainer, and a user's own plugs in by its import path."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from graphbox.config import CustomConfig, DeepWalkConfig, LineConfig, model_kinds
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.train import Assignment, Trainer
from graphbox.train.registry import make_streaming_trainer, make_trainer
from graphbox.train.view import GraphView

OWN = """
from graphbox.train import Trainer

class Own(Trainer):
    epochs = 1
    def __init__(self, config, assignment):
        self.rate = config.options["rate"]
        self.nodes = assignment.view.num_nodes("item")
    def begin_epoch(self, epoch): return 1
    def train_batch(self, epoch, batch): return 0.0, 1
    def dense(self): return {}
    def tables(self): return {}
    def restore(self, dense, tables): pass
    def trained(self, name, view): raise NotImplementedError

def none(config, assignment): return 7
"""


STREAMING = {
    *("dcn", "deepfm", "wide_and_deep", "custom", "deepwalk", "matrix_factorization", "node2vec"),
    "temporal",
}


def test_each_kind_has_trainers() -> None:
    for name, kind in model_kinds().items():
        assert callable(kind.trainer())
        assert callable(kind.streaming_trainer()) == (name in STREAMING)
        for library in kind.LIBRARIES:
            assert find_spec(library) is not None


def test_a_kind_that_learns_from_no_stream(graph: Graph) -> None:
    assignment = Assignment("mine", GraphView(graph, None), None, None, 0, 1)
    with pytest.raises(UsageError, match="received `line`, which learns from a whole graph") as caught:
        make_streaming_trainer(LineConfig(kind="line"), assignment)
    assert caught.value.where == "models.mine.kind"
    assert caught.value.hint == f"these do: {', '.join(sorted(STREAMING))}"


def test_a_kind_that_makes_no_trainer(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(model_kinds()["deepwalk"]), "trainer", lambda kind: lambda *_: 7)
    with pytest.raises(UsageError, match=r"expected the kind deepwalk to make a .*Trainer, received int"):
        make_trainer(
            DeepWalkConfig(kind="deepwalk"), Assignment("mine", GraphView(graph, None), None, None, 0, 1)
        )


def make(graph: Graph, trainer: str) -> Trainer:
    config = CustomConfig(kind="custom", trainer=trainer, options={"rate": 0.5})
    return make_trainer(config, Assignment("mine", GraphView(graph, None), None, None, 0, 1))


def test_own_trainer(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = make(graph, "own_models:Own")
    assert (made.rate, made.nodes) == (0.5, graph.num_nodes("item"))  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="Trainer, received int"):
        make(graph, "own_models:none")
    with pytest.raises(UsageError, match="class or function `Absent` in own_models"):
        make(graph, "own_models:Absent")
    with pytest.raises(UsageError, match="there is no module `not_there`"):
        make(graph, "not_there:Absent")
    for path in ("own_models", ":Own", ".own_models:Own", "own_models:", "own_models:Own:again"):
        with pytest.raises(UsageError, match="expected an import path"):
            make(graph, path)


def test_trainers_are_imported_when_they_are_needed() -> None:
    program = (
        "import sys, graphbox.train.registry; sys.exit('graphbox.train.network.classify' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
