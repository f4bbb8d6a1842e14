"""The loader: batches as PyTorch Geometric data, in order, the same for any number of threads."""

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.sample import NeighborLoader, sample_neighbors
from graphbox.sample.adjacency import Adjacency, EdgeType


def ring(nodes: int = 100) -> Graph:
    source = np.arange(nodes)
    return Graph.from_coo(
        np.concatenate([source, source]),
        np.concatenate([(source + 1) % nodes, (source + 7) % nodes]),
        num_nodes=nodes,
    )


class Library:
    """Readers who borrow books: two node types and both directions, with a feature."""

    node_types = ("reader", "book")
    edge_types: tuple[EdgeType, ...] = (("reader", "borrows", "book"), ("book", "lent_to", "reader"))

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        pairs = np.unique(rng.integers(0, (30, 20), (200, 2)), axis=0)
        self._graphs = {
            self.edge_types[0]: _csc(pairs[:, 0], pairs[:, 1], 20),
            self.edge_types[1]: _csc(pairs[:, 1], pairs[:, 0], 30),
        }
        self.pages = rng.normal(size=(20, 3)).astype(np.float32)

    def num_nodes(self, node_type: str) -> int:
        return {"reader": 30, "book": 20}[node_type]

    def csc(self, edge_type: EdgeType) -> Adjacency:
        adjacency: Adjacency = self._graphs[edge_type]
        return adjacency

    csr = csc

    def feature(self, node_type: str, name: str) -> np.ndarray:
        assert (node_type, name) == ("book", "pages")
        return self.pages


def _csc(source: np.ndarray, target: np.ndarray, targets: int) -> Any:
    order = np.argsort(target, kind="stable")

    class Csc:
        indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=targets))]).astype(np.int64)
        indices = source[order].astype(np.int32)

    return Csc()


def test_batches_of_one_type() -> None:
    graph = ring()
    loader = NeighborLoader(graph, [2, 2], input_nodes=np.arange(10, 45), batch_size=10, seed=4)
    batches = list(loader)
    assert len(batches) == len(loader) == 4
    for number, batch in enumerate(batches):
        assert isinstance(batch, Data)
        expected = sample_neighbors(
            graph, np.arange(10, 45)[number * 10 :][:10], [2, 2], seed=4, batch=number
        )
        assert batch.n_id.tolist() == expected.nodes.tolist()
        assert batch.edge_index.tolist() == [expected.row.tolist(), expected.col.tolist()]
        assert batch.e_id.tolist() == expected.edge_ids.tolist()
        assert batch.batch_size == (10 if number < 3 else 5)
        assert batch.num_nodes == len(expected.nodes)
        assert batch.num_sampled_nodes == expected.num_sampled_nodes
        assert batch.num_sampled_edges == expected.num_sampled_edges
        assert batch.validate()


def test_batches_of_several_types() -> None:
    graph = Library()
    loader = NeighborLoader(
        graph, [3, 2], input_nodes=("reader", [4, 1, 7]), batch_size=2, features={"book": ["pages"]}
    )
    first, second = loader
    assert isinstance(first, HeteroData)
    assert first.validate()
    assert first["reader"].n_id[:2].tolist() == [4, 1]
    assert second["reader"].input_id.tolist() == [2]
    assert second["reader"].batch_size == 1
    np.testing.assert_array_equal(first["book"].pages.numpy(), graph.pages[first["book"].n_id.numpy()])
    edges = first["book", "lent_to", "reader"]
    csc = graph.csc(("book", "lent_to", "reader"))
    np.testing.assert_array_equal(
        csc.indices[edges.e_id.numpy()], first["book"].n_id[edges.edge_index[0]].numpy()
    )
    assert sum(edges.num_sampled_edges) == edges.edge_index.shape[1]


@pytest.mark.parametrize("threads", [2, 5])
def test_same_for_any_number_of_threads(threads: int) -> None:
    def load(num_threads: int) -> list[Any]:
        loader = NeighborLoader(ring(), [1], batch_size=7, shuffle=True, num_threads=num_threads, seed=1)
        return [*loader, *loader]

    for one, other in zip(load(1), load(threads), strict=True):
        assert torch.equal(one.n_id, other.n_id)
        assert torch.equal(one.e_id, other.e_id)


def test_epochs_shuffle_anew_and_can_be_resumed() -> None:
    loader = NeighborLoader(ring(), [1], batch_size=30, shuffle=True, drop_last=True)
    epochs = [[batch.input_id.tolist() for batch in loader] for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [3, 3, 3]
    assert epochs[0] != epochs[1] != epochs[2]
    assert len({seed for batch in epochs[0] for seed in batch}) == 90
    resumed = NeighborLoader(ring(), [1], batch_size=30, shuffle=True, drop_last=True)
    resumed.set_epoch(2)
    assert [batch.input_id.tolist() for batch in resumed] == epochs[2]
    assert resumed.epoch == 3


@pytest.mark.parametrize(
    ("input_nodes", "count"),
    [
        (None, 100),
        ("node", 100),
        (("node", [3, 4]), 2),
        (torch.tensor([1, 2, 3]), 3),
        (np.arange(100) < 4, 4),
        ([], 0),
    ],
)
def test_input_nodes(input_nodes: Any, count: int) -> None:
    batches = list(NeighborLoader(ring(), [1], input_nodes=input_nodes, batch_size=50))
    assert sum(batch.batch_size for batch in batches) == count


def test_leaving_the_loop_ends_the_threads() -> None:
    sampled = []

    def count(batch: Data) -> Data:
        sampled.append(batch)
        return batch

    loader = NeighborLoader(ring(10_000), [1], batch_size=2, num_threads=2, prefetch=3, transform=count)
    for _ in loader:
        break
    limit = time.monotonic() + 60
    while _loader_threads() and time.monotonic() < limit:
        time.sleep(0.001)
    assert not _loader_threads()
    assert len(sampled) <= 1 + 2 * 3 + 1  # the one received, those that may wait, and the next of them
    batches = iter(loader)
    next(batches)
    batches.close()
    assert not _loader_threads()


def _loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("graphbox-loader")]


def test_errors_reach_the_loop() -> None:
    loader = NeighborLoader(ring(), [1], input_nodes=[0, 1, 100, 2], batch_size=2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(UsageError, match=r"batch 1 of epoch 0: seeds: .*received 100"):
        next(batches)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected an integer, 1 or more, received 0"),
        ({"prefetch": True}, "prefetch"),
        ({"input_nodes": "nude"}, "unknown node type 'nude'; the graph has: node"),
        ({"input_nodes": [True, False]}, "one entry for each of the 100 nodes"),
        ({"input_nodes": [0.5]}, "integers"),
        ({"features": {"nude": ["x"]}}, "unknown node type"),
        ({"seed": -1}, "seed"),
        ({"num_threads": 0}, "threads"),
        ({"timeout": -1}, "timeout: expected a number of seconds"),
        ({"pass_batches": 0}, "pass_batches"),
        ({"output": "jax"}, "output: expected pyg, torch or numpy, received 'jax'"),
        ({"features": ["x"]}, "there is no feature `x` of `node`"),
        ({"num_workers": 4}, "num_workers(.|\n)*give their number as num_threads"),
        ({"persistent_workers": True}, "there are no worker processes"),
        ({"weight_attr": "edge_weight"}, "weight_attr: expected 'weight' or None"),
        ({"batchsize": 4}, "batchsize: the loader has no such argument(.|\n)*did you mean `batch_size`"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        NeighborLoader(ring(), [1], **arguments)
    with pytest.raises(UsageError, match=r"\(node type, node indices\) with one of: reader, book"):
        NeighborLoader(Library(), [1])
    with pytest.raises(UsageError, match="expected a graph, received int"):
        NeighborLoader(3, [1])  # type: ignore[arg-type]
    NeighborLoader(ring(), [1], num_workers=0, persistent_workers=False)  # type: ignore[call-arg]  # nothing asked


def test_trains_a_graph_neural_network() -> None:
    """Two groups, edges mostly inside them: SAGE learns them from noisy features through the loader."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 400)
    source, target = rng.integers(0, 400, (2, 8000))
    kept = (group[source] == group[target]) | (rng.random(8000) < 0.05)
    graph = Graph.from_coo(source[kept], target[kept], num_nodes=400)
    x = torch.from_numpy((group[:, None] + rng.normal(0, 3, (400, 8))).astype(np.float32))
    y = torch.from_numpy(group)
    first, second = SAGEConv(8, 16), SAGEConv(16, 2)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    loader = NeighborLoader(graph, [10, 10], input_nodes=np.arange(200), batch_size=50, shuffle=True)

    def forward(batch: Data) -> torch.Tensor:
        hidden = first(x[batch.n_id], batch.edge_index).relu()
        scores: torch.Tensor = second(hidden, batch.edge_index)
        return scores[: batch.batch_size]

    for _ in range(20):
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(forward(batch), y[batch.n_id[: batch.batch_size]])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    test = next(iter(NeighborLoader(graph, [-1, -1], input_nodes=np.arange(200, 400), batch_size=200)))
    accuracy = (forward(test).argmax(1) == y[200:]).float().mean().item()
    assert accuracy > 0.9
