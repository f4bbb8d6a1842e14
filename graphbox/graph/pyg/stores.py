"""PyTorch Geometric's ``FeatureStore`` and ``GraphStore`` over a graph: its loaders read what they need."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch
from torch_geometric.data import FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout

from graphbox.errors import UnsupportedError
from graphbox.graph.columns import Column
from graphbox.graph.schema import EdgeType
from graphbox.graph.store import Graph

_NODE_INDEX = "n_id"


def _does_not_change(what: str) -> NoReturn:
    raise UnsupportedError(
        f"expected a graph that is only read, was asked to {what}",
        hint="`graphbox import --append` and `--remove` change a graph on disk",
    )


class PygFeatureStore(FeatureStore):  # type: ignore[misc]  # the package has no types
    """Features of a graph's nodes and edges, gathered by rows; nothing is read before it is asked for.

    Groups are node types, and edge types for the features of edges; attributes are the features' names. What
    comes back: ``number`` float32 [n], ``integer`` and ``categorical`` (codes) int64 [n], ``boolean`` bool
    [n], ``vector`` float32 [n, dim]. Slots have no rectangular form and are left out.

    A node type without any of these has ``n_id``, the node indices int64 [n]: PyTorch Geometric does not know
    node types that the store has nothing of.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        # FeatureStore takes attributes for tensors to be put.
        self.__dict__["graph"] = graph

    def _column(self, attr: TensorAttr) -> Column | None:
        graph: Graph = self.__dict__["graph"]
        group = attr.group_name
        if isinstance(group, tuple | list):
            edge_type = tuple(group)
            known: dict[str, Column] = graph.edge_columns(edge_type) if edge_type in graph.edge_types else {}
        else:
            known = graph.node_columns(group) if group in graph.node_types else {}
        column = known.get(attr.attr_name)
        return None if column is None or column.kind == "slots" else column

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor | None:
        column = self._column(attr)
        if column is None:
            return self._node_indices(attr)
        index = attr.index.cpu().numpy() if isinstance(attr.index, torch.Tensor) else attr.index
        # A copy in any case: the arrays are mapped read-only, and tensors want memory they may write to.
        rows = np.array(column.values if index is None else column.values[index])
        return torch.from_numpy(rows.astype(np.int64) if column.kind == "categorical" else rows)

    def _node_indices(self, attr: TensorAttr) -> torch.Tensor | None:
        graph: Graph = self.__dict__["graph"]
        if attr.attr_name != _NODE_INDEX or attr.group_name not in graph.node_types:
            return None
        num_nodes = graph.num_nodes(attr.group_name)
        if attr.index is None or isinstance(attr.index, slice):
            chosen = slice(None) if attr.index is None else attr.index
            return torch.arange(*chosen.indices(num_nodes))
        return torch.as_tensor(attr.index, dtype=torch.int64).clone()

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        column = self._column(attr)
        if column is not None and attr.index is None:
            return tuple(column.values.shape)
        tensor = self._get_tensor(attr)
        return None if tensor is None else tuple(tensor.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Return the features of nodes, which loaders put into every batch."""
        graph: Graph = self.__dict__["graph"]
        attrs = []
        for node_type in graph.node_types:
            columns = graph.node_columns(node_type)
            names = [name for name, column in columns.items() if column.kind != "slots"]
            attrs += [TensorAttr(node_type, name) for name in names or [_NODE_INDEX]]
        return attrs

    def _put_tensor(self, _: Any, attr: TensorAttr) -> bool:
        _does_not_change(f"put `{attr.attr_name}`")

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        _does_not_change(f"remove `{attr.attr_name}`")


class PygGraphStore(GraphStore):  # type: ignore[misc]  # the package has no types
    """Edges of a graph as CSC, CSR or COO, converted when they are asked for.

    COO is sorted by target: the order of the CSC, in which edge features are kept too.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.__dict__["graph"] = graph

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor] | None:
        graph: Graph = self.__dict__["graph"]
        edge_type: EdgeType = tuple(edge_attr.edge_type)
        if edge_type not in graph.edge_types:
            return None
        if edge_attr.layout is EdgeLayout.CSR:
            csr = graph.csr(edge_type)
            return _tensor(csr.indptr), _tensor(csr.indices)
        csc = graph.csc(edge_type)
        if edge_attr.layout is EdgeLayout.CSC:
            return _tensor(csc.indices), _tensor(csc.indptr)
        source, target = csc.coo()
        return _tensor(source), _tensor(target)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Return every edge type, as CSC."""
        graph: Graph = self.__dict__["graph"]
        return [
            EdgeAttr(
                edge_type,
                EdgeLayout.CSC,
                size=(graph.num_nodes(edge_type[0]), graph.num_nodes(edge_type[2])),
            )
            for edge_type in graph.edge_types
        ]

    def _put_edge_index(self, _: Any, edge_attr: EdgeAttr) -> bool:
        _does_not_change(f"put edges of type {edge_attr.edge_type}")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        _does_not_change(f"remove edges of type {edge_attr.edge_type}")


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array, np.int64))
