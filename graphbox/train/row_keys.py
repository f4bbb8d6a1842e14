"""Meaning of the keys of a table's rows, so that a later training finds the rows of the same nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class RowKeys:
    """Keys of a table: of nodes, of names, or the same in every graph.

    Attributes:
        first: key of the first node of each node type; node ``i`` of the type has ``first + stride * i``.
        stride: distance between the keys of nodes of a type.
        names: names that the keys 0, 1, ... stand for; empty for keys of nodes.
        are_values: whether keys are hashes of values, which are the same in every graph.
    """

    first: Mapping[str, int] = field(default_factory=dict)
    stride: int = 1
    names: tuple[str, ...] = ()
    are_values: bool = False

    @classmethod
    def of_nodes(cls, first: Mapping[str, int], stride: int = 1) -> RowKeys:
        """Return the keys of nodes, see :class:`RowKeys`."""
        return cls(dict(first), stride)

    @classmethod
    def of_names(cls, names: Sequence[str]) -> RowKeys:
        """Return the keys of names, in their order."""
        return cls(names=tuple(names))

    @classmethod
    def of_values(cls) -> RowKeys:
        """Return keys that are hashes of values."""
        return cls(are_values=True)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> RowKeys:
        """Return the keys that :meth:`document` wrote."""
        return cls(document["first"], document["stride"], tuple(document["names"]), document["are_values"])

    def document(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "first": dict(self.first),
            "stride": self.stride,
            "names": list(self.names),
            "are_values": self.are_values,
        }

    def of(self, node_type: str, nodes: Int64) -> Int64:
        """Return the keys of nodes of a type: int64 [n]."""
        return self.first[node_type] + self.stride * nodes

    def of_all(self, nodes: Mapping[str, Int64]) -> Int64:
        """Return the keys of nodes of several types, one type after the other; other types have none.

        Args:
            nodes: int64 [n] by node type.
        """
        found = [self.of(name, index) for name, index in nodes.items() if name in self.first]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def pairs(
        self, earlier: RowKeys, matches: Mapping[str, Int64], earlier_keys: Int64
    ) -> Iterator[tuple[str, Int64, Int64]]:
        """Yield which keys stand for what keys of an earlier table stood for.

        Args:
            earlier: keys of the earlier table.
            matches: by node type the index in the earlier graph of each node, -1 for new ones: int64 [nodes].
            earlier_keys: int64, all keys of the earlier table, read for keys that are values.

        Yields:
            A node type, empty for names and values; keys here and the earlier keys: int64 [n] each.
        """
        if self.are_values and earlier.are_values:
            yield "", earlier_keys, earlier_keys
        if self.names:
            number = {name: key for key, name in enumerate(earlier.names)}
            known = [(key, number[name]) for key, name in enumerate(self.names) if name in number]
            both = np.array(known, np.int64).reshape(-1, 2)
            yield "", np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
        for node_type in self.first:
            if node_type in earlier.first:
                index = matches[node_type]
                here = np.flatnonzero(index >= 0)
                yield node_type, self.of(node_type, here), earlier.of(node_type, index[here])
