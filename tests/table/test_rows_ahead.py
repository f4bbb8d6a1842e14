"""Rows that are read ahead of their batches, by themselves and for loaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import DoesNotFitError, UsageError
from graphbox.graph import Graph
from graphbox.native import Int64Array
from graphbox.sample import NeighborLoader
from graphbox.table import EmbeddingTable, RowsAhead

DIM, KEYS, BUDGET = 256, 40_000, 32 << 20
"""Of the rows about a third has room in memory."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table whose rows are all on SSD."""
    path = tmp_path_factory.mktemp("ahead") / "table"
    with EmbeddingTable(DIM, seed=1, path=path, memory_bytes=BUDGET) as table:
        for keys in np.array_split(np.random.default_rng(0).permutation(KEYS), 20):
            table.pull(keys)
    return path


@pytest.fixture
def table(folder: Path) -> Iterator[EmbeddingTable]:
    with EmbeddingTable.open(folder, memory_bytes=BUDGET) as opened:
        yield opened


def drawn(batches: int, size: int, seed: int = 0) -> list[dict[str, Int64Array]]:
    generator = np.random.default_rng(seed)
    return [{"a": generator.integers(0, KEYS, size), "b": np.arange(3)} for _ in range(batches)]


def test_rows_are_there_when_their_batch_comes(table: EmbeddingTable) -> None:
    passes = [drawn(20, 300, 1), [], drawn(1, 300, 2), drawn(30, 300, 3)]
    count = 0
    ahead = RowsAhead({"a": table, "b": EmbeddingTable(4), "c": table})
    assert ahead.is_needed
    rows = ahead.over(iter(passes))
    for batches in passes:
        for keys in batches:
            next(rows)
            table.pull(keys["a"])
            count += 1
    assert next(rows, "end") == "end"
    assert count == 51
    statistics = table.tier_statistics()
    assert (statistics.hits, statistics.misses) == (51 * 300, 0)


def test_windows_leave_room_for_two(table: EmbeddingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    prefetch = EmbeddingTable.prefetch

    def counted(self: EmbeddingTable, keys: Int64Array) -> object:
        assert (np.diff(keys) > 0).all()
        sizes.append(len(keys))
        return prefetch(self, keys)

    monkeypatch.setattr(EmbeddingTable, "prefetch", counted)
    room = table.tier_statistics().room_rows
    list(RowsAhead({"a": table}).over([drawn(40, room // 8)]))
    assert sizes[0] < sizes[1] < sizes[2], "windows grow from one batch"
    assert max(sizes) <= 0.4 * room
    assert sizes[2] > 0.25 * room
    one_too_large = [{"a": np.arange(room * 2 % KEYS)}] * 2
    assert len(list(RowsAhead({"a": table}).over([one_too_large]))) == 2


def test_tables_in_memory_are_left_alone() -> None:
    assert not RowsAhead({"a": EmbeddingTable(4)}).is_needed


def test_closing_ends_the_reading(table: EmbeddingTable) -> None:
    ahead = RowsAhead({"a": table})
    rows = ahead.over([drawn(20, 2000)])
    next(rows)
    rows.close()
    table.flush()
    table.close()
    with pytest.raises(UsageError, match="the table is closed"):
        next(ahead.over([drawn(1, 10)]))


def test_reserve(tmp_path: Path) -> None:
    with EmbeddingTable(DIM, path=tmp_path / "t", memory_bytes=BUDGET) as table:
        before = table.tier_statistics().room_rows
        table.reserve(200_000)
        assert table.tier_statistics().room_rows < before
        with pytest.raises(DoesNotFitError, match="the index of 100000000 keys"):
            table.reserve(100_000_000)
    EmbeddingTable(4).reserve(10)
    with pytest.raises(UsageError, match="rows: expected an integer from 0"):
        EmbeddingTable(4).reserve(-1)


@pytest.mark.parametrize("tiered", [False, True])
@pytest.mark.parametrize("pass_batches", [None, 1, 3])
def test_loaders_read_rows_ahead(
    tiered: bool, pass_batches: int | None, table: EmbeddingTable, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    source, target = generator.integers(0, KEYS, (2, 4 * KEYS))
    graph = Graph.from_coo(source, target, num_nodes=KEYS)
    if tiered:
        graph.save(tmp_path / "graph")
    whole = Graph.open(tmp_path / "graph") if tiered else graph
    read = whole.tiered(topology_bytes=100_000, feature_bytes=0) if tiered else whole
    common = {"batch_size": 64, "shuffle": True, "output": "numpy", "features": (), "seed": 3}
    seeds = np.arange(1500)
    loader = NeighborLoader(
        read,
        [3, 2],
        seeds,
        pass_batches=pass_batches,
        tables={"node": table},
        **common,  # type: ignore[arg-type]
    )
    expected = NeighborLoader(whole, [3, 2], seeds, **common)  # type: ignore[arg-type]
    for _ in range(2):
        for batch, other in zip(loader, expected, strict=True):
            for name in ("nodes", "row", "col"):
                for key, values in getattr(other.sample, name).items():
                    np.testing.assert_array_equal(getattr(batch.sample, name)[key], values)
            table.pull(batch.sample.nodes["node"])
    statistics = table.tier_statistics()
    # Batches are made ahead of the loop: of the last ones of a window some rows may have left when it comes.
    assert statistics.misses < 0.05 * statistics.hits
    loader.load_state_dict({**loader.state_dict(), "epoch": 5, "batch": 20})
    iterator = iter(loader)
    assert next(iterator).number == 20
    iterator.close()
