"""Splits the triples of a task of kind `complete`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import CompleteTaskConfig, GivenSplitConfig
from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.train.splitting.edges import edge_column
from graphbox.train.splitting.parts import (
    IGNORED,
    TEST,
    TRAIN,
    VALIDATION,
    digest_of,
    fold_of,
    given_part,
    unit_hash,
)
from graphbox.train.tasks import FOLDS, CompleteSplit


@dataclass(frozen=True, eq=False)
class _Table:
    """An edge type with triples.

    Attributes:
        edge_type: the edge type.
        stands_for: the edge type whose relations its edges are of; itself unless it is held out as a whole.
        part: the part of its edges, None where a feature or the hash says it.
    """

    edge_type: EdgeType
    stands_for: EdgeType
    part: int | None


@dataclass(frozen=True, eq=False)
class _Triples:
    """The edges of all tables.

    Attributes:
        triples: int64 [e, 3], head, relation, tail.
        origin: int64 [e, 2], number of the table, and edge id.
        part: int8 [e], the part that the data says, TRAIN where it says nothing.
    """

    triples: NDArray[np.int64]
    origin: NDArray[np.int64]
    part: NDArray[np.int8]


def split_complete(
    graph: Graph,
    task: CompleteTaskConfig,
    seed: int,
    folder: Path | None = None,  # noqa: ARG001 - arrays are in memory
) -> CompleteSplit:
    """Split the triples of the task; see :func:`graphbox.train.make_split`."""
    tables = _tables(graph, task)
    node_types = tuple(dict.fromkeys(end for table in tables for end in table.edge_type[::2]))
    relations = _Relations(graph, task, tables, node_types)
    found = _triples(graph, task, tables, relations)
    one, triple_of_edge = np.unique(found.triples, axis=0, return_inverse=True)
    triple_of_edge = triple_of_edge.reshape(-1)
    wanted = _parts(graph, task, found, relations.ends, node_types, seed)
    # What is known once is known: the earliest part of a triple's edges is the triple's.
    part = np.full(len(one), IGNORED, dtype=np.int8)
    np.minimum.at(part, triple_of_edge, wanted)
    fold = part[triple_of_edge]
    folds = {name: one[part == number] for number, name in enumerate(FOLDS)}
    for name, triples in folds.items():
        if not len(triples):
            raise DataError(
                f"expected triples in each fold, received none in {name}",
                where=", ".join(edge_type_text(table.edge_type) for table in tables),
                hint="the task's `split` says which triples are in which part"
                if isinstance(task.split, GivenSplitConfig)
                else "use larger fractions",
            )
    partly = [number for number, table in enumerate(tables) if table.part is None]
    held = np.flatnonzero((fold != TRAIN) & np.isin(found.origin[:, 0], partly))
    origin = found.origin[held]
    held_out = np.column_stack([np.searchsorted(partly, origin[:, 0]), origin[:, 1], fold[held]])
    return CompleteSplit(
        node_type=tables[0].edge_type[0],
        node_types=node_types,
        relations=relations.names,
        relation_ends=relations.ends,
        train=folds["train"],
        validation=folds["validation"],
        test=folds["test"],
        edge_types=tuple(edge_type_text(tables[number].edge_type) for number in partly),
        held_out=held_out.astype(np.int64),
        held_out_types=tuple(edge_type_text(table.edge_type) for table in tables if table.part is not None),
        repeated=int(((wanted > fold) & (wanted != IGNORED)).sum()),
        digest=digest_of(task.model_dump_json(), seed, *folds.values()),
    )


# ------------------------------------------------------------------------------- what is a triple


def _tables(graph: Graph, task: CompleteTaskConfig) -> list[_Table]:
    """Return the edge types with triples, those held out as a whole last."""
    given = task.split if isinstance(task.split, GivenSplitConfig) else None
    part_of: dict[str, int] = {}
    if given is not None:
        part_of = dict.fromkeys(given.validation_relations, VALIDATION)
        part_of |= dict.fromkeys(given.test_relations, TEST)
    forward = [edge_type for edge_type in graph.edge_types if not graph.is_reverse(edge_type)]
    held_out = [edge_type for edge_type in forward if edge_type[1] in part_of]
    for relation in part_of:
        if relation not in {edge_type[1] for edge_type in held_out}:
            raise UsageError(
                f"there is no edge type of relation `{relation}`",
                where="split",
                hint=did_you_mean(relation, [edge_type[1] for edge_type in forward]),
            )
    named = task.relations or tuple(edge_type for edge_type in forward if edge_type[1] not in part_of)
    for edge_type in named:
        if edge_type not in forward or edge_type[1] in part_of:
            why = "held out" if edge_type[1] in part_of else "a reverse one, or none"
            raise UsageError(
                f"expected an edge type with triples to learn from, received {edge_type_text(edge_type)}",
                where="relations",
                hint=f"it is {why}: edge types are {', '.join(map(edge_type_text, forward))}",
            )
    tables = [_Table(edge_type, edge_type, None) for edge_type in named]
    for edge_type in held_out:
        alike = [other for other in named if other[::2] == edge_type[::2]]
        if len(alike) != 1:
            raise UsageError(
                f"expected one edge type from {edge_type[0]} to {edge_type[2]} to learn from, received "
                f"{', '.join(map(edge_type_text, alike)) or 'none'}",
                where=f"edge type {edge_type_text(edge_type)}, which is held out",
                hint="its triples are of the relations of that one; name it under the task's `relations`, or "
                "say what is held out by a `feature`",
            )
        tables.append(_Table(edge_type, alike[0], part_of[edge_type[1]]))
    if not tables:
        raise UsageError("expected edge types with triples, received none", where="relations")
    return tables


class _Relations:
    """Numbers the relations: an edge type is one, or one for each category of the feature."""

    def __init__(
        self, graph: Graph, task: CompleteTaskConfig, tables: Sequence[_Table], node_types: Sequence[str]
    ) -> None:
        self._graph, self._feature = graph, task.relation_feature
        self._number: dict[tuple[EdgeType, str | None], int] = {}
        for table in tables:
            for category in self._categories(table.edge_type):
                self._number.setdefault((table.stands_for, category), len(self._number))
        self.names = self._names()
        self.ends = np.array(
            [[node_types.index(end) for end in edge_type[::2]] for edge_type, _ in self._number],
            dtype=np.int64,
        )

    def of_edges(self, table: _Table) -> NDArray[np.int64]:
        """Return the relation of each edge of a table, in the order of the CSC: int64 [e]."""
        if self._feature is None:
            count = self._graph.csc(table.edge_type).num_edges
            return np.full(count, self._number[table.stands_for, None], dtype=np.int64)
        code = edge_column(self._graph, table.edge_type, self._feature)
        if (code < 0).any():
            raise DataError(
                f"expected a `{self._feature}` of every edge, received {int((code < 0).sum())} without one",
                where=f"edge type {edge_type_text(table.edge_type)}",
                hint="fill the column, or remove those rows",
            )
        number = [self._number[table.stands_for, each] for each in self._categories(table.edge_type)]
        return np.array(number, dtype=np.int64)[code]

    def _categories(self, edge_type: EdgeType) -> tuple[str | None, ...]:
        if self._feature is None:
            return (None,)
        spec = self._graph.edge_features(edge_type).get(self._feature)
        if spec is None or spec.categories is None:
            raise UsageError(
                f"expected a categorical edge feature that says the relation, received `{self._feature}`"
                f"{'' if spec is None else f' ({spec.kind})'}",
                where=f"edge type {edge_type_text(edge_type)}",
                hint=f"write `{self._feature}: categorical` under the `features` of that table",
            )
        return spec.categories

    def _names(self) -> tuple[str, ...]:
        """Return a name for each relation, as short as keeps them apart."""
        edge_types = dict.fromkeys(edge_type for edge_type, _ in self._number)
        short = len({edge_type[1] for edge_type in edge_types}) == len(edge_types)
        text: Mapping[EdgeType, str] = {
            edge_type: edge_type[1] if short else edge_type_text(edge_type) for edge_type in edge_types
        }
        if self._feature is None:
            return tuple(text[edge_type] for edge_type, _ in self._number)
        alone = len(edge_types) == 1
        return tuple(
            str(category) if alone else f"{text[edge_type]}: {category}"
            for edge_type, category in self._number
        )


def _triples(
    graph: Graph, task: CompleteTaskConfig, tables: Sequence[_Table], relations: _Relations
) -> _Triples:
    triples, origin, part = [], [], []
    feature = task.split.feature if isinstance(task.split, GivenSplitConfig) else None
    for number, table in enumerate(tables):
        csc = graph.csc(table.edge_type)
        head, tail = csc.coo()
        triples.append(np.column_stack([head, relations.of_edges(table), tail]))
        ids = csc.ids_at(np.arange(csc.num_edges))
        origin.append(np.column_stack([np.full(len(ids), number), ids]))
        if isinstance(task.split, GivenSplitConfig) and feature is not None:
            spec = graph.edge_features(table.edge_type).get(feature)
            part_of = given_part(spec, task.split, f"edge type {edge_type_text(table.edge_type)}")
            part.append(part_of[edge_column(graph, table.edge_type, feature)])
        else:
            part.append(np.full(len(head), TRAIN if table.part is None else table.part, dtype=np.int8))
    return _Triples(
        np.concatenate(triples).astype(np.int64),
        np.concatenate(origin).astype(np.int64),
        np.concatenate(part),
    )


# ------------------------------------------------------------------------------------ what part


def _parts(
    graph: Graph,
    task: CompleteTaskConfig,
    found: _Triples,
    relation_ends: NDArray[np.int64],
    node_types: Sequence[str],
    seed: int,
) -> NDArray[np.int8]:
    """Return the part that each edge would be in by itself: int8 [e]."""
    part = found.part.copy()
    if task.split.kind == "given" and (part == VALIDATION).any():
        return part
    number = _hash_of_pairs(graph, found.triples, relation_ends, node_types, seed)
    if task.split.kind == "random":
        return fold_of(number, task)
    part[(part == TRAIN) & (number < task.validation_fraction)] = VALIDATION
    return part


def _hash_of_pairs(
    graph: Graph,
    triples: NDArray[np.int64],
    relation_ends: NDArray[np.int64],
    node_types: Sequence[str],
    seed: int,
) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each triple, the same for all between two entities: float64 [e].

    So no inverse or parallel relation gives a held-out triple away.
    """
    offsets = np.cumsum([0, *(graph.num_nodes(node_type) for node_type in node_types)])
    ends = offsets[relation_ends[triples[:, 1]]] + triples[:, ::2]
    pairs, pair_of_triple = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)
    entities, place = np.unique(pairs, return_inverse=True)
    texts = np.empty(len(entities), dtype=object)
    for number, node_type in enumerate(node_types):
        inside = (entities >= offsets[number]) & (entities < offsets[number + 1])
        names = graph.ids(node_type, entities[inside] - offsets[number]).tolist()
        texts[inside] = [f"{node_type} {name}" for name in names]
    both = texts[place.reshape(-1, 2)].tolist()
    return unit_hash(seed, ("\0".join(sorted(pair)) for pair in both))[pair_of_triple.reshape(-1)]
