"""PyTorch Geometric's GraphSAGE on Cora learns from our graph what it learns from its own data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GraphSAGE

from graphbox.graph import Graph
from graphbox.sample.pyg import PygNeighborSampler

CORA = Path(__file__).resolve().parents[3] / "shared" / "data" / "cora" / "cora.npz"
EPOCHS = 40


@pytest.fixture(scope="module")
def cora() -> Data:
    if not CORA.is_file():
        pytest.skip(f"no data set at {CORA}")
    arrays = np.load(CORA, allow_pickle=False)
    x = np.zeros(arrays["x_shape"], np.float32)
    rows = np.repeat(np.arange(len(x)), np.diff(arrays["x_indptr"]))
    x[rows, arrays["x_indices"]] = arrays["x_data"]
    x /= np.maximum(x.sum(axis=1, keepdims=True), 1)
    edges = torch.from_numpy(arrays["edge_index"]).long()
    data = Data(
        x=torch.from_numpy(x),
        y=torch.from_numpy(arrays["y"]).long(),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
    )
    for split in ("train", "test"):
        data[f"{split}_index"] = torch.from_numpy(arrays[f"{split}_idx"]).long()
    return data


def _model(seed: int) -> tuple[GraphSAGE, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = GraphSAGE(1433, 32, num_layers=2, out_channels=7, dropout=0.5)
    return model, torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def _trained_on_data(data: Data, seed: int) -> float:
    model, optimizer = _model(seed)
    for _ in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)[data.train_index]
        torch.nn.functional.cross_entropy(out, data.y[data.train_index]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        predicted = model(data.x, data.edge_index).argmax(dim=1)
    return float((predicted == data.y)[data.test_index].float().mean())


def _trained_on_graph(graph: Graph, train: torch.Tensor, test: torch.Tensor, seed: int) -> float:
    model, optimizer = _model(seed)
    stores = graph.pyg_stores()
    sampler = PygNeighborSampler(graph, [10, 10], seed=seed)
    loader = NodeLoader(stores, sampler, input_nodes=train, batch_size=70, shuffle=True)
    for _ in range(EPOCHS // 2):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.eval()
    everything = PygNeighborSampler(graph, [-1, -1])
    right = 0
    with torch.no_grad():
        for batch in NodeLoader(stores, everything, input_nodes=test, batch_size=500):
            predicted = model(batch.x, batch.edge_index)[: batch.batch_size].argmax(dim=1)
            right += int((predicted == batch.y[: batch.batch_size]).sum())
    return right / len(test)


@pytest.mark.slow
def test_graphsage_on_cora(cora: Data, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="`train_index`, `test_index`"):
        Graph.from_pyg(cora, name="cora").save(tmp_path / "cora")
    graph = Graph.open(tmp_path / "cora")
    assert (graph.num_nodes(), graph.num_edges()) == (2708, 10556)
    seeds = range(3)
    expected = np.mean([_trained_on_data(cora, seed) for seed in seeds])
    reached = np.mean([_trained_on_graph(graph, cora.train_index, cora.test_index, seed) for seed in seeds])
    print(f"accuracy: in-memory data {expected:.3f}, graph {reached:.3f}")
    assert expected > 0.75
    assert reached > expected - 0.015
