"""Batches of triples of several relations: entities, corrupted triples, none of them among the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import TransE

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.sample import TripleLoader
from graphbox.sample.adjacency import EdgeType

PEOPLE, PLACES = 50, 30
KNOWS: EdgeType = ("person", "knows", "person")
LIVES_IN: EdgeType = ("person", "lives_in", "place")
PART_OF: EdgeType = ("place", "part_of", "place")
RELATIONS = [KNOWS, LIVES_IN, PART_OF]
SIZES = {"person": PEOPLE, "place": PLACES}


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(0)
    edges = {}
    for relation, count in zip(RELATIONS, (200, 120, 60), strict=True):
        sources, targets = SIZES[relation[0]], SIZES[relation[2]]
        heads, tails = rng.integers(0, sources, count), rng.integers(0, targets, count)
        edges[relation] = edge_table(heads, tails, sources, targets)
    nodes = {node_type: numbered_nodes(size) for node_type, size in SIZES.items()}
    return Graph("world", nodes, edges).with_reverse_edges([LIVES_IN])


def known(graph: Graph) -> set[tuple[int, int, int]]:
    """Return all triples of the graph."""
    found = set()
    for number, relation in enumerate(RELATIONS):
        source, target = graph.csc(relation).coo()
        found |= {(s, number, t) for s, t in zip(source.tolist(), target.tolist(), strict=True)}
    return found


def triples_of(batch: HeteroData, heads: torch.Tensor, tails: torch.Tensor) -> list[tuple[int, int, int]]:
    """Return (head, relation, tail) as entities, of positions [s] or [s, negatives] of both ends."""
    found = []
    for number, head, tail in zip(batch.rel_type.tolist(), heads.tolist(), tails.tolist(), strict=True):
        source, _, target = RELATIONS[number]
        found += [
            (int(batch[source].n_id[one]), number, int(batch[target].n_id[other]))
            for one in np.atleast_1d(head)
            for other in np.atleast_1d(tail)
        ]
    return found


def test_all_triples_come_once(graph: Graph) -> None:
    loader = TripleLoader(graph, [3, 2], batch_size=64, shuffle=True)
    assert loader.relations == RELATIONS
    seen = []
    for batch in loader:
        assert isinstance(batch, HeteroData)
        assert batch.validate()
        seen += triples_of(batch, batch.head_index, batch.tail_index)
        for node_type in SIZES:
            nodes = batch[node_type].n_id
            assert len(nodes.unique()) == len(nodes)
    everything = []
    for number, relation in enumerate(RELATIONS):
        source, target = graph.csc(relation).coo()
        everything += [(s, number, t) for s, t in zip(source.tolist(), target.tolist(), strict=True)]
    assert sorted(seen) == sorted(everything)


@pytest.mark.parametrize("corrupt", ["head", "tail", "both"])
def test_corrupted_triples_are_none_that_is_known(graph: Graph, corrupt: Any) -> None:
    """Neither an edge of the graph nor a triple that only the loader has."""
    rng = np.random.default_rng(1)
    own = np.stack([rng.integers(0, PEOPLE, 40), np.ones(40, np.int64), rng.integers(0, PLACES, 40)])
    positives = known(graph) | set(zip(*own.tolist(), strict=True))
    loader = TripleLoader(graph, [2], own, batch_size=16, corrupt=corrupt, num_negatives=20)
    entities = set()
    for batch in loader:
        assert ("neg_head_index" in batch) == (corrupt != "tail")
        assert ("neg_tail_index" in batch) == (corrupt != "head")
        negatives = []
        if corrupt != "tail":
            assert batch.neg_head_index.shape == (len(batch.input_id), 20)
            negatives += triples_of(batch, batch.neg_head_index, batch.tail_index)
        if corrupt != "head":
            negatives += triples_of(batch, batch.head_index, batch.neg_tail_index)
        assert not positives & set(negatives)
        entities |= {head for head, _, _ in negatives} if corrupt == "head" else {t for _, _, t in negatives}
    assert len(entities) > 20
    loose = TripleLoader(
        graph, [2], batch_size=64, corrupt="tail", num_negatives=20, avoid_known_positives=False
    )
    drawn = [each for batch in loose for each in triples_of(batch, batch.head_index, batch.neg_tail_index)]
    assert known(graph) & set(drawn)


@pytest.mark.parametrize("avoid", [True, False])
def test_no_triple_of_a_batch_is_among_its_edges(graph: Graph, avoid: bool) -> None:
    def leaks(exclude: bool) -> int:
        loader = TripleLoader(
            graph,
            [-1, -1],
            batch_size=20,
            shuffle=True,
            num_negatives=3,
            avoid_known_positives=avoid,
            exclude_seed_edges=exclude,
        )
        found = 0
        for batch in loader:
            labelled = set(triples_of(batch, batch.head_index, batch.tail_index))
            labelled |= set(triples_of(batch, batch.neg_head_index, batch.tail_index))
            labelled |= set(triples_of(batch, batch.head_index, batch.neg_tail_index))
            for number, relation in enumerate(RELATIONS):
                for edge_type in (relation, (relation[2], f"rev_{relation[1]}", relation[0])):
                    if edge_type not in graph.edge_types:
                        continue
                    index = batch[edge_type].edge_index
                    sources = batch[edge_type[0]].n_id[index[0]].tolist()
                    targets = batch[edge_type[2]].n_id[index[1]].tolist()
                    for source, target in zip(sources, targets, strict=True):
                        ways = {(source, number, target)} if edge_type == relation else set()
                        if edge_type[0] == relation[2]:
                            ways.add((target, number, source))
                        found += bool(ways & labelled)
        return found

    assert leaks(False) > 0
    assert leaks(True) == 0


def test_the_same_for_any_number_of_threads_and_after_a_restart(graph: Graph) -> None:
    def loader(threads: int) -> TripleLoader:
        return TripleLoader(
            graph, [2], batch_size=32, shuffle=True, seed=3, output="numpy", num_threads=threads
        )

    expected = list(loader(1))
    first = loader(3)
    received = iter(first)
    begun = [next(received) for _ in range(5)]
    second = loader(2)
    second.load_state_dict(first.state_dict())
    names = ("input_id", "head_index", "rel_type", "tail_index", "neg_head_index", "neg_tail_index")
    for one, other in zip([*begun, *second], expected, strict=True):
        for name in names:
            np.testing.assert_array_equal(getattr(one.seeds, name), getattr(other.seeds, name))
        for relation in RELATIONS:
            np.testing.assert_array_equal(one.sample.edge_ids[relation], other.sample.edge_ids[relation])


def test_relations_do_not_draw_alike() -> None:
    """The same triples in two relations get different negatives."""
    pairs = np.random.default_rng(0).integers(0, 1000, (2, 200))
    one, other = ("e", "one", "e"), ("e", "other", "e")
    edges = {each: edge_table(pairs[0], pairs[1], 1000, 1000) for each in (one, other)}
    graph = Graph("twice", {"e": numbered_nodes(1000)}, edges)
    (batch,) = TripleLoader(graph, [0], batch_size=400, num_negatives=10)
    negatives = batch["e"].n_id[batch.neg_tail_index]
    assert (negatives[:200] == negatives[200:]).float().mean() < 0.02
    assert (negatives == batch["e"].n_id[batch.neg_head_index]).float().mean() < 0.02


def test_trains_a_model_of_knowledge_graphs(graph: Graph) -> None:
    """PyTorch Geometric's TransE, through entities of one type, tells triples from corrupted ones."""
    torch.manual_seed(0)
    model = TransE(PEOPLE, 1, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    people = Graph("people", {"person": numbered_nodes(PEOPLE)}, {KNOWS: graph.own_edges(KNOWS)})
    loader = TripleLoader(people, [0], batch_size=50, shuffle=True, corrupt="tail")

    def score(batch: Data, tails: torch.Tensor) -> torch.Tensor:
        entities = batch.n_id
        found: torch.Tensor = model(entities[batch.head_index], batch.rel_type, entities[tails])
        return found

    for _ in range(40):
        for batch in loader:
            negative = score(batch, batch.neg_tail_index[:, 0])
            loss = torch.relu(1 - score(batch, batch.tail_index) + negative).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    (batch,) = TripleLoader(people, [0], batch_size=200, corrupt="tail", seed=9)
    ahead = score(batch, batch.tail_index) > score(batch, batch.neg_tail_index[:, 0])
    assert ahead.float().mean() > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"triples": [[0, 1], [0, 0]]}, r"expected integers \[3, triples\](.|\n)*\.T"),
        ({"triples": [[0], [3], [0]]}, r"expected relations in \[0, 3\), received 3 at position 0"),
        ({"triples": [[0, 30], [0, 2], [0, 0]]}, r"expected heads in \[0, 30\), received 30 at position 1"),
        ({"triples": [[0], [1], [-1]]}, r"expected tails in \[0, 30\), received -1"),
        ({"relations": [("person", "knows", "place")]}, "unknown edge type(.|\n)*did you mean"),
        ({"relations": [KNOWS, KNOWS]}, "expected different edge types"),
        ({"corrupt": "relation"}, "expected head, tail or both, received 'relation'"),
        ({"num_negatives": 0}, "num_negatives: expected an integer, 1 or more"),
        ({"num_workers": 1}, "num_threads"),
    ],
)
def test_wrong_arguments(graph: Graph, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TripleLoader(graph, [1], **arguments)
