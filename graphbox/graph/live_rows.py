"""Dense numbers of live nodes: removed nodes have an index in the graph, but no row."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64 = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)


class _Nodes(Protocol):
    def num_nodes(self, node_type: str) -> int: ...
    def removed_nodes(self, node_type: str) -> Int64: ...


class LiveRows:
    """Rows of the live nodes of one type, in the order of node indices: rows of an artifact, or to draw from.

    Args:
        num_nodes: number of node indices.
        removed: int64, ascending: indices of removed nodes.
    """

    def __init__(self, num_nodes: int, removed: Int64) -> None:
        self._num_nodes = num_nodes
        self._removed = removed

    @classmethod
    def of_ids(cls, ids: pa.Array) -> Self:
        """Return the rows of nodes with these ids, null where a node was removed."""
        if not ids.null_count:
            return cls(len(ids), np.zeros(0, np.int64))
        return cls(len(ids), np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False)))

    @classmethod
    def of_graph(cls, graph: _Nodes, node_type: str) -> Self:
        """Return the rows of the nodes of one type of a graph, or of a view of one."""
        return cls(graph.num_nodes(node_type), graph.removed_nodes(node_type))

    def __len__(self) -> int:
        """Number of rows: one for each live node."""
        return self._num_nodes - len(self._removed)

    def nodes(self, rows: Int64) -> Int64:
        """Return the node indices of rows."""
        # Before the i-th removed node there are removed[i] - i live ones.
        before = self._removed - np.arange(len(self._removed))
        return rows + np.searchsorted(before, rows, side="right")

    def rows(self, nodes: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return the rows of live nodes, -1 where the index is -1; same shape and dtype."""
        if not len(self._removed):
            return nodes
        shift = np.searchsorted(self._removed, nodes).astype(nodes.dtype)
        found: npt.NDArray[Number] = nodes - shift  # of -1: nothing is removed before it
        return found

    def select(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Return the values of live nodes, given one for each node index; no copy where none was removed."""
        return np.delete(values, self._removed, axis=0) if len(self._removed) else values

    def select_ids(self, ids: pa.Array) -> pa.Array:
        """Return the ids of live nodes."""
        return ids.drop_null() if len(self._removed) else ids

    def spread(self, values: npt.NDArray[Any], fill: float = 0, axis: int = 0) -> npt.NDArray[Any]:
        """Return one value for each node index, given those of rows; ``fill`` for removed nodes."""
        if not len(self._removed):
            return values
        places = self._removed - np.arange(len(self._removed))
        return np.insert(values, places, fill, axis=axis)
