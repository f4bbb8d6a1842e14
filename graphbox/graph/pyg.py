"""Taking graphs from PyTorch Geometric; torch is only touched through the object that is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.graph.columns import Column
from graphbox.graph.store import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, Graph
from graphbox.graph.tables import EdgeTable, edge_table, numbered_nodes

__all__ = ["graph_from_pyg"]


def graph_from_pyg(data: Any, name: str) -> Graph:
    """Return the graph in memory that a ``Data`` or ``HeteroData`` holds, see :meth:`Graph.from_pyg`."""
    if hasattr(data, "edge_types") and hasattr(data, "node_types"):
        node_stores = {node_type: data[node_type] for node_type in data.node_types}
        edge_stores = {edge_type: data[edge_type] for edge_type in data.edge_types}
    elif getattr(data, "edge_index", None) is not None:
        node_stores, edge_stores = {DEFAULT_NODE_TYPE: data}, {DEFAULT_EDGE_TYPE: data}
    else:
        raise UsageError(
            f"expected a Data or HeteroData with `edge_index`, received {type(data).__name__}",
            hint="tensors of edges go into Graph.from_coo(source, target)",
        )
    nodes = {
        node_type: numbered_nodes(int(store.num_nodes), _features(store))
        for node_type, store in node_stores.items()
    }
    edges: dict[tuple[str, str, str], EdgeTable] = {}
    for (source, relation, target), store in edge_stores.items():
        if source not in nodes or target not in nodes:
            raise UsageError(f"expected nodes of the types `{source}` and `{target}`, received {list(nodes)}")
        edge_index = _array(store.edge_index).astype(np.int64)
        weight = getattr(store, "edge_weight", None)
        edges[source, relation, target] = edge_table(
            edge_index[0],
            edge_index[1],
            nodes[source].num_nodes,
            nodes[target].num_nodes,
            weight=None if weight is None else _array(weight),
        )
    return Graph(name, nodes, edges)


def _features(store: Any) -> dict[str, Column]:
    x = getattr(store, "x", None)
    if x is None:
        return {}
    values = _array(x).astype(np.float32)
    return {"x": Column("vector", values.reshape(len(values), -1))}


def _array(tensor: Any) -> npt.NDArray[Any]:
    copied: npt.NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return copied
