"""Graph networks: each layer does what it says, however its nodes come together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig
from graphbox.errors import GraphboxError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.models.layer_kinds import LAYER_KINDS
from graphbox.sample import sample_heterogeneous
from graphbox.train import ClassifySplit, fit
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.evaluate import evaluate_logits
from graphbox.train.network.classify import GraphNetworkTrainer
from graphbox.train.network.inference import embed_graph
from graphbox.train.network.merged_graph import merged_graph
from graphbox.train.network.node_data import node_data
from graphbox.train.seeded import seed_of, seeded
from graphbox.train.view import GraphView
from tests.train.conftest import write

PAPERS, AUTHORS = 40, 15


def build(folder: Path, papers: int = PAPERS, *, weight: float = 1.0) -> Graph:
    """Return a graph of papers that cite papers, with authors; of more papers, the first ones stay."""
    folder.mkdir()
    generator = np.random.default_rng(5)
    pairs = np.array([(s, t) for s in range(papers) for t in range(papers) if (3 * s + 7 * t) % 11 == 1])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    nodes = write(
        folder / "paper.parquet",
        id=np.arange(papers),
        topic=[f"t{number % 3}" for number in range(papers)],
        words=[[number % 5, number % 7] for number in range(papers)],
        year=np.arange(papers).astype(float),
        vector=[[float(number % 2), 1.0] for number in range(papers)],
    )
    cites = write(
        folder / "cites.parquet",
        source=pairs[:, 0],
        target=pairs[:, 1],
        weight=generator.uniform(0.5, 1.5, len(pairs)) * weight,
    )
    author = write(folder / "author.parquet", id=np.arange(AUTHORS))
    wrote = write(folder / "wrote.parquet", source=np.arange(papers) % AUTHORS, target=np.arange(papers))
    features = {"topic": "categorical", "words": "slots", "year": "number", "vector": "vector"}
    source = GraphSource(
        "papers",
        {"paper": NodeSource(nodes, features=features), "author": NodeSource(author)},  # type: ignore[arg-type]
        (
            EdgeSource(("paper", "cites", "paper"), cites, weight="weight"),
            EdgeSource(("author", "wrote", "paper"), wrote),
        ),
    )
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build(tmp_path_factory.mktemp("papers") / "graph")


CITES = ("paper", "cites", "paper")


def split_of(graph: Graph) -> ClassifySplit:
    labels = np.asarray(graph.feature("paper", "topic")).astype(np.int64)
    fold = (np.arange(len(labels)) % 4 // 2).astype(np.int8)
    return ClassifySplit("paper", "digest", "topic", None, ("t0", "t1", "t2"), labels, fold)


def trainer_of(graph: Graph, **settings: Any) -> GraphNetworkTrainer:
    config = GraphNetworkConfig(kind="gnn", task="t", **{"dim": 8, **settings})
    view = GraphView(graph, split_of(graph))
    made = make_trainer(config, Assignment("net", view, split_of(graph), None, 3, 1))
    assert isinstance(made, GraphNetworkTrainer)
    made.network.eval()
    return made


def whole(trainer: GraphNetworkTrainer) -> dict[str, NDArray[np.float32]]:
    """Return the embeddings by one pass over the whole graph."""
    inputs, edges = trainer._whole_graph()
    with torch.no_grad():
        rows = {name: trainer.network.input_module(name).fetch(each) for name, each in inputs.items()}
        return {name: each.numpy() for name, each in trainer.network(inputs, rows, edges).items()}


def touch_rows(trainer: GraphNetworkTrainer) -> None:
    """Give every node its row, as training does."""
    for name, table in trainer.tables().items():
        table.pull(np.arange(trainer._graph.view.num_nodes(name)))


ONE_TYPE = sorted(set(LAYER_KINDS) - {"gine"})  # which reads features of edges: see test_edge_features.py
SEVERAL_TYPES = sorted(set(ONE_TYPE) - {"gcn2"})
CASES = [(name, (CITES,)) for name in ONE_TYPE] + [(name, ()) for name in SEVERAL_TYPES]


@pytest.mark.parametrize(("layer", "relations"), CASES)
class TestEveryLayer:
    def test_blocks_give_what_the_whole_graph_gives(
        self, papers: Graph, layer: str, relations: Any, tmp_path: Path
    ) -> None:
        trainer = trainer_of(papers, layer=layer, relations=relations, layers=3)
        touch_rows(trainer)
        expected = whole(trainer)
        graph, data, network = trainer._graph, trainer._data, trainer.network
        found = embed_graph(network, graph, data, block_nodes=7, folder=tmp_path / "vectors", threads=1)
        assert found.keys() == expected.keys()
        for name, vectors in expected.items():
            np.testing.assert_allclose(found[name], vectors, atol=2e-5, err_msg=name)
            assert len(np.unique(vectors.round(4), axis=0)) > 2
        left = sorted(path.name for path in (tmp_path / "vectors").iterdir())
        assert left == sorted(f"{name}.layer2.npy" for name in expected)
        some = np.array([3, 17])
        few = embed_graph(network, graph, data, nodes={"paper": some}, threads=1)
        np.testing.assert_allclose(few["paper"][some], expected["paper"][some], atol=2e-5)

    def test_batches_with_all_neighbors_give_the_same(
        self, papers: Graph, layer: str, relations: Any
    ) -> None:
        trainer = trainer_of(papers, layer=layer, relations=relations, layers=2)
        touch_rows(trainer)
        seeds = np.array([5, 2, 30])
        graph = trainer._graph
        hops = {edge_type: [-1, -1] for edge_type in graph.edge_types}
        seeds_of = {"paper": torch.from_numpy(seeds)}
        sample = sample_heterogeneous(graph.view, seeds_of, hops)
        inputs = {name: trainer._data[name].take(sample.nodes[name]) for name in graph.node_types}
        with torch.no_grad():
            rows = {name: trainer.network.input_module(name).fetch(each) for name, each in inputs.items()}
            found = trainer.network(inputs, rows, graph.layers_of(sample, 2))["paper"][: len(seeds)]
        np.testing.assert_allclose(found.numpy(), whole(trainer)["paper"][seeds], atol=2e-5)


class TestAgainstPlainReferences:
    def adjacency(self, graph: Graph, *, weighted: bool) -> NDArray[np.float64]:
        """Return the matrix of both directions, [target, source], with ones on the diagonal, normalized."""
        csc = graph.csc(CITES)
        source, target = csc.coo()
        matrix = np.zeros((PAPERS, PAPERS))
        assert csc.weight is not None
        np.add.at(matrix, (target, source), csc.weight if weighted else 1.0)
        matrix = matrix + matrix.T
        if not weighted:  # papers that cite each other have one edge
            assert matrix.max() == 2
            matrix = np.minimum(matrix, 1)
        matrix = matrix + np.eye(PAPERS)
        root = np.sqrt(matrix.sum(axis=1))
        normalized: NDArray[np.float64] = matrix / root[:, None] / root[None, :]
        return normalized

    @pytest.mark.parametrize("weighted", [False, True])
    def test_gcn(self, papers: Graph, weighted: bool) -> None:
        trainer = trainer_of(papers, layer="gcn", relations=(CITES,), layers=1, edge_weights=weighted)
        network, inputs = trainer.network, trainer._whole_graph()[0]
        with torch.no_grad():
            entered = network.enter(inputs, {"paper": None})["paper"].double().numpy()
        (parameters,) = [layer.state_dict() for layer in network.layers]
        values = {name.rpartition(".")[2]: value.double().numpy() for name, value in parameters.items()}
        moved = self.adjacency(papers, weighted=weighted) @ entered @ values["weight"].T
        expected = np.maximum(moved + values["bias"], 0)
        np.testing.assert_allclose(whole(trainer)["paper"], expected, atol=1e-5)

    def test_appnp(self, papers: Graph) -> None:
        trainer = trainer_of(
            papers, layer="appnp", relations=(CITES,), layers=4, layer_options={"alpha": 0.2}
        )
        with torch.no_grad():
            first = trainer.network.enter(trainer._whole_graph()[0], {"paper": None})["paper"]
        start = vectors = first.double().numpy()
        for _ in range(4):
            vectors = 0.8 * self.adjacency(papers, weighted=False) @ vectors + 0.2 * start
        np.testing.assert_allclose(whole(trainer)["paper"], vectors, atol=1e-5)

    def test_inputs_are_the_sum_of_what_nodes_have(self, papers: Graph) -> None:
        trainer = trainer_of(papers, layer="gcn", relations=(CITES,), embeddings=("paper",))
        touch_rows(trainer)
        module, nodes = trainer.network.input_module("paper"), np.array([4, 9])
        batch = trainer._data["paper"].take(torch.from_numpy(nodes))
        with torch.no_grad():
            found = module(batch, module.fetch(batch)).numpy()
        state = {name: value.detach().numpy() for name, value in module.named_parameters()}
        year = np.sign(np.arange(PAPERS)) * np.log1p(np.arange(PAPERS))
        year = (year - year.mean()) / year.std()
        words = state["slots.0"]
        for row, node in zip(found, nodes, strict=True):
            expected = trainer.tables()["paper"].pull([node], create=False)[0] + state["bias"]
            expected = expected + (words[node % 5] + words[node % 7]) / 2
            expected = expected + state["features.numbers.weight"][:, 0] * year[node]
            expected = expected + state["vectors.weight"] @ np.array([node % 2, 1.0])
            np.testing.assert_allclose(row, expected, atol=1e-5)


@pytest.mark.parametrize("layer", [name for name, kind in LAYER_KINDS.items() if kind.takes_weights])
def test_weights_of_edges_reach_the_layer(papers: Graph, layer: str) -> None:
    options = {"layer": layer, "relations": (CITES,), "layers": 1}
    assert not np.allclose(
        whole(trainer_of(papers, **options, edge_weights=True))["paper"],
        whole(trainer_of(papers, **options))["paper"],
    )


@pytest.mark.parametrize("layer", ["gcn", "gatv2", "transformer"])
def test_edges_without_weights_beside_those_that_have_them_weigh_1(papers: Graph, layer: str) -> None:
    options = {"layer": layer, "layers": 2, "edge_weights": True, "num_neighbors": (3, 3), "batch_size": 16}
    trainer = trainer_of(papers, **options)
    edges = trainer._whole_graph()[1][0].edges
    assert {relation for relation, each in edges.items() if each.weight is None} == set()
    wrote = edges["author", "wrote", "paper"].weight
    assert wrote is not None
    assert layer == "gcn" or bool((wrote == 1).all())
    assert np.isfinite(whole(trainer)["paper"]).all()
    assert trainer.begin_epoch(0) > 1
    assert np.isfinite(trainer.train_batch(0, 0)[0])


def test_nodes_unseen_in_training_come_from_features_and_neighbors(papers: Graph, tmp_path: Path) -> None:
    trainer = trainer_of(papers, layer="sage", relations=(CITES,), embeddings=("paper",))
    touch_rows(trainer)
    table = trainer.tables()["paper"]
    table.erase(np.array([PAPERS - 1]))
    batch = trainer._data["paper"].take(torch.tensor([PAPERS - 2, PAPERS - 1]))
    rows = trainer.network.input_module("paper").fetch(batch)
    assert rows is not None
    assert rows[0].abs().sum() > 0
    assert rows[1].abs().sum() == 0
    vectors = embed_graph(trainer.network, trainer._graph, trainer._data, threads=1)["paper"]
    assert np.isfinite(vectors).all()
    assert not table.contains(np.array([PAPERS - 1])).any()  # embedding made no row


def test_learns_and_the_label_is_hidden(
    graph: Graph,
    classify_split: ClassifySplit,
    classify_task: ClassifyTaskConfig,
    network_config: GraphNetworkConfig,
    tmp_path: Path,
) -> None:
    config = network_config.model_copy(update={"epochs": 30, "average_decay": None, "features": {}})
    options: dict[str, Any] = {"name": "net", "task": classify_task, "seed": 1, "threads": 1}
    trained = fit(graph, classify_split, config=config, run_folder=tmp_path, **options)
    assert trained.logits is not None
    assert evaluate_logits(classify_split, trained.logits)["accuracy"] > 0.6
    leaking = config.model_copy(update={"features": {"item": ("topic",)}})
    with pytest.raises(UsageError, match="does not read what it is to predict"):
        fit(graph, classify_split, config=leaking, run_folder=tmp_path / "leaking", **options)
    data = node_data(GraphView(graph, classify_split), ["item"], None)
    assert data["item"].sizes.features.categories == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer": "sages"}, "there is no layer `sages`; did you mean `sage`?"),
        ({"layer": "no_such_package:Layer"}, "there is no module `no_such_package`"),
        ({"layer": ":Layer"}, "expected an import path, package.module:name, received `:Layer`"),
        ({"layer": "math:nothing"}, "expected a class or function `nothing` in math"),
        ({"layer": "gat", "layer_options": {"heads": 3}}, "dim 8 is no multiple of heads 3"),
        ({"layer": "gat", "layer_options": {"heads": 0}}, "expected 1 or more heads, received 0"),
        ({"layer": "sage", "layer_options": {"hats": 3}}, "cannot be made with the options hats: 3"),
        (
            {"layer": "gat", "layer_options": {"dropout": 2.0}},
            "dropout probability has to be between 0 and 1",
        ),
        (
            {"layer": "rgcn", "layer_options": {"num_bases": 0}},
            "cannot be made with the options num_bases: 0",
        ),
        ({"layer": "appnp", "layer_options": {"alpha": "x"}}, "cannot be made with the options alpha: x"),
        ({"layer": "transformer", "layer_options": {"edge_dim": 1}}, "the options edge_dim: 1"),
        ({"layer": "torch.nn:Linear"}, "the layer `torch.nn:Linear` cannot be made"),
        (
            {"layer": "torch_geometric.nn:GATConv", "layer_options": {"heads": 2, "add_self_loops": False}},
            "expected vectors of 8 values, received [16]",
        ),
        ({"layer": "gcn2"}, "relations between nodes of one type alone"),
        ({"edge_weights": True}, "weights of edges do not reach layers of kind sage"),
        (
            {"edge_weights": True, "layer": "gcn", "relations": (("author", "wrote", "paper"),)},
            "expected edges with weights, received none",
        ),
        ({"num_neighbors": (3,)}, "a number of neighbours for each of 2 layers, received 1"),
        ({"relations": (("paper", "likes", "paper"),)}, "there is no edge type paper__likes__paper"),
        ({"features": {"person": ()}}, "there is no node type `person`"),
        ({"features": {"paper": ("wordz",)}}, "wordz"),
        ({"embeddings": ("authors",)}, "at an end of the model's relations; did you mean `author`?"),
    ],
)
def test_mistakes_are_said(papers: Graph, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphboxError) as caught:
        trainer_of(papers, **settings)
    assert message in str(caught.value).replace("\n  = help:", ";")


def test_a_users_own_layer(papers: Graph) -> None:
    trainer = trainer_of(papers, layer="torch_geometric.nn:GraphConv", layer_options={"aggr": "mean"})
    assert np.isfinite(whole(trainer)["paper"]).all()


class Centered(torch.nn.Module):
    """A layer with a buffer that training changes."""

    def __init__(self, dim: int, out: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(dim, out)
        self.norm = torch.nn.BatchNorm1d(out)

    def forward(self, vectors: Any, index: Tensor) -> Tensor:
        given = vectors if isinstance(vectors, Tensor) else vectors[1]
        found: Tensor = self.norm(self.linear(given))
        return found


def test_buffers_of_a_users_own_layer_are_part_of_the_state(papers: Graph) -> None:
    options = {"layer": f"{__name__}:Centered", "relations": (CITES,), "layers": 1}
    trainer, other = trainer_of(papers, **options), trainer_of(papers, **options)
    trainer.begin_epoch(0)
    trainer.train_batch(0, 0)
    trainer.network.eval()
    assert not np.allclose(whole(trainer)["paper"], whole(other)["paper"])
    other.restore(trainer.dense(), trainer.tables())
    np.testing.assert_array_equal(whole(trainer)["paper"], whole(other)["paper"])


def test_the_first_batch_does_not_draw_the_numbers_that_parameters_started_from(
    papers: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def seeded_and_noted(*numbers: int, **place: Any) -> Any:
        drawn.append(seed_of(*numbers))
        return seeded(*numbers, **place)

    monkeypatch.setattr("graphbox.train.network.trainer.seeded", seeded_and_noted)
    monkeypatch.setattr("graphbox.train.torch_trainer.seeded", seeded_and_noted)
    trainer = trainer_of(papers)
    assert len(drawn) == 1
    for epoch in range(2):
        for batch in range(trainer.begin_epoch(epoch)):
            trainer.train_batch(epoch, batch)
    assert len(drawn) == len(set(drawn)) >= 3


def test_edges_of_merged_relations_are_one_for_each_pair() -> None:
    source, target, weight = [0, 1, 1, 2, 0], [1, 0, 2, 2, 1], [1.0, 2.0, 3.0, 4.0, 5.0]
    graph = Graph.from_coo(source, target, num_nodes=4, weight=weight)
    view = GraphView(graph, None).with_reverse_edges()
    dense = np.zeros((4, 4))
    np.add.at(dense, (target, source), weight)
    dense = dense + dense.T
    merged = merged_graph(view, view.edge_types, weights=True)
    (relation,) = merged.edge_types
    csc, csr = merged.csc(relation), merged.csr(relation)
    for found, transposed in ((csc, False), (csr, True)):
        rows = np.repeat(np.arange(4), np.diff(found.indptr))
        assert len(set(zip(rows.tolist(), found.indices.tolist(), strict=True))) == len(rows)
        matrix = np.zeros((4, 4))
        assert found.weight is not None
        matrix[rows, found.indices] = found.weight
        np.testing.assert_allclose(matrix.T if transposed else matrix, dense)
    assert merged_graph(view, view.edge_types, weights=False).csc(relation).weight is None
