"""Edge types as the native core samples them: their lists, and what to draw by, to keep to and to give."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from graphbox import _core
from graphbox.native import Int64Array
from graphbox.sample.adjacency import Adjacency, Arrays, EdgeColumnName, edge_column
from graphbox.sample.derived import RelationLists, relation_lists_of, weights_of
from graphbox.sample.drawing import check_temporal, set_times
from graphbox.sample.options import NeighborOptions, lacks_attribute


class Sampled(NamedTuple):
    """An edge type that is sampled.

    Attributes:
        native: as the native core takes it.
        adjacency: its in-neighbours, and their ...
        arrays: ... arrays.
        name: for messages.
        source: number of its source type.
        target: number of its target type.
        weighted: whether to draw in proportion to weights.
        has_times: whether only edges not later than their tree's time may be sampled, where trees have times.
        node_time: int64, the time of each node of the source type; None: edges have their own.
    """

    native: _core.Relation
    adjacency: Adjacency
    arrays: Arrays
    name: str
    source: int
    target: int
    weighted: bool
    has_times: bool
    node_time: Int64Array | None


def sampled_relation(
    adjacency: Adjacency,
    arrays: Arrays,
    name: str,
    ends: tuple[int, int],
    hops: list[int],
    *,
    weighted: bool,
    times: Literal["edges", "nodes"] | None,
    node_time: Int64Array | None = None,
    threads: int | None,
) -> Sampled:
    """Return an edge type for the native core, with tables of its weights unless these depend on the time.

    Args:
        adjacency: its in-neighbours.
        arrays: of the adjacency.
        name: for messages.
        ends: numbers of its source and target type.
        hops: how many neighbours at each hop.
        weighted: draw in proportion to weights.
        times: what has times up to which edges are sampled; None: they are sampled at any time.
        node_time: of ``nodes`` the times of those of the source type, None where these have none.
        threads: for the tables.
    """
    by_edges = times == "edges"
    has_times = node_time is not None or (by_edges and edge_column(adjacency, "timestamp", name) is not None)
    tables: tuple[_core.AliasTables | None, _core.AliasTables | None] = (None, None)
    if weighted and not has_times:
        tables = weights_of(adjacency, name, threads)
    source, target = ends
    indptr, indices, overlay = arrays
    native = _core.Relation(indptr, indices, source, target, hops, name, overlay, *tables)
    return Sampled(native, adjacency, arrays, name, source, target, weighted, has_times, node_time)


def keep_to_times(
    relations: Sequence[Sampled],
    options: NeighborOptions,
    threads: int | None,
    *,
    by_nodes: bool,
) -> None:
    """Make the relations whose edges have times sample only those not later than their tree's time.

    Args:
        relations: all that are sampled.
        options: to draw, or to take the last.
        threads: for the tables.
        by_nodes: times are those of nodes.
    """
    with_times = [each for each in relations if each.has_times]
    check_temporal(
        [each.name for each in relations],
        [each.weighted for each in with_times],
        options.temporal_strategy,
        replace=options.replace,
        by_nodes=by_nodes,
    )
    for each in with_times:
        set_times(each.native, each.adjacency, each.name, each.weighted, threads, each.node_time)


def give_attributes(relations: Sequence[Sampled], wanted: Collection[EdgeColumnName]) -> None:
    """Make relations give the wanted values of their edges, where they have them.

    Raises:
        UsageError: none has them.
    """
    for attribute in wanted:
        is_given = False
        for each in relations:
            column = edge_column(each.adjacency, attribute, each.name)
            if column is not None:
                give = each.native.give_weight if attribute == "weight" else each.native.give_timestamp
                give(*column)
                is_given = True
        if relations and not is_given:
            raise lacks_attribute(attribute, [each.name for each in relations])


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


def indexed_lists(relations: Sequence[Sampled]) -> list[IndexedLists]:
    """Return the indexes of the node types that several relations lead to; changed ones do without."""
    by_target: dict[tuple[int, int], list[int]] = {}
    for number, each in enumerate(relations):
        if each.arrays.overlay is None:
            by_target.setdefault((each.target, len(each.arrays.indptr)), []).append(number)
    return [
        IndexedLists(
            target,
            numbers,
            relation_lists_of(
                [relations[number].adjacency for number in numbers],
                [relations[number].arrays for number in numbers],
                [relations[number].name for number in numbers],
            ),
        )
        for (target, _), numbers in by_target.items()
        if len(numbers) > 1
    ]
