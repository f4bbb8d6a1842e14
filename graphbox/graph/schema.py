"""The vocabulary of graphs: edge types, compressed adjacency, features, and where an import reads from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError

if TYPE_CHECKING:
    from graphbox.graph.source import TableLike

EdgeType: TypeAlias = tuple[str, str, str]
"""``(source type, relation, target type)``."""

Int64Array: TypeAlias = npt.NDArray[np.int64]
IndexArray: TypeAlias = npt.NDArray[np.int32 | np.int64]
Float32Array: TypeAlias = npt.NDArray[np.float32]

FeatureKind: TypeAlias = Literal["number", "integer", "categorical", "boolean", "vector", "slots"]
"""Kind of a feature: float32, int64, int32 codes, bool, float32 [n, dim], or lists of int64."""

IdType: TypeAlias = Literal["string", "int64"]

_TYPE_NAME = re.compile(r"[^\W_](?:[\w-]*[^\W_])?")
_MAX_TYPE_NAME_BYTES = 64
_SEPARATOR = "__"


def check_type_name(name: str, what: str) -> str:
    """Return ``name`` when a node type or relation may be called so.

    A name is letters, digits, ``_`` and ``-`` of any script, starts and ends with a letter or digit, has
    no two underscores in a row and at most 64 bytes: so it can stand in a file's name and in
    ``source__relation__target``.

    Raises:
        UsageError: it may not.
    """
    if _TYPE_NAME.fullmatch(name) and _SEPARATOR not in name and len(name.encode()) <= _MAX_TYPE_NAME_BYTES:
        return name
    raise UsageError(
        f"expected letters, digits, `-`, single `_` (up to {_MAX_TYPE_NAME_BYTES} bytes), received {name!r}",
        where=what,
    )


def edge_type_text(edge_type: EdgeType) -> str:
    """Return the text form of an edge type: ``source__relation__target``, as PyTorch Geometric writes it."""
    return _SEPARATOR.join(edge_type)


def edge_type_from_text(text: str) -> EdgeType:
    """Return the edge type that :func:`edge_type_text` wrote.

    Raises:
        UsageError: the text is not three names joined by ``__``.
    """
    parts = text.split(_SEPARATOR)
    if len(parts) != 3 or not all(parts):
        raise UsageError(f"expected `source__relation__target`, received {text!r}", where="edge type")
    return (parts[0], parts[1], parts[2])


@dataclass(frozen=True, eq=False)
class CSC:
    """In-neighbours of every target node of one edge type.

    An edge's id is its position here, until the graph on disk is changed: an edge added by a change comes
    between others, and has the next free id. Then ``edge_ids`` tells the id of each.

    The sources of the edges into target ``t`` are ``indices[indptr[t]:indptr[t + 1]]``, ascending.

    Attributes:
        indptr: int64 [num_targets + 1].
        indices: int32 [num_edges], int64 when there are 2^31 source nodes or more.
        num_sources: number of nodes of the source type.
        weight: float32 [num_edges] or None.
        timestamp: int64 [num_edges] or None.
        edge_ids: int64 [num_edges], the id of each edge; None when they are 0 to ``num_edges - 1``.
    """

    indptr: Int64Array
    indices: IndexArray
    num_sources: int
    weight: Float32Array | None = None
    timestamp: Int64Array | None = None
    edge_ids: Int64Array | None = None

    @property
    def num_targets(self) -> int:
        """Number of nodes of the target type."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)

    def in_degree(self) -> Int64Array:
        """Return the number of edges into each target: int64 [num_targets]."""
        return np.diff(self.indptr)

    def coo(self) -> tuple[Int64Array, Int64Array]:
        """Return source and target of each edge, in the order of ``indices``: two int64 [num_edges]."""
        targets = np.repeat(np.arange(self.num_targets, dtype=np.int64), self.in_degree())
        return self.indices.astype(np.int64), targets

    def ids_at(self, positions: Int64Array) -> Int64Array:
        """Return the ids of the edges at positions in ``indices``."""
        return positions if self.edge_ids is None else self.edge_ids[positions]


@dataclass(frozen=True, eq=False)
class CSR:
    """Out-neighbours of every source node of one edge type.

    The targets of the edges out of source ``s`` are ``indices[indptr[s]:indptr[s + 1]]``, ascending.

    Attributes:
        indptr: int64 [num_sources + 1].
        indices: int32 [num_edges], int64 when there are 2^31 target nodes or more.
        edge_ids: int64 [num_edges], the id of each edge.
        num_targets: number of nodes of the target type.
        weight: float32 [num_edges] or None.
        timestamp: int64 [num_edges] or None.
    """

    indptr: Int64Array
    indices: IndexArray
    edge_ids: Int64Array
    num_targets: int
    weight: Float32Array | None = None
    timestamp: Int64Array | None = None

    @property
    def num_sources(self) -> int:
        """Number of nodes of the source type."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)

    def out_degree(self) -> Int64Array:
        """Return the number of edges out of each source: int64 [num_sources]."""
        return np.diff(self.indptr)


@dataclass(frozen=True)
class FeatureSpec:
    """Kind, categories and dimension of a feature's array.

    Attributes:
        kind: ``number`` float32 with NaN where missing; ``integer`` int64; ``categorical`` int32 codes
            into ``categories``, -1 where missing; ``boolean`` bool; ``vector`` float32 [n, dim]; ``slots``
            any number of int64 feature ids in each row, integers as they are and strings by XXH64.
        categories: the categories by code: those of the import in ascending order, then those that later
            changes added (None for the other kinds).
        dim: length of a vector (None for the other kinds).
    """

    kind: FeatureKind
    categories: tuple[str, ...] | None = None
    dim: int | None = None


@dataclass(frozen=True)
class NodeSource:
    """The table of one node type: a row for each node.

    Attributes:
        data: the table (:func:`graphbox.graph.source.open_table`), or None: then the nodes are the ids met at
            the ends of edges, in the order in which they are met first.
        id: column of the original ids: strings or 64-bit integers, unique. None: the rows have none, as those
            of a log, and are numbered from 0; rows that are appended later go on from there.
        features: columns to import, and how each is read.
        id_type: what the ids are; by default the column's type, and in text int64 when every cell is a
            plain decimal integer, else string.
        format: format of the files, or ``auto`` to tell it by their suffix.
        has_header: whether text files begin with a line that names the columns.
        names: the names of the columns where ``has_header`` is false.
        list_separator: character between values in a cell of text, in slots and vectors; None: ``|``.
    """

    data: TableLike | None = None
    id: str | None = "id"
    features: Mapping[str, FeatureKind] = field(default_factory=dict)
    id_type: IdType | None = None
    format: str = "auto"
    has_header: bool = True
    names: tuple[str, ...] | None = None
    list_separator: str | None = None


@dataclass(frozen=True)
class EdgeSource:
    """The table of one edge type: a row for each edge.

    Attributes:
        type: ``(source type, relation, target type)``.
        data: the table (:func:`graphbox.graph.source.open_table`).
        source: column with the original id of the edge's source.
        target: column with the original id of the edge's target.
        weight: column of positive numbers, or None.
        timestamp: column of integers (any unit) or timestamps (kept as microseconds UTC), or None.
        features: further columns to import, and how each is read; all kinds but ``slots``.
        reverse: relation of the edge type that holds every edge backwards, or None.
        keep_duplicates: keep every edge of a repeated (source, target) instead of the first.
        csr: keep the edges by source on disk as well, instead of deriving that in memory on first use.
        format: format of the files, or ``auto`` to tell it by their suffix.
        has_header: whether text files begin with a line that names the columns.
        names: the names of the columns where ``has_header`` is false.
        list_separator: character between values in a cell of text, in slots and vectors; None: ``|``.
    """

    type: EdgeType
    data: TableLike
    source: str = "source"
    target: str = "target"
    weight: str | None = None
    timestamp: str | None = None
    features: Mapping[str, FeatureKind] = field(default_factory=dict)
    reverse: str | None = None
    keep_duplicates: bool = False
    csr: bool = False
    format: str = "auto"
    has_header: bool = True
    names: tuple[str, ...] | None = None
    list_separator: str | None = None


@dataclass(frozen=True)
class GraphSource:
    """Everything an import reads.

    Attributes:
        name: name of the graph.
        nodes: node types by name.
        edges: edge types.
    """

    name: str
    nodes: Mapping[str, NodeSource]
    edges: tuple[EdgeSource, ...]
