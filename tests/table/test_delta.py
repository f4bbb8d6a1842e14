"""Deltas: what changed and no more, in their order and of their base, for training and for serving."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from graphbox.errors import (
    ConflictError,
    DataError,
    DoesNotFitError,
    FormatError,
    GraphboxError,
    NotFoundError,
    UsageError,
)
from graphbox.table import EmbeddingTable, ServingTable
from graphbox.table.manifest import read_manifest
from tests.table import format_files
from tests.table.test_checkpoint import assert_same, train

Float32 = np.float32


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("seed", range(6))
def test_random_lives(tmp_path: Path, seed: int) -> None:
    """A table, one that is saved and loaded again and again, and one that serves."""
    random = np.random.default_rng(seed)
    table = EmbeddingTable(3, "adam", seed=seed)
    train(table, 100 + seed)
    table.save_base(tmp_path / "base")
    table.save_base(tmp_path / "serving", serving="float32")
    saved = EmbeddingTable.load(tmp_path / "base")
    served = ServingTable.open(tmp_path / "serving")
    deltas: list[Path] = []
    for step in range(8):
        for one in (table, saved):
            train(one, 1000 * seed + step, steps=1)
            if step % 3 == 0:
                one.erase([5, 6])
                one.pull([6])  # anew
        deltas.append(tmp_path / f"delta-{step}")
        saved.save_delta(deltas[-1])
        table.save_delta(tmp_path / "change", serving="float32")
        served.apply(tmp_path / "change")
        if random.random() < 0.4:
            saved = EmbeddingTable.load(tmp_path / "base", deltas=deltas, threads=2)
        keys = np.sort(table.keys())
        assert np.array_equal(np.sort(served.keys()), keys)
        assert np.array_equal(served.pull(keys), table.pull(keys))
        other = ServingTable.open(tmp_path / "base", deltas=deltas)
        assert np.array_equal(other.pull(keys), table.pull(keys))
    assert_same(EmbeddingTable.load(tmp_path / "base", deltas=deltas), table)


def test_a_delta_is_as_large_as_what_changed(tmp_path: Path) -> None:
    table = EmbeddingTable(64)
    keys = np.arange(100_000) * 7919
    table.pull(keys)
    table.save_base(tmp_path / "base")
    table.push(keys[::100], np.ones((1000, 64), Float32))
    table.save_delta(tmp_path / "delta")
    assert bytes_of(tmp_path / "delta") <= 0.02 * bytes_of(tmp_path / "base")
    assert read_manifest(tmp_path / "delta").rows == 1000
    table.pull(keys)  # changes nothing
    table.save_delta(tmp_path / "nothing")
    assert read_manifest(tmp_path / "nothing").parts == ()
    table.save(tmp_path / "full")  # no part of the chain
    table.push(keys[:3], np.ones((3, 64), Float32))
    table.save_delta(tmp_path / "three")
    assert read_manifest(tmp_path / "three").rows == 3


def test_training_and_serving_are_chains_of_their_own(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    with pytest.raises(UsageError, match=r"call save_base\(path\) first"):
        table.save_delta(tmp_path / "delta")
    table.pull(np.arange(100))
    table.save_base(tmp_path / "base")
    with pytest.raises(UsageError, match=r"save_base\(path, serving='int8'\) first"):
        table.save_delta(tmp_path / "delta", serving="int8")
    with pytest.raises(UsageError, match="serving: expected one of float32, float16, int8, received 'int4'"):
        table.save_delta(tmp_path / "delta", serving="int4")  # type: ignore[arg-type]
    table.save_base(tmp_path / "serving", serving="float16")
    table.push(np.arange(10), np.ones((10, 4), Float32))
    table.save_delta(tmp_path / "change", serving="float16")
    table.save_delta(tmp_path / "delta")
    assert read_manifest(tmp_path / "delta").rows == read_manifest(tmp_path / "change").rows == 10
    with pytest.raises(UsageError, match="ServingTable"):
        EmbeddingTable.load(tmp_path / "serving")
    with pytest.raises(ConflictError, match="another base"):
        EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "change"])


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bases and three deltas of two tables, and a third that goes another way."""
    folder = tmp_path_factory.mktemp("chain")
    for name, seed in (("a", 0), ("b", 1)):
        table = EmbeddingTable(4, seed=seed)
        train(table, seed)
        table.save(folder / f"{name}-full")
        table.save_base(folder / f"{name}-0")
        for number in (1, 2, 3):
            train(table, 10 + number, steps=1)
            table.save_delta(folder / f"{name}-{number}")
    fork = EmbeddingTable.load(folder / "a-0", deltas=[folder / "a-1"])
    fork.push([1], np.ones((1, 4), Float32))
    fork.save_delta(folder / "fork-2")
    fork.save_delta(folder / "fork-3")
    return folder


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a-2"], "expected delta 1 of the base, received delta 2: one before it is missing"),
        (["a-1", "a-3"], "expected delta 2 of the base, received delta 3: one before it is missing"),
        (["a-1", "a-1"], "received delta 1, which was applied before"),
        (["a-1", "a-2", "a-1"], "received delta 1, which was applied before"),
        (["b-1"], "received delta 1 of another base"),
        (["a-1", "b-2"], "received delta 2 of another base"),
        (["a-1", "a-2", "fork-3"], "received delta 3 of another history"),
        (["a-full"], "expected a delta, received a full checkpoint"),
        (["b-0"], "expected a delta, received a base checkpoint"),
    ],
)
def test_deltas_out_of_place(chain: Path, names: list[str], message: str) -> None:
    deltas = [chain / name for name in names]
    with pytest.raises((ConflictError, UsageError), match=message) as caught:
        EmbeddingTable.load(chain / "a-0", deltas=deltas)
    assert caught.value.where == str(deltas[-1])
    served = ServingTable.open(chain / "a-0", deltas=deltas[:-1])
    before = served.pull(np.arange(-300, 300))
    with pytest.raises((ConflictError, UsageError), match=message):
        served.apply(deltas[-1])
    assert np.array_equal(served.pull(np.arange(-300, 300)), before)


def test_only_a_base_is_followed(chain: Path) -> None:
    for load in (EmbeddingTable.load, ServingTable.open):
        with pytest.raises(UsageError, match="expected a base, which deltas can follow"):
            load(chain / "a-full", deltas=[chain / "a-1"])
        with pytest.raises(UsageError, match="expected a full checkpoint or a base, received a delta"):
            load(chain / "a-1")
    with pytest.raises(UsageError, match="opened from a full checkpoint"):
        ServingTable.open(chain / "a-full").apply(chain / "a-1")
    loaded = EmbeddingTable.load(chain / "a-full")
    with pytest.raises(UsageError, match="save_base"):
        loaded.save_delta(chain / "never")
    part = EmbeddingTable.load(chain / "a-0", shard=(0, 2))
    with pytest.raises(UsageError, match="save_base"):
        part.save_delta(chain / "never")


def test_what_could_not_be_written_is_in_the_next_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = EmbeddingTable(4)
    table.pull(np.arange(100))
    table.save_base(tmp_path / "base")
    table.push(np.arange(10), np.ones((10, 4), Float32))
    table.erase([50])
    with pytest.raises(NotFoundError):
        table.save_delta(tmp_path / "absent" / "delta")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("graphbox.table.checkpoint_files.write_durably", full_disk)
        with pytest.raises(DoesNotFitError, match="No space left"):
            table.save_delta(tmp_path / "delta")
    table.push([20], np.ones((1, 4), Float32))
    table.save_delta(tmp_path / "delta")
    manifest = read_manifest(tmp_path / "delta")
    assert (manifest.rows, [part.rows for part in manifest.parts if part.erased]) == (11, [1])
    assert_same(EmbeddingTable.load(tmp_path / "base", deltas=[tmp_path / "delta"]), table)


def test_erased_keys_within_the_budget(tmp_path: Path) -> None:
    table = EmbeddingTable(1, memory_bytes=8 << 20)
    keys = np.arange(100_000)

    def replace_all() -> None:
        for begin in range(0, 500_000, 100_000):
            table.erase(keys + begin)
            table.pull(keys + begin + 100_000)
            assert table.nbytes <= (table.memory_bytes or 0)
        table.erase(keys + 500_000)
        table.pull(keys)

    table.pull(keys)
    table.save_base(tmp_path / "base")
    before = table.nbytes
    replace_all()
    assert table.nbytes <= before + 10 * len(keys)  # of each key that was there: no more than that it is gone
    table.save_delta(tmp_path / "delta")
    table.memory_bytes = table.nbytes + 300_000
    replace_all()
    with pytest.raises(DoesNotFitError, match="had no room in memory_bytes"):
        table.save_delta(tmp_path / "delta-2")
    table.save_base(tmp_path / "base")
    table.save_delta(tmp_path / "delta")


def test_files_of_version_1() -> None:
    folder = format_files.FOLDER
    expected = format_files.make()
    served = ServingTable.open(folder / "serving-base", threads=1)
    keys = format_files.KEYS
    assert np.allclose(served.pull(keys), expected.pull(keys), atol=2e-3)
    format_files.change(expected)
    served.apply(folder / "serving-delta")
    assert sorted(served.keys().tolist()) == sorted(expected.keys().tolist())
    assert np.allclose(served.pull(keys), expected.pull(keys, create=False), atol=2e-2)


def test_served_rows_of_int8(tmp_path: Path) -> None:
    table = EmbeddingTable(60, seed=2)
    keys = np.arange(40_000)
    table.push(keys, np.random.default_rng(0).normal(size=(len(keys), 60)).astype(Float32))
    table.save_base(tmp_path / "base", serving="int8")
    table.push(keys[:50], np.ones((50, 60), Float32))
    table.erase([77])
    table.save_delta(tmp_path / "delta", serving="float32")
    table.save_base(tmp_path / "other", serving="float32")
    wide, narrow = (ServingTable.open(tmp_path / "base", dtype=dtype) for dtype in ("float32", "int8"))
    assert narrow.nbytes < 0.5 * wide.nbytes
    assert np.array_equal(narrow.pull(keys), wide.pull(keys))  # what int8 rounded once is not rounded again
    narrow.apply(tmp_path / "delta")
    wide.apply(tmp_path / "delta")
    largest = np.abs(wide.pull(keys)).max(axis=1, keepdims=True)
    assert (np.abs(narrow.pull(keys) - wide.pull(keys)) <= largest * (0.51 / 127)).all()
    assert np.array_equal(narrow.pull([77, 10**9]), wide.pull([77, 10**9]))
    assert np.array_equal(narrow.pull(keys[100:]), wide.pull(keys[100:]))
    with pytest.raises(UsageError, match="received 'int4'"):
        ServingTable.open(tmp_path / "other", dtype="int4")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="dtype"):
        EmbeddingTable(4, dtype="int8")  # type: ignore[arg-type]


def test_int8_rows_hold_no_infinity(tmp_path: Path) -> None:
    table = EmbeddingTable(4, "sgd", lr=3e38)
    table.push([1, 2], np.array([[1, 1, 1, 1], [9, 0, 0, 0]], Float32))
    table.save_base(tmp_path / "base", serving="float32")
    with pytest.raises(DataError, match="key 2: the row holds NaN or infinity"):
        ServingTable.open(tmp_path / "base", dtype="int8")


@pytest.mark.parametrize(("serving", "error"), [("float32", 0), ("float16", 5e-4), ("int8", 0.5 / 127)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_values_for_serving(tmp_path: Path, serving: str, error: float, dtype: str) -> None:
    table = EmbeddingTable(16, "ftrl", lr=0.5, dtype=dtype)  # type: ignore[arg-type]
    train(table, 3)
    table.push([10**12], np.full((1, 16), -1e6, Float32))
    table.save_base(tmp_path / "base", serving=serving)  # type: ignore[arg-type]
    served = ServingTable.open(tmp_path / "base")
    assert not served.contains([10**15])[0]
    rows = table.pull(table.keys())
    largest = np.abs(rows).max(axis=1, keepdims=True)
    assert (np.abs(served.pull(table.keys()) - rows) <= error * largest + 1e-7).all()
    halves = ServingTable.open(tmp_path / "base", dtype="float16")
    assert halves.nbytes <= served.nbytes
    assert np.allclose(halves.pull(table.keys()), served.pull(table.keys()), rtol=1e-3, atol=1e-6)
    out = torch.empty(2, 16)
    assert served.pull(torch.tensor([1, 2]), out) is out
    assert "sequence=0" in repr(served)


def test_unknown_keys(tmp_path: Path) -> None:
    table = EmbeddingTable(8, seed=5)
    table.push([1], np.ones((1, 8), Float32))
    table.save_base(tmp_path / "base", serving="int8")
    initial = ServingTable.open(tmp_path / "base").pull([7, 8])
    assert np.array_equal(initial, table.pull([7, 8], create=False))
    zeros = ServingTable.open(tmp_path / "base", unknown="zeros")
    assert not zeros.pull([7, 8]).any()
    assert len(zeros) == 1
    with pytest.raises(UsageError, match="unknown"):
        ServingTable.open(tmp_path / "base", unknown="nothing")  # type: ignore[arg-type]


def test_rows_that_are_no_numbers(tmp_path: Path) -> None:
    table = EmbeddingTable(2, "sgd", lr=3e38)
    table.push([3], np.full((1, 2), 3e38, Float32))
    table.save_base(tmp_path / "base", serving="float32")
    with pytest.raises(DataError, match="NaN or infinity") as caught:
        table.save_base(tmp_path / "other", serving="int8")
    assert caught.value.where == "key 3"
    assert np.isinf(ServingTable.open(tmp_path / "base").pull([3])).all()


def test_a_damaged_delta_changes_nothing(tmp_path: Path) -> None:
    table = EmbeddingTable(4)
    table.pull(np.arange(2000))
    table.save_base(tmp_path / "base")
    table.push(np.arange(1000), np.ones((1000, 4), Float32))
    table.erase([1500])
    table.save_delta(tmp_path / "delta")
    served = ServingTable.open(tmp_path / "base")
    before = served.pull(np.arange(2000))
    for name in ("rows-00000.segment", "erased-00000.segment", "manifest.json"):
        shutil.copytree(tmp_path / "delta", tmp_path / "damaged", dirs_exist_ok=True)
        path = tmp_path / "damaged" / name
        content = bytearray(path.read_bytes())
        content[-3] ^= 8
        path.write_bytes(content)
        with pytest.raises(FormatError) as caught:
            served.apply(tmp_path / "damaged")
        assert caught.value.where == str(path)
        assert np.array_equal(served.pull(np.arange(2000)), before)
        assert served.sequence == 0
    served.apply(tmp_path / "delta")
    assert served.sequence == 1
    assert np.array_equal(served.pull(np.arange(2000)), table.pull(np.arange(2000), create=False))
    with pytest.raises(DoesNotFitError, match="memory_bytes"):
        ServingTable.open(tmp_path / "base", memory_bytes=1 << 10)


def test_lookups_go_on_while_deltas_are_applied(tmp_path: Path) -> None:
    """All values of a row are equal at each moment."""
    table = EmbeddingTable(16, "sgd", lr=1.0, init_scale=0.0)
    keys = np.arange(20_000)
    table.pull(keys)
    table.save_base(tmp_path / "base", serving="float32")
    served = ServingTable.open(tmp_path / "base", threads=2)
    failures: list[GraphboxError | AssertionError] = []
    is_done = threading.Event()

    def look_up() -> None:
        try:
            while not is_done.is_set():
                rows = served.pull(keys)
                assert (rows == rows[:, :1]).all()
        except (GraphboxError, AssertionError) as error:
            failures.append(error)

    reader = threading.Thread(target=look_up)
    reader.start()
    for step in range(6):
        table.push(keys, np.full((len(keys), 16), -1.0, Float32))
        table.save_delta(tmp_path / "delta", serving="float32")
        served.apply(tmp_path / "delta")
        assert (served.pull(keys) == step + 1).all()
    is_done.set()
    reader.join()
    assert not failures
