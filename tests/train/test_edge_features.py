"""Graph networks that read features of edges: what they learn, how batches agree, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from graphbox.config import (
    EDGE_FEATURE_LAYERS,
    GraphNetworkConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
)
from graphbox.errors import GraphboxError, UsageError
from graphbox.graph import Graph, GraphSource
from graphbox.graph.columns import Column
from graphbox.graph.compact import compact
from graphbox.graph.delta import append, remove
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.models.features import MISSING_CATEGORY
from graphbox.sample import sample_heterogeneous
from graphbox.train import ClassifySplit, fit, load_trained, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.evaluate import evaluate_logits
from graphbox.train.network.classify import GraphNetworkTrainer
from graphbox.train.network.edge_data import edge_columns, latest_timestamp, learnt_edges
from graphbox.train.network.inference import embed_graph
from graphbox.train.trained import TrainedModel
from graphbox.train.view import GraphView
from tests.train.conftest import write
from tests.train.ratings import (
    DAY,
    FOLLOWS,
    KINDS,
    RATED,
    SIGNALS,
    START,
    TEXT,
    build,
    ratings_of,
)

BACKWARDS = ("item", "rev_rated", "user")
EVERY = {TEXT: (*KINDS, "weight", "timestamp")}


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build(tmp_path_factory.mktemp("ratings") / "graph", "stars")


def split_of(graph: Graph) -> ClassifySplit:
    labels = np.asarray(graph.feature("user", "label")).astype(np.int64)
    fold = np.where(labels < 0, -1, np.arange(len(labels)) * 3 // len(labels)).astype(np.int8)
    return ClassifySplit("user", "digest", "label", None, ("a", "b"), labels, fold)


def config_of(**settings: Any) -> GraphNetworkConfig:
    values = {"dim": 8, "layer": "gatv2", "edge_features": EVERY, **settings}
    return GraphNetworkConfig.model_validate({"kind": "gnn", "task": "t", "auto": (), **values})


def trainer_of(graph: Graph, **settings: Any) -> GraphNetworkTrainer:
    split = split_of(graph)
    assignment = Assignment("net", GraphView(graph, split), split, None, 3, 1)
    made = make_trainer(config_of(**settings), assignment)
    assert isinstance(made, GraphNetworkTrainer)
    made.network.eval()
    return made


def whole(trainer: GraphNetworkTrainer) -> dict[str, NDArray[np.float32]]:
    inputs, edges = trainer._whole_graph()
    with torch.no_grad():
        return {
            name: each.numpy() for name, each in trainer.network(inputs, dict.fromkeys(inputs), edges).items()
        }


def trained_on(graph: Graph, folder: Path, **settings: Any) -> TrainedModel:
    config = config_of(**{"epochs": 60, "dropout": 0.1, "layers": 1, "learning_rate": 0.02, **settings})
    fit(graph, split_of(graph), name="net", config=config, task=None, run_folder=folder, seed=3, threads=1)
    return load_trained(folder, "net")


def accuracy(graph: Graph, trained: TrainedModel) -> float:
    assert trained.logits is not None
    return float(evaluate_logits(split_of(graph), trained.logits)["accuracy"])


# ------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_kind_of_feature_can_be_learnt(tmp_path: Path, signal: str) -> None:
    graph = build(tmp_path / "graph", signal)
    trained = trained_on(graph, tmp_path / "run", edge_features={TEXT: (signal,)}, layer="gine")
    assert accuracy(graph, trained) > 0.9


@pytest.mark.parametrize("layer", EDGE_FEATURE_LAYERS)
def test_every_layer_learns_what_is_in_edges_alone(tmp_path: Path, layer: str) -> None:
    graph = build(tmp_path / "graph", "side")
    read = {TEXT: ("stars",)}
    with_them = trained_on(graph, tmp_path / "with", layer=layer, edge_features=read)
    assert accuracy(graph, with_them) > 0.85
    others = {TEXT: ("paid", "seconds")}
    without = trained_on(graph, tmp_path / "without", layer=layer, edge_features=others)
    assert accuracy(graph, without) < 0.65


def test_the_same_seed_gives_the_same_bits(ratings: Graph, tmp_path: Path) -> None:
    settings = {"num_neighbors": (3, 3), "layers": 2, "batch_size": 32, "epochs": 3}
    first, second = (trained_on(ratings, tmp_path / name, **settings) for name in ("first", "second"))
    assert first.logits is not None
    assert second.logits is not None
    np.testing.assert_array_equal(first.logits, second.logits)


# --------------------------------------------------------------- batches, blocks, the whole graph


@pytest.mark.parametrize("layer", EDGE_FEATURE_LAYERS)
def test_batches_and_blocks_give_what_the_whole_graph_gives(
    ratings: Graph, layer: str, tmp_path: Path
) -> None:
    check_batches_and_blocks(trainer_of(ratings, layer=layer), tmp_path / "vectors")


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("change", ["removed", "appended"])
def test_batches_and_blocks_of_a_changed_graph_read_the_features_of_their_own_edges(
    tmp_path: Path, change: str, is_compacted: bool
) -> None:
    build(tmp_path / "graph", "stars")
    path = tmp_path / "graph" / "graph"
    if change == "removed":
        remove(path, nodes={"user": ["u3", "u17"]})
    else:
        append(path, later_ratings(tmp_path / "later.parquet", 5))
    if is_compacted:
        compact(path)
    trainer = trainer_of(Graph.open(path), layer="gine")
    check_batches_and_blocks(trainer, tmp_path / "vectors")


def check_batches_and_blocks(trainer: GraphNetworkTrainer, folder: Path) -> None:
    """Compare what a network makes of samples of a graph with what it makes of the whole graph."""
    expected, graph = whole(trainer), trainer._graph
    found = embed_graph(trainer.network, graph, trainer._data, block_nodes=7, folder=folder, threads=1)
    for name, vectors in expected.items():
        np.testing.assert_allclose(found[name], vectors, atol=2e-5, err_msg=name)
    seeds = np.array([5, 2, 30])
    hops = {edge_type: [-1, -1] for edge_type in graph.edge_types}
    sample = sample_heterogeneous(graph.view, {"user": torch.from_numpy(seeds)}, hops)
    inputs = {name: trainer._data[name].take(sample.nodes[name]) for name in graph.node_types}
    with torch.no_grad():
        batch = trainer.network(inputs, dict.fromkeys(inputs), graph.layers_of(sample, 2))["user"][:3]
    np.testing.assert_allclose(batch.numpy(), expected["user"][seeds], atol=2e-5)


def test_edges_keep_their_features_in_both_directions_and_after_changes(tmp_path: Path) -> None:
    """Parallel edges too: the rows of both directions are compared edge by edge with the table's."""
    graph = build(tmp_path / "graph", "stars")
    check_columns(graph)
    path = tmp_path / "graph" / "graph"
    remove(path, nodes={"user": ["u3", "u17"]})
    append(path, later_ratings(tmp_path / "later.parquet", 5))
    changed = Graph.open(path)
    assert changed.num_edge_ids(RATED) > changed.num_edges(RATED)
    check_columns(changed)


def check_columns(graph: Graph) -> None:
    trainer = trainer_of(graph, edge_features={TEXT: ("stars", "timestamp", "place")})
    learnt = trainer._graph.edge_learnt[RATED]
    assert dict(trainer._graph.edge_learnt[BACKWARDS]) == dict(learnt)
    assert FOLLOWS not in trainer._graph.edge_learnt
    csc = graph.csc(RATED)
    source, target = csc.coo()
    ids = csc.ids_at(np.arange(csc.num_edges))
    stars, place = (graph.edge_feature(RATED, name)[ids] for name in ("stars", "place"))
    assert csc.timestamp is not None
    rows = np.stack(
        [
            place + 1.0,
            learnt["stars"].standardized(stars),
            learnt["timestamp"].standardized(csc.timestamp.max() - csc.timestamp),
        ],
        axis=1,
    )
    expected = as_sorted(source, target, rows)
    layers = trainer._whole_graph()[1][0].edges
    for edge_type, ends in ((RATED, (0, 1)), (BACKWARDS, (1, 0))):
        edges = layers[edge_type]
        assert edges.features is not None
        first, second = (edges.index[end].numpy() for end in ends)
        found = as_sorted(first, second, edges.features.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert layers[FOLLOWS].features is None
    assert bool((rows[:, 0] == 0).any())  # missing categories


def as_sorted(
    source: NDArray[np.int64], target: NDArray[np.int64], rows: NDArray[Any]
) -> NDArray[np.float64]:
    every = np.column_stack([source, target, rows.astype(np.float32)]).astype(np.float64)
    ordered: NDArray[np.float64] = every[np.lexsort(every.T[::-1])]
    return ordered


# ------------------------------------------------------------------------- what is held out


@pytest.mark.parametrize("kind", ["recommend", "predict_links"])
def test_what_later_edges_say_does_not_matter(tmp_path: Path, kind: str) -> None:
    """Of a task split by time the edges of the test part have other features: no bit changes."""
    vectors = []
    for name in ("one", "other"):
        graph = by_time(name)
        values = {"kind": kind, "node_type": "user", "target_type": "item", "relations": ("rated",)}
        section = RecommendTaskConfig if kind == "recommend" else PredictLinksTaskConfig
        task = section.model_validate({**values, "split": {"kind": "time"}})
        split = make_split(graph, task, 3)
        config = config_of(edge_features={TEXT: ("stars", "timestamp")}, epochs=2, layer="gine")
        folder = tmp_path / name
        fit(graph, split, name="net", config=config, task=task, run_folder=folder, seed=3, threads=1)
        trained = load_trained(folder, "net")
        assert trained.target is not None
        vectors.append((np.array(trained.embeddings["user"]), np.array(trained.target)))
    for one, other in zip(*vectors, strict=True):
        assert len(np.unique(one.round(4), axis=0)) > 2
        np.testing.assert_array_equal(one, other)


def by_time(name: str) -> Graph:
    """Return ratings of 200 days; in two graphs the last 20 (a tenth, the test part) differ."""
    generator = np.random.default_rng(8)
    pairs = generator.permutation(30 * 20)[:400]
    days = np.repeat(np.arange(200), 2)
    stars = generator.uniform(1, 5, 400)
    if name == "other":
        late = days >= 180
        stars[late], days[late] = 9 - stars[late], 500 + days[late]
    table = edge_table(
        pairs // 20,
        pairs % 20,
        30,
        20,
        timestamp=days,
        features={"stars": Column("number", stars.astype(np.float32))},
    )
    return Graph("ratings", {"user": numbered_nodes(30), "item": numbered_nodes(20)}, {RATED: table})


# ------------------------------------------------------------------------------ what is learnt


def test_numbers_are_standardized_over_training_edges_and_missing_ones_count_as_their_mean(
    ratings: Graph,
) -> None:
    view = GraphView(ratings, None)
    learnt = learnt_edges(view, {TEXT: ("stars", "look")})[RATED]
    columns = edge_columns(view, RATED, learnt).numpy()
    stars = np.asarray(view.edge_feature(RATED, "stars"))
    known = ~np.isnan(stars)
    assert 0 < known.sum() < len(stars)
    np.testing.assert_allclose(columns[known, 0].mean(), 0, atol=1e-4)
    np.testing.assert_allclose(columns[known, 0].std(), 1, atol=1e-4)
    assert (columns[~known, 0] == 0).all()
    np.testing.assert_array_equal(columns[:, 1:], view.edge_feature(RATED, "look"))


def test_edges_that_are_not_shown_change_nothing(ratings: Graph) -> None:
    """Not even the moment from which ages are counted: the latest edge may be held out."""
    csc = ratings.csc(RATED)
    assert csc.timestamp is not None
    late = np.flatnonzero(csc.timestamp > START - 10 * DAY)
    shown = GraphView(ratings, None).without_edges({RATED: late})
    names = {TEXT: ("stars", "timestamp", "weight")}
    learnt = learnt_edges(shown, names)
    columns = edge_columns(shown, RATED, learnt[RATED])
    kept = ratings.without_edges({RATED: late})
    alone = GraphView(kept, None)
    again = learnt_edges(alone, names)
    assert {name: vars(each) for name, each in learnt[RATED].items()} == {
        name: vars(each) for name, each in again[RATED].items()
    }
    torch.testing.assert_close(columns, edge_columns(alone, RATED, learnt[RATED]), rtol=0, atol=0)
    assert (
        latest_timestamp(shown, RATED) <= START - 10 * DAY < latest_timestamp(GraphView(ratings, None), RATED)
    )


def test_a_trained_network_reads_the_edges_of_later_graphs(tmp_path: Path, ratings: Graph) -> None:
    read = {TEXT: ("stars", "place", "timestamp")}
    trained = trained_on(ratings, tmp_path / "run", layer="gine", edge_features=read)
    again = trained.over(ratings, threads=1)
    assert trained.logits is not None
    np.testing.assert_array_equal(again.logits, trained.logits)
    ratings.save(tmp_path / "graph")
    append(tmp_path / "graph", later_ratings(tmp_path / "later.parquet", 12))
    later = trained.over(Graph.open(tmp_path / "graph"), threads=1)
    assert later.logits is not None
    shares = torch.softmax(torch.from_numpy(later.logits), dim=1)
    # Three more ratings of many stars speak for class b, by those who had class a; the place is a new one.
    before = torch.softmax(torch.from_numpy(np.array(trained.logits)), dim=1)
    low = [user for user in range(12) if before[user, 1] < 0.5]
    assert len(low) > 2
    assert bool((shares[low, 1] > before[low, 1]).all())
    compact(tmp_path / "graph")
    compacted = trained.over(Graph.open(tmp_path / "graph"), threads=1)
    assert compacted.logits is not None
    np.testing.assert_allclose(compacted.logits, later.logits, atol=1e-5)


def later_ratings(path: Path, users: int) -> GraphSource:
    """Return three ratings of many stars for each of the first users, at the moment of the latest one."""
    user = np.repeat(np.arange(users), 3)
    write(
        path,
        source=[f"u{number}" for number in user],
        target=np.arange(len(user)),
        stars=np.full(len(user), 4.9),
        place=["moon"] * len(user),
        look=[[1.0, 0.5]] * len(user),
        paid=np.ones(len(user), bool),
        seconds=np.full(len(user), 20),
        weight=np.ones(len(user)),
        at=np.full(len(user), START),
    )
    return GraphSource("ratings", {}, (ratings_of(path),))


def test_weights_of_categories_are_matched_by_their_names(ratings: Graph) -> None:
    trainer = trainer_of(ratings, edge_features={TEXT: ("stars", "place")}, layers=2)
    found = {name: names for name, names in trainer.weight_categories().items() if "edge_inputs" in name}
    values = dict(trainer.network.named_parameters())
    assert len(found) == 2 * 2  # layers and directions
    for name, names in found.items():
        assert names == [MISSING_CATEGORY, "home", "shop", "train", "web"]
        assert len(values[name]) == len(names)
    assert trainer.inputs()[f"features of {TEXT}"] == ["stars (number)", "place (categorical)"]


def test_a_graph_without_the_features_is_refused(tmp_path: Path, ratings: Graph) -> None:
    trained = trained_on(ratings, tmp_path / "run", epochs=1)
    source, target = ratings.csc(RATED).coo()
    other = Graph.from_coo(source, target, name="other")
    with pytest.raises(UsageError, match="expected the edge type"):
        trained.over(other)
    bare = Graph(
        "bare",
        {name: ratings.node_table(name) for name in ratings.node_types},
        {
            RATED: edge_table(source, target, ratings.num_nodes("user"), ratings.num_nodes("item")),
            FOLLOWS: ratings.own_edges(FOLLOWS),
        },
    )
    message = r"expected the feature `stars` \(number\), which the network reads, received none"
    with pytest.raises(UsageError, match=message):
        trained.over(bare)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": "sage"}, "reads features of edges beside `edge_features`, received `sage`"),
        ({"layer": "torch_geometric.nn:GraphConv"}, "received `torch_geometric.nn:GraphConv`"),
        ({"edge_weights": True}, "expected `edge_features` without `edge_weights`, received both"),
        ({"merge_relations": True}, "expected `edge_features` without `merge_relations`, received both"),
        ({"edge_features": {"rated": ("stars",)}}, "an edge type as `source__relation__target`"),
        ({"edge_features": {TEXT: ()}}, "at least 1 item"),
        ({"auto": ("layer",)}, "beside `edge_features`, received one to be chosen"),
        ({"layer_options": {"edge_dim": 3}}, "expected no `edge_dim` among `layer_options`"),
        ({"edge_features": {TEXT: ("start",)}}, "there is no feature `start` of edges of type"),
        (
            {"edge_features": {"item__rev_rated__user": ("stars",)}},
            "there is no edge type `item__rev_rated__",
        ),
        ({"edge_features": {"user__follows__user": ("weight",)}}, "there is no feature `weight` of edges"),
        (
            {"relations": (FOLLOWS,), "edge_features": {TEXT: ("stars",)}},
            "expected an edge type among the model's relations, received user__rated__item",
        ),
    ],
)
def test_mistakes_are_said(ratings: Graph, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((GraphboxError, ValidationError)) as caught:
        trainer_of(ratings, **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["weight", "timestamp"])
def test_a_feature_called_as_what_an_edge_has_itself_is_refused(name: str) -> None:
    table = edge_table(
        np.array([0, 1]),
        np.array([1, 0]),
        2,
        2,
        features={name: Column("number", np.array([1.0, np.nan], np.float32))},
    )
    graph = Graph("named", {"user": numbered_nodes(2)}, {FOLLOWS: table})
    with pytest.raises(UsageError, match=f"expected `{name}` to be that of the edges") as caught:
        learnt_edges(GraphView(graph, None), {"user__follows__user": (name,)})
    assert "rename the feature" in str(caught.value.hint)
