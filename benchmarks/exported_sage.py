"""GraphSAGE of two layers for 512 queries: exported by graphbox, lowered by PyTorch Geometric, and eager.

    python -m benchmarks.exported_sage [--quick] [--json]

All have the same parameters and answers, 64 values a vector and 10 neighbours drawn of each node, and one
thread. ``graphbox`` is the padded-block form in ONNX Runtime, ``PyG lowered`` the export of PyTorch
Geometric's modules over an edge list in ONNX Runtime, ``PyG eager`` the modules in PyTorch, each layer over
the edges that it needs (``trim_to_layer``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

from benchmarks.measure import arguments, rate_of, show_in_turns
from graphbox.deploy.onnx_runtime import load_onnxruntime
from graphbox.export.onnx import OPSET, TensorInput, export_onnx
from graphbox.models.padded_layers import PaddedNeighbors, RelationEnds, sage_conv

DIM, FAN_OUT, NODES = 64, 10, 200_000


class EdgeListNetwork(nn.Module):
    """The network over an edge list; nodes of each hop follow those of the hop before."""

    def __init__(self, queries: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SAGEConv(DIM, DIM) for _ in range(2))
        self.queries = queries

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the vectors of the queries, float32 [queries, dim]."""
        for layer in self.layers:
            x = layer(x, edges).relu()
        return x[: self.queries]

    def trimmed(self, x: Tensor, edges: Tensor, hops: tuple[list[int], list[int]]) -> Tensor:
        """Return the same, without what a layer computes for nodes that the next one does not read."""
        for number, layer in enumerate(self.layers):
            x, edges, _ = trim_to_layer(number, *hops, x=x, edge_index=edges)
            x = layer(x, edges).relu()
        return x[: self.queries]


class PaddedNetwork(nn.Module):
    """The same network over padded neighbour tables."""

    def __init__(self, network: EdgeListNetwork) -> None:
        super().__init__()
        self.layers = network.layers

    def forward(self, rows: Tensor, tables: list[Tensor], own: list[Tensor]) -> Tensor:
        """Return the vectors of the queries, float32 [queries, dim]."""
        for layer, index, places in zip(self.layers, tables, own, strict=True):
            target = rows.index_select(0, places)
            found = sage_conv(layer, RelationEnds(rows, target, places), PaddedNeighbors(index)).relu()
            rows = torch.cat([found.new_zeros(1, DIM), found])
        return rows[1:]


def main() -> None:
    """Run the three systems in turns."""
    options = arguments("exported GraphSAGE")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    queries = 16 if options.quick else 512
    batch = Batch(queries)
    network = EdgeListNetwork(queries).eval()
    systems: dict[str, Callable[[], Any]] = {
        "graphbox": padded_in_onnx_runtime(network, batch),
        "PyG lowered": edge_list_in_onnx_runtime(network, batch),
        "PyG eager": lambda: network.trimmed(batch.x, batch.edges, batch.hops),
    }
    with torch.no_grad():
        expected = network(batch.x, batch.edges).numpy()
        for run in systems.values():
            np.testing.assert_allclose(np.asarray(run()), expected, rtol=0, atol=1e-4)
        calls = 2 if options.quick else 30
        show_in_turns(
            f"sage-2-layers-B{queries}",
            "queries/s",
            {name: rate_of(_repeated(run, calls, queries)) for name, run in systems.items()},
            as_json=options.json,
        )


class Batch:
    """Queries with their neighbours, drawn with repeats, as an edge list and as padded tables.

    Attributes:
        x: float32 [nodes, dim], those of each hop after those before.
        edges: int64 [2, edges], sources and targets.
        hops: numbers of new nodes and of edges of each hop.
    """

    def __init__(self, queries: int) -> None:
        random = np.random.default_rng(0)
        known = random.permutation(NODES)[:queries]
        sizes, edges, new = [queries], [], known
        self._tables: list[np.ndarray[Any, Any]] = []
        for _ in range(2):
            first = len(known) - len(new)
            neighbors = random.integers(0, NODES, (len(new), FAN_OUT))
            fresh = np.setdiff1d(neighbors, known)
            known = np.concatenate([known, fresh])
            place = np.zeros(NODES, np.int64)
            place[known] = np.arange(len(known))
            sources = place[neighbors]
            edges.append((sources.ravel(), np.repeat(first + np.arange(len(new)), FAN_OUT)))
            self._tables.append(sources)
            sizes.append(len(fresh))
            new = fresh
        self.x = torch.from_numpy(random.standard_normal((len(known), DIM), np.float32))
        self.edges = torch.from_numpy(np.concatenate([np.stack(each) for each in edges], axis=1))
        self.hops = (sizes, [len(targets) for _, targets in edges])

    def padded(self) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return rows with the absent node first, and the tables and own positions of each layer."""
        rows = torch.cat([torch.zeros(1, DIM), self.x])
        first, second = self._tables
        tables = [np.concatenate([first, second]) + 1, first + 1]
        own = [torch.arange(1, len(table) + 1) for table in tables]
        return rows, [torch.from_numpy(table) for table in tables], own


def padded_in_onnx_runtime(network: EdgeListNetwork, batch: Batch) -> Callable[[], Any]:
    """Return a call of the network as graphbox exports it."""
    rows, tables, own = batch.padded()
    model = export_onnx(
        PaddedNetwork(network).eval(),
        [
            TensorInput("rows", rows, {0: "rows"}),
            [TensorInput(f"table_{n}", each, {0: f"n_{n}", 1: f"f_{n}"}) for n, each in enumerate(tables)],
            [TensorInput(f"own_{n}", each, {0: f"n_{n}"}) for n, each in enumerate(own)],
        ],
    )
    feeds = {"rows": rows.numpy()}
    feeds |= {f"table_{n}": each.numpy() for n, each in enumerate(tables)}
    feeds |= {f"own_{n}": each.numpy() for n, each in enumerate(own)}
    return _call(model.model, feeds)


def edge_list_in_onnx_runtime(network: EdgeListNetwork, batch: Batch) -> Callable[[], Any]:
    """Return a call of the network as torch's exporter lowers PyTorch Geometric's modules."""
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network,
            (batch.x, batch.edges),
            dynamo=True,
            opset_version=OPSET,
            input_names=["x", "edges"],
            dynamic_shapes=({0: nodes}, {1: edges}),
            verbose=False,
        )
    if program is None:
        raise RuntimeError("the exporter returned no program")
    model = program.model_proto.SerializeToString()
    return _call(model, {"x": batch.x.numpy(), "edges": batch.edges.numpy()})


def _call(model: bytes, feeds: dict[str, Any]) -> Callable[[], Any]:
    runtime = load_onnxruntime()
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = runtime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)[0]


def _repeated(run: Callable[[], Any], calls: int, queries: int) -> Callable[[], float]:
    def work() -> float:
        for _ in range(calls):
            run()
        return calls * queries

    return work


if __name__ == "__main__":
    main()
