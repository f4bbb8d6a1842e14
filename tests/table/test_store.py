"""Several tables in one folder: one budget, one checkpoint of all; and tables as files for people."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from graphbox.errors import ConflictError, DoesNotFitError, FormatError, NotFoundError, UsageError
from graphbox.table import EmbeddingTable, TableStore
from tests.table.test_checkpoint import assert_same, train

Float32 = np.float32
MIB = 1 << 20


def test_tables_are_saved_together(tmp_path: Path) -> None:
    with TableStore(tmp_path / "store") as store:
        user = store.create("user", 4, optimizer="adam", seed=3)
        store.create("item", 8, share=3)
        train(user, 1)
        train(store["item"], 2)
        store.save()
        expected = EmbeddingTable(4, "adam", seed=3)
        train(expected, 1)
        train(user, 9)  # is not saved
        store.create("late", 2)
        assert list(store) == ["user", "item", "late"]
    with TableStore(tmp_path / "store", threads=2) as store:
        assert (len(store), "late" in store, store["item"].threads) == (2, False, 2)
        assert_same(store["user"], expected)
        store.remove("item")
        store.save()
    with TableStore(tmp_path / "store") as store:
        assert list(store) == ["user"]
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["checkpoint", "lock"]


def test_tables_on_ssd_in_a_store(tmp_path: Path) -> None:
    expected = EmbeddingTable(256, seed=3)
    with TableStore(tmp_path / "store", memory_bytes=40 * MIB) as store:
        rows = store.create("rows", 256, on_ssd=True, seed=3)
        other = store.create("other", 16)
        for keys in np.split(np.arange(30_000), 30):
            for table in (rows, expected):
                table.push(keys, np.full((1000, 256), 0.5, Float32))
        assert rows.tier_statistics().cold_rows > 0
        train(other, 1)
        store.save()
        rows.push(np.arange(500), np.ones((500, 256), Float32))  # is not saved
        store.remove("other")
        part = next((tmp_path / "store" / "checkpoint" / "rows").glob("cold-*"))
        assert part.stat().st_nlink == 2
    with pytest.raises(UsageError, match="the store is closed"):
        rows.pull([1])
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["checkpoint", "lock"]
    for _ in range(2):  # what is done after the save does not touch what was saved
        with TableStore(tmp_path / "store", memory_bytes=40 * MIB) as store:
            rows = store["rows"]
            assert rows.path is not None
            assert store.nbytes <= 40 * MIB
            for keys in np.split(np.arange(30_000), 30):
                assert np.array_equal(rows.pull(keys), expected.pull(keys))
                rows.push(keys, np.ones((1000, 256), Float32))
            rows.flush()
            rows.purge()
    with TableStore(tmp_path / "store") as store:
        store.remove("rows")
        store.save()
    with TableStore(tmp_path / "store") as store:
        assert list(store) == ["other"]


def test_a_save_is_of_one_moment_of_all_tables(tmp_path: Path) -> None:
    stop = threading.Event()
    with TableStore(tmp_path / "store") as store:
        tables = [
            store.create(name, 4, optimizer="sgd", lr=1.0, init_scale=0.0, on_ssd=on_ssd)
            for name, on_ssd in (("a", False), ("b", True), ("c", False))
        ]

        def push() -> None:
            while not stop.is_set():
                for table in tables:
                    table.push([1], np.full((1, 4), -1.0, Float32))

        pusher = threading.Thread(target=push)
        pusher.start()
        try:
            for number in range(10):
                store.save()
                folder = tmp_path / f"{number}"
                shutil.copytree(tmp_path / "store" / "checkpoint", folder / "checkpoint")
        finally:
            stop.set()
            pusher.join()
    for number in range(10):
        with TableStore(tmp_path / f"{number}") as store:
            counts = [float(store[name].pull([1])[0, 0]) for name in "abc"]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] - counts[-1] <= 1


def test_a_store_closes_while_others_use_its_table(tmp_path: Path) -> None:
    """What they do is refused from then on: nothing that they are in the midst of is freed."""
    refusals: list[str] = []

    def use(table: EmbeddingTable, seed: int, started: threading.Barrier) -> None:
        random = np.random.default_rng(seed)
        started.wait()
        try:
            while True:
                keys = random.integers(0, 50_000, 2000)
                if seed == 0:
                    table.push(keys, np.ones((2000, 64), Float32))
                else:
                    table.pull(keys, create=seed == 1)
        except UsageError as error:
            refusals.append(str(error))

    for number in range(3):
        started = threading.Barrier(4)
        store = TableStore(tmp_path / "store", memory_bytes=24 * MIB)
        table = store.create("rows", 64, on_ssd=True)
        for keys in np.split(np.arange(50_000), 25):
            table.pull(keys)
        users = [threading.Thread(target=use, args=(table, seed, started)) for seed in range(3)]
        for user in users:
            user.start()
        started.wait()
        if number == 0:
            store.remove("rows")
        store.close()
        for user in users:
            user.join()
    assert len(refusals) == 9
    assert all("closed" in refusal for refusal in refusals)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["lock"]


def test_a_table_that_was_closed_is_not_found_again(tmp_path: Path) -> None:
    with TableStore(tmp_path / "store") as store:
        table = store.create("rows", 4, on_ssd=True)
        table.pull([1, 2])
        table.close()
        store.remove("rows")
        assert len(store.create("rows", 4, on_ssd=True)) == 0


def test_the_budget_is_divided(tmp_path: Path) -> None:
    with TableStore(tmp_path / "store", memory_bytes=60 * MIB) as store:
        first = store.create("first", 64)
        assert first.memory_bytes == 60 * MIB
        second = store.create("second", 64, share=2)
        assert (first.memory_bytes, second.memory_bytes) == (20 * MIB, 40 * MIB)
        second.pull(np.arange(80_000))
        assert store.nbytes <= 60 * MIB
        with pytest.raises(DoesNotFitError, match="memory_bytes"):
            first.pull(np.arange(80_000))
        with pytest.raises(DoesNotFitError, match="memory_bytes"):
            store.create("third", 64, share=10)
        assert "third" not in store
        assert (first.memory_bytes, second.memory_bytes) == (20 * MIB, 40 * MIB)
        store.save()
        store.remove("first")
        assert second.memory_bytes == 60 * MIB
    with pytest.raises(DoesNotFitError, match="memory_bytes"):
        TableStore(tmp_path / "store", memory_bytes=30 * MIB)
    with TableStore(tmp_path / "store") as store:
        assert store.memory_bytes is None
        assert store["second"].memory_bytes is None


def test_one_at_a_time(tmp_path: Path) -> None:
    with TableStore(tmp_path) as store:
        with pytest.raises(ConflictError, match="nobody has open"):
            TableStore(tmp_path)
        store.close()
        with pytest.raises(UsageError, match="the store is closed"):
            store.save()
    with TableStore(tmp_path) as store:
        assert len(store) == 0


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="memory_bytes"):
        TableStore(tmp_path, memory_bytes=-1)
    with TableStore(tmp_path) as store:
        store.create("user", 4)
        for name in ("", "../up", "a/b", ".hidden", "a" * 101, 3):
            with pytest.raises(UsageError, match="name: expected a name"):
                store.create(name, 4)  # type: ignore[arg-type]
        with pytest.raises(ConflictError, match="user: expected a new name"):
            store.create("user", 4)
        with pytest.raises(UsageError, match="share: expected a number above 0"):
            store.create("other", 4, share=0)
        with pytest.raises(UsageError, match="memory_bytes: expected no such setting"):
            store.create("other", 4, memory_bytes=5)
        for act in (store.__getitem__, store.remove):
            with pytest.raises(UsageError, match="the tables are: user"):
                act("usr")
    with pytest.raises(NotFoundError):
        TableStore(tmp_path / "absent" / "store")


def test_damage_names_the_file(tmp_path: Path) -> None:
    with TableStore(tmp_path) as store:
        train(store.create("user", 4), 1)
        train(store.create("item", 4, seed=1), 1)
        store.save()
    folder = tmp_path / "checkpoint"
    for path in sorted(folder.rglob("*.*")):
        sound = path.read_bytes()
        for at in (0, len(sound) // 2, len(sound) - 3):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
            with pytest.raises(FormatError) as caught:
                TableStore(tmp_path)
            assert caught.value.where == str(path)
        path.write_bytes(sound)
    (folder / "user").rename(tmp_path / "other")
    (folder / "item").rename(folder / "user")
    (tmp_path / "other").rename(folder / "item")
    with pytest.raises(FormatError, match="received another one"):
        TableStore(tmp_path)
    index = json.loads((folder / "store.json").read_text())
    (folder / "store.json").write_text(json.dumps({**index, "version": 2}))
    with pytest.raises(FormatError, match="expected version 1 of graphbox-table-store, received 2"):
        TableStore(tmp_path)


_SAVER = """
import sys
import numpy as np
from graphbox.table import TableStore
with TableStore(sys.argv[1]) as store:
    for name in ("a", "b"):
        if name not in store:
            store.create(name, 8, optimizer="sgd", lr=1.0, init_scale=0.0)
    for step in range(10_000):
        for name in ("a", "b"):
            store[name].push(np.arange(5000), np.full((5000, 8), -1.0, np.float32))
        store.save()
        print(flush=True)
"""


def test_a_killed_save_leaves_tables_of_one_moment(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for _ in range(3):
        command = [sys.executable, "-c", _SAVER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(int(random.integers(1, 3))):
                assert process.stdout.readline()
            threading.Event().wait(float(random.uniform(0, 0.02)))
            os.kill(process.pid, signal.SIGKILL)
        with TableStore(tmp_path) as store:
            rows = np.concatenate([store[name].pull(np.arange(5000), create=False) for name in store])
            assert rows.min() == rows.max() > 0


@pytest.mark.parametrize("name", ["rows.parquet", "rows.tsv"])
@pytest.mark.parametrize("dim", [1, 5, 3000])
def test_dumps_hold_keys_and_rows(
    tmp_path: Path, name: str, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphbox.table.dump._CHUNK_BYTES", 20_000)
    table = EmbeddingTable(dim)
    keys = np.array([*range(300), np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    table.push(keys, np.random.default_rng(0).normal(size=(302, dim)).astype(Float32))
    table.erase([5])
    path = tmp_path / name
    path.write_text("old")
    assert table.dump(path) == 301
    if name.endswith(".parquet"):
        read = pq.read_table(path)
        assert str(read.schema.field("vector").type) == f"fixed_size_list<element: float>[{dim}]"
        found = read["id"].to_numpy()
        rows = read["vector"].combine_chunks().flatten().to_numpy().reshape(-1, dim)
        assert dim < 3000 or pq.ParquetFile(path).num_row_groups > 1
    else:
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        found = np.array([int(key) for key, _ in lines])
        rows = np.array([row.split(" ") for _, row in lines]).astype(Float32)
    assert np.array_equal(found, table.keys())
    assert np.array_equal(rows, table.pull(found))
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_dumps_to_nowhere(tmp_path: Path) -> None:
    table = EmbeddingTable(2)
    for name in ("empty.parquet", "empty.txt"):
        assert table.dump(tmp_path / name) == 0
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0
    with pytest.raises(UsageError, match=r"ends in .parquet, .pq, .tsv, .txt, received 'rows.csv'"):
        table.dump(tmp_path / "rows.csv")
    with pytest.raises(NotFoundError, match="make the folder"):
        table.dump(tmp_path / "absent" / "rows.tsv")
