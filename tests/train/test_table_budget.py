"""Tests of the least budget of tables: with it a training begins, with less it is refused before it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.config import DeepWalkConfig, MemoryConfig
from graphbox.errors import DoesNotFitError
from graphbox.graph import Graph
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Optimizer
from graphbox.table.host_table import host_table
from graphbox.table.least_budget import least_budget_bytes
from graphbox.train import fit
from graphbox.train.memory import TrainingMemory
from graphbox.train.plan.footprint import TableRows
from graphbox.train.plan.table_budget import least_budget


@pytest.mark.parametrize("rows", [3_000, 400_000])
@pytest.mark.parametrize(("dim", "optimizer"), [(8, "adagrad"), (64, "rowwise_adagrad"), (100, "adam")])
def test_a_table_has_room_with_its_least_budget_and_none_with_less(
    tmp_path: Path, rows: int, dim: int, optimizer: Optimizer
) -> None:
    batch_rows = 2_000
    least = least_budget_bytes(dim, optimizer, rows, batch_rows)
    table = EmbeddingTable(dim, optimizer, 0.1, path=tmp_path / "enough", memory_bytes=least)
    table.reserve(rows)
    for first in range(0, rows, batch_rows):
        table.pull(np.arange(first, min(first + batch_rows, rows)))
    assert table.nbytes <= least
    table.close()
    index_alone = least_budget_bytes(dim, optimizer, rows, 0)
    with pytest.raises(DoesNotFitError):
        EmbeddingTable(
            dim, optimizer, 0.1, path=tmp_path / "less", memory_bytes=round(0.9 * index_alone)
        ).reserve(rows)


@pytest.mark.parametrize(
    "rows", [{"a": 400_000}, {"a": 400_000, "b": 1_000}, {"a": 50, "b": 60, "c": 20}, {"a": 300_000, "b": 0}]
)
def test_tables_share_their_least_budget(tmp_path: Path, rows: dict[str, int]) -> None:
    tables = [TableRows(count, 16, "rowwise_adagrad", 1_000.0) for count in rows.values()]
    least = least_budget(tables, with_batches=True)
    options: dict[str, Any] = {"seeds": dict.fromkeys(rows, 0)}
    memory = TrainingMemory(MemoryConfig(tables=least), tmp_path / "enough")
    for name, table in memory.new_tables(rows, 16, "rowwise_adagrad", 0.1, **options).items():
        table.pull(np.arange(min(1_000, rows[name])))
        host_table(table, "closing it").close()
    less = round(0.9 * least_budget(tables, with_batches=False))
    with pytest.raises(DoesNotFitError, match="expected a budget with room for the table"):
        TrainingMemory(MemoryConfig(tables=less), tmp_path / "less").new_tables(
            rows, 16, "rowwise_adagrad", 0.1, **options
        )


def test_nodes_without_edges_take_no_place_in_the_index_of_walks(tmp_path: Path) -> None:
    joined, isolated = np.arange(50), 1_000_000
    graph = Graph.from_coo(joined, np.roll(joined, 1), num_nodes=50 + isolated)
    budget = 2 * least_budget_bytes(8, "rowwise_adagrad", 2_000, 2_000)
    assert budget < 2 * least_budget_bytes(8, "rowwise_adagrad", 50 + isolated, 0)
    settings = {"kind": "deepwalk", "dim": 8, "epochs": 1, "walks_per_node": 1, "walk_length": 4, "window": 2}
    model = fit(
        graph,
        None,
        name="walks",
        config=DeepWalkConfig.model_validate(settings),
        task=None,
        run_folder=tmp_path,
        seed=0,
        memory=MemoryConfig(tables=budget),
    )
    assert model.embeddings["node"].shape == (50 + isolated, 8)
