"""Edge types as the native core samples them, with tables of weights and times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from graphbox import _core
from graphbox.native import Int64Array
from graphbox.sample.adjacency import Adjacency, Arrays, EdgeColumnName, as_arrays, edge_column
from graphbox.sample.derived import (
    RelationLists,
    relation_lists_of,
    times_of,
    weight_sums_of,
    weights_of,
)


class EdgeLists(NamedTuple):
    """The in-neighbours of an edge type.

    Attributes:
        adjacency: as the graph has them, and ...
        arrays: ... as the native core takes them.
        name: for messages.
    """

    adjacency: Adjacency
    arrays: Arrays
    name: str

    @classmethod
    def of(cls, adjacency: Adjacency, name: str) -> EdgeLists:
        """Return the in-neighbours that an adjacency has.

        Raises:
            UsageError: arrays are missing, or of another dtype or shape.
        """
        return cls(adjacency, as_arrays(adjacency, name), name)


def sampled_relation(
    lists: EdgeLists,
    ends: tuple[int, int],
    hops: list[int],
    *,
    weighted: bool,
    timed: bool,
    node_time: Int64Array | None = None,
    columns: Collection[EdgeColumnName] = (),
    threads: int | None,
) -> _core.Relation:
    """Return an edge type for the native core.

    Args:
        lists: its in-neighbours.
        ends: numbers of its source and target type.
        hops: how many neighbours at each hop.
        weighted: draw in proportion to weights.
        timed: sample only edges that are not later than their tree's time.
        node_time: int64, the time of each node of the source type, in place of timestamps of edges.
        columns: to be returned for each sampled edge; the edges have them.
        threads: for the tables.

    Raises:
        UsageError: there are no weights or timestamps, or of another dtype or shape.
        DataError: a weight is not a positive number.
    """
    adjacency, (indptr, indices, overlay), name = lists
    alias: tuple[_core.AliasTables | None, _core.AliasTables | None] = (None, None)
    if weighted and not timed:
        alias = weights_of(adjacency, name, threads)
    relation = _core.Relation(indptr, indices, *ends, hops, name, overlay, *alias)
    if timed:
        sums = weight_sums_of(adjacency, name, threads, node_time) if weighted else (None, None)
        relation.sample_until(*times_of(adjacency, name, threads, node_time), *sums)
    for column in columns:
        values = edge_column(adjacency, column, name)
        if values is not None:
            give = relation.give_weight if column == "weight" else relation.give_timestamp
            give(*values)
    return relation


class IndexedLists(NamedTuple):
    """Relations with one target type that have an index over their lists.

    Attributes:
        target: number of the type.
        numbers: of the relations among those that are sampled.
        lists: the index.
    """

    target: int
    numbers: list[int]
    lists: RelationLists


def indexed_lists(lists: Sequence[EdgeLists], targets: Sequence[int]) -> list[IndexedLists]:
    """Return the indexes of the node types that several relations lead to; changed ones do without.

    Args:
        lists: of each relation.
        targets: number of the target type of each.
    """
    by_target: dict[tuple[int, int], list[int]] = {}
    for number, (each, target) in enumerate(zip(lists, targets, strict=True)):
        if each.arrays.overlay is None:
            by_target.setdefault((target, len(each.arrays.indptr)), []).append(number)
    return [
        IndexedLists(
            target,
            numbers,
            relation_lists_of(
                [lists[number].adjacency for number in numbers],
                [lists[number].arrays for number in numbers],
                [lists[number].name for number in numbers],
            ),
        )
        for (target, _), numbers in by_target.items()
        if len(numbers) > 1
    ]
