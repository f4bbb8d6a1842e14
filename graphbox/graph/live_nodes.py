"""The nodes of a changed graph: those of its base and of the changes after it, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.columns import Column, SegmentedColumn
from graphbox.graph.ids import Ids
from graphbox.graph.schema import IdType, Int64Array
from graphbox.graph.tables import LazyMapping, NodeTable

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class NodeChange:
    """Nodes of one type that one change of a graph added, updated and removed.

    Attributes:
        first: index of the first node that it added.
        ids: ids of the nodes that it added, or None.
        features: features of these nodes.
        updated: int64 [m], ascending: the nodes whose features it set.
        updates: the features that it set, [m] rows each.
        categories: categories that it added after those before, by feature.
        removed: int64, ascending: the nodes that it removed.
        discovered: whether the nodes of a new type are those met at the ends of edges.
    """

    first: int
    ids: Ids | None = None
    features: Mapping[str, Column] = field(default_factory=dict)
    updated: Int64Array = field(default_factory=lambda: _NO_ROWS)
    updates: Mapping[str, Column] = field(default_factory=dict)
    categories: Mapping[str, pa.Array] = field(default_factory=dict)
    removed: Int64Array = field(default_factory=lambda: _NO_ROWS)
    discovered: bool = False

    @property
    def num_added(self) -> int:
        """Number of nodes that it added."""
        return 0 if self.ids is None else len(self.ids)


# Ids


class LiveIds(Ids):
    """Ids of several segments of nodes one after the other, without those of removed nodes.

    Args:
        kind: what the ids are.
        segments: first node index of each segment, and its ids.
        removed: int64, ascending: the nodes that have no id any more.
    """

    def __init__(self, kind: IdType, segments: Sequence[tuple[int, Ids]], removed: Int64Array) -> None:
        self.kind = kind
        self._segments = tuple(segments)
        self._removed = removed

    def __len__(self) -> int:
        first, ids = self._segments[-1]
        return first + len(ids)

    @cached_property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type large_string or int64, null where a node was removed."""
        return self.read(0, len(self))

    def read(self, start: int, stop: int) -> pa.Array:
        """Return the ids ``start`` to ``stop - 1``, null where a node was removed."""
        parts = [
            ids.values.slice(max(start - first, 0), min(stop, first + len(ids)) - max(start, first))
            for first, ids in self._segments
            if first < stop and start < first + len(ids)
        ]
        values = pa.concat_arrays(parts) if parts else self._segments[0][1].values.slice(0, 0)
        low, high = np.searchsorted(self._removed, [start, stop])
        if low == high:
            return values
        is_removed = np.zeros(len(values), bool)
        is_removed[self._removed[low:high] - start] = True
        return pc.if_else(pa.array(is_removed), pa.scalar(None, values.type), values)

    def take(self, index: Int64Array) -> npt.NDArray[Any]:
        """Return the ids at ``index``: an object array of str, or int64; "" or 0 where a node was removed."""
        taken: npt.NDArray[Any] = np.empty(len(index), object if self.kind == "string" else np.int64)
        for first, ids in self._segments:
            inside = np.flatnonzero((index >= first) & (index < first + len(ids)))
            if len(inside):
                taken[inside] = ids.take(index[inside] - first)
        taken[self._is_removed(index)] = "" if self.kind == "string" else 0
        return taken

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id, -1 where it is none or null."""
        found = np.full(len(ids), -1, np.int64)
        left = np.arange(len(ids))
        # The last segment first: an id that was removed and added again is the new node's.
        for first, segment in reversed(self._segments):
            if not len(left):
                break
            within = segment.find(ids if len(left) == len(ids) else ids.take(pa.array(left)))
            index = np.where(within < 0, -1, within + first)
            hit = (index >= 0) & ~self._is_removed(index)
            found[left[hit]] = index[hit]
            left = left[~hit]
        return found

    def suggest(self, value: Any) -> str | None:
        """Return ``did you mean `x`?`` for the closest id, or None when nothing is close."""
        suggestions = (segment.suggest(value) for _, segment in reversed(self._segments))
        return next((suggestion for suggestion in suggestions if suggestion is not None), None)

    def _is_removed(self, index: Int64Array) -> npt.NDArray[np.bool_]:
        if not len(self._removed):
            return np.zeros(len(index), bool)
        position = np.minimum(np.searchsorted(self._removed, index), len(self._removed) - 1)
        return np.asarray(self._removed[position] == index)


class LiveNodeTable(NodeTable):
    """The nodes of one type after some changes.

    Args:
        base: the nodes before, or None when a change added the type.
        changes: the changes, in order.
    """

    def __init__(self, base: NodeTable | None, changes: Sequence[NodeChange]) -> None:
        added = [change for change in changes if change.ids is not None]
        segments: list[tuple[int, NodeTable | NodeChange]] = [(each.first, each) for each in added]
        if base is not None:
            segments.insert(0, (0, base))
        removed = [*([] if base is None else [base.removed]), *(change.removed for change in changes)]
        all_removed = np.sort(np.concatenate(removed)) if any(map(len, removed)) else _NO_ROWS
        ids = [(first, each.ids) for first, each in segments if each.ids is not None]
        first_table = segments[0][1]

        def live(name: str) -> SegmentedColumn:
            return SegmentedColumn(
                [(first, each.features[name]) for first, each in segments],
                [change.categories[name] for change in changes if name in change.categories],
                [(each.updated, each.updates[name]) for each in changes if name in each.updates],
                all_removed,
            )

        self.base = base
        self._columns = LazyMapping(first_table.features, live)
        super().__init__(
            LiveIds(ids[0][1].kind, ids, all_removed),
            LazyMapping(first_table.features, lambda name: self.column(name).read_all()),
            all_removed,
            first_table.discovered,
            {} if base is None else base.imported,
        )

    def column(self, name: str) -> SegmentedColumn:
        """Return a feature, to be read in ranges of rows; only those that are read are put together."""
        return self._columns[name]
