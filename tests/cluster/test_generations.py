"""Durable states of a shard: rows and what was applied to them belong together, whatever ends when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphbox.cluster.generations import Generations
from graphbox.cluster.shard import TableShard
from graphbox.errors import FormatError
from graphbox.table import EmbeddingTable
from tests.cluster.test_shard import SETTINGS, push, values

KEYS = list(range(50))


def shard_in(folder: Path, incarnation: int = 1) -> TableShard:
    shard = TableShard(0, 1, incarnation=incarnation, folder=folder)
    shard.make("rows", SETTINGS)
    return shard


def at(incarnation: int, shard: TableShard, sequence: int, keys: list[int]) -> None:
    from dataclasses import replace

    shard.apply(replace(push(sequence, keys), incarnation=incarnation))


def added(shard: TableShard) -> list[float]:
    """Return how often each key was added to."""
    rows = shard.tables["rows"].pull(np.array(KEYS), create=False)
    found: list[float] = np.asarray(rows)[:, 0].tolist()
    return found


def test_a_successor_has_what_was_durable_and_knows_what_that_is(tmp_path: Path) -> None:
    first = shard_in(tmp_path)
    expected = np.zeros(len(KEYS))
    for sequence in range(1, 31):
        at(1, first, sequence, [sequence, sequence + 1])
        expected[[sequence, sequence + 1]] += 1
        if sequence % 3 == 0:
            first.make_durable()
        if sequence == 27:
            kept = expected.copy()
    at(1, first, 31, [7])
    assert first.ack(0).durable == 30
    second = shard_in(tmp_path, 2)
    assert (second.ack(0).applied, second.ack(0).durable) == (30, 30)
    assert added(second) == expected.tolist()
    assert kept.sum() < expected.sum()


def test_a_table_that_comes_later_is_in_it(tmp_path: Path) -> None:
    first = shard_in(tmp_path)
    at(1, first, 1, [3])
    first.make_durable()
    first.make("later", SETTINGS)
    at(1, first, 2, [4])
    first.make_durable()
    assert sorted(shard_in(tmp_path, 2).tables) == ["later", "rows"]


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    first = shard_in(tmp_path)
    at(1, first, 1, [3])
    first.make_durable()
    there = sorted(each.name for each in tmp_path.iterdir())
    first.make_durable()
    assert sorted(each.name for each in tmp_path.iterdir()) == there


def test_one_that_goes_on_harms_no_successor(tmp_path: Path) -> None:
    old = shard_in(tmp_path)
    at(1, old, 1, [1])
    old.make_durable()
    new = shard_in(tmp_path, 2)
    at(1, old, 2, [2])
    old.make_durable()  # it has not heard yet; its lease holds
    at(2, new, 2, [2])
    new.make_durable()
    for sequence in range(3, 40):  # enough for whole generations, which remove older ones
        at(1, old, sequence, [9])
        old.make_durable()
    at(2, new, 3, [3])
    new.make_durable()
    third = shard_in(tmp_path, 3)
    assert third.ack(0).applied == 3
    assert added(third)[:10] == [0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_old_generations_are_removed(tmp_path: Path) -> None:
    first = shard_in(tmp_path)
    for sequence in range(1, 60):
        at(1, first, sequence, [sequence % 50])
        first.make_durable()
    assert len(list(tmp_path.iterdir())) <= 22
    assert shard_in(tmp_path, 2).ack(0).applied == 59


def test_a_generation_that_cannot_be_written_is_made_good_by_the_next(tmp_path: Path) -> None:
    tables = {name: EmbeddingTable(2, "sgd", lr=1.0, init_scale=0.0) for name in ("first", "second")}
    generations = Generations(tmp_path, 1)
    generations.save(tables, {0: 1})
    for table in tables.values():
        table.push(np.array([5]), -np.ones((1, 2), np.float32))
    broken = dict(tables)
    broken["third"] = None  # type: ignore[assignment]  # fails after the deltas of the others
    with pytest.raises(AttributeError):
        generations.save(broken, {0: 2})
    generations.save(tables, {0: 2})
    loaded, applied = Generations(tmp_path, 2).load()
    assert applied == {0: 2}
    for table in loaded.values():
        np.testing.assert_array_equal(table.pull(np.array([5])), np.ones((1, 2)))


@pytest.mark.parametrize(
    "damage", ["not json", '{"previous": null}', '{"previous": "../x", "applied": {}, "tables": {}}']
)
def test_a_damaged_state_is_refused(damage: str, tmp_path: Path) -> None:
    first = shard_in(tmp_path)
    at(1, first, 1, [3])
    first.make_durable()
    (newest,) = tmp_path.iterdir()
    (newest / "shard.json").write_text(damage)
    with pytest.raises(FormatError, match=r"shard\.json"):
        shard_in(tmp_path, 2)


_KILLED = """
import sys
from pathlib import Path
from tests.cluster.test_generations import at, shard_in

shard = shard_in(Path(sys.argv[1]), int(sys.argv[2]))
sequence = shard.ack(0).applied
print("ready", flush=True)
while True:
    sequence += 1
    at(int(sys.argv[2]), shard, sequence, [sequence % 50])
    shard.make_durable()
    print(shard.ack(0).durable, flush=True)
"""


def test_what_was_said_to_be_durable_is_there_after_a_kill(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for incarnation in range(1, 5):
        with subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(tmp_path), str(incarnation)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(int(rng.integers(2, 12)))]
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        said = [int(line) for line in lines if line.strip().isdigit()]
        successor = TableShard(0, 1, incarnation=100, folder=tmp_path)
        applied = successor.ack(0).applied
        assert applied >= max(said, default=0)
        expected = np.bincount(np.arange(1, applied + 1) % 50, minlength=50)
        assert added(successor) == expected.tolist()


def test_what_a_pull_has_seen_is_in_the_next_generation(tmp_path: Path) -> None:
    first = shard_in(tmp_path)
    at(1, first, 1, [3])
    assert values(first, [3, 4], after=1) == [1.0, 0.0]
    first.make_durable()
    assert added(shard_in(tmp_path, 2))[3:5] == [1.0, 0.0]


_FULL = """
import resource
import sys
from pathlib import Path

from graphbox.errors import DoesNotFitError
from tests.cluster.test_generations import at, shard_in

shard = shard_in(Path(sys.argv[1]))
at(1, shard, 1, [3])
shard.make_durable()
at(1, shard, 2, list(range(20_000)))
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
try:
    shard.make_durable()
except DoesNotFitError:
    print(shard.ack(0).applied, shard.ack(0).durable, len(list(Path(sys.argv[1]).iterdir())))
at(1, shard, 3, [4])
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
shard.make_durable()
print(shard.ack(0).applied, shard.ack(0).durable)
"""


def test_a_disk_without_room_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files is to the shard what a full disk is."""
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert (done.returncode, done.stdout) == (0, "2 1 1\n3 3\n"), done.stderr
    successor = shard_in(tmp_path, 2)
    assert added(successor)[:6] == [1.0, 1.0, 1.0, 2.0, 2.0, 1.0]
    assert len(successor.tables["rows"]) == 20_000
