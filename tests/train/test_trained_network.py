"""A trained graph network over a graph as it is later: old nodes as they were, new ones like those alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphbox.config import GraphNetworkConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.errors import FormatError, GraphboxError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.delta import remove
from graphbox.graph.ingest import import_graph
from graphbox.train import ClassifySplit, fit, load_network, load_trained, make_split
from graphbox.train.trained import TrainedModel
from tests.train.conftest import write
from tests.train.shop import build_shop

ITEMS, AUTHORS, TWINS = 60, 12, 6
ALONE = "nobody"
FEATURES = {
    "topic": "categorical",
    "color": "categorical",
    "size": "number",
    "words": "slots",
    "look": "vector",
}


def build(
    folder: Path,
    *,
    order: Sequence[int] = range(ITEMS),
    twins: bool = False,
    features: dict[str, str] | None = None,
    weight: str | None = "weight",
    made: str = "made",
) -> Graph:
    """Return items that like items, and are made by authors, who have no features.

    Args:
        folder: where files go.
        order: of the items.
        twins: add items with the features and incoming edges of the first ones, and authors of theirs.
        features: those of items that are imported.
        weight: column of weights.
        made: relation from author to item.
    """
    folder.mkdir()
    generator = np.random.default_rng(2)
    likes = np.array(
        [(s, t) for s in range(ITEMS) for t in range(ITEMS) if (s * 5 + t * 3) % 17 == 2 and s != t]
    )
    weights = generator.uniform(0.5, 1.5, len(likes))
    names = [f"i{number}" for number in order]
    numbers = list(order)
    sources = [f"i{number}" for number in likes[:, 0]]
    targets = [f"i{number}" for number in likes[:, 1]]
    maker, makes = (
        [f"a{number % AUTHORS}" for number in range(ITEMS)],
        [f"i{number}" for number in range(ITEMS)],
    )
    authors = [f"a{number}" for number in range(AUTHORS)]
    if twins:
        names = [*(f"new{number}" for number in range(TWINS)), *names]
        numbers = [*range(TWINS), *numbers]
        again = np.flatnonzero(likes[:, 1] < TWINS)
        sources += [sources[row] for row in again]
        targets += [f"new{likes[row, 1]}" for row in again]
        weights = np.concatenate([weights, weights[again]])
        maker, makes = [*maker, *maker[:TWINS]], [*makes, *(f"new{number}" for number in range(TWINS))]
        authors = [ALONE, *reversed(authors)]
    colors = ["red", "green", "blue"] if not twins else ["red", "green", "blue", "amber"]
    item = write(
        folder / "item.parquet",
        id=names,
        topic=[f"t{number % 3}" for number in numbers],
        color=[colors[number % 3] for number in numbers[:-1]] + [colors[numbers[-1] % 3]],
        size=[None if number == 7 else float(number**2) for number in numbers],
        words=[[number % 5, 7 + number % 3] for number in numbers],
        look=[[float(number % 2), 1.0] for number in numbers],
    )
    sources_of_edges = (
        EdgeSource(
            ("item", "likes", "item"),
            write(folder / "likes.parquet", source=sources, target=targets, weight=weights),
            weight=weight,
        ),
        EdgeSource(("author", made, "item"), write(folder / "made.parquet", source=maker, target=makes)),
    )
    nodes = {
        "author": NodeSource(write(folder / "author.parquet", id=authors)),
        "item": NodeSource(item, features=FEATURES if features is None else features),  # type: ignore[arg-type]
    }
    if twins:
        nodes = dict(reversed(nodes.items()))
    import_graph(GraphSource("items", nodes, sources_of_edges), folder / "graph")
    return Graph.open(folder / "graph")


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build(tmp_path_factory.mktemp("items") / "items")


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The same items in another order and with other codes of categories, and twins of some."""
    return build(tmp_path_factory.mktemp("later") / "items", order=range(ITEMS)[::-1], twins=True)


def split_of(graph: Graph) -> ClassifySplit:
    labels = np.asarray(graph.feature("item", "topic")).astype(np.int64)
    fold = np.where(labels < 0, -1, np.arange(len(labels)) % 4 // 2).astype(np.int8)
    return ClassifySplit("item", "digest", "topic", None, ("t0", "t1", "t2"), labels, fold)


def trained_on(graph: Graph, folder: Path, **settings: Any) -> TrainedModel:
    """Return a model as it is on disk after training."""
    options = {"dim": 8, "epochs": 3, "reverse": False, **settings}
    config = GraphNetworkConfig(kind="gnn", task="t", **options)
    fit(graph, split_of(graph), name="net", config=config, task=None, run_folder=folder, seed=3, threads=1)
    return load_trained(folder, "net")


CASES: list[dict[str, Any]] = [
    {"layer": "sage"},
    {"layer": "sage", "embeddings": ("item", "author"), "normalize": True, "residual": True},
    {"layer": "sage", "num_neighbors": (2, 2), "reverse": True},
    {"layer": "gcn", "edge_weights": True, "reverse": True},
    {"layer": "gcn2", "relations": (("item", "likes", "item"),), "layers": 3},
    {"layer": "gat", "relations": (("item", "likes", "item"),), "reverse": True, "average_decay": 0.5},
    {"layer": "rgcn", "embeddings": ()},
    {"layer": "hgt", "features": {"item": ("size", "color")}},
    {"layer": "torch_geometric.nn:GraphConv", "layer_options": {"aggr": "mean"}},
]


@pytest.mark.parametrize("settings", CASES, ids=lambda each: each["layer"])
def test_over_the_graph_of_training_nothing_changes(items: Graph, tmp_path: Path, settings: Any) -> None:
    trained = trained_on(items, tmp_path, **settings)
    again = trained.over(items, threads=1)
    assert trained.logits is not None
    assert again.logits is not None
    np.testing.assert_array_equal(again.logits, trained.logits)
    for name, vectors in trained.embeddings.items():
        assert np.abs(vectors).max() > 0
        np.testing.assert_array_equal(again.embeddings[name], vectors)
    some = {"item": np.array([5, 2, 9])}
    found = trained.over(items, some, threads=1).embeddings["item"][some["item"]]
    np.testing.assert_allclose(found, trained.embeddings["item"][some["item"]], atol=1e-5)


@pytest.mark.parametrize("layer", ["sage", "gat", "hgt"])
def test_new_nodes_are_as_those_with_the_same_features_and_neighbors(
    items: Graph, later: Graph, tmp_path: Path, layer: str
) -> None:
    trained = trained_on(items, tmp_path, layer=layer)
    found = trained.over(later, threads=1)
    old = [f"i{number}" for number in range(ITEMS)]
    vectors = found.embeddings["item"]
    # Neither the order of nodes, nor codes of categories, nor the mean of what there is now play a part.
    np.testing.assert_allclose(vectors[later.index("item", old)], trained.embeddings["item"], atol=1e-5)
    twins = vectors[later.index("item", [f"new{number}" for number in range(TWINS)])]
    np.testing.assert_allclose(twins, trained.embeddings["item"][:TWINS], atol=1e-5)
    authors = found.embeddings["author"][later.index("author", [f"a{number}" for number in range(AUTHORS)])]
    np.testing.assert_allclose(authors, trained.embeddings["author"], atol=1e-5)


def test_a_new_node_of_a_type_with_rows_lacks_its_row_alone(
    items: Graph, later: Graph, tmp_path: Path
) -> None:
    trained = trained_on(items, tmp_path, embeddings=("item", "author"))
    vectors = trained.over(later, threads=1).embeddings["item"]
    old = later.index("item", [f"i{number}" for number in range(TWINS)])
    twins = later.index("item", [f"new{number}" for number in range(TWINS)])
    np.testing.assert_allclose(vectors[old], trained.embeddings["item"][:TWINS], atol=1e-5)
    assert (np.abs(vectors[twins] - vectors[old]).max(axis=1) > 1e-4).all()


def test_what_nothing_is_known_of_is_told_apart(items: Graph, later: Graph, tmp_path: Path) -> None:
    network = trained_on(items, tmp_path).inductive_network()
    assert network.is_known(later, "item").all()  # by their features
    known = network.is_known(later, "author")
    assert np.flatnonzero(~known).tolist() == later.index("author", [ALONE]).tolist()


def test_classes_are_those_of_the_logits(items: Graph, tmp_path: Path) -> None:
    trained = trained_on(items, tmp_path)
    assert trained.logits is not None
    nodes = np.array([3, 1, 8])
    probability = trained.inductive_network().class_probabilities(items, nodes, threads=1)
    share = np.exp(trained.logits) / np.exp(trained.logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probability, share[nodes], atol=1e-5)


LINKS = PredictLinksTaskConfig(
    kind="predict_links", node_type="user", target_type="item", relations=("bought",), validation_fraction=0.2
)
BUYS = RecommendTaskConfig(
    kind="recommend",
    node_type="user",
    target_type="item",
    relations=("bought",),
    validation_fraction=0.2,
    k=5,
)


@pytest.mark.parametrize("task", [LINKS, BUYS], ids=["predict_links", "recommend"])
def test_links_have_their_vectors_and_degrees_of_the_graph_as_it_is(tmp_path: Path, task: Any) -> None:
    graph = build_shop(tmp_path / "shop")
    split = make_split(graph, task, 3)
    config = GraphNetworkConfig(kind="gnn", task="t", dim=8, epochs=2, layer="lightgcn", batch_size=64)
    fit(graph, split, name="net", config=config, task=task, run_folder=tmp_path, seed=3, threads=1)
    trained = load_trained(tmp_path, "net")
    known = trained.over(graph.without_edges(split.hidden_edges(graph, "test")), threads=1)
    np.testing.assert_array_equal(known.embeddings["user"], trained.embeddings["user"])
    np.testing.assert_array_equal(known.target, trained.target)
    now = trained.over(graph, threads=1)  # with the links that were held out
    assert now.target is not None
    assert trained.target is not None
    assert (now.target[:, -1] >= trained.target[:, -1]).all()
    assert (now.target[:, -1] > trained.target[:, -1]).any()
    with pytest.raises(UsageError, match="expected a network that classifies nodes"):
        trained.inductive_network().class_probabilities(graph, np.array([0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"made": "wrote"}, "expected the edge type author__made__item, which the network was trained with"),
        (
            {"features": {"size": "number"}},
            "expected the feature `color` (categorical), which the network reads",
        ),
        (
            {"features": {**FEATURES, "color": "slots"}},
            "`color` (categorical), which the network reads, received slots",
        ),
        ({"weight": None}, "expected edges with weights, as those that the network was trained with"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(
    items: Graph, tmp_path: Path, changes: Any, message: str
) -> None:
    trained = trained_on(items, tmp_path, layer="gcn", edge_weights=True)
    other = build(tmp_path / "other", **changes)
    with pytest.raises(UsageError) as caught:
        trained.over(other)
    assert message in str(caught.value)


def test_damaged_files_are_refused_and_files_name_no_code(items: Graph, tmp_path: Path) -> None:
    trained_on(items, tmp_path, layer="torch_geometric.nn:GraphConv", layer_options={"aggr": "mean"})
    folder = tmp_path / "trained" / "net" / "network"
    with pytest.raises(FormatError, match="only a run file names code"):
        load_network(folder, may_import=False)
    assert load_network(folder, may_import=True).config.dim == 8
    header = json.loads((folder / "network.json").read_text())
    for content in ("{", json.dumps({**header, "version": 9}), json.dumps({**header, "head": {"kind": "x"}})):
        (folder / "network.json").write_text(content)
        with pytest.raises(FormatError, match="expected a graphbox-network of version 1"):
            load_network(folder, may_import=True)
    with pytest.raises(GraphboxError):
        load_trained(tmp_path, "net")


def test_vectors_of_removed_nodes_are_nowhere_in_the_files(items: Graph, tmp_path: Path) -> None:
    graph = build(tmp_path / "items")
    remove(tmp_path / "items" / "graph", nodes={"item": pa.array(["i4", "i9"], pa.large_string())})
    graph = Graph.open(tmp_path / "items" / "graph")
    gone = graph.removed_nodes("item").tolist()
    trained = trained_on(graph, tmp_path, embeddings=("item",))
    assert len(trained.embeddings["item"]) == ITEMS
    assert not trained.embeddings["item"][gone].any()
    names = (tmp_path / "embeddings" / "net" / "item.ids.txt").read_text().split()
    assert names == [f"i{number}" for number in range(ITEMS) if number not in (4, 9)]
    again = trained.over(graph, threads=1).embeddings["item"]
    kept = np.delete(np.arange(ITEMS), gone)
    np.testing.assert_array_equal(again[kept], trained.embeddings["item"][kept])
    assert not trained.inductive_network().is_known(graph, "item")[gone].any()
