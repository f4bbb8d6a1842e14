"""The known classes around nodes, against loops over edges; and what must not reach them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig
from graphbox.graph import Graph
from graphbox.train import ClassifySplit, evaluate_embeddings
from graphbox.train.neighbor_classes import shares_of_known_classes
from graphbox.train.node_classifier import class_probabilities
from graphbox.train.splitting.groups import node_groups
from graphbox.train.tasks import Fold
from graphbox.train.view import GraphView


@pytest.fixture(params=["grouped", "alone"])
def group(request: pytest.FixtureRequest, graph: Graph) -> NDArray[np.int64]:
    """Groups of items, and each item by itself."""
    edge_type = ("item", "part_of", "group") if request.param == "grouped" else None
    return node_groups(graph, "item", edge_type).of_nodes


@pytest.fixture(scope="module")
def embeddings(graph: Graph) -> dict[str, NDArray[np.float32]]:
    """Vectors that say nothing."""
    generator = np.random.default_rng(3)
    return {"item": generator.normal(size=(graph.num_nodes("item"), 6)).astype(np.float32)}


def shares_by_loop(
    graph: Graph, split: ClassifySplit, known: NDArray[np.int64], group: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    """Go over the edges of the graph's own types, and over pairs of those that share an end."""
    joined: dict[str, list[tuple[int, int]]] = {}
    for edge_type in graph.edge_types:
        if graph.is_reverse(edge_type):
            continue
        sources, targets = graph.csc(edge_type).coo()
        pairs = sorted(set(zip(sources.tolist(), targets.tolist(), strict=True)))
        if edge_type[0] == edge_type[2] == "item":
            joined.setdefault("in", []).extend((target, source) for source, target in pairs)
            joined.setdefault("out", []).extend(pairs)
        else:
            joined.setdefault(f"through {edge_type[2]}", []).extend(pairs)
    ways = [joined["in"], joined["out"], joined["through group"], joined["through tag"]]
    labels = {node: int(split.labels[node]) for node in known.tolist()}

    def shares(counted: list[tuple[int, int, float]]) -> NDArray[np.float64]:
        counts = np.zeros((len(split.labels), len(split.classes)))
        for node, other, weight in counted:
            if other in labels and group[node] != group[other]:
                counts[node, labels[other]] += weight
        total = counts.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(counts, total, out=np.zeros_like(counts), where=total > 0))

    found = [shares([(*pair, 1.0) for pair in way]) for way in ways[:2]]
    for way in ways:
        members: dict[int, list[int]] = {}
        for node, neighbor in way:
            members.setdefault(neighbor, []).append(node)
        found.append(
            shares(
                [(node, other, 1 / len(all_)) for all_ in members.values() for node in all_ for other in all_]
            )
        )
    return found


def with_labels(split: ClassifySplit, nodes: NDArray[np.int64]) -> ClassifySplit:
    """Return the split with other classes of some nodes."""
    labels = split.labels.copy()
    labels[nodes] = (labels[nodes] + 1) % len(split.classes)
    return replace(split, labels=labels)


def test_shares_are_those_of_a_loop_over_edges(
    graph: Graph, classify_split: ClassifySplit, group: NDArray[np.int64]
) -> None:
    known = classify_split.nodes("train", "validation")
    found = shares_of_known_classes(GraphView(graph, classify_split, "test"), classify_split, known, group)
    expected = shares_by_loop(graph, classify_split, known, group)
    assert len(found) == len(expected)
    for block, right in zip(found, expected, strict=True):
        assert block.dtype == np.float32
        np.testing.assert_allclose(block, right, atol=1e-6)


def test_no_node_sees_its_own_class_or_those_of_its_group(
    graph: Graph, classify_split: ClassifySplit, group: NDArray[np.int64]
) -> None:
    view = GraphView(graph, classify_split, "test")
    known = classify_split.nodes("train", "validation")
    before = shares_of_known_classes(view, classify_split, known, group)
    changed_somewhere = False
    for one in np.unique(group[known])[:40]:
        members = known[group[known] == one]
        after = shares_of_known_classes(view, with_labels(classify_split, members), known, group)
        inside = np.flatnonzero(group == one)
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(new[inside], old[inside])
            changed_somewhere |= bool((new != old).any())
    assert changed_somewhere  # classes are read, elsewhere


def test_no_class_of_a_held_out_node_is_read(
    graph: Graph,
    classify_split: ClassifySplit,
    embeddings: dict[str, NDArray[np.float32]],
    group: NDArray[np.int64],
) -> None:
    folds: tuple[tuple[Fold, tuple[Fold, ...]], ...] = (
        ("test", ("test",)),
        ("validation", ("validation", "test")),
    )
    for fold, hidden in folds:
        view = GraphView(graph, classify_split, fold)
        changed = with_labels(classify_split, classify_split.nodes(*hidden))
        first, second = (
            class_probabilities(
                view, split, embeddings, fold, neighbors=False, neighbor_classes_by_group=group
            )
            for split in (classify_split, changed)
        )
        np.testing.assert_array_equal(first, second)


def test_known_classes_say_what_embeddings_do_not(
    graph: Graph,
    classify_task: ClassifyTaskConfig,
    classify_split: ClassifySplit,
    embeddings: dict[str, NDArray[np.float32]],
) -> None:
    alone = evaluate_embeddings(graph, classify_split, classify_task, embeddings)
    asked = classify_task.model_copy(update={"neighbor_classes": True})
    both = evaluate_embeddings(graph, classify_split, asked, embeddings)
    assert both["accuracy"] > alone["accuracy"] + 0.3
    assert evaluate_embeddings(graph, classify_split, asked, embeddings) == both
