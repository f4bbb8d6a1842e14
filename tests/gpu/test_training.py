"""Every kind of model trains on a GPU, and ends as well as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

for name in ("pydantic", "pyarrow", "torch_geometric"):  # which an environment made for PyTorch lacks
    pytest.importorskip(name)

from graphbox.graph import Graph  # noqa: E402 - once it is there
from graphbox.train import load_outcome  # noqa: E402 - once it is there
from tests.train import test_network_features as features  # noqa: E402 - once it is there
from tests.train.test_device import CASES, CPU, arrays, graphs, train  # noqa: E402 - once it is there
from tests.train.test_network_features import graph  # noqa: E402 - once it is there

__all__ = ["graph", "graphs"]  # fixtures

pytestmark = pytest.mark.gpu

_WITH_DROPOUT = ("gnn", "dcn", "deepfm", "wide_and_deep", "din", "mmoe", "temporal")
"""Kinds with dropout: it is drawn on the GPU, and differs from the CPU's."""


def likeness(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the cosine of two arrays."""
    one, other = found.ravel().astype(np.float64), expected.ravel().astype(np.float64)
    return float(one @ other) / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12)


@pytest.mark.parametrize("case", CASES)
def test_ends_as_on_the_cpu(
    case: str, graphs: Callable[[str], Graph], tmp_path: Path, device: torch.device
) -> None:
    graph, place = graphs(CASES[case][0]), torch.device("cuda", torch.cuda.current_device())
    expected = arrays(train(graph, case, tmp_path / "cpu", CPU))
    found = arrays(train(graph, case, tmp_path / "gpu", place))
    assert load_outcome(tmp_path / "gpu", "model").devices[0].startswith(str(place))
    if case in ("gnn sampled", "gnn ranks", "sage"):
        assert load_outcome(tmp_path / "gpu", "model").places["sampling"] == str(place)
    assert set(found) == set(expected)
    for name, each in found.items():
        assert np.isfinite(each).all(), name
        if not case.startswith(_WITH_DROPOUT):
            assert likeness(each, expected[name]) > 0.99, name


@pytest.mark.parametrize("case", ["gnn sampled", "sage", "lightgcn", "complex", "dcn"])
def test_equal_runs_give_equal_bits(
    case: str, graphs: Callable[[str], Graph], tmp_path: Path, device: torch.device
) -> None:
    graph, place = graphs(CASES[case][0]), torch.device("cuda", torch.cuda.current_device())
    first, second = (arrays(train(graph, case, tmp_path / name, place)) for name in ("first", "second"))
    for name, each in first.items():
        np.testing.assert_array_equal(each, second[name], err_msg=name)


@pytest.mark.parametrize("task", features.TASKS)
def test_budgets_of_features_change_no_bit(
    task: str, graph: Graph, tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphbox.train.network.trainer._PASS_BATCHES", 2)
    monkeypatch.setattr("graphbox.sample.loader.device._PASS_BATCHES", 2)
    place = torch.device("cuda", torch.cuda.current_device())
    found = []
    for number, room in enumerate((None, 0, features.PART)):
        memory = features.budget(room)
        found.append(features.train(graph, task, tmp_path / str(number), memory, device=place))
    for each in found[1:]:
        features.assert_same(features.vectors_of(each), features.vectors_of(found[0]))
