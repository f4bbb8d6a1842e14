"""Plans of baselines: the memory of those that a task names or allows, from counts alone."""

from __future__ import annotations

import json
from typing import Any

from graphbox.config import RunConfig
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType
from graphbox.train import ClassifySplit, GraphView
from graphbox.train.baseline_costs import NodeSizes, node_costs
from graphbox.train.plan import GraphCounts
from graphbox.train.plan.baselines import baseline_problems, baselines_without_room, plan_baselines

BUYS: EdgeType = ("user", "buys", "item")
ROOM = 8 << 30


def config(**items: Any) -> RunConfig:
    document = {
        "version": 1,
        "name": "shop",
        "graph": {
            "name": "shop",
            "nodes": {"user": {"path": "u.csv", "features": {"taste": "categorical"}}, "item": {}},
            "edges": [{"type": list(BUYS), "path": "b.csv"}],
        },
        "tasks": {
            "items": {
                "kind": "recommend",
                "node_type": "user",
                "target_type": "item",
                "relations": ["buys"],
                **items,
            },
            "taste": {"kind": "classify", "node_type": "user", "label": "taste"},
        },
        "models": {"rows": {"kind": "matrix_factorization", "task": "items"}},
    }
    return RunConfig.model_validate_json(json.dumps(document))


def counts(users: int, items: int, edges: int) -> GraphCounts:
    return GraphCounts(
        {"user": users, "item": items}, {BUYS: edges}, {"user": 4 * users}, {"user": {"taste": 7}}
    )


def test_baselines_that_are_not_named_may_be_left_out_and_are_no_problem() -> None:
    run, plans = config(), plan_baselines(config(), counts(100_000, 50_000, 4_000_000))
    assert set(plans["items"]) == {"personalized_pagerank", "user_knn", "gfcf", "ials", "ease"}
    assert set(plans["taste"]) == {"label_propagation", "sgc"}
    assert plans["items"]["ease"].memory_bytes > 2 * 4 * 50_000**2
    assert baseline_problems(run, plans, ROOM) == []
    assert "ease" in baselines_without_room(run, plans, ROOM)["items"]


def test_a_named_baseline_without_room_is_a_problem() -> None:
    run = config(baselines=["popular", "ease"])
    plans = plan_baselines(run, counts(100_000, 50_000, 4_000_000))
    assert set(plans["items"]) == {"ease"}
    assert baselines_without_room(run, plans, ROOM)["items"] == {}
    ((message, hint),) = baseline_problems(run, plans, ROOM)
    assert "for the baseline `ease` of `items`" in message
    assert hint == "take `ease` out of `tasks.items.baselines`"
    small = plan_baselines(run, counts(1_000, 2_000, 40_000))
    assert baseline_problems(run, small, ROOM) == []


def test_counts_bound_what_the_graph_has(graph: Graph, classify_split: ClassifySplit) -> None:
    run = json.loads(config().model_dump_json(include={"tasks"}))["tasks"]["taste"]
    run |= {"node_type": "item", "label": "topic"}
    document = config().model_copy(
        update={"tasks": {"topic": type(config().tasks["taste"]).model_validate_json(json.dumps(run))}}
    )
    plans = plan_baselines(document, GraphCounts.of(graph))["topic"]
    there = node_costs(NodeSizes.of(GraphView(graph, classify_split, "test"), classify_split))
    for name, cost in there.items():
        assert cost.memory_bytes <= plans[name].memory_bytes * 1.05
