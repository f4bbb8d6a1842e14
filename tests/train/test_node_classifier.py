"""Classification by embeddings of nodes and of their neighbours, against loops over edges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig
from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.train import ClassifySplit, evaluate_embeddings
from graphbox.train.node_classifier import class_probabilities, mean_of_neighbors
from graphbox.train.view import GraphView


@pytest.fixture(scope="module")
def embeddings(graph: Graph) -> dict[str, NDArray[np.float32]]:
    """Vectors of all types but groups; those of items say nothing of their topic, those of tags do."""
    generator = np.random.default_rng(3)
    return {
        "item": generator.normal(size=(graph.num_nodes("item"), 6)).astype(np.float32),
        "tag": generator.normal(size=(graph.num_nodes("tag"), 16)).astype(np.float32),
    }


def means_by_loop(graph: Graph, node_type: str, name: str, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Go over the edges of the graph's own types: each pair of a type once, in either direction."""
    joined: list[tuple[int, int]] = []
    for edge_type in graph.edge_types:
        if graph.is_reverse(edge_type):
            continue
        sources, targets = graph.csc(edge_type).coo()
        pairs = sorted(set(zip(sources.tolist(), targets.tolist(), strict=True)))
        if (edge_type[2], edge_type[0]) == (node_type, name):
            joined += [(target, source) for source, target in pairs]
        if (edge_type[0], edge_type[2]) == (node_type, name):
            joined += pairs
    degree = np.bincount([neighbor for _, neighbor in joined], minlength=len(rows))
    total = np.zeros((graph.num_nodes(node_type), rows.shape[1]))
    weights = np.zeros(len(total))
    for node, neighbor in joined:
        weight = 1.0 / np.sqrt(degree[neighbor])
        total[node] += weight * rows[neighbor]
        weights[node] += weight
    return total / np.where(weights > 0, weights, 1.0)[:, None]


def test_means_are_those_of_a_loop_over_edges(
    graph: Graph, classify_split: ClassifySplit, embeddings: dict[str, NDArray[np.float32]]
) -> None:
    view = GraphView(graph, classify_split, "test")
    means = mean_of_neighbors(view, "item", embeddings)
    assert list(means) == ["item", "tag"]
    for name, found in means.items():
        assert found.dtype == np.float32
        np.testing.assert_allclose(
            found, means_by_loop(graph, "item", name, embeddings[name]), rtol=1e-4, atol=1e-5
        )
    assert list(mean_of_neighbors(view, "tag", embeddings)) == ["item"]


def test_neighbors_say_what_a_nodes_own_row_does_not(
    graph: Graph,
    classify_task: ClassifyTaskConfig,
    classify_split: ClassifySplit,
    embeddings: dict[str, NDArray[np.float32]],
) -> None:
    alone = evaluate_embeddings(graph, classify_split, classify_task, embeddings)
    asked = classify_task.model_copy(update={"neighbors": True})
    both = evaluate_embeddings(graph, classify_split, asked, embeddings)
    assert both["nodes"] == alone["nodes"]
    assert both["accuracy"] > alone["accuracy"] + 0.3
    # The own type's rows alone are enough of an answer: nothing else is asked for.
    assert evaluate_embeddings(graph, classify_split, asked, {"item": embeddings["item"]})["accuracy"] < 1.0


def test_no_class_of_a_held_out_node_is_read(
    graph: Graph, classify_split: ClassifySplit, embeddings: dict[str, NDArray[np.float32]]
) -> None:
    view = GraphView(graph, classify_split, "test")
    expected = class_probabilities(view, classify_split, embeddings, "test", neighbors=True)
    hidden = classify_split.nodes("test")
    labels = classify_split.labels.copy()
    labels[hidden] = (labels[hidden] + 1) % len(classify_split.classes)
    changed = ClassifySplit(
        node_type=classify_split.node_type,
        label=classify_split.label,
        split_feature=None,
        classes=classify_split.classes,
        labels=labels,
        fold=classify_split.fold,
        digest=classify_split.digest,
    )
    np.testing.assert_array_equal(
        class_probabilities(view, changed, embeddings, "test", neighbors=True), expected
    )


def test_embeddings_of_the_tasks_type_are_asked_for(
    graph: Graph,
    classify_task: ClassifyTaskConfig,
    classify_split: ClassifySplit,
    embeddings: dict[str, NDArray[np.float32]],
) -> None:
    with pytest.raises(DataError, match="expected embeddings of item, received those of tag"):
        evaluate_embeddings(graph, classify_split, classify_task, {"tag": embeddings["tag"]})
    with pytest.raises(DataError, match="node type tag"):
        evaluate_embeddings(
            graph, classify_split, classify_task, {**embeddings, "tag": embeddings["tag"][1:]}
        )
