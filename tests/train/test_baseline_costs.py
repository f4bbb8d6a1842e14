"""Costs of baselines: they grow with the graph, and decide which run without being named."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig
from graphbox.graph import Graph
from graphbox.train import ClassifySplit, GraphView, RecommendSplit
from graphbox.train.baseline_costs import (
    LONGEST_BASELINE_S,
    NodeSizes,
    RankingSizes,
    baselines_left_out,
    left_out,
    node_costs,
    ranking_costs,
)
from graphbox.train.baselines import RECOMMEND_BASELINES
from graphbox.train.node_baselines import CLASSIFY_BASELINES

ROOM = 64 << 30


def of_counts(queries: int, targets: int, answers: int) -> RankingSizes:
    return RankingSizes.at_most(queries, targets, answers, min(queries, 5_000))


def test_what_runs_by_default_on_graphs_that_are_known() -> None:
    lastfm = ranking_costs(of_counts(1_892, 4_489, 42_135))
    assert left_out(lastfm, RECOMMEND_BASELINES, ROOM) == {}
    gowalla = ranking_costs(of_counts(29_858, 40_981, 810_128))
    assert set(left_out(gowalla, ["gfcf", "ials", "ease"], ROOM)) == {"ials", "ease"}
    assert gowalla["ease"].memory_bytes > 2 * 4 * 40_981**2
    cora = node_costs(NodeSizes(2_708, 10_556, 7, 140, 1_433, 49_216, 2_708))
    assert left_out(cora, CLASSIFY_BASELINES, ROOM) == {}
    # A hundred million edges, a thousand classes, a million words.
    large = node_costs(NodeSizes(10**7, 2 * 10**8, 1_000, 10**6, 10**6, 10**8, 10**7))
    assert set(left_out(large, CLASSIFY_BASELINES, ROOM)) == {"label_propagation", "sgc"}


def test_reasons_say_how_long_and_how_much_memory() -> None:
    costs = ranking_costs(of_counts(10**6, 10**5, 10**8))
    reasons = left_out(costs, ["popular", "gfcf", "ease"], 1 << 30)
    assert set(reasons) == {"gfcf", "ease"}
    assert reasons["ease"].startswith("left out, about ")
    assert reasons["ease"].endswith(" of memory on this graph; name it under `baselines` to run it")
    assert f"{costs['ease'].memory_bytes / 1e9:.0f} GB"[:2] in reasons["ease"]


@pytest.mark.parametrize("name", ["gfcf", "ials", "ease", "user_knn", "personalized_pagerank"])
def test_costs_grow_with_the_graph(name: str) -> None:
    small = ranking_costs(of_counts(1_000, 2_000, 20_000))[name]
    large = ranking_costs(of_counts(4_000, 8_000, 80_000))[name]
    assert large.seconds > 2 * small.seconds
    assert large.memory_bytes > small.memory_bytes


def test_sizes_are_those_of_loops(graph: Graph, recommend_split: RecommendSplit) -> None:
    view = GraphView(graph, recommend_split)
    queries = np.arange(0, 200, 3)
    sizes = RankingSizes.of(view, recommend_split, queries)
    answers: dict[int, set[int]] = {}
    asked_by: dict[int, set[int]] = {}
    for relation in ("likes", "fits"):
        for source, target in zip(
            *(each.tolist() for each in view.csc(("item", relation, "item")).coo()), strict=True
        ):
            answers.setdefault(source, set()).add(target)
            asked_by.setdefault(target, set()).add(source)
    total = sum(map(len, answers.values()))
    assert (sizes.answers, sizes.measured) == (total, len(queries))
    ways = sum(
        min(
            total,
            sum(len(answers[other]) for target in answers.get(query, ()) for other in asked_by[target]),
        )
        for query in queries.tolist()
    )
    assert sizes.three_hops == ways
    assert sizes.three_hops <= RankingSizes.at_most(360, 360, total, len(queries)).three_hops


def test_named_baselines_are_never_left_out(
    graph: Graph,
    classify_split: ClassifySplit,
    classify_task: ClassifyTaskConfig,
    recommend_split: RecommendSplit,
    recommend_task: RecommendTaskConfig,
) -> None:
    view = GraphView(graph, recommend_split, "test")
    names = list(RECOMMEND_BASELINES)
    found = baselines_left_out(view, recommend_split, recommend_task, names, "test", 0)
    assert set(found) == set(names) - {"popular", "popular_within_category"}, "nothing has room in no memory"
    named = recommend_task.model_copy(update={"baselines": ("gfcf",)})
    assert baselines_left_out(view, recommend_split, named, ["gfcf"], "test", 0) == {}
    assert baselines_left_out(view, recommend_split, recommend_task, names, "test", ROOM) == {}
    of_nodes = GraphView(graph, classify_split, "test")
    sizes = NodeSizes.of(of_nodes, classify_split)
    assert (sizes.width, sizes.num_classified) == (2, 360), "the size, and whether it is kept: no label"
    found = baselines_left_out(of_nodes, classify_split, classify_task, list(CLASSIFY_BASELINES), "test", 0)
    assert set(found) == {"label_propagation", "sgc"}
    assert LONGEST_BASELINE_S == 60.0
