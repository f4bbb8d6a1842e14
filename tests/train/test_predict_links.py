"""Predicting links: what is held out, what must not be seen, negatives, baselines, and measuring models."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import PredictLinksTaskConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.train import (
    GraphView,
    LinkSplit,
    TrainedModel,
    evaluate_baselines,
    evaluate_link_embeddings,
    load_split,
    make_split,
    save_split,
)
from graphbox.train.evaluate import evaluate_trained
from graphbox.train.links.baselines import LINK_BASELINES, _paths
from graphbox.train.splitting.predict_links import known_targets
from graphbox.train.tasks import FOLDS, Fold
from tests.train.conftest import ITEMS as NODES
from tests.train.letters import stream_graph, stream_task
from tests.train.shop import ITEMS, TASTES, USERS, build_shop

Pairs = set[tuple[int, int]]
SEEN: tuple[Fold, ...] = ("train", "test")
SPLITS: dict[str, dict[str, Any]] = {
    "random": {"kind": "random"},
    "time": {"kind": "time"},
    "leave_last_out": {"kind": "leave_last_out"},
    "given_column": {"kind": "given", "feature": "part", "ignored": ("unused",)},
    "given_relation": {"kind": "given", "test_relations": ("bought_later",)},
}
EVENTS = {"time", "leave_last_out", "given_column"}


def task_of(name: str, **settings: Any) -> PredictLinksTaskConfig:
    return PredictLinksTaskConfig.model_validate(
        {
            "kind": "predict_links",
            "node_type": "user",
            "target_type": "item",
            "relations": ("bought",),
            "split": SPLITS[name],
            **settings,
        }
    )


def split_of(graph: Graph, task: PredictLinksTaskConfig, seed: int = 3) -> LinkSplit:
    split = make_split(graph, task, seed)
    assert isinstance(split, LinkSplit)
    return split


def pairs_of(edges: NDArray[np.int64]) -> Pairs:
    return {(int(source), int(target)) for source, target in edges}


def joined(view: GraphView, ends: tuple[str, str]) -> list[tuple[int, int]]:
    """Return the pairs that each edge of any relation joins, in either direction."""
    found: list[tuple[int, int]] = []
    for edge_type in view.edge_types:
        source, target = (part.tolist() for part in view.csc(edge_type).coo())
        if (edge_type[0], edge_type[2]) == ends:
            found += zip(source, target, strict=True)
        if (edge_type[2], edge_type[0]) == ends:
            found += zip(target, source, strict=True)
    return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def items_task() -> PredictLinksTaskConfig:
    return PredictLinksTaskConfig(
        kind="predict_links",
        node_type="item",
        relations=("likes", "fits"),
        exclude_relations=("needs",),
        negatives=4,
    )


class TestHeldOut:
    @pytest.mark.parametrize("name", SPLITS)
    def test_edges_are_in_one_fold_and_in_no_view_before(self, shop: Graph, name: str) -> None:
        split = split_of(shop, task_of(name))
        assert split.is_stream == (name in EVENTS)
        parts = {fold: split.part(fold) for fold in FOLDS}
        assert all(len(part.edges) for part in parts.values())
        train = pairs_of(parts["train"].edges)
        new = {
            "validation": pairs_of(parts["validation"].edges) - train,
            "test": pairs_of(parts["test"].edges) - train - pairs_of(parts["validation"].edges),
        }
        assert new["validation"]
        assert new["test"]
        for fold in SEEN:
            hidden = new["test"] if fold == "test" else new["test"] | new["validation"]
            for view in (GraphView(shop, split, fold), GraphView(shop, split, fold).with_reverse_edges()):
                assert not hidden & set(joined(view, ("user", "item")))
            if not split.is_stream:
                assert train <= set(joined(GraphView(shop, split, fold), ("user", "item")))

    @pytest.mark.parametrize("name", sorted(EVENTS))
    def test_an_event_is_held_out_though_its_pair_is_known(self, shop: Graph, name: str) -> None:
        split = split_of(shop, task_of(name))
        again = pairs_of(split.part("train").edges) & pairs_of(split.part("test").edges)
        assert again, "pairs that come again are what this is about"
        for fold, known in (("train", 1), ("test", 2)):
            view = GraphView(shop, split, "test" if fold == "test" else "train")
            csc, expected = view.csc(("user", "bought", "item")), split.edges[split.fold < known]
            source, target = csc.coo()
            assert csc.timestamp is not None
            seen = sorted(zip(source.tolist(), target.tolist(), csc.timestamp.tolist(), strict=True))
            times = split.time[split.fold < known]
            assert seen == sorted((*pair, time) for pair, time in zip(expected.tolist(), times, strict=True))
            back = view.csc(("item", "bought_by", "user"))
            assert sorted(zip(*(part.tolist() for part in back.coo()[::-1]), strict=True)) == sorted(
                zip(source.tolist(), target.tolist(), strict=True)
            )

    def test_time_cuts_the_events(self, shop: Graph) -> None:
        split = split_of(shop, task_of("time", test_fraction=0.25, validation_fraction=0.2))
        train, validation, test = (split.part(fold).time for fold in FOLDS)
        assert train.max() < validation.min() <= validation.max() < test.min()
        for time in (train, validation, test):
            assert (np.diff(time) >= 0).all()
        assert len(test) / len(split.time) == pytest.approx(0.25, abs=0.02)

    def test_only_of_three_or_more_events_the_last_are_held_out(self, tmp_path: Path) -> None:
        graph = stream_graph(tmp_path, messages=60)
        task = PredictLinksTaskConfig.model_validate(
            {
                "kind": "predict_links",
                "node_type": "person",
                "relations": ("wrote",),
                "split": {"kind": "leave_last_out"},
            }
        )
        split = split_of(graph, task)
        counts = np.bincount(split.edges[:, 0], minlength=30)
        assert {1, 2, 3} <= set(counts.tolist())
        for person in range(30):
            own = split.edges[:, 0] == person
            parts = split.fold[own][np.argsort(split.time[own], kind="stable")]
            held_out = [1, 2] if counts[person] >= 3 else []
            assert parts.tolist() == [0] * (counts[person] - len(held_out)) + held_out

    def test_a_validation_part_is_cut_from_the_latest_events_of_training(self, shop: Graph) -> None:
        given = {
            "kind": "given",
            "feature": "part",
            "train": ("train", "valid", "unused"),
            "validation": ("never",),
        }
        whole = split_of(shop, task_of("given_column", split={**given, "validation": ("valid",)}))
        split = split_of(shop, task_of("given_column", split=given, validation_fraction=0.3))
        tested = {
            tuple(each) for each in np.column_stack([whole.edges, whole.time])[whole.fold == 2].tolist()
        }
        rows = np.column_stack([split.edges, split.time]).tolist()
        assert {tuple(each) for each, part in zip(rows, split.fold, strict=True) if part == 2} == tested
        ascending = np.sort(split.time[split.fold < 2])
        begin = ascending[int(0.7 * len(ascending))]
        assert begin in split.time[split.fold == 1]
        np.testing.assert_array_equal(split.time[split.fold < 2] >= begin, split.fold[split.fold < 2] == 1)

    def test_origin_is_the_edge(self, shop: Graph) -> None:
        split = split_of(shop, task_of("time"))
        csc = shop.csc(("user", "bought", "item"))
        source, target = csc.coo()
        assert csc.timestamp is not None
        assert (split.origin[:, 0] == 0).all()
        np.testing.assert_array_equal(source[split.origin[:, 1]], split.edges[:, 0])
        np.testing.assert_array_equal(target[split.origin[:, 1]], split.edges[:, 1])
        np.testing.assert_array_equal(csc.timestamp[split.origin[:, 1]], split.time)

    def test_within_one_type_no_edge_either_way_joins_a_held_out_pair(
        self, graph: Graph, items_task: PredictLinksTaskConfig
    ) -> None:
        split = split_of(graph, items_task)
        needed = {
            frozenset(pair) for pair in pairs_of(np.stack(graph.csc(("item", "needs", "item")).coo(), 1))
        }
        held = {frozenset(pair) for pair in pairs_of(split.part("test").edges)}
        assert not held & needed
        assert not held & {
            frozenset(pair) for pair in joined(GraphView(graph, split, "test"), ("item", "item"))
        }
        validation = {frozenset(pair) for pair in pairs_of(split.part("validation").edges)}
        assert validation <= {
            frozenset(pair) for pair in joined(GraphView(graph, split, "test"), ("item", "item"))
        }
        assert not validation & {
            frozenset(pair) for pair in joined(GraphView(graph, split), ("item", "item"))
        }

    def test_without_pairs(self, shop: Graph) -> None:
        split = split_of(shop, task_of("random"))
        some = split.part("train").edges[::7]
        view = GraphView(shop, split).without_pairs(split, split.pair_keys(some[:, 0], some[:, 1]))
        assert not pairs_of(some) & set(joined(view, ("user", "item")))

    def test_order_of_the_rows_does_not_matter(self, shop: Graph, tmp_path: Path) -> None:
        split = split_of(shop, task_of("random"))
        other = split_of(build_shop(tmp_path, shuffled=True), task_of("random"))
        assert pairs_of(split.part("test").edges) == pairs_of(other.part("test").edges)
        assert split.digest != split_of(shop, task_of("random"), 4).digest

    def test_nothing_held_out_is_said(self, shop: Graph) -> None:
        given = {**SPLITS["given_column"], "ignored": ("unused", "test"), "test": ("never",)}
        with pytest.raises(DataError, match="received none in test"):
            split_of(shop, task_of("given_column", split=given))

    def test_events_of_a_reverse_relation_are_refused(self, shop: Graph) -> None:
        task = task_of("time", node_type="item", target_type="user", relations=("bought_by",))
        with pytest.raises(UsageError, match="the reverse of another"):
            split_of(shop, task)

    def test_times_that_are_not_there_are_said(self, graph: Graph) -> None:
        task = PredictLinksTaskConfig.model_validate(
            {"kind": "predict_links", "node_type": "item", "relations": ("likes",), "split": {"kind": "time"}}
        )
        with pytest.raises(UsageError, match="edges with a timestamp"):
            split_of(graph, task)

    @pytest.mark.parametrize("name", ["random", "time"])
    def test_comes_back_from_disk(self, shop: Graph, name: str, tmp_path: Path) -> None:
        split = split_of(shop, task_of(name))
        save_split(split, tmp_path / "split.npz")
        loaded = load_split(tmp_path / "split.npz")
        assert type(loaded) is LinkSplit
        for key, value in vars(split).items():
            np.testing.assert_array_equal(getattr(loaded, key), value)


class TestNegatives:
    @pytest.mark.parametrize("distribution", ["uniform", "degree"])
    def test_are_no_edges_of_any_part(
        self, graph: Graph, items_task: PredictLinksTaskConfig, distribution: str
    ) -> None:
        task = items_task.model_copy(update={"negative_distribution": distribution})
        split = split_of(graph, task)
        known = pairs_of(split.edges) | pairs_of(split.edges[:, ::-1])
        for fold in ("validation", "test"):
            part = split.part(fold)
            assert len(part.negatives) == 4 * len(part.edges)
            assert not pairs_of(part.negatives) & known
            assert (part.negatives[:, 0] != part.negatives[:, 1]).all()
            source_of = dict(zip(part.query.tolist(), part.edges[:, 0].tolist(), strict=True))
            assert [source_of[query] for query in part.negative_query.tolist()] == part.negatives[
                :, 0
            ].tolist()
        again = split_of(graph, task)
        np.testing.assert_array_equal(again.negatives, split.negatives)

    def test_degree_prefers_popular_targets(self, graph: Graph, items_task: PredictLinksTaskConfig) -> None:
        mean = {}
        for distribution in ("uniform", "degree"):
            split = split_of(graph, items_task.model_copy(update={"negative_distribution": distribution}))
            degree = np.bincount(split.part("train").edges[:, 1], minlength=NODES)
            mean[distribution] = degree[split.part("test").negatives[:, 1]].mean()
        assert mean["degree"] > 1.5 * mean["uniform"]

    def test_given_ones_are_cut_like_the_edges_and_unseen(self, tmp_path: Path) -> None:
        graph = stream_graph(tmp_path)
        task = stream_task()
        split = split_of(graph, task)
        assert split.negative_relations == ("not_wrote",)
        view = GraphView(graph, split, "test")
        assert {edge_type[1] for edge_type in view.edge_types} == {"wrote", "written_by"}
        for fold in ("validation", "test"):
            part = split.part(fold)
            np.testing.assert_array_equal(np.sort(part.negative_time), np.sort(part.time))
            for pair, time, query in zip(
                part.negatives.tolist(),
                part.negative_time.tolist(),
                part.negative_query.tolist(),
                strict=True,
            ):
                mine = (part.edges[:, 0] == pair[0]) & (part.time == time)
                np.testing.assert_array_equal(part.query == query, mine)

    def test_given_ones_that_are_in_no_part_are_counted(self, tmp_path: Path) -> None:
        graph = stream_graph(tmp_path)
        assert split_of(graph, stream_task()).unused_negatives + len(
            split_of(graph, stream_task()).negatives
        ) == graph.num_edges(("person", "not_wrote", "person"))
        later = stream_task().model_copy(update={"test_fraction": 0.1, "validation_fraction": 0.1})
        split = split_of(graph, later)
        time = graph.csc(("person", "not_wrote", "person")).timestamp
        assert time is not None
        assert split.unused_negatives == (time < split.part("validation").time.min()).sum() > 0
        drawn = split_of(graph, later.model_copy(update={"negative_relations": ()}))
        assert drawn.unused_negatives == 0

    def test_batches_go_through_time(self, tmp_path: Path) -> None:
        part = split_of(stream_graph(tmp_path), stream_task()).part("test")
        rows, negative_rows = zip(*part.batches(7), strict=True)
        assert [row.start for row in rows] == list(range(0, len(part.edges), 7))
        assert negative_rows[0].start == 0
        assert negative_rows[-1].stop == len(part.negatives)
        for number, (mine, others) in enumerate(zip(rows, negative_rows, strict=True)):
            if number:
                assert others.start == negative_rows[number - 1].stop
                assert (part.negative_time[others] > part.time[rows[number - 1]].max()).all()
            assert (part.negative_time[others] <= part.time[mine].max()).all()

    def test_are_no_edges_of_no_part_nor_of_excluded_relations(self, shop: Graph) -> None:
        csc = shop.csc(("user", "bought", "item"))
        task = task_of("given_column", negatives=30, exclude_relations=("bought_later",))
        split = split_of(shop, task)
        for relation in ("bought", "bought_later"):
            edges = np.stack(shop.csc(("user", relation, "item")).coo(), axis=1)
            assert not pairs_of(split.negatives) & pairs_of(edges)
        # What is in no part stays in none, though an excluded relation joins it.
        of_file = np.asarray(shop.edge_feature(("user", "bought", "item"), "part")).astype(np.int64)
        part = of_file[csc.ids_at(np.arange(csc.num_edges))]
        names = shop.edge_features(("user", "bought", "item"))["part"].categories
        assert names is not None
        assert len(split.edges) == (part != names.index("unused")).sum()

    def test_given_ones_that_are_edges_of_their_part_are_refused(self, shop: Graph) -> None:
        task = task_of("random", negative_relations=("bought_later",))
        with pytest.raises(DataError, match="no edges of the part they are in"):
            split_of(shop, task)

    def test_source_that_is_joined_to_all_has_none(self) -> None:
        task = PredictLinksTaskConfig(
            kind="predict_links", node_type="node", relations=("to",), test_fraction=0.4
        )
        source, target = (part.ravel() for part in np.meshgrid(np.arange(12), np.arange(12)))
        complete = Graph.from_coo(source[source < target], target[source < target], num_nodes=12)
        with pytest.raises(DataError, match="joined to every target"):
            split_of(complete, task)
        star = Graph.from_coo([*[0] * 40, *range(1, 40)], [*range(1, 41), *range(2, 41)], num_nodes=41)
        split = split_of(star, task)
        assert 0 in split.part("test").edges[:, 0]
        assert 0 not in split.negatives[:, 0]
        assert len(split.negatives)


class TestBaselines:
    def test_popularity_and_shared_neighbors(self, graph: Graph, items_task: PredictLinksTaskConfig) -> None:
        split = split_of(graph, items_task)
        neighbors: dict[int, set[int]] = {node: set() for node in range(NODES)}
        for source, target in split.part("train").edges.tolist():
            neighbors[source].add(target)
            neighbors[target].add(source)
        part = split.part("validation")
        for pairs, scores in zip(
            (part.edges, part.negatives), LINK_BASELINES["adamic_adar"](split, "validation", 1), strict=True
        ):
            expected = [
                sum(1 / math.log(max(len(neighbors[node]), 2)) for node in neighbors[one] & neighbors[other])
                for one, other in pairs.tolist()
            ]
            np.testing.assert_allclose(scores, expected, rtol=1e-5)

    def test_shared_neighbors_among_many_nodes_take_little_memory(self) -> None:
        # As a dense block of sources and targets they would take 40 GB.
        source, target = np.arange(5000) % 1300, np.random.default_rng(0).integers(0, 10_000_000, 5000)
        pairs = np.stack([source, target], axis=1)
        linked = known_targets(pairs, 1300, 10_000_000, within_one_type=False)
        back = sp.csr_array(linked.T)
        scores = _paths(linked, linked, pairs, back)
        assert scores.min() >= 1.0
        degree = linked.sum(axis=1)
        np.testing.assert_array_equal(scores >= degree[source], True)

    def test_between_two_types_paths_have_length_three(self, shop: Graph) -> None:
        split = split_of(shop, task_of("random"))
        bought: dict[int, set[int]] = {user: set() for user in range(USERS)}
        buyers: dict[int, set[int]] = {item: set() for item in range(ITEMS)}
        for user, item in split.known("test").tolist():
            bought[user].add(item)
            buyers[item].add(user)

        def weight(nodes: set[int]) -> float:
            return 1 / math.log(max(len(nodes), 2))

        part = split.part("test")
        scores = LINK_BASELINES["adamic_adar"](split, "test", 1)[0]
        for (user, item), score in zip(part.edges[:40].tolist(), scores, strict=False):
            expected = sum(
                weight(buyers[shared]) * weight(bought[other])
                for shared in bought[user]
                for other in buyers[shared]
                if item in bought[other]
            )
            assert score == pytest.approx(expected, rel=1e-5)

    def test_seen_before(self, tmp_path: Path) -> None:
        split = split_of(stream_graph(tmp_path), stream_task())
        part = split.part("test")
        known = pairs_of(split.edges[split.fold < 2])
        still, online = (
            LINK_BASELINES[name](split, "test", 9) for name in ("seen_before", "seen_before_online")
        )
        for pairs, scores in zip((part.edges, part.negatives), still, strict=True):
            assert scores.tolist() == [float(tuple(pair) in known) for pair in pairs.tolist()]
        seen = set(known)
        for rows, others in part.batches(9):
            assert online[0][rows].tolist() == [tuple(pair) in seen for pair in part.edges[rows].tolist()]
            assert online[1][others].tolist() == [
                tuple(pair) in seen for pair in part.negatives[others].tolist()
            ]
            seen |= pairs_of(part.edges[rows])

    def test_reports(self, shop: Graph, tmp_path: Path) -> None:
        task = task_of("random")
        report = evaluate_baselines(shop, split_of(shop, task), task)
        assert set(report) == {"popularity", "adamic_adar"}
        assert report["adamic_adar"]["auc"] > 0.75
        graph, task = stream_graph(tmp_path), stream_task()
        report = evaluate_baselines(graph, split_of(graph, task), task)
        assert set(report) == {"popularity", "adamic_adar", "seen_before", "seen_before_online"}
        assert report["seen_before"]["average_precision"] <= report["seen_before_online"]["average_precision"]

    def test_baseline_that_needs_events_is_refused(self, shop: Graph) -> None:
        task = task_of("random", baselines=("seen_before",))
        with pytest.raises(UsageError, match="events for the baseline seen_before"):
            evaluate_baselines(shop, split_of(shop, task), task)


class TestModels:
    def test_embeddings_that_know_the_tastes(self, shop: Graph) -> None:
        task = task_of("random", negatives=5, hits=(1, 5))
        split = split_of(shop, task)
        tastes = np.eye(TASTES, 8, dtype=np.float32)
        users, items = tastes[np.arange(USERS) % TASTES], tastes[np.arange(ITEMS) % TASTES]
        report = evaluate_link_embeddings(shop, split, task, users, items)
        assert report["auc"] > 0.75
        assert report["positives"] * 5 == report["negatives"]
        noise = np.random.default_rng(0).normal(size=(USERS + ITEMS, 8)).astype(np.float32)
        assert evaluate_link_embeddings(shop, split, task, noise[:USERS], noise[USERS:])["auc"] < 0.6
        whole = TrainedModel("walks", "embedding", "buys", "user", {"user": users, "item": items})
        assert evaluate_trained(shop, split, task, whole) == report
        towers = TrainedModel("towers", "two_tower", "buys", "user", {"user": users}, None, "item", items)
        assert evaluate_trained(shop, split, task, towers)["auc"] > 0.75

    def test_scores_given_in_time_count_themselves(self, shop: Graph) -> None:
        task = task_of("time")
        split = split_of(shop, task)
        part = split.part("test")
        scores = np.repeat([1, 0], [len(part.edges), len(part.negatives)]).astype(np.float32)
        perfect = TrainedModel("seer", "embedding", "buys", "user", {}, link_scores=scores)
        assert evaluate_trained(shop, split, task, perfect)["auc"] == 1.0

    def test_no_pairs_to_learn_from_is_said(self) -> None:
        # Each training source is joined to all there is; only the others have anything that is no edge.
        source = [0] * 5 + [1, 1]
        graph = Graph.from_coo(source, [0, 1, 2, 3, 4, 0, 1], num_nodes=5)
        task = PredictLinksTaskConfig(kind="predict_links", node_type="node", relations=("to",))
        split = dataclasses.replace(
            split_of(graph, task, 0),
            edges=np.array([[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [1, 1], [2, 3]]),
            fold=np.array([0, 0, 0, 0, 0, 1, 2], np.int8),
        )
        vectors = np.ones((5, 2), np.float32)
        with pytest.raises(DataError, match="joined to every target"):
            evaluate_link_embeddings(graph, split, task, vectors, vectors)

    def test_wrong_embeddings_are_said(self, shop: Graph) -> None:
        task = task_of("random")
        split = split_of(shop, task)
        users, items = np.zeros((USERS, 4), np.float32), np.zeros((ITEMS, 4), np.float32)
        with pytest.raises(DataError, match="with NaN or infinity"):
            evaluate_link_embeddings(shop, split, task, np.full_like(users, np.nan), items)
        with pytest.raises(DataError, match="of one length, received 4 and 3"):
            evaluate_link_embeddings(shop, split, task, users, items[:, :3])
        blind = TrainedModel("walks", "embedding", "buys", "user", {"user": users})
        with pytest.raises(DataError, match="expected embeddings of item, received those of user"):
            evaluate_trained(shop, split, task, blind)
