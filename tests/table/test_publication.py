"""Published tables: readers see versions of the training, also when it dies between any two steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphbox.errors import FormatError, NotFoundError
from graphbox.table import EmbeddingTable, Expiry, PublishedTables, TablePublisher
from graphbox.table.publication import VERSION_FILE, PublicationState, read_version
from tests.table import format_files

DIM = 4
ALL_KEYS = np.arange(60)


class Training:
    """A deterministic training of two tables, with checkpoints as a trainer has them."""

    def __init__(self, folder: Path, *, base_every: int = 3) -> None:
        self.folder, self.base_every = folder, base_every
        self.tables = {
            name: EmbeddingTable(DIM, "adagrad", 0.1, seed=seed, expiry=Expiry(passes=2))
            for seed, name in enumerate(("users", "items"))
        }
        self.publisher = TablePublisher(folder / "out", base_every=base_every)

    def learn(self, number: int, half: int) -> None:
        for seed, table in enumerate(self.tables.values()):
            generator = np.random.default_rng([number, half, seed])
            keys = generator.choice(ALL_KEYS, 12, replace=False)
            table.pull(keys)
            table.push(keys, generator.normal(size=(12, DIM)).astype(np.float32))

    def end(self) -> None:
        for table in self.tables.values():
            table.end_pass()
            table.shrink()

    def checkpoint(self) -> PublicationState:
        for name, table in self.tables.items():
            table.save(self.folder / f"{name}.checkpoint")
        return self.publisher.state

    def resume(self, state: PublicationState) -> Training:
        """Return another process' training, from the last checkpoint."""
        resumed = Training(self.folder, base_every=self.base_every)
        resumed.tables = {
            name: EmbeddingTable.load(self.folder / f"{name}.checkpoint") for name in self.tables
        }
        resumed.publisher = TablePublisher(self.folder / "out", base_every=self.base_every, state=state)
        resumed.publisher.resume(resumed.tables)
        return resumed

    def values(self) -> dict[str, np.ndarray]:
        return {name: table.pull(ALL_KEYS, create=False) for name, table in self.tables.items()}


def seen(published: PublishedTables) -> dict[str, np.ndarray]:
    return {name: table.pull(ALL_KEYS) for name, table in published.items()}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def uninterrupted(folder: Path, versions: int) -> list[dict[str, np.ndarray]]:
    folder.mkdir()
    training = Training(folder)
    values = []
    for number in range(versions):
        training.learn(number, 0)
        training.learn(number, 1)
        training.end()
        values.append(training.values())
    return values


def test_a_follower_and_a_newcomer_see_each_version(tmp_path: Path) -> None:
    expected = uninterrupted(tmp_path / "expected", 8)
    training = Training(tmp_path)
    follower = None
    for number in range(8):
        training.learn(number, 0)
        training.learn(number, 1)
        training.end()
        assert training.publisher.write(number, training.tables) > 0
        assert follower is None or not follower.update()  # written, but not published
        training.publisher.publish(f"day {number}", training.tables)
        if follower is None:
            follower = PublishedTables.open(tmp_path / "out")
        else:
            assert follower.update()
        assert (follower.number, follower.name) == (number, f"day {number}")
        assert same(seen(follower), expected[number])
        assert same(seen(PublishedTables.open(tmp_path / "out")), expected[number])
        assert not follower.update()
    assert sorted(path.name for path in (tmp_path / "out" / "users").iterdir()) == [
        "base-000003",
        "base-000006",
        "delta-000004",
        "delta-000005",
        "delta-000007",
    ]


@pytest.mark.parametrize("dies_at", [1, 2, 3])  # at 2 follows a delta, at 3 a base
@pytest.mark.parametrize("dies_after", ["half", "part", "write", "checkpoint", "publish"])
def test_after_a_death_the_versions_are_those_of_a_training_that_never_died(
    tmp_path: Path, dies_at: int, dies_after: str
) -> None:
    expected = uninterrupted(tmp_path / "expected", 5)
    training = Training(tmp_path)
    follower: PublishedTables | None = None
    state, half_done, dead = PublicationState(), False, False

    def dies(step: str, number: int) -> bool:
        return not dead and number == dies_at and step == dies_after

    number = 0
    while number < 5:
        if not half_done:
            training.learn(number, 0)
        if dies("half", number):
            dead = True
            training, half_done = training.resume(state), False
            continue
        if not half_done and dies_after in ("part", "write"):
            training.publisher.write_part(number, training.tables)
            if dies("part", number) and number % 2:  # before its checkpoint; else after it
                dead = True
                training = training.resume(state)
                continue
            state, half_done = training.checkpoint(), True
            if dies("part", number):
                dead = True
                training = training.resume(state)
        training.learn(number, 1)
        training.end()
        training.publisher.write(number, training.tables)
        if dies("write", number):
            dead = True
            training = training.resume(state)
            continue
        state, half_done = training.checkpoint(), False
        if dies("checkpoint", number):
            dead = True
            training = training.resume(state)
        training.publisher.publish(f"day {number}", training.tables)
        if dies("publish", number):
            dead = True
            training = training.resume(state)
            training.publisher.publish(f"day {number}", training.tables)
        follower = follower or PublishedTables.open(tmp_path / "out")
        follower.update()
        assert follower.number == number
        assert same(seen(follower), expected[number])
        assert same(seen(PublishedTables.open(tmp_path / "out")), expected[number])
        number += 1
    assert dead


def test_without_its_folder_the_next_version_is_a_base(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.learn(0, 0)
    training.publisher.write(0, training.tables)
    state = training.checkpoint()
    training.publisher.publish("day 0", training.tables)
    (tmp_path / "out").rename(tmp_path / "moved")
    resumed = training.resume(state)
    resumed.learn(1, 0)
    resumed.publisher.write(1, resumed.tables)
    resumed.publisher.publish("day 1", resumed.tables)
    version = read_version(tmp_path / "out")
    assert version is not None
    assert [folder for folder, _ in version.tables["users"]] == ["base-000001"]
    assert same(seen(PublishedTables.open(tmp_path / "out")), resumed.values())


def test_parameters_are_those_of_the_version(tmp_path: Path) -> None:
    training = Training(tmp_path)
    follower = None
    for number in range(8):
        training.learn(number, 0)
        parameters = {"bias": torch.full((3,), float(number))}
        written = training.publisher.write(number, training.tables, parameters)
        before = sum(each.stat().st_size for each in (tmp_path / "out").glob(f"*/*-{number:06d}/*"))
        training.publisher.publish("", training.tables, parameters)
        file = tmp_path / "out" / f"parameters-{number:06d}.safetensors"
        assert written == before + file.stat().st_size
        follower = follower or PublishedTables.open(tmp_path / "out")
        follower.update()
        assert follower.parameters["bias"].tolist() == [number] * 3
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert [path.name for path in files] == [f"parameters-{number:06d}.safetensors" for number in range(3, 8)]
    files[-1].write_bytes(files[-2].read_bytes())
    with pytest.raises(FormatError, match="as it was written"):
        PublishedTables.open(tmp_path / "out")
    files[-1].unlink()
    with pytest.raises(NotFoundError, match="parameters of the version are missing"):
        PublishedTables.open(tmp_path / "out")


def test_parameters_without_tables_leave_like_those_with_some(tmp_path: Path) -> None:
    publisher = TablePublisher(tmp_path, base_every=3)
    for number in range(11):
        publisher.write(number, {})
        publisher.publish("", {}, {"bias": torch.full((3,), float(number))})
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert files == [f"parameters-{number:06d}.safetensors" for number in range(6, 11)]
    assert PublishedTables.open(tmp_path).parameters["bias"].tolist() == [10.0] * 3


def test_a_follower_that_slept_through_whole_chains_takes_the_last(tmp_path: Path) -> None:
    training = Training(tmp_path)
    follower = None
    for number in range(12):
        training.learn(number, 0)
        training.publisher.write(number, training.tables)
        training.publisher.publish("", training.tables)
        follower = follower or PublishedTables.open(tmp_path / "out")
    assert follower is not None
    assert follower.update()
    assert same(seen(follower), training.values())


def test_what_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="expected published tables"):
        PublishedTables.open(tmp_path)
    training = Training(tmp_path)
    training.learn(0, 0)
    training.publisher.write(0, training.tables)
    training.publisher.publish("", training.tables)
    file = tmp_path / "out" / VERSION_FILE
    text = file.read_text()
    file.write_text(text.replace("base-000000", "base-000009"))
    with pytest.raises(FormatError, match="damaged"):
        PublishedTables.open(tmp_path / "out")
    file.write_text(text)
    next((tmp_path / "out" / "items" / "base-000000").glob("*.segment")).unlink()
    with pytest.raises((FormatError, NotFoundError), match=r"missing|segment"):
        PublishedTables.open(tmp_path / "out")


def test_this_version_writes_and_reads_the_fixture(tmp_path: Path) -> None:
    format_files.publish(tmp_path / "published")
    kept = format_files.FOLDER / "published"
    for path in sorted(kept.rglob("*")):
        if path.is_file():
            assert (tmp_path / "published" / path.relative_to(kept)).read_bytes() == path.read_bytes(), path
    published = PublishedTables.open(kept)
    assert (published.number, published.name) == (1, "day 1")
    assert published.parameters["bias"].tolist() == [0.5, 1.0]
    table = format_files.make()
    format_files.change(table)
    keys = [*format_files.KEYS.tolist(), 6]
    np.testing.assert_array_equal(published["rows"].pull(keys), table.pull(keys, create=False))
