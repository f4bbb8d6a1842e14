"""The validation part measured in 2, 3 and 9 processes, beside one: the same bits, of all rows once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.graph import Graph
from graphbox.graph.ingest import import_graph
from graphbox.train import make_split, save_split
from tests.table.distributed_processes import Processes
from tests.train import test_click
from tests.train.divided_training import measured_log, measured_nodes, task_of

SIZES = [2, 3, 9]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes("tests.train.divided_training") as found:
        yield found


def job_of(graph: Graph, task: Any, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what a process is told of a model."""
    settings, path = task.model_dump(mode="json"), folder / "split.npz"
    save_split(make_split(graph, task_of(settings), 0), path)
    return {"graph": str(graph.path), "split": str(path), "config": config, "task": settings}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("log")
    import_graph(test_click.source_of(test_click.log_table()), folder / "graph")
    config = {"kind": "wide_and_deep", "dim": 4, "hidden": [16], "crosses": [["user", "item"]]}
    return job_of(Graph.open(folder / "graph"), test_click.TASK, config, folder)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, graph: Graph, classify_task: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "kind": "gnn",
        "dim": 8,
        "num_neighbors": [1000, 1000],
        "features": {"item": ["size", "kept"]},
        "embeddings": ["item", "tag", "group"],
        "dropout": 0.0,
    }
    return job_of(graph, classify_task, config, tmp_path_factory.mktemp("nodes"))


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_a_log_have_the_bits_of_one(
    size: int, log: dict[str, Any], processes: Processes, tmp_path: Path
) -> None:
    expected, _, alone = measured_log(log)
    assert sum(alone) == len(expected) > 80
    looked_up = processes.run("measures_log", size, tmp_path / "measured", model=log)
    for rank in range(size):
        found = np.load(tmp_path / "measured" / f"{rank}.npz")
        np.testing.assert_array_equal(found["found"], expected)
        assert not len(found["nothing"])
    assert sum(sum(each) for each in looked_up) == len(expected)  # each row once
    assert len({len(each) for each in looked_up}) == 1  # as often in all: tables are of all
    assert len(looked_up[0]) < 2 + len(alone) / size * 1.5


@pytest.mark.parametrize("size", SIZES)
def test_vectors_of_nodes_have_the_bits_of_one(
    size: int, nodes: dict[str, Any], processes: Processes, tmp_path: Path
) -> None:
    expected = measured_nodes(nodes)
    assert np.count_nonzero(expected["item"])
    processes.run("measures_nodes", size, tmp_path / "measured", model=nodes)
    for rank in range(size):
        found = np.load(tmp_path / "measured" / f"{rank}.npz")
        assert set(found) == set(expected)
        for name, each in expected.items():
            np.testing.assert_array_equal(found[name], each, err_msg=name)
