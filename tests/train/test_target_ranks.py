"""Ranks of new edges' targets among a sample of candidates, against a loop over scores."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.train.stream import Chunk, ChunkScores
from graphbox.train.stream.progressive import chunk_figures
from graphbox.train.stream.target_ranks import MOST_RANKED_EDGES, target_ranks
from tests.train.test_stream import BUYS, chunks_in


@pytest.fixture(scope="module")
def chunk(tmp_path_factory: pytest.TempPathFactory) -> Chunk:
    return chunks_in(tmp_path_factory.mktemp("ranks") / "graph", 3)[2]


def test_ranks_are_those_of_a_loop(chunk: Chunk) -> None:
    view, drawn = chunk.view, np.random.default_rng(0)
    users, items = view.num_nodes("user"), view.num_nodes("item")
    # Few different numbers, so that there are ties.
    of_user = drawn.integers(-1, 2, (users, 3)).astype(np.float32)
    of_item = drawn.integers(-1, 2, (items, 3)).astype(np.float32)
    pairs = np.stack([chunk.edges[BUYS].source, chunk.edges[BUYS].target], axis=1)
    vectors = (of_user.__getitem__, of_item.__getitem__)
    ranks = target_ranks(view, BUYS, [BUYS], pairs, vectors, np.random.default_rng(1))
    assert items < 1000, "all items are candidates"
    joined = set(zip(*(each.tolist() for each in view.csc(BUYS).coo()), strict=True))
    expected = []
    for user, item in pairs.tolist():
        scores = of_user[user] @ of_item.T
        others = [scores[other] for other in range(items) if (user, other) not in joined]
        above = sum(score > scores[item] for score in others)
        expected.append(1 + above + sum(score == scores[item] for score in others) / 2)
    np.testing.assert_array_equal(ranks, expected)


def test_work_is_bounded_whatever_the_chunk(chunk: Chunk) -> None:
    pairs = np.stack([chunk.edges[BUYS].source, chunk.edges[BUYS].target], axis=1)
    many = np.concatenate([pairs] * (MOST_RANKED_EDGES // len(pairs) + 2))
    asked: list[int] = []

    def vectors(nodes: np.ndarray) -> np.ndarray:
        asked.append(len(nodes))
        return np.ones((len(nodes), 2), np.float32)

    ranks = target_ranks(chunk.view, BUYS, [BUYS], many, (vectors, vectors), np.random.default_rng(1))
    assert len(ranks) == MOST_RANKED_EDGES
    assert max(asked) <= 1000


def test_figures_are_of_ranks() -> None:
    labels, scores = np.array([True, False]), np.array([1.0, 0.0])
    figures = chunk_figures(ChunkScores(labels, scores, ranks=np.array([1.0, 10.0, 10.5, 100.0])))
    assert figures["hr@10"] == 0.5
    assert figures["mrr"] == pytest.approx((1 + 1 / 10 + 1 / 10.5 + 1 / 100) / 4)
    assert "mrr" not in chunk_figures(ChunkScores(labels, scores))
