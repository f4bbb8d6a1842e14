"""Checkpoints of tables: whole or not there, going on bit by bit, into shards, and every damage named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from graphbox.errors import ConflictError, DoesNotFitError, FormatError, NotFoundError, UsageError
from graphbox.table import EmbeddingTable, shard_of
from graphbox.table.arguments import DType, Optimizer, is_used
from graphbox.table.document import document_text
from tests.table import format_files

Float32 = np.float32
INT64 = np.iinfo(np.int64)


def train(table: EmbeddingTable, seed: int, steps: int = 3) -> None:
    """Push and erase keys that follow from the seed."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        keys = random.integers(-300, 300, 400)
        table.push(keys, random.normal(size=(400, table.dim)).astype(Float32))
        table.erase(random.integers(-300, 300, 20))


def assert_same(one: EmbeddingTable, other: EmbeddingTable) -> None:
    """Check that two tables have the same keys and the same bits, now and after more steps."""
    for seed in (None, 77):
        if seed is not None:
            train(one, seed)
            train(other, seed)
        assert np.array_equal(np.sort(one.keys()), np.sort(other.keys()))
        keys = np.append(one.keys(), [10**9, INT64.min, INT64.max])
        assert np.array_equal(one.pull(keys, create=False), other.pull(keys, create=False))


@pytest.mark.parametrize("optimizer", get_args(Optimizer))
@pytest.mark.parametrize("dtype", get_args(DType))
def test_a_loaded_table_goes_on_bit_by_bit(tmp_path: Path, optimizer: Optimizer, dtype: DType) -> None:
    table = EmbeddingTable(7, optimizer, lr=0.1, dtype=dtype, seed=2**64 - 1)
    train(table, 1)
    table.push([INT64.min, INT64.max, 0, -1], np.ones((4, 7), Float32))
    table.save(tmp_path / "table")
    assert_same(EmbeddingTable.load(tmp_path / "table", threads=2), table)


def test_settings_are_saved(tmp_path: Path) -> None:
    own = {
        "eps": 0.1,
        "initial_accumulator": 0.2,
        "betas": (0.7, 0.8),
        "beta": 0.3,
        "l1": 0.01,
        "l2": 0.02,
    }
    for optimizer in get_args(Optimizer):
        used: dict[str, Any] = {name: value for name, value in own.items() if is_used(name, optimizer)}
        table = EmbeddingTable(
            5,
            optimizer,
            **used,
            lr=0.3,
            init_scale=0.7,
            weight_decay=0.1,
            decoupled_weight_decay=optimizer != "ftrl",
            bounds=(-0.9, 0.8),
            mean_gradient=True,
            clip_norm=2.0,
            clip_value=1.5,
            nonfinite="skip",
            seed=2**63,
            memory_bytes=1 << 30,
        )
        table.lr = 0.4
        table.save(tmp_path / "table")
        loaded = EmbeddingTable.load(tmp_path / "table")
        assert (loaded.dim, loaded.optimizer, loaded.lr, loaded.seed) == (5, optimizer, table.lr, 2**63)
        assert loaded.memory_bytes is None
        grads = np.random.default_rng(0).normal(size=(20, 3, 5)).astype(Float32)
        grads[3, 1, 2] = np.nan
        for one in (table, loaded):
            for gradient in grads:
                one.push([9, 9, 3], gradient)
        np.testing.assert_array_equal(table.pull([9, 3]), loaded.pull([9, 3]))


def test_equal_tables_become_equal_files(tmp_path: Path) -> None:
    for threads in (1, 3):
        table = EmbeddingTable(9, threads=threads, memory_bytes=None if threads == 1 else 1 << 28)
        train(table, 4)
        table.save(tmp_path / str(threads))
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "3" / path.name).read_bytes()


def test_an_empty_table(tmp_path: Path) -> None:
    EmbeddingTable(3).save(tmp_path / "table")
    assert len(EmbeddingTable.load(tmp_path / "table")) == 0


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_have_each_key_once(tmp_path: Path, shards: int) -> None:
    table = EmbeddingTable(4)
    keys = np.random.default_rng(0).integers(INT64.min, INT64.max, 3000)
    table.push(keys, np.ones((3000, 4), Float32))
    table.save_base(tmp_path / "base")
    table.push(keys[:100], np.ones((100, 4), Float32))
    table.erase(keys[50:60])
    table.save_delta(tmp_path / "delta")
    whole = EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"])
    assert_same(whole, table)
    whole = EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"])
    parts = [
        EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"], shard=(number, shards))
        for number in range(shards)
    ]
    assert sum(len(part) for part in parts) == len(whole)
    for number, part in enumerate(parts):
        mine = whole.keys()[shard_of(whole.keys(), shards) == number]
        assert np.array_equal(np.sort(mine), np.sort(part.keys()))
        assert np.array_equal(part.pull(mine), whole.pull(mine))


def test_shards_are_the_same_for_ever() -> None:
    def mixed(key: int) -> int:
        value = (key + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    keys = [0, -1, 1, 2, INT64.min, INT64.max, 12345]
    assert shard_of(keys, 7).tolist() == [mixed(key) * 7 >> 64 for key in keys]
    assert np.bincount(shard_of(np.arange(3000), 3)).min() > 900
    with pytest.raises(UsageError, match="shards"):
        shard_of(keys, 0)


def test_files_of_version_1() -> None:
    table = EmbeddingTable.load(format_files.FOLDER / "base")
    assert (table.dim, table.optimizer, table.seed, len(table)) == (3, "adagrad", 7, 5)
    assert table.keys().tolist() == format_files.KEYS.tolist()
    expected = format_files.make()
    assert_same(table, expected)
    expected = format_files.make()
    format_files.change(expected)
    assert_same(
        EmbeddingTable.load(format_files.FOLDER / "base", deltas=[format_files.FOLDER / "delta"]), expected
    )


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    format_files.write(tmp_path)
    for path in sorted(path for path in format_files.FOLDER.rglob("*") if path.is_file()):
        written = tmp_path / path.relative_to(format_files.FOLDER)
        assert written.read_bytes() == path.read_bytes(), written


def test_checkpoints_replace_each_other(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    (tmp_path / "table").mkdir()
    table.save(tmp_path / "table")  # an empty folder may be replaced
    table.pull([1, 2, 3])
    table.save(str(tmp_path / "table"))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert EmbeddingTable.load(tmp_path / "table").keys().tolist() == [1, 2, 3]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    for name in ("file", "folder", "link"):
        with pytest.raises(ConflictError, match="expected no file, or a checkpoint") as caught:
            table.save(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".table.123-abc.partial"
    left.mkdir()
    (left / "rows-00000.segment").write_bytes(b"half")
    EmbeddingTable(4).save(tmp_path / "table")
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_damage_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    table.pull(np.arange(90))
    table.save(tmp_path / "table")
    for path in sorted((tmp_path / "table").iterdir()):
        sound = path.read_bytes()
        random = np.random.default_rng(0)
        first = np.arange(min(70, len(sound)))
        flips = np.concatenate([first, random.integers(len(sound), size=150), [len(sound) - 1]])
        spoilt = [sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :] for at in flips]
        cuts = [sound[:length] for length in range(0, len(sound), 97)]
        for content in (*spoilt, *cuts, sound + b"x"):
            path.write_bytes(content)
            with pytest.raises(FormatError) as caught:
                EmbeddingTable.load(tmp_path / "table")
            assert caught.value.where == str(path)
            assert caught.value.hint is not None
        path.unlink()
        with pytest.raises(NotFoundError) as missing:
            EmbeddingTable.load(tmp_path / "table")
        assert missing.value.where == str(path)
        path.write_bytes(sound)
    assert len(EmbeddingTable.load(tmp_path / "table")) == 90


def test_a_manifest_that_asks_for_other_files_is_refused(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    table.pull(np.arange(90))
    table.save(tmp_path / "table")
    manifest = tmp_path / "table" / "manifest.json"
    sound = json.loads(manifest.read_text())

    def write(document: dict[str, object]) -> None:
        document.pop("digest", None)
        manifest.write_text(document_text(document))

    for name in ("../secret", "/etc/passwd", "rows-1.segment", "manifest.json"):
        write({**sound, "parts": [{**sound["parts"][0], "name": name}]})
        with pytest.raises(FormatError, match="is no name of a part"):
            EmbeddingTable.load(tmp_path / "table")
    changes: tuple[dict[str, object], ...] = (
        {"kind": "other"},
        {"parts": None},
        {"parts": sound["parts"] * 2},
        {"parts": [{**sound["parts"][0], "rows": -1}]},
        {"parts": [{**sound["parts"][0], "rows": 91}]},
        {"table": {**sound["table"], "dim": 5}},
        {"table": {**sound["table"], "dim": -5}},
        {"table": {**sound["table"], "unknown": 1}},
        {"table": {}},
        {"version": 2},
        {"format": "other"},
    )
    for changed in changes:
        write({**sound, **changed})
        with pytest.raises(FormatError):
            EmbeddingTable.load(tmp_path / "table")


def test_absent_folders_and_budgets(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        EmbeddingTable.load(tmp_path / "absent")
    with pytest.raises(NotFoundError, match="make the folder"):
        EmbeddingTable(4).save(tmp_path / "absent" / "table")
    table = EmbeddingTable(64)
    table.pull(np.arange(50_000))
    table.save(tmp_path / "table")
    with pytest.raises(DoesNotFitError, match="memory_bytes"):
        EmbeddingTable.load(tmp_path / "table", memory_bytes=4 << 20)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match="received a file"):
        EmbeddingTable.load(tmp_path / "file")
    for shard in ((2, 2), (0, 0), "x", (0,)):
        with pytest.raises(UsageError, match="shard"):
            EmbeddingTable.load(tmp_path / "table", shard=shard)  # type: ignore[arg-type]


def test_pulls_and_pushes_while_saving(tmp_path: Path) -> None:
    """Every checkpoint is of one moment: here all values of all rows are equal at each."""
    table = EmbeddingTable(8, "sgd", lr=1.0, init_scale=0.0, threads=2)
    keys = np.arange(20_000)
    table.pull(keys)
    failures: list[Exception] = []
    is_done = threading.Event()

    def work(push: bool) -> None:
        try:
            while not is_done.is_set():
                rows = table.pull(keys)
                assert rows.min() == rows.max()
                if push:
                    table.push(keys, np.full((len(keys), 8), -1.0, Float32))
        except Exception as error:  # noqa: BLE001  # whatever it is, the test fails with it
            failures.append(error)

    workers = [threading.Thread(target=work, args=(push,)) for push in (False, True)]
    for worker in workers:
        worker.start()
    for _ in range(5):
        table.save(tmp_path / "table")
        rows = EmbeddingTable.load(tmp_path / "table").pull(keys)
        assert rows.min() == rows.max()
    is_done.set()
    for worker in workers:
        worker.join()
    assert not failures


_SAVER = """
import sys
import numpy as np
from graphbox.table import EmbeddingTable
table = EmbeddingTable(16, "sgd", lr=1.0, init_scale=0.0)
keys = np.arange(30_000)
for step in range(10_000):
    table.push(keys, np.full((len(keys), 16), -1.0, np.float32))
    table.save(sys.argv[1])
    print(step + 1, flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.stress)])
def test_a_killed_save_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path, kills: int) -> None:
    random = np.random.default_rng(kills)
    for _ in range(kills):
        command = [sys.executable, "-c", _SAVER, str(tmp_path / "table")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            acknowledged = int(process.stdout.readline())
            for _ in range(int(random.integers(0, 3))):
                acknowledged = int(process.stdout.readline())
            threading.Event().wait(float(random.uniform(0, 0.02)))
            os.kill(process.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in process.stdout.read().split())])
        rows = EmbeddingTable.load(tmp_path / "table").pull(np.arange(30_000), create=False)
        assert rows.min() == rows.max()
        assert rows.min() in (acknowledged, acknowledged + 1)
    EmbeddingTable(4).save(tmp_path / "table")
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
