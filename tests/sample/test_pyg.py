"""Our sampler in PyTorch Geometric's loaders, and its own loader over our stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import NegativeSampling, NodeSamplerInput
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from graphbox.errors import UnsupportedError, UsageError
from graphbox.graph import Graph
from graphbox.graph.columns import Column
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable
from graphbox.graph.tables import EdgeTable, edge_table, numbered_nodes
from graphbox.sample.pyg import PygNeighborSampler

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 4)).astype(np.float32)
    source, target = generator.integers(0, 200, (2, 1500))
    path = tmp_path_factory.mktemp("graphs") / "single"
    Graph.from_coo(source, target, num_nodes=200, node_features={"x": x, "y": np.arange(200)}).save(path)
    return Graph.open(path)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    generator = np.random.default_rng(1)
    x = Column("vector", generator.normal(size=(120, 3)).astype(np.float32))
    nodes = {"author": numbered_nodes(40), "paper": numbered_nodes(120, {"x": x})}
    edges = {
        WRITES: edge_table(generator.integers(0, 40, 300), generator.integers(0, 120, 300), 40, 120),
        CITES: edge_table(generator.integers(0, 120, 500), generator.integers(0, 120, 500), 120, 120),
    }
    path = tmp_path_factory.mktemp("graphs") / "several"
    Graph("papers", nodes, edges).with_reverse_edges([WRITES]).save(path)
    return Graph.open(path)


def _check_single(graph: Graph, batch: Data) -> None:
    """Check that every edge of a batch is the edge of the graph that it says it is."""
    source, target = graph.csc().coo()
    nodes, edges = batch.n_id.numpy(), batch.e_id.numpy()
    assert (nodes[batch.edge_index[0].numpy()] == source[edges]).all()
    assert (nodes[batch.edge_index[1].numpy()] == target[edges]).all()
    assert len(set(nodes.tolist())) == len(nodes)
    assert torch.equal(batch.x, torch.from_numpy(graph.feature("node", "x")[nodes]))
    assert sum(batch.num_sampled_nodes) == len(nodes)
    assert sum(batch.num_sampled_edges) == len(edges)


def _check_several(graph: Graph, batch: HeteroData) -> None:
    for edge_type in graph.edge_types:
        source, target = graph.csc(edge_type).coo()
        store = batch[edge_type]
        edges = store.e_id.numpy()
        assert (batch[edge_type[0]].n_id[store.edge_index[0]].numpy() == source[edges]).all()
        assert (batch[edge_type[2]].n_id[store.edge_index[1]].numpy() == target[edges]).all()
    papers = batch["paper"].n_id.numpy()
    assert torch.equal(batch["paper"].x, torch.from_numpy(graph.feature("paper", "x")[papers]))


@pytest.mark.parametrize("workers", [0, 2])
def test_node_loader(single: Graph, workers: int) -> None:
    sampler = PygNeighborSampler(single, [4, 3], num_threads=1)
    seeds = torch.arange(0, 200, 3)
    loader = NodeLoader(single.pyg_stores(), sampler, input_nodes=seeds, batch_size=16, num_workers=workers)
    seen = []
    for batch in loader:
        _check_single(single, batch)
        first = batch.n_id[: batch.batch_size]
        assert torch.equal(first, seeds[batch.input_id])
        assert torch.equal(batch.y[: batch.batch_size], first)
        assert batch.num_sampled_nodes[0] == batch.batch_size
        into = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))[: batch.batch_size]
        degree = torch.from_numpy(single.csc().in_degree())[first]
        assert torch.equal(into, degree.clamp(max=4))
        seen += first.tolist()
    assert seen == seeds.tolist()


def test_node_loader_over_several_types(several: Graph) -> None:
    sampler = PygNeighborSampler(
        several, {WRITES: [2, 2], CITES: [3, 1], ("paper", "rev_writes", "author"): [1, 1]}
    )
    loader = NodeLoader(several.pyg_stores(), sampler, input_nodes=("paper", torch.arange(50)), batch_size=20)
    batches = list(loader)
    assert [batch["paper"].batch_size for batch in batches] == [20, 20, 10]
    for batch in batches:
        _check_several(several, batch)
    everything = NodeLoader(several.pyg_stores(), sampler, input_nodes="author", batch_size=64)
    assert next(iter(everything))["author"].batch_size == 40


def test_a_loader_takes_data_in_memory_too(several: Graph) -> None:
    sampler = PygNeighborSampler(several, [2])
    loader = NodeLoader(several.to_pyg(), sampler, input_nodes=("paper", torch.arange(9)), batch_size=9)
    _check_several(several, next(iter(loader)))


@pytest.mark.parametrize("amount", [1, 2])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_link_loader(single: Graph, mode: str | None, amount: int) -> None:
    links = torch.stack([torch.arange(30), torch.arange(30, 60)])
    batch = _link_batch(single, (None, links), mode, amount)
    _check_single(single, batch)
    _check_links(batch, links, batch.n_id, batch.n_id, mode, amount)


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("edge_type", [WRITES, CITES])
def test_link_loader_over_several_types(
    several: Graph, edge_type: tuple[str, str, str], mode: str | None
) -> None:
    links = torch.stack([torch.arange(30), torch.arange(60, 90)])
    batch = _link_batch(several, (edge_type, links), mode, 2)
    _check_several(several, batch)
    source, target = batch[edge_type[0]], batch[edge_type[2]]
    if mode == "triplet":
        found = Data(
            src_index=source.src_index, dst_pos_index=target.dst_pos_index, dst_neg_index=target.dst_neg_index
        )
    else:
        found = batch[edge_type]
    _check_links(found, links, source.n_id, target.n_id, mode, 2)


def _link_batch(graph: Graph, links: Any, mode: str | None, amount: int) -> Any:
    negatives = None if mode is None else NegativeSampling(mode, amount)
    sampler = PygNeighborSampler(graph, [3, 2], num_threads=1)
    loader = LinkLoader(
        graph.pyg_stores(), sampler, edge_label_index=links, neg_sampling=negatives, batch_size=30
    )
    return next(iter(loader))


def _check_links(
    found: Any,
    links: torch.Tensor,
    sources: torch.Tensor,
    targets: torch.Tensor,
    mode: str | None,
    amount: int,
) -> None:
    count = links.shape[1]
    if mode == "triplet":
        assert torch.equal(sources[found.src_index], links[0])
        assert torch.equal(targets[found.dst_pos_index], links[1])
        assert found.dst_neg_index.shape == ((count, amount) if amount > 1 else (count,))
        assert int(found.dst_neg_index.max()) < len(targets)
        return
    index = found.edge_label_index
    assert torch.equal(torch.stack([sources[index[0, :count]], targets[index[1, :count]]]), links)
    if mode == "binary":
        assert index.shape[1] == count * (1 + amount)
        assert found.edge_label.tolist() == [1.0] * count + [0.0] * count * amount


def test_torch_seeds_repeat_a_batch(single: Graph) -> None:
    sampler = PygNeighborSampler(single, [2, 2])
    seeds = NodeSamplerInput(torch.arange(20), torch.arange(20))

    def edges() -> list[int]:
        sampled: list[int] = sampler.sample_from_nodes(seeds).edge.tolist()
        return sampled

    torch.manual_seed(7)
    first, second = edges(), edges()
    torch.manual_seed(7)
    assert (edges(), edges()) == (first, second)
    assert first != second


def test_wrong_questions_are_refused(several: Graph, single: Graph) -> None:
    with pytest.raises(UsageError, match="expected a graph, received dict"):
        PygNeighborSampler({}, [2])  # type: ignore[arg-type]
    seeds = torch.arange(3)
    with pytest.raises(UnsupportedError, match="without timestamps"):
        PygNeighborSampler(single, [2]).sample_from_nodes(NodeSamplerInput(seeds, seeds, time=seeds))
    with pytest.raises(UsageError, match="seeds without a node type"):
        PygNeighborSampler(single, {single.edge_type(): [2]}).sample_from_nodes(
            NodeSamplerInput(seeds, seeds)
        )
    with pytest.raises(UsageError, match="one node and one edge type"):
        PygNeighborSampler(several, [2]).sample_from_nodes(NodeSamplerInput(seeds, seeds))


@pytest.mark.skipif(
    not (WITH_PYG_LIB or WITH_TORCH_SPARSE),
    reason="PyTorch Geometric's own sampler needs pyg-lib or torch-sparse",
)
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without:UserWarning")
def test_its_own_neighbor_loader_reads_our_stores(several: Graph) -> None:
    loader = NeighborLoader(
        several.pyg_stores(), num_neighbors=[3, 2], input_nodes=("paper", torch.arange(50)), batch_size=20
    )
    batches = list(loader)
    assert [batch["paper"].batch_size for batch in batches] == [20, 20, 10]
    for batch in batches:
        _check_several(several, batch)
    everything = {"input_nodes": ("paper", torch.arange(9)), "batch_size": 9}
    theirs = next(iter(NeighborLoader(several.pyg_stores(), num_neighbors=[-1, -1], **everything)))
    ours = next(iter(NodeLoader(several.pyg_stores(), PygNeighborSampler(several, [-1, -1]), **everything)))
    for edge_type in several.edge_types:
        assert sorted(ours[edge_type].e_id.tolist()) == sorted(theirs[edge_type].e_id.tolist())


def test_a_changed_graph_is_sampled_with_its_changes() -> None:
    generator = np.random.default_rng(2)
    source, target = generator.integers(0, 50, (2, 200))
    base = edge_table(source, target, 50, 50)
    since = Column("integer", np.arange(200, 230))
    ends = np.sort(generator.integers(0, 50, 30))
    change = EdgeChange(
        200, np.zeros(30, np.int64), ends, features={"n": since}, removed=np.arange(0, 200, 3)
    )
    base = EdgeTable(base.csc, {"n": Column("integer", np.arange(200))})
    edge_type = ("node", "to", "node")
    graph = Graph("changed", {"node": numbered_nodes(50)}, {edge_type: LiveEdgeTable(base, [change], 50, 50)})
    csc = graph.csc()
    source, target = csc.coo()
    expected = sorted(
        zip(source.tolist(), target.tolist(), csc.ids_at(np.arange(len(source))).tolist(), strict=True)
    )
    features, edges = graph.pyg_stores()
    loader = NodeLoader(
        (features, edges), PygNeighborSampler(graph, [-1]), input_nodes=torch.arange(50), batch_size=50
    )
    batch = next(iter(loader))
    found = batch.n_id[batch.edge_index].tolist()
    assert sorted(zip(*found, batch.e_id.tolist(), strict=True)) == expected
    # Edge ids are what edge features are kept by.
    assert torch.equal(features.get_tensor(edge_type, "n", batch.e_id), batch.e_id)
