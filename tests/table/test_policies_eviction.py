"""Rows that leave a table whose memory is used up: which, that they start anew, and that the budget holds."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from graphbox.errors import DoesNotFitError
from graphbox.table import CountAdmission, EmbeddingTable, ShowClickScore
from graphbox.table.policy import Eviction

DIM = 64
BUDGET = 4 << 20
SCORE = ShowClickScore(nonclick_weight=1.0, decay=0.5, drop_below=0.0)


def make(eviction: Eviction, **settings: object) -> EmbeddingTable:
    return EmbeddingTable(
        DIM,
        "sgd",
        1.0,
        memory_bytes=BUDGET,
        eviction=eviction,
        score=SCORE if eviction == "score" else None,
        **settings,  # type: ignore[arg-type]
    )


def capacity(eviction: Eviction) -> int:
    table = make(eviction)
    table.pull(np.arange(6000))
    table.pull(np.arange(10_000, 16_000))
    table.pull(np.arange(20_000, 26_000))
    return len(table)


@pytest.mark.parametrize("eviction", ["clock", "score"])
@pytest.mark.parametrize("threads", [1, 2])
def test_stays_within_its_budget_and_starts_dropped_keys_anew(eviction: Eviction, threads: int) -> None:
    random = np.random.default_rng(0)
    table = make(eviction, threads=threads, seed=3)
    initial = EmbeddingTable(DIM, seed=3)
    learnt = np.zeros(50_000, np.float32)
    for _ in range(40):
        keys = np.unique(random.zipf(1.2, 3000) % 50_000)
        learnt[keys[~table.contains(keys)]] = 0
        rows, slots = table.pull_slots(keys)
        np.testing.assert_allclose(rows, initial.pull(keys) - learnt[keys, None], atol=1e-4)
        learnt[keys] += 0.5
        assert table.contains(keys).all()  # no row of the batch has left for another one
        table.push_slots(slots, np.full((len(keys), DIM), 0.5, np.float32))
        assert table.nbytes <= BUDGET
    events = table.policy_events
    assert events.evicted_rows > 1000
    assert events.admitted_keys - events.evicted_rows == len(table)


@pytest.mark.parametrize("eviction", ["clock", "score"])
def test_same_rows_leave_for_any_number_of_threads(eviction: Eviction) -> None:
    def rows_left(threads: int, *, with_slots: bool) -> list[int]:
        random = np.random.default_rng(1)
        table = make(eviction, threads=threads)
        for _ in range(12):
            keys = random.zipf(1.1, 9000) % 40_000
            grads = np.ones((9000, DIM), np.float32)
            if with_slots:
                _, slots = table.pull_slots(keys)
                table.push_slots(slots, grads)
            else:
                table.pull(keys)
                table.push(keys, grads)
        left: list[int] = table.keys().tolist()
        return left

    for with_slots in (False, True):
        expected = rows_left(1, with_slots=with_slots)
        for threads in (2, 4):
            assert rows_left(threads, with_slots=with_slots) == expected


def test_rows_that_are_looked_up_again_outlive_those_that_are_not() -> None:
    table = make("clock")
    loved = np.arange(2000)
    table.pull(loved)
    for step in range(30):
        table.pull(loved)
        table.pull(np.arange(100_000 + 3000 * step, 103_000 + 3000 * step))
    assert table.contains(loved).all()
    assert table.policy_events.evicted_rows > 30_000


def test_rows_of_low_score_leave_first() -> None:
    table = make("score")
    often = np.arange(2000)
    for _ in range(4):
        table.push(often, np.zeros((2000, DIM), np.float32))
    table.push(np.arange(5000, 6000), np.zeros((1000, DIM), np.float32))
    for step in range(20):
        table.pull(np.arange(100_000 + 3000 * step, 103_000 + 3000 * step))
    assert table.contains(often).all()
    table.end_pass()
    table.end_pass()
    table.end_pass()
    table.end_pass()  # 4 shows count for 0.25 now
    for step in range(8):
        keys = np.arange(500_000 + 3000 * step, 503_000 + 3000 * step)
        table.push(keys, np.zeros((3000, DIM), np.float32))
    assert not table.contains(often).any()


@pytest.mark.parametrize("eviction", ["clock", "score"])
def test_a_batch_that_cannot_fit_is_refused_and_nothing_leaves(eviction: Eviction) -> None:
    most = capacity(eviction)
    table = make(eviction)
    table.pull(np.arange(4000))
    before = table.keys()
    with pytest.raises(DoesNotFitError, match=r"room for \d+ rows"):
        table.pull(np.arange(1000, most + 5000))
    with pytest.raises(DoesNotFitError, match="at once"):
        table.push(np.arange(most + 5000), np.zeros((most + 5000, DIM), np.float32))
    assert np.array_equal(table.keys(), before)
    assert table.policy_events.evicted_rows == 0
    repeated = np.tile(np.arange(20_000, 23_000), 10)  # more positions than rows, but few keys
    assert table.pull(repeated).shape == (30_000, DIM)


def test_admission_decides_before_rows_leave() -> None:
    table = make("clock", admission=CountAdmission(2, 1 << 16))
    kept = np.arange(3000)
    table.pull(np.repeat(kept, 2))
    for step in range(8):
        table.pull(np.arange(100_000 + 4000 * step, 104_000 + 4000 * step))
    assert table.contains(kept).all()


def test_slots_of_rows_that_left_meanwhile_are_looked_up_again() -> None:
    table = make("clock")
    rows, slots = table.pull_slots([1, 2])
    for step in range(12):
        table.pull(np.arange(100_000 + 3000 * step, 103_000 + 3000 * step))
    assert not table.contains([1, 2]).any()
    table.push_slots(slots, np.ones((2, DIM), np.float32))
    assert np.array_equal(table.pull([1, 2]), rows - 1)


def test_threads_share_a_table_that_drops_rows() -> None:
    table = make("clock", threads=2)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(25):
            keys = random.integers(0, 30_000, 2500)
            _, slots = table.pull_slots(keys)
            table.push_slots(slots, np.zeros((2500, DIM), np.float32))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = table.keys()
    assert len(np.unique(keys)) == len(keys) == len(table)
    assert table.nbytes <= BUDGET
    initial = EmbeddingTable(DIM).pull(keys)
    assert np.array_equal(table.pull(keys, create=False), initial)
