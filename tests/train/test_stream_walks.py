"""Walk models from a stream: walks of the nodes that a chunk touches, on the graph as it is then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphbox.config import DeepWalkConfig, Node2VecConfig
from graphbox.errors import UsageError
from graphbox.table import Expiry
from graphbox.train import GraphView
from graphbox.train.assignment import Assignment, make_streaming_trainer
from graphbox.train.stream import Chunk
from graphbox.train.stream.progressive import chunk_figures
from graphbox.train.stream.walks import InterleavedKeys, StreamingWalks
from tests.train.chunk_by_chunk import score_then_learn
from tests.train.test_stream import BUYS, chunks_in

CONFIG = DeepWalkConfig(
    kind="deepwalk",
    edge_types=(BUYS,),
    dim=16,
    walks_per_node=4,
    walk_length=10,
    window=3,
    batch_size=8,
    negatives=16,
    epochs=2,
)


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> list[Chunk]:
    return chunks_in(tmp_path_factory.mktemp("walks") / "graph", 5)


def walks(view: GraphView, config: DeepWalkConfig = CONFIG, threads: int = 1) -> StreamingWalks:
    trainer = make_streaming_trainer(config, Assignment("walks", view, None, None, 5, threads))
    assert isinstance(trainer, StreamingWalks)
    return trainer


def test_a_node_keeps_its_key_while_others_come() -> None:
    before, after = InterleavedKeys({"a": 3, "b": 5}), InterleavedKeys({"a": 7, "b": 6})
    for name in ("a", "b"):
        assert after.keys(name)[: len(before.keys(name))].tolist() == before.keys(name).tolist()
    every = [*after.keys("a").tolist(), *after.keys("b").tolist()]
    assert len(set(every)) == 13
    assert max(every) < after.total


def test_walks_start_at_the_touched_nodes(chunks: list[Chunk]) -> None:
    trainer = walks(chunks[0].view)
    chunk = chunks[3]
    batches = trainer.open_chunk(chunk)
    starts = np.concatenate([trainer.batch_arrays(3, batch)["start"] for batch in range(batches)])
    edges = chunk.edges[BUYS]
    keys = InterleavedKeys({"item": 0, "user": 0})
    touched = {*keys.of("user", edges.source).tolist(), *keys.of("item", edges.target).tolist()}
    found, counts = np.unique(starts, return_counts=True)
    assert set(found.tolist()) == touched
    assert set(counts.tolist()) == {CONFIG.walks_per_node * CONFIG.epochs}


@pytest.mark.parametrize("kind", ["deepwalk", "node2vec"])
def test_what_is_learnt_helps_with_what_comes_next(chunks: list[Chunk], kind: str) -> None:
    config = (
        CONFIG if kind == "deepwalk" else Node2VecConfig(**{**CONFIG.model_dump(), "kind": kind, "q": 0.5})
    )
    trainer = walks(chunks[0].view, config)
    figures = [scores and chunk_figures(scores) for _, scores in score_then_learn(trainer, chunks)]
    assert figures[4]
    assert figures[4]["auc"] > 0.75
    model = trainer.trained("walks", chunks[4].view)
    assert {name: len(rows) for name, rows in model.embeddings.items()} == {
        name: chunks[4].view.num_nodes(name) for name in ("item", "user")
    }


def test_a_model_that_was_made_later_goes_on_the_same(chunks: list[Chunk]) -> None:
    whole = walks(chunks[0].view)
    list(score_then_learn(whole, chunks))
    first = walks(chunks[0].view)
    list(score_then_learn(first, chunks[:3]))
    middle = first.open_chunk(chunks[3]) // 2
    for batch in range(middle):
        first.train_batch(3, batch)
    later = walks(chunks[-1].view, threads=2)
    later.restore(first.dense(), first.tables())
    for batch in range(middle, later.open_chunk(chunks[3])):
        later.train_batch(3, batch)
    list(score_then_learn(later, chunks[4:]))
    keys = np.arange(100)
    for name, table in whole.tables().items():
        np.testing.assert_array_equal(later.tables()[name].pull(keys), table.pull(keys))


def test_scores_do_not_see_the_chunk(tmp_path: Path) -> None:
    chunks = chunks_in(tmp_path / "graph", 4, flipped=3)
    figures = [
        scores and chunk_figures(scores) for _, scores in score_then_learn(walks(chunks[0].view), chunks)
    ]
    assert figures[2]
    assert figures[3]
    assert figures[2]["auc"] > 0.6
    assert figures[3]["auc"] < 0.5


def test_what_cannot_be_is_refused(chunks: list[Chunk]) -> None:
    with pytest.raises(UsageError, match="expected the edge types that walks follow"):
        walks(chunks[0].view, CONFIG.model_copy(update={"edge_types": ()}))
    assignment = Assignment("walks", chunks[0].view, None, None, 5, 1, expiry=Expiry(passes=3))
    with pytest.raises(UsageError, match="no dropping of rows"):
        make_streaming_trainer(CONFIG, assignment)
