"""Events in the order of time, and what a task of kind next holds out of them, beside plain loops."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.config import NextTaskConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import GraphView, NextSplit, load_split, make_split, save_split
from graphbox.train.splitting import unit_hash
from graphbox.train.tasks import FOLDS
from tests.train.conftest import write
from tests.train.visits import Visits, graph_of, some_visits, task_of


def split_of(graph: Graph, task: NextTaskConfig, seed: int = 0) -> NextSplit:
    split = make_split(graph, task, seed)
    assert isinstance(split, NextSplit)
    return split


def in_order(visits: Visits) -> dict[str, list[tuple[str, int]]]:
    """Return place and time of each visitor's visits in their order: a plain sort."""
    found = defaultdict(list)
    for visitor, place, time in visits:
        number = float(unit_hash(0, [f"node {visitor}\0node {place}"])[0])
        found[visitor].append((time, number, place))
    return {visitor: [(place, time) for time, _, place in sorted(each)] for visitor, each in found.items()}


def places_of(graph: Graph, split: NextSplit) -> dict[str, list[tuple[str, str]]]:
    """Return place and fold of the events of each visitor."""
    visitors, places = graph.ids("visitor").tolist(), graph.ids("place").tolist()
    found = {}
    for number, visitor in enumerate(visitors):
        events = range(split.offsets[number], split.offsets[number + 1])
        found[visitor] = [(places[split.items[each]], FOLDS[split.fold[each]]) for each in events]
    return found


@pytest.fixture(scope="module")
def visits() -> Visits:
    return some_visits()


@pytest.fixture(scope="module")
def graph(visits: Visits, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return graph_of(tmp_path_factory.mktemp("visits"), visits)


class TestOrder:
    def test_is_that_of_time_then_of_a_hash(self, graph: Graph, visits: Visits) -> None:
        found = places_of(graph, split_of(graph, task_of()))
        expected = in_order(visits)
        assert any(first[1] == second[1] for each in expected.values() for first, second in pairwise(each))
        assert {visitor: [place for place, _ in each] for visitor, each in found.items()} == {
            visitor: [place for place, _ in each] for visitor, each in expected.items()
        }

    def test_depends_neither_on_rows_nor_relations_nor_the_seed(
        self, graph: Graph, visits: Visits, tmp_path: Path
    ) -> None:
        dealt = graph_of(tmp_path, visits[::-1], relations=3)
        assert places_of(dealt, split_of(dealt, task_of(3), seed=7)) == places_of(
            graph, split_of(graph, task_of())
        )


class TestLeaveLastOut:
    def test_holds_out_the_last_two_events_of_each_node_with_three(
        self, graph: Graph, visits: Visits
    ) -> None:
        found = places_of(graph, split_of(graph, task_of()))
        assert {len(each) for each in found.values()} >= {1, 2, 3}
        for events in found.values():
            folds = [fold for _, fold in events]
            last = ["validation", "test"] if len(events) >= 3 else []
            assert folds == ["train"] * (len(events) - len(last)) + last
        assert len(found) == len({visitor for visitor, _, _ in visits})

    @pytest.mark.parametrize("repeat", [False, True])
    def test_tests_events_with_a_history_and_repetitions_where_asked(
        self, graph: Graph, repeat: bool
    ) -> None:
        split = split_of(graph, task_of(repeat=repeat))
        held_out = 0
        for fold in ("validation", "test"):
            expected = []
            for first, last in pairwise(split.offsets.tolist()):
                for event in range(first, last):
                    if split.fold[event] != FOLDS.index(fold):
                        continue
                    held_out += 1
                    is_new = split.items[event] not in split.items[first:event]
                    if event > first and (repeat or is_new):
                        expected.append(event)
            assert split.tested(fold).tolist() == expected
        assert split.untested == held_out - len(split.validation) - len(split.test)
        assert (split.untested > 0) == (not repeat)


class TestTime:
    def test_cuts_all_nodes_at_the_same_times(self, graph: Graph, visits: Visits) -> None:
        task = task_of(split={"kind": "time"}, test_fraction=0.2, validation_fraction=0.2)
        split = split_of(graph, task)
        times = {fold: set() for fold in FOLDS}  # type: ignore[var-annotated]
        ordered = in_order(visits)
        for number, visitor in enumerate(graph.ids("visitor").tolist()):
            events = range(split.offsets[number], split.offsets[number + 1])
            for event, (_, time) in zip(events, ordered[visitor], strict=True):
                times[FOLDS[split.fold[event]]].add(time)
        assert max(times["train"]) < min(times["validation"])
        assert max(times["validation"]) < min(times["test"])
        # Several events of a node are tested, each from those before it, tested ones included.
        nodes = split.nodes_of(split.test)
        assert len(np.unique(nodes)) < len(nodes)
        histories = split.histories(split.test)
        for number, event in enumerate(split.test.tolist()):
            first = split.offsets[nodes[number]]
            history = histories.values[histories.offsets[number] : histories.offsets[number + 1]]
            np.testing.assert_array_equal(history, split.items[first:event])


class TestHides:
    @pytest.mark.parametrize("fold", FOLDS)
    def test_events_of_later_folds_in_both_directions(self, graph: Graph, fold: Any) -> None:
        split = split_of(graph, task_of())
        view = GraphView(graph, split, fold).with_reverse_edges()
        known = split.known(fold)
        node = np.repeat(np.arange(len(known.offsets) - 1), np.diff(known.offsets))
        expected = sorted(zip(node.tolist(), known.values.tolist(), strict=True))
        source, target = view.csc(("visitor", "visited_0", "place")).coo()
        assert sorted(zip(source.tolist(), target.tolist(), strict=True)) == expected
        target, source = view.csc(("place", "rev_visited_0", "visitor")).coo()
        assert sorted(zip(source.tolist(), target.tolist(), strict=True)) == expected
        last = 1 if fold == "test" else 0
        assert len(known.values) == np.count_nonzero(split.fold <= last)


class TestFile:
    def test_is_read_as_it_was_written(self, graph: Graph, tmp_path: Path) -> None:
        split = split_of(graph, task_of())
        save_split(split, tmp_path / "split.npz")
        read = load_split(tmp_path / "split.npz")
        assert vars(read).keys() == vars(split).keys()
        for name, value in vars(split).items():
            np.testing.assert_array_equal(getattr(read, name), value)


class TestRefuses:
    def test_edges_without_times(self, tmp_path: Path) -> None:
        write(tmp_path / "edges.parquet", source=["a", "a", "a"], target=["x", "y", "z"])
        edges = EdgeSource(("visitor", "visited_0", "place"), tmp_path / "edges.parquet")
        nodes = {"visitor": NodeSource(), "place": NodeSource()}
        import_graph(GraphSource("visits", nodes, (edges,)), tmp_path / "graph")
        with pytest.raises(UsageError, match=r"expected edges with a timestamp .* received none"):
            make_split(Graph.open(tmp_path / "graph"), task_of(), 0)

    def test_nodes_of_one_event_each(self, tmp_path: Path) -> None:
        graph = graph_of(tmp_path, [("a", "x", 1), ("b", "y", 2)])
        with pytest.raises(DataError, match="with a history in each fold, received none in train"):
            make_split(graph, task_of(), 0)

    def test_two_events_each(self, tmp_path: Path) -> None:
        graph = graph_of(tmp_path, [("a", "x", 1), ("a", "y", 2), ("b", "y", 2)])
        with pytest.raises(DataError, match="received none in validation") as raised:
            make_split(graph, task_of(), 0)
        assert raised.value.hint == "only what has three or more edges is tested"
