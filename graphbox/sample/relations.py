"""Edge types as the native core samples them: their lists, and what to draw by, to keep to and to give."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.sample.adjacency import Adjacency, Arrays, EdgeColumnName, edge_column
from graphbox.sample.derived import RelationLists, relation_lists_of
from graphbox.sample.drawing import TemporalStrategy, alias_tables, sample_until

__all__ = [
    "IndexedLists",
    "Sampled",
    "give_attributes",
    "indexed_lists",
    "keep_to_times",
    "sampled_relation",
]

_EDGE_ATTRIBUTES: tuple[EdgeColumnName, ...] = ("weight", "timestamp")


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
    """

    native: _core.Relation
    adjacency: Adjacency
    arrays: Arrays
    name: str
    source: int
    target: int
    weighted: bool


def sampled_relation(
    adjacency: Adjacency,
    arrays: Arrays,
    name: str,
    ends: tuple[int, int],
    hops: list[int],
    *,
    weighted: bool,
    is_temporal: bool,
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
        is_temporal: only edges up to a time are sampled, where they have times.
        threads: for the tables.
    """
    tables = alias_tables(adjacency, name, weighted, is_temporal, threads)
    source, target = ends
    indptr, indices, overlay = arrays
    native = _core.Relation(indptr, indices, source, target, hops, name, overlay, *tables)
    return Sampled(native, adjacency, arrays, name, source, target, weighted)


def keep_to_times(
    relations: Sequence[Sampled], strategy: TemporalStrategy, replace: bool, threads: int | None
) -> None:
    """Make the relations whose edges have timestamps sample only those not later than their tree's time."""
    drawn = [(each.native, each.adjacency, each.name, each.weighted) for each in relations]
    sample_until(drawn, strategy, replace, threads)


def give_attributes(relations: Sequence[Sampled], wanted: Collection[EdgeColumnName]) -> None:
    """Make relations give the wanted values of their edges, where they have them.

    Raises:
        UsageError: unknown values, or none has them.
    """
    if isinstance(wanted, str) or not set(wanted) <= set(_EDGE_ATTRIBUTES):
        raise UsageError(
            f"expected some of {', '.join(_EDGE_ATTRIBUTES)} in a sequence, received {wanted!r}",
            where="edge_attributes",
        )
    for attribute in wanted:
        is_given = False
        for each in relations:
            column = edge_column(each.adjacency, attribute, each.name)
            if column is not None:
                give = each.native.give_weight if attribute == "weight" else each.native.give_timestamp
                give(*column)
                is_given = True
        if relations and not is_given:
            raise UsageError(
                f"no sampled edges have a {attribute}: {', '.join(each.name for each in relations)}",
                where="edge_attributes",
                hint=f"import them with a {attribute} column",
            )


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
