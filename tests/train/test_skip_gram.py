"""Skip-gram in the native core: the torch model's steps, the same for any threads, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphbox.config import DeepWalkConfig, LineConfig, Metapath2VecConfig, ModelConfig, Node2VecConfig
from graphbox.config.models.walks import NegativeSamplingSection
from graphbox.errors import DataError, GraphboxError, UsageError
from graphbox.graph import Graph
from graphbox.sample import NegativeSampler, keep_probability, skip_gram_pairs, walk_pairs
from graphbox.table import CountAdmission, EmbeddingTable
from graphbox.train import GraphView, embed
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.walks.one_type import one_type_graph
from graphbox.train.walks.skip_gram import SkipGramTrainer
from graphbox.train.walks.sources import EdgeSource, MetapathSource, OneTypeSource, WalkSource
from tests.train.torch_skip_gram import SkipGram

METAPATHS = (
    (("item", "needs", "item"), ("item", "needs_back", "item")),
    (("item", "tagged", "tag"), ("tag", "tags", "item")),
)

LEARNING = NegativeSamplingSection(negatives=21, negative_weight=3.0, learning_rate=0.3)


def metapath_source(graph: Graph, window: int = 3) -> MetapathSource:
    return MetapathSource(
        GraphView(graph, None),
        METAPATHS,
        walks_per_node=1,
        walk_length=9,
        window=window,
        batch_size=50,
        weighted=False,
        seed=4,
        threads=1,
    )


def one_type_source(graph: Graph, length: int = 30, window: int = 7, **looks_back: float) -> OneTypeSource:
    return OneTypeSource(
        one_type_graph(GraphView(graph, None), (), weighted=False),
        walks_per_node=1,
        walk_length=length,
        window=window,
        batch_size=37,
        seed=4,
        threads=1,
        **looks_back,
    )


def edge_source(graph: Graph) -> EdgeSource:
    edges = one_type_graph(GraphView(graph, None), (), weighted=False)
    return EdgeSource(edges, batch_size=300, seed=4, threads=1)


def trainer_of(source: WalkSource, dim: int, **options: Any) -> SkipGramTrainer:
    settings: dict[str, Any] = {"epochs": 1, "seed": 4, "threads": 1, **options}
    return SkipGramTrainer(source, LEARNING, dim=dim, **settings)


def train(trainer: SkipGramTrainer) -> tuple[float, int]:
    """Return the mean loss over the pairs of an epoch, and their number."""
    loss, pairs = 0.0, 0
    for group in range(trainer.begin_epoch(0)):
        mean, count = trainer.train_batch(0, group)
        loss, pairs = loss + mean * count, pairs + count
    return loss / pairs, pairs


def pairs_of(
    source: WalkSource,
    graph: Graph,
    batch: int,
    keep: NDArray[np.float64] | None,
    dynamic_window: bool = False,
) -> NDArray[np.int64]:
    """Return centres and contexts of a batch, as the samplers for Python make them: int64 [2, pairs]."""
    batches = source.batches(0)
    part = slice(batches.offsets[batch], batches.offsets[batch + 1])
    start = batches.start[part]
    if batches.second is not None:
        walks = np.stack([start, batches.second[part]], axis=1)
        pairs = np.stack(skip_gram_pairs(walks, 1))
    else:
        walked: Any = GraphView(graph, None)
        options: dict[str, Any] = {"metapaths": METAPATHS, "metapath_of": None}
        if batches.path_of is None:
            walked, options = one_type_graph(walked, (), weighted=False), {}
        else:
            options["metapath_of"] = batches.path_of[part]
            options["type_offsets"] = {name: source.keys.start(name) for name in source.keys.num_nodes}
        chunks = walk_pairs(
            walked,
            start,
            source.plan.length,
            source.window,
            subsample=keep,
            dynamic_window=dynamic_window,
            seed=4,
            epoch=0,
            batch=batch,
            **options,
        )
        pairs = np.concatenate([np.zeros((2, 0), np.int64), *chunks], axis=1)
    return pairs[:, pairs[0] != pairs[1]]


def learn_with_torch(
    source: WalkSource,
    graph: Graph,
    center: EmbeddingTable,
    context: EmbeddingTable,
    keep: NDArray[np.float64] | None,
    dynamic_window: bool = False,
) -> float:
    """Train the same batches with the torch model; return the mean loss over all pairs."""
    visits = source.visits()
    negatives = NegativeSampler(visits if keep is None else visits * keep, LEARNING.negative_exponent, 4)
    model = SkipGram(center, context)
    total, count = 0.0, 0
    for batch in range(len(source.batches(0).offsets) - 1):
        centers, contexts = pairs_of(source, graph, batch, keep, dynamic_window)
        if not len(centers):
            continue
        loss = model(
            torch.from_numpy(centers),
            torch.arange(len(centers)),
            torch.from_numpy(contexts),
            torch.from_numpy(negatives.sample(LEARNING.negatives, 0, batch)),
            LEARNING.negative_weight,
        )
        loss.backward()
        total, count = total + loss.item() * len(centers), count + len(centers)
    return total / count


@pytest.mark.parametrize("dim", [1, 16, 37])
@pytest.mark.parametrize("make", [metapath_source, one_type_source])
@pytest.mark.parametrize(("subsample", "dynamic_window"), [(0.0, True), (1e-2, False)])
def test_rows_and_loss_equal_those_of_the_torch_model(
    graph: Graph, make: Callable[[Graph], WalkSource], dim: int, subsample: float, dynamic_window: bool
) -> None:
    source = make(graph)
    trainer = trainer_of(source, dim, subsample=subsample, dynamic_window=dynamic_window)
    keep = keep_probability(source.visits(), subsample) if subsample else None
    twins = [
        EmbeddingTable(dim, "rowwise_adagrad", 0.3, init_scale=scale, seed=4 + number)
        for number, scale in enumerate((1.0 / dim**0.5, 0.0))
    ]
    expected = learn_with_torch(source, graph, twins[0], twins[1], keep, dynamic_window)
    loss, _ = train(trainer)
    assert loss == pytest.approx(expected, rel=1e-4)
    keys = np.arange(source.keys.total)
    for table, twin in zip(trainer.tables().values(), twins, strict=True):
        np.testing.assert_allclose(table.pull(keys), twin.pull(keys), atol=2e-3)


def test_the_first_batch_equals_that_of_the_torch_model_exactly(graph: Graph) -> None:
    whole = one_type_source(graph, window=4)
    batches = whole.batches(0)

    class FirstBatch(OneTypeSource):
        def __init__(self) -> None:
            self.__dict__.update(whole.__dict__)

        def batches(self, epoch: int) -> Any:
            return type(batches)(batches.start[:37], np.array([0, 37]))

    source = FirstBatch()
    trainer = trainer_of(source, 24)
    twins = [
        EmbeddingTable(24, "rowwise_adagrad", 0.3, init_scale=scale, seed=4 + number)
        for number, scale in enumerate((1.0 / 24**0.5, 0.0))
    ]
    expected = learn_with_torch(source, graph, twins[0], twins[1], None)
    loss, _ = train(trainer)
    assert loss == pytest.approx(expected, rel=1e-6)
    keys = np.arange(source.keys.total)
    for table, twin in zip(trainer.tables().values(), twins, strict=True):
        np.testing.assert_allclose(table.pull(keys), twin.pull(keys), atol=1e-5)


def test_one_table_for_both_roles_learns_like_the_definition(graph: Graph) -> None:
    source = edge_source(graph)
    trainer = trainer_of(source, 8, one_table=True)
    table = EmbeddingTable(8, "rowwise_adagrad", 0.3, init_scale=1.0 / 8**0.5, seed=4)
    negatives = NegativeSampler(source.visits(), LEARNING.negative_exponent, 4)
    keys = np.arange(source.keys.total)
    for batch in range(len(source.batches(0).offsets) - 1):
        centers, contexts = pairs_of(source, graph, batch, None)
        drawn = negatives.sample(LEARNING.negatives, 0, batch)
        rows = torch.from_numpy(table.pull(keys)).requires_grad_()
        positive = (rows[centers] * rows[contexts]).sum(1)
        negative = torch.nn.functional.softplus(rows[centers] @ rows[drawn].T).mean(1)
        loss = torch.nn.functional.softplus(-positive).mean() + LEARNING.negative_weight * negative.mean()
        (gradient,) = torch.autograd.grad(loss, rows)
        touched = np.unique(np.concatenate([centers, contexts, drawn]))
        table.push(touched, gradient[touched].numpy())
    train(trainer)
    (learned,) = trainer.tables().values()
    np.testing.assert_allclose(learned.pull(keys), table.pull(keys), atol=1e-3)


@pytest.mark.parametrize(
    "config",
    [
        DeepWalkConfig(kind="deepwalk", dim=20, walks_per_node=2, walk_length=20),
        Node2VecConfig(kind="node2vec", dim=16, walks_per_node=1, walk_length=12, p=0.5, q=2.0),
        Metapath2VecConfig(kind="metapath2vec", metapaths=METAPATHS, epochs=2),
        LineConfig(kind="line", dim=12, epochs=2),
    ],
    ids=lambda config: str(config.kind),
)
class TestEveryModel:
    def test_any_number_of_threads_gives_the_same_bits(self, graph: Graph, config: Any) -> None:
        first, *others = (embed(graph, config, seed=5, threads=threads) for threads in (1, 2, 4))
        for other in others:
            assert first.keys() == other.keys()
            for name, rows in first.items():
                np.testing.assert_array_equal(rows, other[name])

    def test_without_locks_it_learns_as_well(self, graph: Graph, config: Any) -> None:
        free = config.model_copy(update={"lock_free": True})
        alone = embed(graph, config, seed=5, threads=1)
        np.testing.assert_array_equal(embed(graph, free, seed=5, threads=1)["item"], alone["item"])
        together = embed(graph, free, seed=5, threads=3)["item"]
        assert np.isfinite(together).all()
        spread = np.linalg.norm(alone["item"])
        assert np.linalg.norm(together) == pytest.approx(spread, rel=0.3)

    def test_goes_on_from_its_tables(self, graph: Graph, config: Any) -> None:
        def make() -> Any:
            return make_trainer(config, Assignment("model", GraphView(graph, None), None, None, 5, 1))

        whole, halves = make(), make()
        for epoch in range(whole.epochs):
            for group in range(whole.begin_epoch(epoch)):
                whole.train_batch(epoch, group)
                halves.begin_epoch(epoch)
                halves.train_batch(epoch, group)
                resumed = make()
                resumed.restore(halves.dense(), halves.tables())
                halves = resumed
        for name, rows in whole.embeddings().items():
            np.testing.assert_array_equal(rows, halves.embeddings()[name])


def communities(weighted: bool = False) -> tuple[Graph, NDArray[np.int64]]:
    """Return a graph of four groups, told by edges or by their weights alone, and the group of each node."""
    generator = np.random.default_rng(3)
    group = np.repeat(np.arange(4), 40)
    source, target = generator.integers(0, 160, (2, 12000))
    inside = group[source] == group[target]
    keep = (source != target) & (inside | (generator.random(12000) < (1.0 if weighted else 0.08)))
    weight = np.where(inside, 50.0, 1.0)[keep] if weighted else None
    return Graph.from_coo(source[keep], target[keep], num_nodes=160, weight=weight), group


def separation(rows: NDArray[np.float32], group: NDArray[np.int64]) -> float:
    """Return the share of nodes whose nearest node by the cosine is of their group."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    return float((group[cosine.argmax(axis=1)] == group).mean())


@pytest.mark.parametrize(
    ("config", "weighted"),
    [
        (
            DeepWalkConfig(kind="deepwalk", dim=16, walks_per_node=4, walk_length=20, window=4, epochs=8),
            False,
        ),
        (
            DeepWalkConfig(
                kind="deepwalk", dim=16, walks_per_node=4, walk_length=20, weighted=True, epochs=8
            ),
            True,
        ),
        (
            DeepWalkConfig(
                kind="deepwalk", dim=16, walks_per_node=4, walk_length=20, window=4, epochs=8, lock_free=True
            ),
            False,
        ),
        (
            Node2VecConfig(
                kind="node2vec", dim=16, walks_per_node=4, walk_length=20, window=4, epochs=8, p=2.0, q=0.5
            ),
            False,
        ),
        (LineConfig(kind="line", dim=16), False),
        (LineConfig(kind="line", dim=16, weighted=True), True),
        (LineConfig(kind="line", dim=16, orders=(1,)), False),
        (LineConfig(kind="line", dim=16, orders=(2,)), False),
    ],
    ids=lambda value: str(getattr(value, "kind", value)),
)
def test_embeddings_separate_planted_communities(config: Any, weighted: bool) -> None:
    graph, group = communities(weighted)
    assert separation(embed(graph, config, seed=1, threads=2)["node"], group) > 0.95


def test_a_batch_may_be_larger_than_the_graph_and_walks_shorter_than_the_window(graph: Graph) -> None:
    config = DeepWalkConfig(
        kind="deepwalk", dim=4, walks_per_node=1, walk_length=2, window=50, batch_size=100_000, negatives=1
    )
    assert np.isfinite(embed(graph, config)["item"]).all()


def test_edges_are_drawn_by_other_numbers_than_negatives() -> None:
    graph = one_type_graph(GraphView(communities(weighted=True)[0], None), (), weighted=True)
    source = EdgeSource(graph, batch_size=64, seed=3, threads=1)
    drawn = source.batches(0)
    rows = np.repeat(np.arange(graph.keys.total), np.diff(graph.indptr))
    once = rows < graph.indices
    assert graph.weight is not None
    same_numbers = NegativeSampler(graph.weight[once], 1.0, 3).sample(len(drawn.start), 0, 0, 1)
    assert (drawn.start != rows[once][same_numbers]).mean() > 0.9


class TestOneTypeGraph:
    def test_holds_each_pair_once_both_ways(self) -> None:
        graph = Graph.from_coo(
            [0, 1, 0, 2, 3], [1, 0, 1, 2, 1], num_nodes=5, weight=[1.0, 2.0, 4.0, 9.0, 3.0]
        )
        plain = one_type_graph(GraphView(graph, None), (), weighted=False)
        assert plain.indptr.tolist() == [0, 1, 3, 3, 4, 4]
        assert plain.indices.tolist() == [1, 0, 3, 1]
        weighted = one_type_graph(GraphView(graph, None), (), weighted=True)
        assert weighted.weight is not None
        assert weighted.weight.tolist() == [7.0, 7.0, 3.0, 3.0]
        assert weighted.degree().tolist() == [7.0, 10.0, 0.0, 3.0, 0.0]

    def test_numbers_all_types_and_takes_reverse_edge_types_for_the_same_edges(self, graph: Graph) -> None:
        view = GraphView(graph, None)
        named = [each for each in view.edge_types if not view.is_reverse(each)]
        whole, same = one_type_graph(view, (), weighted=False), one_type_graph(view, named, weighted=False)
        np.testing.assert_array_equal(whole.indices, same.indices)
        assert whole.keys.total == sum(graph.num_nodes(name) for name in graph.node_types)
        rows = np.repeat(np.arange(whole.keys.total), np.diff(whole.indptr))
        edges = set(zip(rows.tolist(), whole.indices.tolist(), strict=True))
        source, target = graph.csc(("item", "tagged", "tag")).coo()
        first = whole.keys.start("tag")
        assert all(
            (a, first + b) in edges and (first + b, a) in edges for a, b in zip(source, target, strict=True)
        )


class TestRefuses:
    def test_edge_types_that_are_not_there(self, graph: Graph) -> None:
        config = DeepWalkConfig(kind="deepwalk", edge_types=(("item", "neds", "item"),))
        with pytest.raises(UsageError, match="no edge type") as raised:
            embed(graph, config)
        assert raised.value.where == "models.deepwalk.edge_types"

    def test_weights_that_are_not_there(self, graph: Graph) -> None:
        with pytest.raises(UsageError, match="weights"):
            embed(graph, LineConfig(kind="line", weighted=True))

    def test_a_graph_without_edges(self) -> None:
        with pytest.raises(DataError, match="edges to walk along"):
            embed(Graph.from_coo([1], [1], num_nodes=3), DeepWalkConfig(kind="deepwalk"))

    @pytest.mark.parametrize(
        ("orders", "dim", "where"), [((1, 1), 8, "orders"), ((1, 2), 7, "dim")], ids=["twice", "odd"]
    )
    def test_orders_that_do_not_fit(self, graph: Graph, orders: Any, dim: int, where: str) -> None:
        with pytest.raises(UsageError) as raised:
            embed(graph, LineConfig(kind="line", orders=orders, dim=dim))
        assert raised.value.where == f"models.line.{where}"

    @pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0, 0.0])
    def test_learning_rates_that_are_none(self, rate: float) -> None:
        with pytest.raises(ValueError, match="learning_rate"):
            DeepWalkConfig(kind="deepwalk", learning_rate=rate)

    def test_a_loss_that_is_not_finite_before_rows_take_it_up(self, graph: Graph) -> None:
        config = DeepWalkConfig(kind="deepwalk", dim=8, walks_per_node=1, walk_length=5, learning_rate=1e19)
        trainer = make_trainer(config, Assignment("model", GraphView(graph, None), None, None, 0, 2))
        trainer.begin_epoch(0)
        loss, _ = trainer.train_batch(0, 0)
        assert not np.isfinite(loss)
        for table in trainer.tables().values():
            assert np.isfinite(table.pull(np.arange(500))).all()
        with pytest.raises(GraphboxError, match="finite loss"):
            embed(graph, config)

    @pytest.mark.parametrize(
        ("options", "what"),
        [
            ({"dtype": "float16"}, "float16"),
            ({"admission": CountAdmission(2)}, "policies"),
            ({"mean_gradient": True}, "averages"),
        ],
        ids=["float16", "policy", "mean"],
    )
    def test_tables_whose_rows_it_cannot_train_in_place(
        self, graph: Graph, options: dict[str, Any], what: str
    ) -> None:
        trainer = trainer_of(one_type_source(graph), 8)
        tables = {name: EmbeddingTable(8, "adagrad", **options) for name in ("center", "context")}
        trainer.restore({}, tables)
        trainer.begin_epoch(0)
        with pytest.raises(GraphboxError, match=what):
            trainer.train_batch(0, 0)


def test_all_kinds_are_models_of_the_run_file() -> None:
    configs: list[ModelConfig] = [DeepWalkConfig(kind="deepwalk"), LineConfig(kind="line")]
    assert [config.kind for config in configs] == ["deepwalk", "line"]
