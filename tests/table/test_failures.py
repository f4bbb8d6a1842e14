"""Failed operations leave nothing that later looks right: chains, tombstones, budgets, locks."""

from __future__ import annotations

import resource
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import ConflictError, DoesNotFitError, FormatError, GraphboxError
from graphbox.table import EmbeddingTable, Expiry, ShowClickScore, TableEmbedding

BUDGET = 16 << 20
DIM = 256


def filled(path: Path, rows: int = 12_000) -> EmbeddingTable:
    """A table with more rows than its memory has room for."""
    table = EmbeddingTable(DIM, path=path, memory_bytes=BUDGET)
    for begin in range(0, rows, 1000):
        table.pull(np.arange(begin, begin + 1000))
    assert table.tier_statistics().cold_rows > 0
    return table


def test_base_that_failed_begins_no_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The delta after it would lack what changed between the last base and the one that failed."""
    keys = np.arange(64)
    table = EmbeddingTable(4)
    table.pull(keys)
    table.save_base(tmp_path / "base")
    table.push([1], np.ones((1, 4), np.float32))
    table.memory_bytes = table.nbytes
    table.erase(keys)
    table.pull(keys)
    with pytest.raises(DoesNotFitError, match="erased"):
        table.save_delta(tmp_path / "delta")

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("graphbox.table.checkpoint_files.write_durably", failing)
        with pytest.raises(GraphboxError, match="Input/output"):
            table.save_base(tmp_path / "base")
    with pytest.raises(DoesNotFitError, match="erased"):
        table.save_delta(tmp_path / "delta")
    table.save_base(tmp_path / "base")
    table.save_delta(tmp_path / "delta")


def without_catalogue(path: Path) -> Path:
    """Make a folder without its catalogue, with a segment of erased keys; return the one written after it."""
    with filled(path) as table:
        table.erase(np.arange(3000))
        table.flush()
        table.push(np.arange(20_000, 20_100), np.ones((100, DIM), np.float32))
    shutil.rmtree(path / "catalogue")
    return max((path / "segments").iterdir())


def flip(segment: Path) -> None:
    """Change a key, or change it back."""
    content = bytearray(segment.read_bytes())
    content[4096] ^= 1
    segment.write_bytes(content)


def test_erased_keys_stay_erased_when_making_the_catalogue_anew_fails(tmp_path: Path) -> None:
    last = without_catalogue(tmp_path / "table")
    before = sorted(last.parent.iterdir())
    flip(last)
    with pytest.raises(FormatError):
        EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET)
    assert sorted(last.parent.iterdir()) == before
    flip(last)
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as table:
        assert table.recovery is not None
        assert table.recovery.catalogue_damage is not None
        assert not table.contains(np.arange(3000)).any()
        assert len(table) == 9100


def test_folder_can_be_opened_while_the_error_of_the_last_attempt_is_kept(tmp_path: Path) -> None:
    last = without_catalogue(tmp_path / "table")
    flip(last)
    with pytest.raises(FormatError) as kept:
        EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET)
    flip(last)
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as table:
        assert len(table) == 9100
    assert kept.value.where == str(last)


def test_close_ends_a_prefetch(tmp_path: Path) -> None:
    table = filled(tmp_path / "table")
    prefetches = [table.prefetch(np.arange(6000)), table.prefetch(np.arange(6000, 12_000))]
    table.close()
    assert all(prefetch.is_done for prefetch in prefetches)
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as again:
        assert len(again) == 12_000


def test_budget_of_a_table_on_ssd_can_be_lowered_and_raised(tmp_path: Path) -> None:
    with filled(tmp_path / "table") as table:
        expected = table.pull(np.arange(12_000), create=False)
        hot = table.tier_statistics().hot_rows
        table.memory_bytes = 13 << 20
        assert table.nbytes <= 13 << 20
        assert table.tier_statistics().hot_rows < hot
        np.testing.assert_array_equal(table.pull(np.arange(12_000), create=False), expected)
        with pytest.raises(DoesNotFitError):
            table.memory_bytes = 1 << 20
        assert table.memory_bytes == 13 << 20
        table.memory_bytes = 64 << 20
        np.testing.assert_array_equal(table.pull(np.arange(12_000)), expected)
        assert table.tier_statistics().cold_rows == 0


def test_rows_that_move_do_not_make_another_table(tmp_path: Path) -> None:
    """A state_dict refers to rows, not to where they are."""
    with filled(tmp_path / "table") as table:
        table.save(tmp_path / "checkpoint")
        module = TableEmbedding(table)
        state = module.state_dict()
        for begin in range(0, 12_000, 1000):
            module.table.pull(np.arange(begin, begin + 1000))
        assert module.state_dict() == state
        module.load_state_dict(state)
        table.erase([0])
        assert module.state_dict() != state


def test_more_segments_than_files_may_be_open(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(list(Path("/proc/self/fd").iterdir())) + 40
    with EmbeddingTable(DIM, path=tmp_path / "table", memory_bytes=BUDGET) as table:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
            for begin in range(0, 24_000, 1000):
                table.pull(np.arange(begin, begin + 1000))
            table.flush()
            assert table.tier_statistics().segments > 30
            assert table.contains(np.arange(24_000)).all()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_budget_that_was_enough_is_enough_to_open(tmp_path: Path) -> None:
    table = EmbeddingTable(1, path=tmp_path / "table", memory_bytes=BUDGET)
    with suppress(DoesNotFitError):
        for begin in range(0, 1 << 22, 10_000):
            table.pull(np.arange(begin, begin + 10_000))
    rows = len(table)
    assert 100_000 < rows < 1 << 22
    table.close()
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=BUDGET) as again:
        assert len(again) == rows
        assert again.nbytes <= BUDGET


def test_budget_that_was_enough_is_enough_without_the_catalogue(tmp_path: Path) -> None:
    """However many rows segments could have."""
    keys = np.arange(700)
    with EmbeddingTable(512, "adam", path=tmp_path / "table", memory_bytes=12 << 20) as table:
        for part in np.array_split(keys, 7):
            table.pull(part)
        rows = table.pull(keys, create=False)
    shutil.rmtree(tmp_path / "table" / "catalogue")
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=12 << 20) as again:
        np.testing.assert_array_equal(again.pull(keys, create=False), rows)


def test_checkpoints_of_short_rows_find_room_beside_ssd(tmp_path: Path) -> None:
    """However many rows are read from a checkpoint at a time."""
    table = EmbeddingTable(1, "sgd")
    table.pull(np.arange(300_000))
    table.save(tmp_path / "checkpoint")
    least = 1 << 20
    while True:
        try:
            EmbeddingTable(1, "sgd", path=tmp_path / str(least), memory_bytes=least).close()
            break
        except DoesNotFitError:
            least += 1 << 20
    budget = least + (8 << 20)  # for the index, while it grows
    folder = tmp_path / "table"
    with EmbeddingTable.load(tmp_path / "checkpoint", path=folder, memory_bytes=budget) as loaded:
        assert len(loaded) == 300_000
        keys = np.arange(0, 300_000, 97)
        np.testing.assert_array_equal(loaded.pull(keys, create=False), table.pull(keys))


def test_rows_that_are_dropped_make_another_table(tmp_path: Path) -> None:
    table = EmbeddingTable(2, "sgd", expiry=Expiry(passes=0))
    table.pull([1, 2])
    table.save(tmp_path / "checkpoint")
    module = TableEmbedding(table)
    state = module.state_dict()
    table.end_pass()
    assert table.shrink().dropped == 2
    table.pull([3, 4])
    assert len(table) == 2
    with pytest.warns(UserWarning, match="in no checkpoint"):
        TableEmbedding(EmbeddingTable(2, "sgd")).load_state_dict(module.state_dict())
    with pytest.raises(ConflictError):
        module.load_state_dict(state)


def test_scores_beyond_all_numbers_do_no_harm() -> None:
    table = EmbeddingTable(64, "sgd", score=ShowClickScore(), eviction="score", memory_bytes=4 << 20)
    keys = np.arange(1000)
    for _ in range(3):
        counts = np.full(1000, 3e38, np.float32)
        table.push(keys, np.zeros((1000, 64), np.float32), shows=counts, clicks=counts)
    for begin in range(1000, 60_000, 1000):
        table.pull(np.arange(begin, begin + 1000))
    assert table.policy_events.evicted_rows > 0
    assert table.nbytes <= 4 << 20
