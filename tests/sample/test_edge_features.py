"""Features of edges in batches, and loaders over PyTorch Geometric's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphbox.errors import NotFoundError, UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.sample import LinkNeighborLoader, NeighborLoader

NODES, EDGES = 200, 1500
BUYS = ("user", "buys", "item")


def ends(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    source, target = generator.integers(0, NODES, (2, EDGES))
    return source, target


def edge_attr(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Values that name their edge."""
    return np.stack([source, target, 1000 * source + target], axis=1).astype(np.float32)


def graph() -> Graph:
    source, target = ends()
    return Graph.from_coo(
        source,
        target,
        num_nodes=NODES,
        node_features={"x": np.arange(NODES, dtype=np.float32)[:, None]},
        edge_features={
            "edge_attr": edge_attr(source, target),
            "kind": (source + target) % 5,
            "words": (np.concatenate([[0], np.cumsum(target % 3)]), np.repeat(source, target % 3)),
        },
    )


def check(data: Any) -> None:
    """Compare the features of a batch's edges with its ends."""
    nodes = data.n_id.numpy()
    source, target = nodes[data.edge_index.numpy()]
    assert len(source)
    np.testing.assert_array_equal(data.edge_attr.numpy(), edge_attr(source, target))
    np.testing.assert_array_equal(data.kind.numpy(), (source + target) % 5)


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"num_threads": 3}])
def test_batches_have_the_features_of_their_edges(options: dict[str, Any]) -> None:
    for batch in NeighborLoader(graph(), [4, 3], batch_size=50, **options):
        check(batch)
        assert "words" not in batch


def test_every_loader_has_them() -> None:
    whole = graph()
    for batch in LinkNeighborLoader(whole, [4, 3], batch_size=300, neg_sampling="binary"):
        check(batch)


def test_slots_of_edges_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="received `words`: on disk only nodes can have slots"):
        graph().save(tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_graphs_on_disk_changed_and_reversed(tmp_path: Path) -> None:
    source, target = ends()
    features = {"edge_attr": edge_attr(source, target), "kind": (source + target) % 5}
    Graph.from_coo(source, target, num_nodes=NODES, edge_features=features).save(tmp_path / "graph")
    saved = Graph.open(tmp_path / "graph")
    for batch in NeighborLoader(
        saved.tiered(topology_bytes=1 << 20, feature_bytes=1 << 20), [4, 3], batch_size=50
    ):
        check(batch)
    with_reverse = saved.with_reverse_edges()
    for batch in NeighborLoader(with_reverse, [4, 3], batch_size=50):
        store = batch["node", "rev_to", "node"]
        source, target = batch["node"].n_id.numpy()[store.edge_index.numpy()]
        np.testing.assert_array_equal(store.edge_attr.numpy(), edge_attr(target, source))
    removed = saved.without_edges({("node", "to", "node"): np.arange(0, EDGES, 3)})
    for batch in NeighborLoader(removed, [-1], batch_size=50):
        check(batch)


def test_names_choose_them() -> None:
    whole = graph()
    batch = next(iter(NeighborLoader(whole, [3], edge_features=["words", "kind"], batch_size=20)))
    assert "edge_attr" not in batch
    values, starts = batch.words.numpy(), batch.words_ptr.numpy()
    source, target = batch.n_id.numpy()[batch.edge_index.numpy()]
    np.testing.assert_array_equal(np.diff(starts), target % 3)
    np.testing.assert_array_equal(values, np.repeat(source, target % 3))
    plain = next(iter(NeighborLoader(whole, [3], output="numpy", batch_size=20)))
    assert set(plain.edge_features[("node", "to", "node")]) == {"edge_attr", "kind"}
    assert next(iter(NeighborLoader(whole, [3], edge_features=(), output="numpy"))).edge_features == {}


def test_wrong_names_are_refused() -> None:
    with pytest.raises(NotFoundError, match="no feature `kin` of edges") as caught:
        NeighborLoader(graph(), [3], edge_features=["kin"])
    assert caught.value.hint == "did you mean `kind`?"
    with pytest.raises(UsageError, match="unknown edge type"):
        NeighborLoader(graph(), [3], edge_features={BUYS: ["kind"]})
    with pytest.raises(UsageError, match="received 'kind'"):
        NeighborLoader(graph(), [3], edge_features="kind")
    source, target = ends()
    both = Graph.from_coo(source, target, node_features={"x": source[:200]}, edge_features={"x": source})
    with pytest.raises(UsageError, match="nodes have `x` as well"):
        NeighborLoader(both, [3])
    assert len(next(iter(NeighborLoader(both, [3], output="torch"))).edge_features)


def test_data_of_pytorch_geometric_is_taken_as_it_is() -> None:
    source, target = ends()
    data = Data(
        x=torch.arange(NODES, dtype=torch.float32)[:, None],
        edge_index=torch.from_numpy(np.stack([source, target])),
        edge_attr=torch.from_numpy(edge_attr(source, target)),
        kind=torch.from_numpy((source + target) % 5),
        train_mask=torch.arange(NODES) < 50,
    )
    loader = NeighborLoader(data, [4, 3], input_nodes=data.train_mask.numpy(), batch_size=20)
    assert len(loader) == 3
    for batch in loader:
        check(batch)
        np.testing.assert_array_equal(batch.x[:, 0].numpy(), batch.n_id.numpy())
    for batch in LinkNeighborLoader(data, [3], batch_size=500):
        check(batch)


def test_hetero_data_is_taken_as_it_is() -> None:
    source, target = ends(1)
    data = HeteroData()
    data["user"].x = torch.randn(NODES, 2)
    data["item"].x = torch.randn(NODES, 3)
    data[BUYS].edge_index = torch.from_numpy(np.stack([source, target]))
    data[BUYS].edge_attr = torch.from_numpy(edge_attr(source, target))
    for batch in NeighborLoader(data, [5], input_nodes=("item", np.arange(NODES)), batch_size=64):
        store = batch[BUYS]
        users, items = batch["user"].n_id.numpy(), batch["item"].n_id.numpy()
        start, end = store.edge_index.numpy()
        np.testing.assert_array_equal(store.edge_attr.numpy(), edge_attr(users[start], items[end]))


def test_what_is_left_out_of_a_graph_is_named() -> None:
    source, target = ends()
    data = Data(edge_index=torch.from_numpy(np.stack([source, target])), num_nodes=NODES, title="books")
    data.names = [f"node {number}" for number in range(NODES)]
    with pytest.warns(UserWarning, match="neither tensors of nodes nor of edges: `title`, `names`"):
        NeighborLoader(data, [2])
    hetero = HeteroData(source="a shop")
    hetero["user"].x = torch.randn(NODES, 2)
    hetero["user"].names = ["nobody"]
    hetero["user", "knows", "user"].edge_index = torch.from_numpy(np.stack([source, target]))
    hetero["user", "knows", "user"].label = "friends"
    with pytest.warns(UserWarning, match="`names`, `label` of `user__knows__user`, `source`"):
        Graph.from_pyg(hetero)
