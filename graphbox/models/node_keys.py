"""One numbering for the nodes of several types, by which rows of one table belong to all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class NodeKeys:
    """One numbering for the nodes of several types: an index plus the number of nodes of the types before.

    Args:
        num_nodes: number of nodes by type, in the order of the numbering.
    """

    def __init__(self, num_nodes: Mapping[str, int]) -> None:
        self.num_nodes = dict(num_nodes)
        ends = np.cumsum([0, *self.num_nodes.values()])
        self._start = dict(zip(self.num_nodes, ends[:-1].tolist(), strict=True))
        self.total = int(ends[-1])

    def start(self, node_type: str) -> int:
        """Return the key of the first node of a type."""
        return int(self._start[node_type])

    def keys(self, node_type: str) -> NDArray[np.int64]:
        """Return the keys of all nodes of a type: int64 [n]."""
        return self.of(node_type, np.arange(self.num_nodes[node_type], dtype=np.int64))

    def of(self, node_type: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys of some nodes of a type: int64 [n]."""
        return index + self.start(node_type)
