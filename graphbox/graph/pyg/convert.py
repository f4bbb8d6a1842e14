"""Conversion from and to PyTorch Geometric's ``Data`` and ``HeteroData``, for graphs that fit memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError, missing_extra
from graphbox.graph.arrays import feature_columns, ids_of
from graphbox.graph.columns import Column
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.graph.store import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, Graph
from graphbox.graph.tables import EdgeTable, NodeTable, edge_table, numbered_nodes

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

_IDS = "ids"
_WEIGHT = "edge_weight"
_TIMES = ("edge_time", "time")
_NOT_NODE_FEATURES = ("num_nodes", "ptr", "batch", _IDS)


def graph_from_pyg(data: Any, name: str) -> Graph:
    """Return the graph in memory that a ``Data`` or ``HeteroData`` holds, see :meth:`Graph.from_pyg`."""
    node_stores: dict[str, Any]
    edge_stores: dict[EdgeType, Any]
    if hasattr(data, "edge_types") and hasattr(data, "node_types"):
        node_stores = {node_type: data[node_type] for node_type in data.node_types}
        edge_stores = {edge_type: data[edge_type] for edge_type in data.edge_types}
    elif getattr(data, "edge_index", None) is not None:
        # One store for both; its own rules tell which attribute belongs to nodes and which to edges.
        store = data._store
        node_stores, edge_stores = {DEFAULT_NODE_TYPE: store}, {DEFAULT_EDGE_TYPE: store}
    else:
        raise UsageError(
            f"expected a Data or HeteroData with `edge_index`, received {type(data).__name__}",
            hint="tensors of edges go into Graph.from_coo(source, target)",
        )
    nodes = {node_type: _nodes(node_type, store) for node_type, store in node_stores.items()}
    edges: dict[EdgeType, EdgeTable] = {}
    for (source, relation, target), store in edge_stores.items():
        if source not in nodes or target not in nodes:
            raise UsageError(f"expected nodes of the types `{source}` and `{target}`, received {list(nodes)}")
        edges[source, relation, target] = _edges(
            (source, relation, target), store, nodes[source].num_nodes, nodes[target].num_nodes
        )
    _warn_of_rest(data, node_stores, edge_stores)
    return Graph(name, nodes, edges)


def _warn_of_rest(data: Any, node_stores: Mapping[str, Any], edge_stores: Mapping[EdgeType, Any]) -> None:
    """Warn of attributes that are not in the graph: of neither nodes nor edges, or no tensors."""
    rest: list[str] = []
    for node_type, store in node_stores.items():
        rest += [
            _shown(node_type, key, len(node_stores))
            for key in store
            if not (key in _NOT_NODE_FEATURES or key.endswith("_ptr") or f"{key}_ptr" in store)
            and not (_is_tensor(store[key]) and (store.is_node_attr(key) or _is_of_edges(store, key)))
        ]
    if hasattr(data, "edge_types"):
        for edge_type, store in edge_stores.items():
            rest += [
                _shown(edge_type_text(edge_type), key, len(edge_stores) + 1)
                for key in store
                if not (_is_tensor(store[key]) and _is_of_edges(store, key))
            ]
        rest += [f"`{key}`" for key in data._global_store]
    if rest:
        warnings.warn(
            f"not in the graph, as neither tensors of nodes nor of edges: {', '.join(rest)}", stacklevel=4
        )


def _shown(of: str, key: str, types: int) -> str:
    return f"`{key}`" if types == 1 else f"`{key}` of `{of}`"


def _nodes(node_type: str, store: Any) -> NodeTable:
    if store.num_nodes is None:
        raise UsageError(
            "expected a known number of nodes, received none",
            where=f"node type `{node_type}`",
            hint=f"set data[{node_type!r}].num_nodes",
        )
    num_nodes, what = int(store.num_nodes), f"nodes of type `{node_type}`"
    features: dict[str, Any] = {}
    for key in store:
        starts = store.get(f"{key}_ptr") if isinstance(key, str) else None
        if key in _NOT_NODE_FEATURES or (key.endswith("_ptr") and key.removesuffix("_ptr") in store):
            continue
        if starts is not None:
            features[key] = (_array(starts), _array(store[key]))
        elif _is_tensor(store[key]) and store.is_node_attr(key) and not _is_of_edges(store, key):
            features[key] = _array(store[key])
    if store.get("x") is not None and "x" in features and features["x"].ndim == 1:
        features["x"] = features["x"].reshape(-1, 1).astype(np.float32)
    columns = feature_columns(features, num_nodes, what)
    table = numbered_nodes(num_nodes, columns)
    if _IDS not in store:
        return table
    ids = store[_IDS]
    return NodeTable(ids_of(_array(ids) if _is_tensor(ids) else ids, num_nodes, f"ids of {what}"), columns)


def _edges(edge_type: EdgeType, store: Any, num_sources: int, num_targets: int) -> EdgeTable:
    where = f"edges of type {edge_type_text(edge_type)}"
    if store.get("edge_index") is None:
        raise UsageError(
            "expected `edge_index`, received none", where=where, hint="adj_t: use `.coo()` of it"
        )
    edge_index = _array(store["edge_index"])
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.dtype.kind not in "iu":
        raise UsageError(
            f"expected integers [2, num_edges], received {edge_index.dtype} {list(edge_index.shape)}",
            where=f"`edge_index`, {where}",
        )
    time = next((store[key] for key in _TIMES if key in store and _is_of_edges(store, key)), None)
    features = {
        key: _array(store[key])
        for key in store
        if key not in ("edge_index", _WEIGHT, *_TIMES) and _is_tensor(store[key]) and _is_of_edges(store, key)
    }
    weight = store.get(_WEIGHT)
    return edge_table(
        edge_index[0].astype(np.int64),
        edge_index[1].astype(np.int64),
        num_sources,
        num_targets,
        weight=None if weight is None else _array(weight),
        timestamp=None if time is None else _array(time),
        features=feature_columns(features, edge_index.shape[1], where),
    )


def _is_of_edges(store: Any, key: str) -> bool:
    is_edge_attr = getattr(store, "is_edge_attr", None)
    return is_edge_attr is not None and bool(is_edge_attr(key))


def _is_tensor(value: Any) -> bool:
    return callable(getattr(value, "detach", None))


def _array(tensor: Any) -> npt.NDArray[Any]:
    import torch

    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    if dense.dtype in (torch.bfloat16, torch.float16):
        dense = dense.float()
    copied: npt.NDArray[Any] = dense.detach().cpu().numpy().copy()
    return copied


# To PyTorch Geometric


def graph_to_pyg(graph: Graph, *, heterogeneous: bool | None = None) -> Data | HeteroData:
    """Return a graph as ``Data`` or ``HeteroData``, see :meth:`Graph.to_pyg`."""
    try:
        from torch_geometric.data import Data, HeteroData
    except ImportError:
        raise missing_extra("torch-geometric", "train") from None
    single = len(graph.node_types) == 1 and len(graph.edge_types) == 1
    if heterogeneous is False and not single:
        raise UsageError(
            f"expected one node type and one edge type, received {len(graph.node_types)} and "
            f"{len(graph.edge_types)}",
            where=f"graph `{graph.name}`",
            hint="to_pyg() without `heterogeneous=False` gives a HeteroData",
        )
    if single and not heterogeneous:
        data = Data()
        _fill_nodes(data, graph, graph.node_types[0])
        _fill_edges(data, graph, graph.edge_types[0])
        return data
    data = HeteroData()
    for node_type in graph.node_types:
        _fill_nodes(data[node_type], graph, node_type)
    for edge_type in graph.edge_types:
        _fill_edges(data[edge_type], graph, edge_type)
    return data


def _fill_nodes(store: Any, graph: Graph, node_type: str) -> None:
    import torch

    rows = LiveRows.of_graph(graph, node_type)
    nodes = rows.nodes(np.arange(len(rows)))
    store.num_nodes = len(nodes)
    ids = graph.ids(node_type, nodes)
    _put(store, _IDS, ids.tolist() if graph.id_type(node_type) == "string" else torch.from_numpy(ids.copy()))
    for name, column in graph.node_columns(node_type).items():
        _put_feature(store, name, column if len(nodes) == len(column) else column.take(nodes))


def _fill_edges(store: Any, graph: Graph, edge_type: EdgeType) -> None:
    import torch

    csc = graph.csc(edge_type)
    source, target = csc.coo()
    ends = [
        LiveRows.of_graph(graph, node_type).rows(index)
        for node_type, index in ((edge_type[0], source), (edge_type[2], target))
    ]
    _put(store, "edge_index", torch.from_numpy(np.stack(ends)))
    if csc.weight is not None:
        _put(store, _WEIGHT, torch.from_numpy(np.array(csc.weight)))
    if csc.timestamp is not None:
        _put(store, _TIMES[0], torch.from_numpy(np.array(csc.timestamp)))
    for name, column in graph.edge_columns(edge_type).items():
        _put_feature(store, name, column if csc.edge_ids is None else column.take(csc.edge_ids))


def _put_feature(store: Any, name: str, column: Column) -> None:
    import torch

    values = column.values.astype(np.int64) if column.kind == "categorical" else np.array(column.values)
    _put(store, name, torch.from_numpy(values))
    if column.offsets is not None:
        _put(store, f"{name}_ptr", torch.from_numpy(np.array(column.offsets)))


def _put(store: Any, key: str, value: Any) -> None:
    if key in store:
        raise UsageError(
            f"expected one attribute `{key}`, received two: Data keeps those of nodes and edges together",
            where=f"feature `{key}`",
            hint="to_pyg(heterogeneous=True) keeps them apart",
        )
    store[key] = value
