"""Policy counts, kept in steps: deltas and flushes write the changes, and no count is lost."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.errors import FormatError
from graphbox.table import CountAdmission, EmbeddingTable, Expiry
from graphbox.table.manifest import POLICIES, read_manifest

DIM = 8
SKETCH = 1 << 20
SKETCHES = [
    CountAdmission(3, sketch_bytes=SKETCH, halve_after=0),
    CountAdmission(3, sketch_bytes=4096, halve_after=700),
    CountAdmission(3),
    CountAdmission(3, halve_after=700),
]


def train(table: EmbeddingTable, seed: int, keys: int = 300) -> None:
    """Pull keys, some of them often, and forget some, with a row or without."""
    random = np.random.default_rng(seed)
    for _ in range(4):
        table.pull(random.zipf(1.3, keys) % 2000)
    table.erase(random.integers(0, 200, 20))
    table.end_pass()


def state_of(table: EmbeddingTable) -> bytes:
    state = table._current.take_state(True)
    assert state is not None
    return state


@pytest.mark.parametrize("admission", SKETCHES)
def test_a_chain_has_all_counts(tmp_path: Path, admission: CountAdmission) -> None:
    table = EmbeddingTable(DIM, admission=admission)
    train(table, 0)
    table.save_base(tmp_path / "base")
    deltas = []
    for step in range(1, 5):
        train(table, step)
        deltas.append(tmp_path / f"{step}")
        table.save_delta(deltas[-1])
        loaded = EmbeddingTable.load(tmp_path / "base", deltas=deltas)
        assert state_of(loaded) == state_of(table)
        assert np.array_equal(np.sort(loaded.keys()), np.sort(table.keys()))
        if step == 2:  # the chain goes on from the one that was loaded
            table = loaded


@pytest.mark.parametrize("admission", SKETCHES)
def test_a_lost_delta_loses_no_counts(
    tmp_path: Path, admission: CountAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = EmbeddingTable(DIM, admission=admission)
    train(table, 0)
    table.save_base(tmp_path / "base")
    train(table, 1)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("graphbox.table.checkpoint_files.write_durably", full_disk)
        with pytest.raises(Exception, match="No space left"):
            table.save_delta(tmp_path / "delta")
    train(table, 2)
    table.save_delta(tmp_path / "delta")
    loaded = EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"])
    assert state_of(loaded) == state_of(table)


def test_a_delta_is_as_small_as_what_was_counted(tmp_path: Path) -> None:
    table = EmbeddingTable(DIM, admission=SKETCHES[0])
    train(table, 0, keys=100_000)
    table.save_base(tmp_path / "base")
    train(table, 1, keys=500)
    table.save_delta(tmp_path / "delta")
    assert (tmp_path / "base" / POLICIES).stat().st_size > SKETCH
    assert (tmp_path / "delta" / POLICIES).stat().st_size < 0.02 * SKETCH


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    table = EmbeddingTable(DIM, admission=SKETCHES[1])
    train(table, 0)
    table.save_base(tmp_path / "base")
    path = tmp_path / "base" / POLICIES
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError) as caught:
        EmbeddingTable.load(tmp_path / "base")
    assert caught.value.where == str(path)


def flushed(path: Path, steps: int, **settings: object) -> tuple[bytes, float]:
    """Make a table on SSD and flush it some times; return its state and learning rate at the end."""
    with EmbeddingTable(
        DIM,
        path=path,
        memory_bytes=48 << 20,
        admission=CountAdmission(2, sketch_bytes=SKETCH),
        expiry=Expiry(passes=100),
        **settings,  # type: ignore[arg-type]
    ) as table:
        for step in range(steps):
            train(table, step)
            table.lr = 0.5 / (step + 1)
            table.flush()
        return state_of(table), table.lr


def test_flushes_write_what_was_counted(tmp_path: Path) -> None:
    state, lr = flushed(tmp_path / "table", 6)
    files = sorted((tmp_path / "table" / "state").iterdir())
    sizes = [file.stat().st_size for file in files]
    assert sizes[0] > SKETCH
    assert len(sizes) == 7  # one of them of the empty table
    assert max(sizes[1:]) < 0.02 * SKETCH
    for _ in range(2):
        with EmbeddingTable.open(tmp_path / "table", memory_bytes=48 << 20) as table:
            assert (state_of(table), table.lr) == (state, lr)


@pytest.mark.parametrize("admission", SKETCHES[:2])
def test_a_folder_that_was_loaded_has_all_counts(tmp_path: Path, admission: CountAdmission) -> None:
    """Its records began with the empty table that the checkpoint was loaded into."""
    table = EmbeddingTable(DIM, admission=admission)
    train(table, 0)
    table.save_base(tmp_path / "base")
    train(table, 1)
    table.save_delta(tmp_path / "delta")
    loaded = EmbeddingTable.load(
        tmp_path / "base", deltas=[tmp_path / "delta"], path=tmp_path / "rows", memory_bytes=16 << 20
    )
    for step in range(2, 5):  # the first time, nothing was counted since
        loaded.close()
        loaded = EmbeddingTable.open(tmp_path / "rows", memory_bytes=16 << 20)
        assert state_of(loaded) == state_of(table)
        for each in (loaded, table):
            train(each, step)
    loaded.close()


def test_a_lost_catalogue_loses_no_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, lr = flushed(tmp_path / "table", 4)
    shutil.rmtree(tmp_path / "table" / "catalogue")
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=48 << 20) as table:
        assert table.recovery is not None
        assert table.recovery.catalogue_damage
        assert table.recovery.state_damage is None
        assert (state_of(table), table.lr, table.passes) == (state, lr, 4)
        rows = len(table)
    records = sorted((tmp_path / "table" / "state").iterdir())
    content = bytearray(records[-1].read_bytes())
    content[-1] ^= 1
    records[-1].write_bytes(content)
    with EmbeddingTable.open(tmp_path / "table", memory_bytes=48 << 20) as table:
        assert table.recovery is not None
        assert table.recovery.catalogue_damage is None
        assert "another checksum" in str(table.recovery.state_damage)
        assert str(table.recovery.state_damage) in caplog.text
        assert (len(table), table.passes) == (rows, 0)
        assert table.policies.admission == CountAdmission(2, sketch_bytes=SKETCH)


def test_many_flushes_keep_few_files_of_erased_keys(tmp_path: Path) -> None:
    path = tmp_path / "table"
    with EmbeddingTable(DIM, path=path, memory_bytes=48 << 20) as table:
        table.push(np.arange(4000), np.ones((4000, DIM), np.float32))
        table.flush()
        for step in range(30):
            table.erase(np.arange(step * 10, step * 10 + 5))
            table.push([step * 10], np.ones((1, DIM), np.float32))
            table.flush()
            assert len(list((path / "segments").iterdir())) <= 80
        kept = np.sort(table.keys())
    from graphbox import _core

    erased = [file for file in (path / "segments").iterdir() if _core.segment_header(str(file))[1]]
    assert len(erased) <= 9
    shutil.rmtree(path / "catalogue")
    with EmbeddingTable.open(path, memory_bytes=48 << 20) as table:
        assert np.array_equal(np.sort(table.keys()), kept)


def test_rows_that_come_and_go_take_no_more_notes(tmp_path: Path) -> None:
    budget = 8 << 20
    table = EmbeddingTable(DIM, memory_bytes=budget, eviction="clock")
    table.pull(np.arange(60_000))
    assert table.policy_events.evicted_rows == 0 or table.nbytes <= budget
    table.save_base(tmp_path / "base")
    deltas = []
    for step in range(3):
        for begin in range(0, 60_000, 5000):
            table.pull(np.arange(begin, begin + 5000) % 1000 + step * 1000 + 100_000 * (begin // 10_000 + 1))
            assert table.nbytes <= budget
        deltas.append(tmp_path / f"{step}")
        table.save_delta(deltas[-1])
        assert len(read_manifest(deltas[-1]).parts) >= 1
    loaded = EmbeddingTable.load(tmp_path / "base", deltas=deltas)
    assert np.array_equal(np.sort(loaded.keys()), np.sort(table.keys()))


def test_following_what_changes_stays_in_the_budget(tmp_path: Path) -> None:
    """Flushes, bases and loads of chains begin to, each with a bit for each byte of the sketch."""
    budget = 20 << 20
    settings: dict[str, Any] = {"admission": CountAdmission(1, sketch_bytes=4 << 20), "memory_bytes": budget}
    with EmbeddingTable(512, path=tmp_path / "rows", **settings) as table:
        for keys in np.split(np.arange(12_000), 30):
            table.pull(keys)
        for step in (partial(table.save_base, tmp_path / "base"), table.flush):
            step()
            assert table.nbytes <= budget
        table.pull(np.arange(400))
        table.save_delta(tmp_path / "delta")
        assert table.nbytes <= budget
    chain: dict[str, Any] = {
        "deltas": [tmp_path / "delta"],
        "path": tmp_path / "loaded",
        "memory_bytes": budget,
    }
    with EmbeddingTable.load(tmp_path / "base", **chain) as loaded:
        assert loaded.nbytes <= budget
