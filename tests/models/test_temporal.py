"""The memory of streams and the network over it, beside plain loops."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch

from graphbox.models.recent import FADING_EVENTS, RecentEvents, count_in
from graphbox.models.temporal import TemporalLinkScorer
from graphbox.table import EmbeddingTable
from graphbox.train.temporal.event_memory import EventMemory, Events

NODES, LENGTH = 12, 4


def random_events(seed: int, count: int, targets: int = NODES) -> Events:
    generator = np.random.default_rng(seed)
    return Events(
        generator.integers(0, NODES, count),
        generator.integers(0, targets, count),
        generator.integers(0, 2, count),
        np.sort(generator.integers(0, 1000, count)),
    )


class PlainMemory:
    """Reference of :class:`RecentEvents`, event by event."""

    def __init__(self) -> None:
        self.recent = [deque[tuple[int, int, int, int]](maxlen=LENGTH) for _ in range(NODES)]
        self.all: list[list[tuple[int, int, int]]] = [[] for _ in range(NODES)]

    def add(self, node: int, partner: int, kind: int, role: int, time: int, number: int) -> None:
        self.recent[node].append((partner, kind, time, number))
        self.all[node].append((role, time, number))


def filled(
    batches: tuple[int, ...], *, one_type: bool
) -> tuple[EventMemory, tuple[PlainMemory, PlainMemory]]:
    memory = EventMemory(NODES, NODES, LENGTH, one_type=one_type)
    plain = (PlainMemory(), PlainMemory())
    ends = (plain[0], plain[0] if one_type else plain[1])
    events, start, number = random_events(3, sum(batches)), 0, 0
    for size in batches:
        memory.add(events[start : start + size])
        for row in range(start, start + size):
            source, target = int(events.source[row]), int(events.target[row])
            relation, time = int(events.relation[row]), int(events.time[row])
            ends[0].add(source, target, 2 * relation, 0, time, number)
            ends[1].add(target, source, 2 * relation + 1, 1, time, number)
            number += 1
        start += size
    return memory, ends


@pytest.mark.parametrize("one_type", [True, False])
@pytest.mark.parametrize("batches", [(1,) * 30, (7, 1, 40, 3), (90,)])
def test_memory_is_that_of_a_loop(batches: tuple[int, ...], one_type: bool) -> None:
    memory, ends = filled(batches, one_type=one_type)
    now = sum(batches)
    for end, plain in zip(memory.ends, ends, strict=True):
        view = end.view(np.arange(NODES), now)
        for node in range(NODES):
            rows = sorted(
                zip(
                    *(part[node].tolist() for part in (view.partner, view.kind, view.time, view.number)),
                    strict=True,
                )
            )
            expected = [*plain.recent[node], *[(-1, -1, -1, -1)] * (LENGTH - len(plain.recent[node]))]
            # A loop to oneself stands twice, in either order.
            assert rows == sorted(expected)
            assert view.count[node] == len(plain.all[node])
            for role in (0, 1):
                mine = [(time, number) for its, time, number in plain.all[node] if its == role]
                assert view.last_number[node, role] == (mine[-1][1] if mine else -1)
                assert not mine or view.last_time[node, role] == mine[-1][0]
                rate = [sum(np.exp(-(now - number) / each) for _, number in mine) for each in FADING_EVENTS]
                np.testing.assert_allclose(view.rate[node, role], rate, atol=1e-12)


def test_memory_comes_back_and_grows() -> None:
    memory, _ = filled((9, 30), one_type=False)
    again = EventMemory.restore(memory.tensors())
    later = random_events(8, 20)
    memory.add(later)
    before = again.ends[0].view(np.array([0, NODES + 5]), 39)
    assert (before.partner[1] == -1).all()
    assert before.count[1] == 0
    again.grow(NODES + 9, NODES)
    again.add(later)
    for mine, theirs in zip(memory.ends, again.ends, strict=True):
        one, other = (each.view(np.arange(NODES), 59) for each in (mine, theirs))
        for name, value in vars(one).items():
            np.testing.assert_array_equal(value, getattr(other, name))


def test_counts_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(0)
    keys, others = generator.integers(-1, 6, (20, 5)), generator.integers(-1, 6, (20, 7))
    counts = count_in(keys, others)
    for row in range(20):
        for place in range(5):
            if keys[row, place] >= 0:
                assert counts[row, place] == others[row].tolist().count(keys[row, place])


@pytest.mark.parametrize("one_type", [True, False])
def test_inputs_say_how_often_each_stands_in_either_list(one_type: bool) -> None:
    memory, ends = filled((40,), one_type=one_type)
    source, target = np.arange(NODES), (np.arange(NODES) * 5 + 1) % NODES
    inputs = memory.inputs(source, target, np.full(NODES, 1000))
    types = (0, 0) if one_type else (0, 1)
    for row in range(NODES):
        lists = []
        for end, node in enumerate((source[row], target[row])):
            partners = [2 * event[0] + types[1 - end] for event in ends[end].recent[node]]
            lists.append([2 * int(node) + types[end], *partners])
        for end, events in enumerate((inputs.source, inputs.target)):
            there = events.keys[row] >= 0
            keys = events.keys[row][there].tolist()
            assert sorted(keys) == sorted(lists[end])
            assert keys[0] == lists[end][0]
            for key, counts in zip(keys, events.counts[row][there].tolist(), strict=True):
                assert counts == [lists[end].count(key), lists[1 - end].count(key)]
            assert (events.kind[row][1:][there[1:]] >= 1).all()
            assert events.kind[row, 0] == 0


class TestNetwork:
    def test_no_event_that_is_not_there_counts(self) -> None:
        memory, _ = filled((40,), one_type=True)
        longer = EventMemory(NODES, NODES, LENGTH + 6, one_type=True)
        few = random_events(5, 6)
        short = EventMemory(NODES, NODES, LENGTH + 1, one_type=True)
        longer.add(few)
        short.add(few)
        torch.manual_seed(0)
        network = TemporalLinkScorer(4, 8, 0.0).eval()
        pairs = (np.arange(NODES), np.arange(NODES)[::-1].copy(), np.full(NODES, 1200))
        fits = longer.ends[0].view(np.arange(NODES), 6).count <= LENGTH
        fits &= fits[::-1]
        with torch.no_grad():
            one, other = network(longer.inputs(*pairs)), network(short.inputs(*pairs))
        assert fits.any()
        torch.testing.assert_close(one[torch.from_numpy(fits)], other[torch.from_numpy(fits)])
        assert memory.events == 40

    def test_rows_learn(self) -> None:
        memory, _ = filled((40,), one_type=False)
        table = EmbeddingTable(4, seed=1)
        network = TemporalLinkScorer(4, 8, 0.0, table)
        inputs = memory.inputs(np.arange(NODES), np.arange(NODES), np.full(NODES, 1000))
        network(inputs).sum().backward()
        keys = {*inputs.source.keys.flatten().tolist(), *inputs.target.keys.flatten().tolist()} - {-1}
        assert len(table) == len(keys)

    def test_vectors_of_nodes_do_not_depend_on_partners(self) -> None:
        memory, _ = filled((40,), one_type=False)
        network = TemporalLinkScorer(4, 8, 0.0).eval()
        with torch.no_grad():
            vectors = network.encode(memory.node_events(1, np.arange(NODES + 3)))
            again = network.encode(memory.node_events(1, np.arange(NODES + 3)[::-1].copy()))
        assert vectors.shape == (NODES + 3, 16)
        torch.testing.assert_close(vectors, again.flip(0))
        torch.testing.assert_close(vectors[NODES], vectors[NODES + 1])


def test_ring_keeps_the_latest_of_a_batch_that_is_longer() -> None:
    ring = RecentEvents(1, 3)
    zeros = np.zeros(8, dtype=np.int64)
    ring.add(zeros, np.arange(8), zeros, zeros, np.arange(8), np.arange(8))
    assert sorted(ring.view(np.array([0]), 8).partner[0].tolist()) == [5, 6, 7]


def test_times_before_the_year_1970_are_times_like_others() -> None:
    later, earlier = (RecentEvents(3, 2) for _ in range(2))
    node, other, role = np.array([0, 0, 1]), np.array([1, 2, 0]), np.array([0, 1, 1])
    time, kind, number = np.array([10, 20, 30]), np.zeros(3, np.int64), np.arange(3)
    later.add(node, other, kind, role, time, number)
    earlier.add(node, other, kind, role, time - 1000, number)
    every = np.arange(4)
    here, before = later.view(every, 3), earlier.view(every, 3)
    there = here.last_number >= 0
    assert there.sum() == 3
    np.testing.assert_array_equal(here.last_time[there], before.last_time[there] + 1000)
