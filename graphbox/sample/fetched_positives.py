"""Known positives, read from disk for the queries there are: edges of a graph in tiers, and links beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphbox.native import Int64Array
from graphbox.sample.adjacency import EdgeType, edge_type_name
from graphbox.sample.fetched_lists import FetchedLists, ListBudget

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph
    from graphbox.sample.negative import KnownPositives

_EDGE_BYTES = 64
"""The most bytes an edge takes while links are put among those that were read."""
_ROWS_AT_A_TIME = 1 << 17


class FetchedPositives:
    """The out-neighbours of the sources of an edge type, and links beside them.

    Args:
        graph: has the edges.
        edge_type: whose edges; queries are its sources, their positives its targets.
        links: int64 [2, n]: pairs (query, positive) that need not be edges.
        budget: for lists in memory.

    Raises:
        NotFoundError: the CSR is not on disk.
    """

    def __init__(
        self,
        graph: TieredGraph,
        edge_type: EdgeType,
        links: Int64Array,
        budget: ListBudget,
    ) -> None:
        whole = graph.graph
        self.num_queries = whole.num_nodes(edge_type[0])
        self.num_items = whole.num_nodes(edge_type[2])
        self._name = edge_type_name(edge_type)
        forward = whole.reverse_type(edge_type) if whole.is_reverse(edge_type) else None
        self._edges = graph.edges(edge_type, "out") if forward is None else graph.edges(forward, "in")
        self._link_rows, self._link_items = np.unique(links, axis=1)
        self._budget = budget

    def draw(self, queries: Int64Array, draw: Callable[[KnownPositives], Int64Array]) -> Int64Array:
        """Return what ``draw`` gives for queries when it knows all positives of them.

        Args:
            queries: int64 [n], repeated ones too.
            draw: gives an array [n, ...] for all queries; what it gives for one depends on the positives of
                that one alone.
        """
        drawn: Int64Array | None = None
        rows = np.unique(queries)
        for part, lists in self._parts(rows):
            found = draw((lists.indptr, lists.indices, self._name, lists.overlay))
            if drawn is None:
                drawn = found
            else:
                its = (queries >= rows[part.start]) & (queries <= rows[part.stop - 1])
                drawn[its] = found[its]
        if drawn is None:
            none = self._lists(rows, np.zeros((0, 2), np.int64))
            return draw((none.indptr, none.indices, self._name, none.overlay))
        return drawn

    def count_remaining(self, *, exclude_query: bool) -> Int64Array:
        """Return how many items are no positives of each query: int64 [queries]; reads all lists once.

        Args:
            exclude_query: queries are items, too, and none is left to itself.
        """
        left = np.full(self.num_queries, self.num_items, np.int64)
        for first in range(0, self.num_queries, _ROWS_AT_A_TIME):
            rows = np.arange(first, min(first + _ROWS_AT_A_TIME, self.num_queries))
            for part, lists in self._parts(rows):
                begins, ends = lists.overlay_indptr[:-1], lists.overlay_indptr[1:]
                items = lists.items
                is_new = np.ones(len(items), bool)
                is_new[1:] = items[1:] != items[:-1]
                is_new[begins[ends > begins]] = True
                left[rows[part]] -= _count(is_new, begins, ends)
                if exclude_query:
                    is_loop = items == np.repeat(rows[part], ends - begins)
                    left[rows[part]] -= _count(is_loop, begins, ends) == 0
        return left

    def _parts(self, rows: Int64Array) -> Iterator[tuple[slice, FetchedLists]]:
        """Give the lists of rows, which ascend, part by part, and which rows each part has."""
        bounds = self._edges.bounds(rows)
        lengths = bounds[:, 1] - bounds[:, 0]
        links = np.searchsorted(self._link_rows, rows, "right") - np.searchsorted(self._link_rows, rows)
        parts = self._budget.parts(rows, lengths + links, _EDGE_BYTES, self.num_queries, self._name)
        for part in parts:
            yield part, self._lists(rows[part], bounds[part])

    def _lists(self, rows: Int64Array, bounds: Int64Array) -> FetchedLists:
        lengths = bounds[:, 1] - bounds[:, 0]
        _, columns = self._edges.lists_between(rows, bounds, ())
        items: npt.NDArray[Any] = columns.get("indices", np.zeros(0, np.int64))
        first = np.searchsorted(self._link_rows, rows)
        number = np.searchsorted(self._link_rows, rows, "right") - first
        if number.any():
            chosen = np.repeat(first - np.cumsum(number) + number, number) + np.arange(number.sum())
            places = np.arange(len(rows))
            of_item = np.concatenate([np.repeat(places, lengths), np.repeat(places, number)])
            items = np.concatenate([items, self._link_items[chosen].astype(items.dtype)])
            items = items[np.lexsort((items, of_item))]
            lengths = lengths + number
        positions = np.arange(len(items))
        return FetchedLists(rows, lengths, positions, {"indices": items}, self.num_queries)


def _count(values: npt.NDArray[np.bool_], begins: Int64Array, ends: Int64Array) -> Int64Array:
    """Return how many values are true between each begin and end."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    counts: Int64Array = sums[ends] - sums[begins]
    return counts
