"""Baselines and ranking queries against loops over sets of edges."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig
from graphbox.errors import InterruptedRunError, UsageError
from graphbox.graph import Graph
from graphbox.metrics import UNWATCHED
from graphbox.train import ClassifySplit, GraphView, RecommendSplit, evaluate_baselines
from graphbox.train.baselines import RECOMMEND_BASELINES, baselines_of
from graphbox.train.closed_forms import EASE_PENALTIES
from graphbox.train.node_baselines import CLASSIFY_BASELINES, SGC_STRENGTHS
from graphbox.train.recommendation.queries import in_degree, known_links, ranking_queries
from tests.train.conftest import ITEMS

Edges = set[tuple[int, int]]
QUERIES = np.arange(0, ITEMS, 17)


@pytest.fixture(scope="module")
def view(graph: Graph, recommend_split: RecommendSplit) -> GraphView:
    return GraphView(graph, recommend_split)


def edges_of(view: GraphView, *relations: str) -> Edges:
    found: Edges = set()
    for relation in relations:
        source, target = view.csc(("item", relation, "item")).coo()
        found.update(zip(source.tolist(), target.tolist(), strict=True))
    return found


def undirected(view: GraphView) -> dict[int, set[int]]:
    neighbors: dict[int, set[int]] = {node: set() for node in range(ITEMS)}
    for source, target in edges_of(view, "needs", "likes", "fits"):
        neighbors[source].add(target)
        neighbors[target].add(source)
    return neighbors


def scores_of(name: str, view: GraphView, split: RecommendSplit) -> NDArray[np.float32]:
    return np.asarray(RECOMMEND_BASELINES[name](view, split, "topic", UNWATCHED.check)(QUERIES))


@pytest.mark.parametrize(
    ("name", "rows"), [("user_knn", 8), ("adamic_adar", 8), ("personalized_pagerank", 16)]
)
def test_baselines_can_be_stopped_within_a_block(
    name: str, rows: int, view: GraphView, recommend_split: RecommendSplit
) -> None:
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 100:
            raise InterruptedRunError("stopped on request")

    queries = np.arange(ITEMS)
    score = RECOMMEND_BASELINES[name](view, recommend_split, "topic", check)
    assert checks == 0
    pieces = [score(queries[start : start + rows]) for start in range(0, 2 * rows, rows)]
    assert 2 <= checks < 30, "once or more for each piece"
    np.testing.assert_array_equal(np.concatenate(pieces), score(queries[: 2 * rows]))
    with pytest.raises(InterruptedRunError):
        score(np.tile(queries, 100))
    assert checks == 100, "nothing is scored after the stop"


class TestQueries:
    def test_candidates(self, view: GraphView, recommend_split: RecommendSplit) -> None:
        queries = ranking_queries(view, recommend_split, "validation")
        linked = undirected(view)
        group = recommend_split.group
        for number, query in enumerate(queries.queries.tolist()):
            masked = queries.masked[queries.masked_indptr[number] : queries.masked_indptr[number + 1]]
            assert len(masked) == len(set(masked.tolist()))
            assert set(masked.tolist()) == linked[query] | set(np.flatnonzero(group == group[query]).tolist())
            first, last = queries.positive_indptr[number : number + 2]
            answers = set(queries.positives[first:last].tolist())
            assert answers == {a for q, a in recommend_split.validation.tolist() if q == query}
            assert not answers & set(masked.tolist())

    def test_links_go_both_ways_where_the_view_has_no_such_edges(
        self, graph: Graph, recommend_split: RecommendSplit
    ) -> None:
        view, (first, second) = GraphView(graph, recommend_split, "test"), (3, 8)
        assert second not in undirected(view)[first]
        # As of relations that are held out as a whole, whose edges no view has.
        split = replace(recommend_split, validation=np.array([[first, second]]))
        links = known_links(view, split)
        assert second in links.take(np.array([first]))[1]
        assert first in links.take(np.array([second]))[1]

    def test_links_and_in_degree(self, view: GraphView, recommend_split: RecommendSplit) -> None:
        links, linked = known_links(view, recommend_split), undirected(view)
        for node in range(ITEMS):
            assert set(links.take(np.array([node]))[1].tolist()) == linked[node]
        counts = Counter(target for _, target in edges_of(view, "likes", "fits"))
        assert in_degree(view, recommend_split).tolist() == [counts[node] for node in range(ITEMS)]


class TestRecommend:
    def test_popular(self, view: GraphView, recommend_split: RecommendSplit) -> None:
        counts = Counter(target for _, target in edges_of(view, "likes", "fits"))
        expected = [[counts[node] for node in range(ITEMS)]] * len(QUERIES)
        np.testing.assert_array_equal(scores_of("popular", view, recommend_split), expected)

    def test_popular_within_category(
        self, graph: Graph, view: GraphView, recommend_split: RecommendSplit
    ) -> None:
        topic = graph.feature("item", "topic")
        edges = edges_of(view, "likes", "fits")
        total = Counter(target for _, target in edges)
        most = max(total.values())
        scores = scores_of("popular_within_category", view, recommend_split)
        for row, query in enumerate(QUERIES.tolist()):
            within = Counter(target for source, target in edges if topic[source] == topic[query])
            expected = [within[node] + total[node] / (most + 1) for node in range(ITEMS)]
            assert scores[row] == pytest.approx(expected, rel=1e-5)

    def test_adamic_adar(self, view: GraphView, recommend_split: RecommendSplit) -> None:
        linked = undirected(view)
        scores = scores_of("adamic_adar", view, recommend_split)
        for row, query in enumerate(QUERIES.tolist()):
            expected = [
                sum(1 / math.log(max(len(linked[node]), 2)) for node in linked[query] & linked[other])
                for other in range(ITEMS)
            ]
            assert scores[row] == pytest.approx(expected, rel=1e-5)

    def test_personalized_pagerank(self, view: GraphView, recommend_split: RecommendSplit) -> None:
        linked = undirected(view)
        scores = scores_of("personalized_pagerank", view, recommend_split)
        for row, query in enumerate(QUERIES.tolist()):
            mass = np.eye(ITEMS)[query]
            for _ in range(10):
                after = np.zeros(ITEMS)
                for node, neighbors in linked.items():
                    for other in neighbors:
                        after[other] += 0.85 * mass[node] / len(neighbors)
                after[query] += 0.15
                mass = after
            assert scores[row] == pytest.approx(mass, abs=1e-6)

    def test_user_knn(self, view: GraphView, recommend_split: RecommendSplit) -> None:
        out = edges_of(view, "needs", "likes", "fits")
        answers = edges_of(view, "likes", "fits")
        popularity = Counter(target for _, target in out)
        profile = np.zeros((ITEMS, ITEMS))
        for source, target in out:
            profile[source, target] = math.log(ITEMS / popularity[target])
        norm = np.linalg.norm(profile, axis=1, keepdims=True)
        profile /= np.where(norm > 0, norm, 1)
        similarity = (profile @ profile.T) ** 2
        expected = np.zeros((len(QUERIES), ITEMS))
        for source, target in answers:
            expected[:, target] += similarity[QUERIES, source]
        scores = scores_of("user_knn", view, recommend_split)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)

    def test_ease_is_told_its_penalty_by_the_validation_part(
        self, graph: Graph, recommend_split: RecommendSplit
    ) -> None:
        view = GraphView(graph, recommend_split, "test")
        known = np.zeros((ITEMS, ITEMS), np.float64)
        for source, target in edges_of(view, "likes", "fits"):
            known[source, target] = 1.0
        train = known.copy()
        train[tuple(recommend_split.validation.T)] = 0.0

        def weights(answers: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
            inverse = np.linalg.inv(answers.T @ answers + penalty * np.eye(ITEMS))
            found = -inverse / np.diagonal(inverse)
            np.fill_diagonal(found, 0.0)
            return np.asarray(found)

        def recall(penalty: float) -> float:
            found = train @ weights(train, penalty)
            found[train > 0] = -np.inf
            shares = []
            for query in np.unique(recommend_split.validation[:, 0]):
                wanted = set(
                    recommend_split.validation[recommend_split.validation[:, 0] == query, 1].tolist()
                )
                first = np.argsort(-found[query], kind="stable")[:20].tolist()
                shares.append(len(wanted & set(first)) / len(wanted))
            return float(np.mean(shares))

        best = max(EASE_PENALTIES, key=recall)
        scores = RECOMMEND_BASELINES["ease"](view, recommend_split, None, UNWATCHED.check)(QUERIES)
        np.testing.assert_allclose(scores, (known @ weights(known, best))[QUERIES], atol=1e-4)

    def test_report(
        self, graph: Graph, recommend_split: RecommendSplit, recommend_task: RecommendTaskConfig
    ) -> None:
        report = evaluate_baselines(graph, recommend_split, recommend_task)
        assert list(report) == list(baselines_of(recommend_split, recommend_task))
        queries = len(np.unique(recommend_split.test[:, 0]))
        for metrics in report.values():
            assert metrics["queries"] == queries
            assert metrics["positives"] == len(recommend_split.test)
            assert 0 <= metrics["recall@10"] <= 1
        # The graph prefers the first items of a topic: knowing the topic must help.
        assert report["popular_within_category"]["ndcg@10"] > report["popular"]["ndcg@10"]

    def test_category_that_is_none_is_refused(
        self, graph: Graph, recommend_split: RecommendSplit, recommend_task: RecommendTaskConfig
    ) -> None:
        for category in (None, "size", "nothing"):
            update = {"category": category, "baselines": ("popular_within_category",)}
            task = recommend_task.model_copy(update=update)
            with pytest.raises(UsageError, match="categorical feature of item"):
                evaluate_baselines(graph, recommend_split, task)


class TestClassify:
    def test_majority_and_vote(self, graph: Graph, classify_split: ClassifySplit) -> None:
        view = GraphView(graph, classify_split)
        known = classify_split.nodes("train")
        labels = classify_split.labels
        counts = Counter(labels[known].tolist())
        most = max(counts, key=lambda label: (counts[label], -label))
        majority = CLASSIFY_BASELINES["majority"](view, classify_split, known)
        assert set(majority.argmax(axis=1).tolist()) == {most}

        votes: list[Counter[int]] = [Counter() for _ in range(ITEMS)]
        for edge_type in view.edge_types:
            if edge_type[0] == edge_type[2] == "item":
                for source, target in edges_of(view, edge_type[1]):
                    for one, other in ((source, target), (target, source)):
                        if other in known:
                            votes[one][int(labels[other])] += 1
        predicted = CLASSIFY_BASELINES["neighbors_vote"](view, classify_split, known).argmax(axis=1)
        for node, vote in enumerate(votes):
            best = max(counts, key=lambda label: (vote[label], counts[label], -label))
            assert predicted[node] == best

    def test_sgc_is_logistic_regression_on_features_of_neighbors(
        self, graph: Graph, classify_split: ClassifySplit
    ) -> None:
        view = GraphView(graph, classify_split, "test")
        offsets = {"group": 0, "item": graph.num_nodes("group")}
        offsets["tag"] = offsets["item"] + ITEMS
        nodes = offsets["tag"] + graph.num_nodes("tag")
        linked = np.eye(nodes)
        for source_type, relation, target_type in view.edge_types:
            for source, target in zip(*view.csc((source_type, relation, target_type)).coo(), strict=True):
                linked[offsets[source_type] + source, offsets[target_type] + target] = 1.0
        linked = np.maximum(linked, linked.T)
        root = linked.sum(axis=1) ** -0.5
        smooth = root[:, None] * linked * root
        size = np.log1p(np.asarray(graph.feature("item", "size"), np.float64))
        kept = np.log1p(np.asarray(graph.feature("item", "kept"), np.float64))
        features = np.zeros((nodes, 2))
        for column, values in enumerate((size, kept)):
            known = values[np.isfinite(values)]
            scaled = np.nan_to_num((values - known.mean()) / known.std())
            features[offsets["item"] : offsets["tag"], column] = scaled
        columns = (smooth @ smooth @ features)[offsets["item"] : offsets["tag"]]
        train, validation = classify_split.nodes("train"), classify_split.nodes("validation")
        columns /= np.sqrt((columns[train] ** 2).sum(axis=1).mean())
        labels = classify_split.labels

        def fitted(strength: float) -> LogisticRegression:
            model = LogisticRegression(C=strength, tol=1e-3, max_iter=200)
            return model.fit(columns[train], labels[train])

        best = max(
            SGC_STRENGTHS, key=lambda each: fitted(each).score(columns[validation], labels[validation])
        )
        found = CLASSIFY_BASELINES["sgc"](view, classify_split, train)
        np.testing.assert_allclose(found, fitted(best).predict_proba(columns), atol=0.01)

    def test_report(
        self, graph: Graph, classify_split: ClassifySplit, classify_task: ClassifyTaskConfig
    ) -> None:
        report = evaluate_baselines(graph, classify_split, classify_task)
        assert list(report) == ["majority", "neighbors_vote", "label_propagation", "sgc"]
        for name in ("neighbors_vote", "label_propagation"):
            assert report[name]["accuracy"] > report["majority"]["accuracy"]
        assert report["majority"]["nodes"] == len(classify_split.nodes("test"))

    def test_split_of_another_task_is_refused(
        self, graph: Graph, classify_split: ClassifySplit, recommend_task: RecommendTaskConfig
    ) -> None:
        with pytest.raises(UsageError, match="another kind than recommend"):
            evaluate_baselines(graph, classify_split, recommend_task)
