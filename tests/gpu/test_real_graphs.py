"""Samples and walks of real graphs, where `--data` names their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.typed_graphs import TypedGraph, kernel
from graphbox.sample import DeviceGraph, random_walk, sample_heterogeneous, sample_neighbors
from tests.sample.device_sampling import Csc, Lists, assert_same, one_type

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def files_and_identifiers(pytestconfig: pytest.Config) -> TypedGraph:
    folder: Path | None = pytestconfig.getoption("--data")
    if folder is None:
        pytest.skip("no --data with kernel/graph.npz")
    return kernel(folder / "kernel" / "graph.npz")


@pytest.mark.parametrize("indices_in", ["device", "pinned"])
@pytest.mark.parametrize("replace", [False, True])
def test_samples(
    device: torch.device, files_and_identifiers: TypedGraph, indices_in: Any, replace: bool
) -> None:
    lists = {name: Csc(csc.indptr, csc.indices) for name, csc in files_and_identifiers.lists.items()}
    graph = Lists(files_and_identifiers.nodes, lists)
    seeds = {"file": np.random.default_rng(0).choice(files_and_identifiers.seeds, 2_000, replace=False)}
    expected = sample_heterogeneous(graph, seeds, [15, 10], replace=replace, seed=3)
    on_device = DeviceGraph(graph, device, indices_in=indices_in)
    assert_same(sample_heterogeneous(on_device, seeds, [15, 10], replace=replace, seed=3), expected, device)


@pytest.mark.parametrize("options", [{}, {"p": 0.5, "q": 2.0}])
def test_samples_and_walks_of_one_type(
    device: torch.device, files_and_identifiers: TypedGraph, options: dict[str, Any]
) -> None:
    merged = Csc(files_and_identifiers.merged.indptr, files_and_identifiers.merged.indices)
    graph = DeviceGraph(one_type(merged), device)
    start = np.random.default_rng(1).integers(0, len(merged.indptr) - 1, 20_000)
    assert_same(
        sample_neighbors(graph, start[:500], [10, 5]), sample_neighbors(merged, start[:500], [10, 5]), device
    )
    walks: Any = random_walk(graph, start, 40, seed=2, **options)
    np.testing.assert_array_equal(walks.cpu().numpy(), random_walk(merged, start, 40, seed=2, **options))
