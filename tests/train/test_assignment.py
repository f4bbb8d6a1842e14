"""Every kind of model has a trainer."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from graphbox.config import DeepWalkConfig, LineConfig, model_kinds
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.train import Assignment
from graphbox.train.assignment import make_streaming_trainer, make_trainer
from graphbox.train.import_path import import_by_path
from graphbox.train.view import GraphView

STREAMING = {
    *("dcn", "deepfm", "din", "mmoe", "wide_and_deep", "deepwalk", "matrix_factorization", "node2vec"),
    "temporal",
}


def test_each_kind_has_trainers() -> None:
    for name, kind in model_kinds().items():
        assert callable(kind.trainer())
        assert kind.streams == callable(kind.streaming_trainer()) == (name in STREAMING)
        for library in kind.libraries:
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


@pytest.mark.parametrize(
    "path", ["own_models", ":Own", ".own_models:Own", "own_models:", "own_models:Own:again"]
)
def test_what_is_no_import_path(path: str) -> None:
    with pytest.raises(UsageError, match="expected an import path"):
        import_by_path(path, "models.mine.model")


def test_trainers_are_imported_when_they_are_needed() -> None:
    program = (
        "import sys, graphbox.train.assignment; sys.exit('graphbox.train.network.classify' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
