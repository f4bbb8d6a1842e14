"""Walks along several metapaths at once, and their pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.sample import random_walk, skip_gram_pairs, walk_pairs

WRITES, CITES, IN = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue")
BY, OF = ("paper", "rev_writes", "author"), ("venue", "rev_in", "paper")
TOGETHER, SAME_VENUE, CITED = (WRITES, BY), (WRITES, IN, OF, BY), (CITES,)
COUNTS = {"author": 40, "paper": 90, "venue": 5}
OFFSETS = {"author": 1000, "paper": 0, "venue": 500}


def papers() -> Graph:
    """Return authors, papers and venues, some without edges."""
    rng = np.random.default_rng(0)

    def edges(source: str, target: str, count: int) -> Any:
        sources, targets = (rng.integers(0, COUNTS[name] * 9 // 10, count) for name in (source, target))
        return edge_table(sources, targets, COUNTS[source], COUNTS[target], weight=rng.random(count) + 0.1)

    return Graph(
        "papers",
        {name: numbered_nodes(count) for name, count in COUNTS.items()},
        {
            WRITES: edges("author", "paper", 200),
            CITES: edges("paper", "paper", 150),
            IN: edges("paper", "venue", 80),
        },
    )


@pytest.mark.parametrize("options", [{}, {"weighted": True}])
def test_each_walker_takes_its_metapath(options: dict[str, Any]) -> None:
    graph = papers()
    paths = [TOGETHER, SAME_VENUE]
    start = np.arange(40).repeat(60)
    walks = random_walk(graph, start, 9, metapaths=paths, seed=3, **options)
    for number, path in enumerate(paths):
        alone = random_walk(graph, start, 9, metapath=path, seed=3, **options)
        np.testing.assert_array_equal(walks[number::2], alone[number::2])
    for threads in (1, 2, 4):
        same = random_walk(graph, start, 9, metapaths=paths, seed=3, num_threads=threads, **options)
        np.testing.assert_array_equal(walks, same)
    assert (walks[:, 5:] >= 0).any()
    assert (walks[:, 5:] < 0).any()


def test_metapaths_that_start_at_several_types() -> None:
    graph = papers()
    paths = [TOGETHER, CITED, (OF, IN)]
    which = np.random.default_rng(1).integers(0, 3, 3000)
    start = np.random.default_rng(2).integers(0, np.array([40, 90, 5])[which])
    walks = random_walk(graph, start, 6, metapaths=paths, metapath_of=which)
    for number, path in enumerate(paths):
        alone = random_walk(graph, np.where(which == number, start, 0), 6, metapath=path)
        np.testing.assert_array_equal(walks[which == number], alone[which == number])
    np.testing.assert_array_equal(
        random_walk(graph, torch.from_numpy(start), 6, metapaths=paths, metapath_of=torch.from_numpy(which)),
        walks,
    )


@pytest.mark.parametrize("pairs", [{}, {"dynamic_window": True}, {"subsample": True}])
def test_pairs_of_keys(pairs: dict[str, Any]) -> None:
    graph = papers()
    if pairs.get("subsample"):
        pairs = {"subsample": np.linspace(0.1, 1, 1040)}
    paths, start = [TOGETHER, SAME_VENUE], np.arange(40).repeat(20)
    types = [["author", "paper"] * 3, ["author", "paper", "venue", "paper", "author", "paper"]]
    walks = random_walk(graph, start, 5, metapaths=paths, epoch=2)
    offsets = np.array([[OFFSETS[name] for name in types[number % 2]] for number in range(len(start))])
    expected = skip_gram_pairs(np.where(walks < 0, -1, walks + offsets), 3, epoch=2, **pairs)
    for chunk_pairs in (300, 1 << 20):
        chunks = list(
            walk_pairs(
                graph,
                start,
                5,
                3,
                metapaths=paths,
                type_offsets=OFFSETS,
                epoch=2,
                chunk_pairs=chunk_pairs,
                **pairs,
            )
        )
        np.testing.assert_array_equal(np.concatenate(chunks, axis=1), expected)
    one = random_walk(graph, start, 5, metapath=SAME_VENUE)
    columns = [OFFSETS[name] for name in types[1]]
    np.testing.assert_array_equal(
        next(walk_pairs(graph, start, 5, 3, metapath=SAME_VENUE, type_offsets=OFFSETS)),
        skip_gram_pairs(one, 3, column_offsets=columns),
    )


def test_an_edge_type_without_edges() -> None:
    nothing = edge_table(np.zeros(0, int), np.zeros(0, int), 3, 4)
    graph = Graph("none", {"a": numbered_nodes(3), "b": numbered_nodes(4)}, {("a", "r", "b"): nothing})
    path = [("a", "r", "b"), ("b", "rev_r", "a")]
    both: list[dict[str, Any]] = [{"metapath": path}, {"metapaths": [path, path]}]
    for options in both:
        assert random_walk(graph, [0, 2], 3, **options).tolist() == [[0, -1, -1, -1], [2, -1, -1, -1]]


def test_errors() -> None:
    graph = papers()
    with pytest.raises(UsageError, match="metapaths: expected metapath or metapaths, received both"):
        random_walk(graph, [0], 3, metapath=TOGETHER, metapaths=[TOGETHER])
    with pytest.raises(UsageError, match="metapaths: expected at least one metapath"):
        random_walk(graph, [0], 3, metapaths=[])
    with pytest.raises(UsageError, match=r"metapath\[1\]: .*`author writes paper` ends at `paper`"):
        random_walk(graph, [0], 3, metapaths=[TOGETHER, (WRITES, OF)])
    with pytest.raises(
        UsageError, match="metapath_of: expected numbers of metapaths, 0 to 1, received 0 to 2"
    ):
        random_walk(graph, [0, 0], 3, metapaths=[TOGETHER, SAME_VENUE], metapath_of=[0, 2])
    with pytest.raises(UsageError, match="metapath_of: expected numbers of metapaths, 0 to 0"):
        random_walk(graph, [0], 3, metapath=TOGETHER, metapath_of=[1])
    with pytest.raises(UsageError, match="metapath_of: expected one for each of 1 walkers, received 2"):
        random_walk(graph, [0], 3, metapaths=[TOGETHER, SAME_VENUE], metapath_of=[0, 1])
    with pytest.raises(
        UsageError, match=r"start must hold node indices in \[0, 40\), received 80 at position 1"
    ):
        random_walk(graph, [80, 80], 1, metapaths=[CITED, TOGETHER])
    alone: list[dict[str, Any]] = [{"p": 2.0}, {"restart_probability": 0.1}]
    for several in alone:
        with pytest.raises(UsageError, match="need one edge type between nodes of one type"):
            random_walk(graph, [0], 3, metapaths=[CITED, CITED], **several)
    with pytest.raises(UsageError, match="type_offsets: expected a number for each node type"):
        walk_pairs(graph, [0], 3, 1, metapath=TOGETHER, type_offsets={"author": 0})
