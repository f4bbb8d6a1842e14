"""The leak tests: what a task holds out must not reach a model, by any way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from graphbox.config import (
    ClassifyTaskConfig,
    Metapath2VecConfig,
    PredictLinksTaskConfig,
    RecommendTaskConfig,
    SageConfig,
)
from graphbox.errors import UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import ClassifySplit, GraphView, RecommendSplit, make_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.recommendation.sage import SageTrainer
from graphbox.train.tasks import pair_keys
from graphbox.train.trainer import EmbeddingTrainer


def joined(view: GraphView) -> set[tuple[int, int]]:
    """Return every pair of items that an edge of any type joins, both ways round."""
    pairs: set[tuple[int, int]] = set()
    for edge_type in view.edge_types:
        if edge_type[0] == edge_type[2] == "item":
            csc, csr = view.csc(edge_type), view.csr(edge_type)
            source, target = csc.coo()
            pairs.update(zip(source.tolist(), target.tolist(), strict=True))
            pairs.update(zip(target.tolist(), source.tolist(), strict=True))
            for node in range(csr.num_sources):
                for other in csr.indices[csr.indptr[node] : csr.indptr[node + 1]].tolist():
                    assert (node, other) in pairs, f"{edge_type}: only in the CSR"
    return pairs


@pytest.mark.parametrize(
    "task",
    [
        RecommendTaskConfig(kind="recommend", node_type="user", target_type="item", relations=("buys",)),
        PredictLinksTaskConfig(
            kind="predict_links", node_type="user", target_type="item", relations=("buys",)
        ),
    ],
    ids=lambda task: task.kind,
)
def test_edges_of_their_own_the_other_way_round_give_nothing_away(task: Any, tmp_path: Path) -> None:
    """A log that lists each purchase from the item's side as well, as an edge type that is no reverse one."""
    pairs = {(user, (7 * user + number**2) % 20) for user in range(40) for number in range(5)}
    users, items = ([f"{kind}{pair[end]}" for pair in sorted(pairs)] for end, kind in enumerate("ui"))
    source = GraphSource(
        "g",
        {"user": NodeSource(), "item": NodeSource()},
        (
            EdgeSource(("user", "buys", "item"), pa.table({"source": users, "target": items})),
            EdgeSource(("item", "sold_to", "user"), pa.table({"source": items, "target": users})),
        ),
    )
    import_graph(source, tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    split: Any = make_split(graph, task, 0)
    for fold, unseen in (("train", ("validation", "test")), ("test", ("test",))):
        view = GraphView(graph, split, fold)  # type: ignore[arg-type]
        sold, bought = view.csc(("item", "sold_to", "user")).coo()
        seen = set(zip(bought.tolist(), sold.tolist(), strict=True))
        held = [
            tuple(edge)
            for each in unseen
            for edge in (split.edges(each) if task.kind == "recommend" else split.part(each).edges).tolist()
        ]
        assert held
        assert len(seen) == len(pairs) - len(set(held))
        assert not seen & set(held)


class TestHeldOutEdges:
    @pytest.mark.parametrize("reversed_again", [False, True])
    def test_never_in_the_training_graph(
        self, graph: Graph, recommend_split: RecommendSplit, reversed_again: bool
    ) -> None:
        view = GraphView(graph, recommend_split)
        pairs = joined(view.with_reverse_edges() if reversed_again else view)
        group = recommend_split.group
        held = np.concatenate([recommend_split.validation, recommend_split.test])
        assert len(held)
        for query, answer in held.tolist():
            for one in np.flatnonzero(group == group[query]).tolist():
                for other in np.flatnonzero(group == group[answer]).tolist():
                    assert (one, other) not in pairs, "a sibling gives the answer away"

    def test_view_of_the_test_fold_has_all_but_test(
        self, graph: Graph, recommend_split: RecommendSplit
    ) -> None:
        pairs = joined(GraphView(graph, recommend_split, "test"))
        assert {tuple(edge) for edge in recommend_split.validation.tolist()} <= pairs
        assert {tuple(edge) for edge in recommend_split.train.tolist()} <= pairs
        assert not {tuple(edge) for edge in recommend_split.test.tolist()} & pairs

    def test_other_relations_keep_their_edges(self, graph: Graph, recommend_split: RecommendSplit) -> None:
        view = GraphView(graph, recommend_split)
        for edge_type in graph.edge_types:
            if edge_type[1] in {"needs", "needs_back", "part_of", "has", "tagged", "tags"}:
                np.testing.assert_array_equal(view.csc(edge_type).indices, graph.csc(edge_type).indices)

    def test_positives_of_an_epoch_never_see_themselves(
        self,
        graph: Graph,
        recommend_task: RecommendTaskConfig,
        recommend_split: RecommendSplit,
        sage_config: SageConfig,
    ) -> None:
        trainer = SageTrainer(
            sage_config,
            Assignment("sage", GraphView(graph, recommend_split), recommend_split, recommend_task, 1, None),
        )
        group = recommend_split.group
        held_out = {
            tuple(edge)
            for edge in np.concatenate([recommend_split.validation, recommend_split.test]).tolist()
        }
        seen_positives: set[tuple[int, int]] = set()
        for epoch in range(4):
            trainer.begin_epoch(epoch)
            row, answer = trainer.epoch_positives.take(np.arange(graph.num_nodes("item")))
            positives = set(zip(row.tolist(), answer.tolist(), strict=True))
            assert positives
            assert not positives & held_out
            pairs = np.array(sorted(joined(trainer.epoch_view)))
            known = set(pair_keys(group[pairs[:, 0]], group[pairs[:, 1]]).tolist())
            edges = np.array(sorted(positives))
            assert not known & set(pair_keys(group[edges[:, 0]], group[edges[:, 1]]).tolist())
            assert positives != seen_positives
            seen_positives = positives


class TestLabel:
    def test_cannot_be_read(self, graph: Graph, classify_split: ClassifySplit) -> None:
        view = GraphView(graph, classify_split)
        assert set(view.features("item")) == {"size", "kept"}
        with pytest.raises(UsageError, match="reads topic"):
            view.feature("item", "topic")
        with pytest.raises(UsageError, match="reads topic"):
            view.with_reverse_edges().feature("item", "topic")
        with pytest.raises(UsageError, match="reads topic"):
            view.feature_rows("item", "topic", 0, 5)

    def test_may_be_read_for_another_task(self, graph: Graph, recommend_split: RecommendSplit) -> None:
        view = GraphView(graph, recommend_split)
        np.testing.assert_array_equal(view.feature("item", "topic"), graph.feature("item", "topic"))

    def test_is_not_asked_for_by_skip_gram(
        self,
        graph: Graph,
        classify_split: ClassifySplit,
        classify_task: ClassifyTaskConfig,
        skip_gram_config: Metapath2VecConfig,
    ) -> None:
        class Featureless(GraphView):
            def feature(self, node_type: str, name: str) -> NDArray[np.generic]:
                raise AssertionError(f"{node_type}.{name} was read")

        rows = []
        for kind in (GraphView, Featureless):
            view = kind(graph, classify_split)
            assignment = Assignment("walks", view, classify_split, classify_task, 0, 1)
            trainer = make_trainer(skip_gram_config, assignment)
            assert isinstance(trainer, EmbeddingTrainer)
            for batch in range(trainer.begin_epoch(0)):
                trainer.train_batch(0, batch)
            rows.append(trainer.embeddings()["item"])
        np.testing.assert_array_equal(rows[0], rows[1])

    def test_model_that_reads_it_is_refused(
        self,
        graph: Graph,
        recommend_task: RecommendTaskConfig,
        recommend_split: RecommendSplit,
        classify_split: ClassifySplit,
        sage_config: SageConfig,
    ) -> None:
        view = GraphView(graph, classify_split)
        with pytest.raises(UsageError, match="does not read what it is to predict"):
            SageTrainer(sage_config, Assignment("sage", view, recommend_split, recommend_task, 0, None))


def test_edges_that_are_left_are_in_memory_once(graph: Graph, recommend_split: RecommendSplit) -> None:
    view = GraphView(graph, recommend_split)
    both_ways = view.with_reverse_edges()
    changed = next(iter(recommend_split.hidden_edges(graph, "train")))
    assert both_ways.csc(changed).indices is view.csc(changed).indices
