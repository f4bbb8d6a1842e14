"""Batches of links: what they hold, their negatives, and that no label can be read off their edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling as PygNegativeSampling

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.graph.delta import remove
from graphbox.graph.tables import edge_table, numbered_nodes
from graphbox.sample import LinkNeighborLoader, NegativeSampling, NeighborLoader
from graphbox.sample.adjacency import EdgeType

USERS, ITEMS = 40, 25
BUYS: EdgeType = ("user", "buys", "item")
BOUGHT: EdgeType = ("item", "rev_buys", "user")
VIEWS: EdgeType = ("user", "views", "item")


@pytest.fixture(scope="module")
def single() -> Graph:
    """An undirected multigraph of 60 nodes with times, each edge in both directions."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 60, (2, 300))
    source, target = np.append(source, source[:60]), np.append(target, target[:60])
    time = rng.integers(0, 100, len(source))
    return Graph.from_coo(
        np.append(source, target),
        np.append(target, source),
        num_nodes=60,
        timestamp=np.append(time, time),
        node_features={"x": np.arange(60.0)},
    )


@pytest.fixture(scope="module")
def shop() -> Graph:
    """Users who buy and view items, both many times, and the reverse of buying."""
    rng = np.random.default_rng(1)
    nodes = {"item": numbered_nodes(ITEMS), "user": numbered_nodes(USERS)}
    edges = {
        edge_type: edge_table(
            rng.integers(0, USERS, count),
            rng.integers(0, ITEMS, count),
            USERS,
            ITEMS,
            timestamp=np.arange(count),
        )
        for edge_type, count in [(BUYS, 300), (VIEWS, 400)]
    }
    bought, viewed = edges[BUYS].csc.coo(), edges[VIEWS].csc.coo()
    both = [np.append(bought[end][:9], viewed[end]) for end in range(2)]  # views of what is bought
    edges[VIEWS] = edge_table(both[0], both[1], USERS, ITEMS, timestamp=np.arange(409))
    return Graph("shop", nodes, edges).with_reverse_edges([BUYS])


def links_in(graph: Graph, edge_type: EdgeType | None = None) -> np.ndarray:
    return np.stack(graph.csc(edge_type).coo()).astype(np.int64)


def pairs(index: Any) -> set[tuple[int, int]]:
    return set(zip(*np.asarray(index).tolist(), strict=True))


def ends(batch: Any, edge_type: EdgeType) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all pairs with a label, as node indices, and which are positive."""
    source, target = batch[edge_type[0]], batch[edge_type[2]]
    if "src_index" in source:
        count = len(source.src_index)
        negatives = target.dst_neg_index.reshape(count, -1)
        sources = torch.cat([source.src_index, source.src_index.repeat_interleave(negatives.shape[1])])
        index = torch.stack([sources, torch.cat([target.dst_pos_index, negatives.reshape(-1)])])
        positive = torch.arange(index.shape[1]) < count
    else:
        index = batch[edge_type].edge_label_index
        positive = batch[edge_type].edge_label > 0
    return torch.stack([source.n_id[index[0]], target.n_id[index[1]]]), positive


def sampled(batch: Any, edge_type: EdgeType) -> torch.Tensor:
    index = batch[edge_type].edge_index
    return torch.stack([batch[edge_type[0]].n_id[index[0]], batch[edge_type[2]].n_id[index[1]]])


def test_links_of_one_type(single: Graph) -> None:
    links = links_in(single)[:, :70]
    loader = LinkNeighborLoader(single, [3, 2], torch.from_numpy(links), batch_size=32)
    seen = []
    for batch in loader:
        assert isinstance(batch, Data)
        assert batch.validate()
        np.testing.assert_array_equal(batch.n_id[batch.edge_label_index], links[:, batch.input_id])
        np.testing.assert_array_equal(batch.x, batch.n_id.float())
        assert len(batch.n_id.unique()) == len(batch.n_id)
        assert "edge_label" not in batch
        seen += batch.input_id.tolist()
    assert seen == list(range(70))
    assert len(loader) == 3
    everything = LinkNeighborLoader(single, [1], batch_size=10**6)
    (batch,) = everything
    np.testing.assert_array_equal(batch.n_id[batch.edge_label_index], links_in(single))


@pytest.mark.parametrize(
    "given",
    [
        "binary",
        {"mode": "binary", "amount": 2},
        NegativeSampling("binary", 0.5),
        PygNegativeSampling("binary", 3),
    ],
)
def test_pairs_as_negatives(shop: Graph, given: Any) -> None:
    amount = {str: 1, dict: 2, NegativeSampling: 0.5, PygNegativeSampling: 3}[type(given)]
    links = links_in(shop, BUYS)
    loader = LinkNeighborLoader(shop, [2, 2], BUYS, batch_size=20, neg_sampling=given, shuffle=True)
    negatives = []
    for batch in loader:
        assert isinstance(batch, HeteroData)
        chosen = batch[BUYS].input_id
        found, positive = ends(batch, BUYS)
        assert positive.tolist() == [True] * len(chosen) + [False] * int(np.ceil(len(chosen) * amount))
        np.testing.assert_array_equal(found[:, positive], links[:, chosen])
        assert batch[BUYS].edge_label.dtype == torch.float32
        negatives.append(found[:, ~positive])
    drawn = torch.cat(negatives, dim=1)
    assert set(drawn[0].tolist()) == set(range(USERS))
    assert set(drawn[1].tolist()) == set(range(ITEMS))


@pytest.mark.parametrize("amount", [1, 4])
@pytest.mark.parametrize("disjoint", [False, True])
def test_targets_as_negatives(shop: Graph, amount: int, disjoint: bool) -> None:
    links = links_in(shop, BUYS)
    loader = LinkNeighborLoader(
        shop,
        [2],
        (BUYS, links),
        batch_size=16,
        disjoint=disjoint,
        neg_sampling=NegativeSampling("triplet", amount),
    )
    for batch in loader:
        count = len(batch[BUYS].input_id)
        user, item = batch["user"], batch["item"]
        np.testing.assert_array_equal(user.n_id[user.src_index], links[0, batch[BUYS].input_id])
        np.testing.assert_array_equal(item.n_id[item.dst_pos_index], links[1, batch[BUYS].input_id])
        assert item.dst_neg_index.shape == ((count,) if amount == 1 else (count, amount))
        assert "edge_label_index" not in batch[BUYS]
        if disjoint:
            expected = torch.arange(count)
            assert torch.equal(user.batch[user.src_index], expected)
            assert torch.equal(item.batch[item.dst_pos_index], expected)
            of_negatives = item.batch[item.dst_neg_index].reshape(count, -1)
            assert torch.equal(of_negatives, expected[:, None].expand(-1, amount))


def test_negatives_are_drawn_by_weights(shop: Graph) -> None:
    source, target = np.zeros(USERS), np.zeros(ITEMS)
    source[[3, 5]], target[7] = 1, 2
    for mode in ("binary", "triplet"):
        sampling = NegativeSampling(mode, 2, torch.from_numpy(source), target)
        for batch in LinkNeighborLoader(shop, [1], BUYS, batch_size=64, neg_sampling=sampling):
            found, positive = ends(batch, BUYS)
            assert set(found[1, ~positive].tolist()) == {7}
            if mode == "binary":
                assert set(found[0, ~positive].tolist()) == {3, 5}


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("weighted", [False, True])
def test_known_positives_are_never_negatives_on_request(shop: Graph, mode: Any, weighted: bool) -> None:
    """Also those that only the loader knows: links that are not in the graph."""
    rng = np.random.default_rng(2)
    own = np.stack([rng.integers(0, USERS, 200), rng.integers(0, ITEMS, 200)])
    known = pairs(links_in(shop, BUYS)) | pairs(own)
    weight = np.arange(1, ITEMS + 1) if weighted else None
    sampling = NegativeSampling(mode, 5, None, weight)

    def negatives(avoid: bool) -> set[tuple[int, int]]:
        loader = LinkNeighborLoader(
            shop, [1], (BUYS, own), batch_size=50, neg_sampling=sampling, avoid_known_positives=avoid
        )
        drawn: set[tuple[int, int]] = set()
        for batch in loader:
            found, positive = ends(batch, BUYS)
            drawn |= pairs(found[:, ~positive])
        return drawn

    assert not negatives(True) & known
    assert negatives(False) & known


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("num_neighbors", [[-1, -1], [50, 50], [4, 3]])
def test_no_label_can_be_read_off_the_edges(
    single: Graph, shop: Graph, mode: Any, disjoint: bool, num_neighbors: list[int]
) -> None:
    """An adversary looks for each labelled pair in the edges of its batch, either way round."""
    for graph, edge_type, types in [
        (single, single.edge_type(), [single.edge_type()]),
        (shop, BUYS, [BUYS, BOUGHT]),
        (shop, BOUGHT, [BUYS, BOUGHT]),
    ]:
        loader = LinkNeighborLoader(
            graph,
            num_neighbors,
            (edge_type, links_in(graph, edge_type)[:, ::6]),
            batch_size=25,
            shuffle=True,
            disjoint=disjoint,
            neg_sampling=mode,
        )
        for received in loader:
            batch = received if isinstance(received, HeteroData) else _as_hetero(received, edge_type)
            if mode is None:
                batch[edge_type].edge_label = torch.ones(batch[edge_type].edge_label_index.shape[1])
            for read in _readings(batch, edge_type, types, disjoint):
                assert not read.any()


def test_the_adversary_reads_labels_without_leakage_control(single: Graph, shop: Graph) -> None:
    for graph, edge_type, types in [
        (single, single.edge_type(), [single.edge_type()]),
        (shop, BUYS, [BUYS, BOUGHT]),
    ]:
        loader = LinkNeighborLoader(
            graph,
            [-1],
            (edge_type, links_in(graph, edge_type)),
            batch_size=25,
            neg_sampling="binary",
            exclude_seed_edges=False,
        )
        for received in loader:
            batch = received if isinstance(received, HeteroData) else _as_hetero(received, edge_type)
            _, positive = ends(batch, edge_type)
            for read in _readings(batch, edge_type, types, False):
                assert read[positive].all()


def _as_hetero(batch: Data, edge_type: EdgeType) -> HeteroData:
    data = HeteroData()
    for name, value in batch.to_dict().items():
        place = edge_type if name in ("edge_index", "edge_label_index", "edge_label") else edge_type[0]
        data[place][name] = value
    return data


def _readings(
    batch: HeteroData, edge_type: EdgeType, types: list[EdgeType], disjoint: bool
) -> list[np.ndarray]:
    """Return for each edge type and direction which labelled pairs have an edge, in a tree of their own."""
    source, target = batch[edge_type[0]], batch[edge_type[2]]
    found, _ = ends(batch, edge_type)
    if not disjoint:
        owner = np.zeros(found.shape[1], np.int64)
    elif "src_index" in source:
        owner = torch.cat([source.batch[source.src_index], target.batch[target.dst_neg_index]]).numpy()
    else:
        owner = source.batch[batch[edge_type].edge_label_index[0]].numpy()
    wanted = [(s, t, o) for s, t, o in zip(*found.tolist(), owner.tolist(), strict=True)]
    readings = []
    for each in types:
        index = sampled(batch, each).tolist()
        trees = batch[each[2]].batch[batch[each].edge_index[1]].tolist() if disjoint else [0] * len(index[0])
        edges = set(zip(*index, trees, strict=True))
        if (each[0], each[2]) == (edge_type[0], edge_type[2]):
            readings.append(np.array([(s, t, o) in edges for s, t, o in wanted]))
        if (each[0], each[2]) == (edge_type[2], edge_type[0]):
            readings.append(np.array([(t, s, o) in edges for s, t, o in wanted]))
    return readings


def test_other_edges_stay(shop: Graph) -> None:
    """Views of what is bought are no label of buying, unless asked for; nor are other users' purchases."""
    links = links_in(shop, BUYS)

    def edges(**how: Any) -> dict[EdgeType, set[tuple[int, int]]]:
        loader = LinkNeighborLoader(shop, [-1], (BUYS, links[:, :10]), batch_size=10, **how)
        (batch,) = loader
        return {edge_type: pairs(sampled(batch, edge_type)) for edge_type in (BUYS, BOUGHT, VIEWS)}

    batch = pairs(links[:, :10])
    everything, kept = edges(exclude_seed_edges=False), edges()
    assert kept[VIEWS] == everything[VIEWS]
    assert kept[BUYS] == everything[BUYS] - batch
    assert kept[BOUGHT] == everything[BOUGHT] - {(item, user) for user, item in batch}
    assert batch & everything[VIEWS]
    kept = edges(exclude_seed_edges=[BUYS, BOUGHT, VIEWS])
    assert kept[VIEWS] == everything[VIEWS] - batch


def test_times_of_links(shop: Graph) -> None:
    links, time = links_in(shop, BUYS), shop.csc(BUYS).timestamp
    assert time is not None
    for mode in (None, "binary", "triplet"):
        loader = LinkNeighborLoader(
            shop,
            [5, 5],
            (BUYS, links),
            edge_label_time=time,
            time_attr="timestamp",
            batch_size=30,
            neg_sampling=mode,
            edge_attributes=["timestamp"],
        )
        for batch in loader:
            own = torch.from_numpy(time[batch[BUYS].input_id])
            for edge_type in (BUYS, VIEWS, BOUGHT):
                store = batch[edge_type]
                of_edge = own[batch[edge_type[2]].batch[store.edge_index[1]]]
                assert (store.edge_time <= of_edge).all()
            if mode == "triplet":
                assert torch.equal(batch["user"].seed_time, own)
            else:
                assert torch.equal(batch[BUYS].edge_label_time[: len(own)], own)


def test_labels(shop: Graph) -> None:
    links = links_in(shop, BUYS)[:, :30]
    labels = torch.arange(30) % 3
    (batch,) = LinkNeighborLoader(shop, [1], (BUYS, links), labels, batch_size=30)
    assert torch.equal(batch[BUYS].edge_label, labels)
    (batch,) = LinkNeighborLoader(shop, [1], (BUYS, links), labels, batch_size=30, neg_sampling_ratio=1.0)
    assert batch[BUYS].edge_label.tolist() == (labels + 1).tolist() + [0] * 30
    most = (labels * 127).to(torch.uint8).clamp(max=254)
    (batch,) = LinkNeighborLoader(shop, [1], (BUYS, links), most, batch_size=30, neg_sampling_ratio=1.0)
    assert batch[BUYS].edge_label.tolist() == [*(most.int() + 1).tolist(), *[0] * 30]
    with pytest.raises(UsageError, match="room for counting from 1, received 255 as uint8"):
        LinkNeighborLoader(shop, [1], (BUYS, links), most + (most == 254), neg_sampling_ratio=1.0)


@pytest.mark.parametrize("threads", [1, 4])
def test_same_for_any_number_of_threads_and_after_a_restart(shop: Graph, threads: int) -> None:
    def loader(num_threads: int) -> LinkNeighborLoader:
        return LinkNeighborLoader(
            shop,
            [3, 2],
            BUYS,
            batch_size=32,
            shuffle=True,
            neg_sampling="triplet",
            avoid_known_positives=True,
            output="numpy",
            num_threads=num_threads,
            seed=5,
        )

    expected = list(loader(2))
    first = loader(threads)
    received = iter(first)
    begun = [next(received) for _ in range(4)]
    second = loader(threads)
    second.load_state_dict(first.state_dict())
    for one, other in zip([*begun, *second], expected, strict=True):
        for name in ("input_id", "src_index", "dst_pos_index", "dst_neg_index"):
            np.testing.assert_array_equal(getattr(one.seeds, name), getattr(other.seeds, name))
        for edge_type in shop.edge_types:
            np.testing.assert_array_equal(one.sample.edge_ids[edge_type], other.sample.edge_ids[edge_type])
    changed = LinkNeighborLoader(shop, [3, 2], BUYS, batch_size=32, shuffle=True, output="numpy", seed=5)
    with pytest.raises(UsageError, match="seeds"):
        changed.load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_label_index": None}, r"expected \(edge type, links\) with one of: user buys item"),
        (
            {"edge_label_index": ("user", "bys", "item")},
            r"unknown edge type(.|\n)*did you mean `user buys item`",
        ),
        ({"edge_label_index": (BUYS, [[0], [1], [2]])}, r"expected integers \[2, links\], received shape"),
        ({"edge_label_index": (BUYS, [[0, 40], [1, 1]])}, r"`user` in \[0, 40\), received 40 at position 1"),
        ({"edge_label": [1, 2]}, "expected a number for each of 300 links"),
        ({"neg_sampling": "ternary"}, "expected binary or triplet, received 'ternary'"),
        ({"neg_sampling": {"mod": "binary"}}, "unknown key 'mod'(.|\n)*did you mean `mode`"),
        ({"neg_sampling": NegativeSampling("triplet", 0.5)}, "expected an integer above 0, received 0.5"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 1}, "received both"),
        ({"neg_sampling": 3}, "expected a NegativeSampling"),
        (
            {"neg_sampling": "triplet", "edge_label": np.ones(300)},
            "expected no labels with negatives of mode triplet",
        ),
        ({"neg_sampling": {"dst_weight": [1]}}, "a weight for each of the 25 nodes of type `item`"),
        ({"exclude_seed_edges": [("item", "a", "item")]}, "edge types between `user` and `item`"),
        ({"edge_label_time": np.ones(300)}, "time_attr"),
        ({"num_workers": 2}, "num_threads"),
    ],
)
def test_wrong_arguments(shop: Graph, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LinkNeighborLoader(shop, [1], **({"edge_label_index": BUYS} | arguments))


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("avoid", [True, False])
def test_removed_nodes_are_neither_seeds_nor_negatives(tmp_path: Path, mode: str, avoid: bool) -> None:
    source, target = np.random.default_rng(0).integers(0, 30, (2, 200))
    Graph.from_coo(source, target, num_nodes=30).save(tmp_path / "graph")
    gone = [3, 4, 29]
    remove(tmp_path / "graph", nodes={"node": gone})
    graph = Graph.open(tmp_path / "graph")
    (batch,) = NeighborLoader(graph, [2], batch_size=64)
    assert batch.n_id[: batch.batch_size].tolist() == [node for node in range(30) if node not in gone]
    loader = LinkNeighborLoader(
        graph,
        [2],
        batch_size=50,
        neg_sampling={"mode": mode, "amount": 8},
        avoid_known_positives=avoid,
    )
    for batch in loader:
        assert not set(batch.n_id.tolist()) & set(gone)
