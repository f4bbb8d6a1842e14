"""Inputs of samplers: compressed adjacency, and graphs that have it for each edge type."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError, did_you_mean
from graphbox.native import Int64Array

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from graphbox.graph.tiered_graph import TieredGraph

EdgeType: TypeAlias = tuple[str, str, str]
"""``(source type, relation, target type)``."""

Direction: TypeAlias = Literal["in", "out"]
"""In-neighbours of targets, or out-neighbours of sources."""

EdgeColumnName: TypeAlias = Literal["weight", "timestamp"]
"""Names of the columns of edges."""

_REVERSED = "rev_"
_COLUMN_DTYPES: dict[EdgeColumnName, np.dtype[Any]] = {
    "weight": np.dtype(np.float32),
    "timestamp": np.dtype(np.int64),
}


class _QuickProtocol(type(Protocol)):  # type: ignore[misc]  # mypy wants no computed base; it has no name
    """Tells by its members whether an object has the faces of a protocol.

    Python 3.11 collects the members anew at each ``isinstance``: longer than sampling a small batch takes.
    """

    def __instancecheck__(cls, instance: object) -> bool:
        return all(hasattr(instance, name) for name in _members(cls))


@cache
def _members(protocol: type) -> frozenset[str]:
    protocols = (base for base in protocol.__mro__ if getattr(base, "_is_protocol", False))
    return frozenset(name for base in protocols for name in vars(base) if not name.startswith("_"))


class Adjacency(Protocol, metaclass=_QuickProtocol):
    """Compressed rows: the neighbours of row ``v`` are ``indices[indptr[v]:indptr[v + 1]]``.

    A CSC has a row for each target and its in-neighbours, a CSR for each source and its out-neighbours.
    """

    @property
    def indptr(self) -> Int64Array:
        """Int64 [rows + 1], rising from 0 to the number of edges."""
        ...

    @property
    def indices(self) -> npt.NDArray[Any]:
        """Int32 or int64 [edges]."""
        ...


@runtime_checkable
class LiveAdjacency(Adjacency, Protocol):
    """The lists of a base, and new lists of some rows: what :meth:`graphbox.graph.Graph.lists` gives."""

    @property
    def overlay(self) -> _core.Overlay:
        """The new lists, as the native core looks them up."""
        ...

    @property
    def overlay_indptr(self) -> Int64Array:
        """Where each of the new lists starts: int64 [touched rows + 1]."""
        ...

    @property
    def base(self) -> Any:
        """The lists of the base with ``weight`` and ``timestamp``, or None."""
        ...

    def overlay_column(self, name: EdgeColumnName) -> npt.NDArray[Any] | None:
        """Return the weight or timestamp of each edge of the new lists, or None."""
        ...


@runtime_checkable
class GraphLike(Protocol, metaclass=_QuickProtocol):
    """A graph of one or several node and edge types: :class:`graphbox.graph.Graph`, or one with its faces."""

    @property
    def node_types(self) -> Sequence[str]:
        """All node types."""
        ...

    @property
    def edge_types(self) -> Sequence[EdgeType]:
        """All edge types."""
        ...

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        ...

    def csc(self, edge_type: EdgeType) -> Adjacency:
        """Return the in-neighbours of the target type."""
        ...

    def csr(self, edge_type: EdgeType) -> Adjacency:
        """Return the out-neighbours of the source type."""
        ...


@runtime_checkable
class LiveGraph(Protocol, metaclass=_QuickProtocol):
    """A graph that can change: it gives its base's arrays and, beside them, new lists of the touched rows."""

    def lists(self, edge_type: EdgeType, direction: Direction) -> Adjacency:
        """Return the in-neighbours of the targets or the out-neighbours of the sources."""
        ...


def lists_of(graph: GraphLike, edge_type: EdgeType, direction: Direction) -> Adjacency:
    """Return the neighbours of all nodes of an edge type, unmerged where the graph has changes."""
    if isinstance(graph, LiveGraph):
        return graph.lists(edge_type, direction)
    return graph.csc(edge_type) if direction == "in" else graph.csr(edge_type)


class Arrays(NamedTuple):
    """An adjacency as the native core takes it.

    Attributes:
        indptr: int64 [rows + 1].
        indices: int32 or int64 [edges].
        overlay: new lists of some rows, or None.
    """

    indptr: Int64Array
    indices: npt.NDArray[Any]
    overlay: _core.Overlay | None


class EdgeColumn(NamedTuple):
    """The weight or timestamp of each edge, as the native core takes it.

    Attributes:
        base: [edges] of the adjacency's arrays.
        overlay: [edges] of the new lists of some rows.
    """

    base: npt.NDArray[Any]
    overlay: npt.NDArray[Any]


def edge_column(adjacency: Adjacency, column: EdgeColumnName, name: str) -> EdgeColumn | None:
    """Return the weights or timestamps of an adjacency's edges, None where it has none.

    Args:
        adjacency: what to read.
        column: ``weight`` or ``timestamp``.
        name: of the adjacency, for messages.

    Raises:
        UsageError: of another dtype or shape than float32 or int64 with one dimension.
    """
    dtype = _COLUMN_DTYPES[column]
    none: npt.NDArray[Any] = np.zeros(0, dtype)
    if isinstance(adjacency, LiveAdjacency):
        base = none if adjacency.base is None else getattr(adjacency.base, column)
        overlay = adjacency.overlay_column(column)
    else:
        base, overlay = getattr(adjacency, column, None), none
    if base is None or overlay is None:
        return None
    arrays = np.asarray(base), np.asarray(overlay)
    for array in arrays:
        if array.dtype != dtype or array.ndim != 1:
            raise UsageError(
                f"{column} must be {dtype} with one dimension, received {array.dtype} {array.shape}",
                where=name,
            )
    return EdgeColumn(np.ascontiguousarray(arrays[0]), np.ascontiguousarray(arrays[1]))


def edge_type_name(edge_type: EdgeType) -> str:
    """Return an edge type as messages show it: ``package depends package``."""
    return " ".join(filter(None, edge_type))


def as_arrays(adjacency: Adjacency, name: str) -> Arrays:
    """Return an adjacency as the native core takes it.

    Raises:
        UsageError: missing, or of another dtype or shape.
    """
    try:
        indptr, indices = np.asarray(adjacency.indptr), np.asarray(adjacency.indices)
    except AttributeError:
        raise UsageError(
            f"expected a graph, or a CSC or CSR with indptr and indices, received {type(adjacency).__name__}",
            where=name,
        ) from None
    if indptr.dtype != np.int64 or indptr.ndim != 1:
        raise UsageError(
            f"indptr must be int64 with one dimension, received {indptr.dtype} {indptr.shape}", where=name
        )
    if indices.dtype not in (np.int32, np.int64) or indices.ndim != 1:
        raise UsageError(
            f"indices must be int32 or int64 with one dimension, received {indices.dtype} {indices.shape}",
            where=name,
        )
    overlay = getattr(adjacency, "overlay", None)
    return Arrays(np.ascontiguousarray(indptr), np.ascontiguousarray(indices), overlay)


def steps_of_metapath(
    graph: GraphLike, metapath: Sequence[EdgeType], length: int
) -> list[tuple[Adjacency, str]]:
    """Return the adjacency and the name of each step of a walk along ``metapath``.

    Raises:
        UsageError: an edge type that the graph does not have, or steps that do not meet.
    """
    steps = directed_steps(graph.edge_types, metapath, length)
    return [(lists_of(graph, edge_type, direction), name) for edge_type, direction, name in steps]


def directed_steps(
    edge_types: Sequence[EdgeType], metapath: Sequence[EdgeType], length: int
) -> list[tuple[EdgeType, Direction, str]]:
    """Return the edge type, the direction and the name of each step of a walk along ``metapath``.

    A step with an edge type the graph has goes along its edges (``out``). One whose relation is ``rev_`` and
    the name of a relation of the graph between the two types goes against them (``in``).

    Args:
        edge_types: of the graph.
        metapath: edge types of the steps.
        length: number of steps.

    Raises:
        UsageError: an edge type that the graph does not have, or steps that do not meet.
    """
    if not metapath:
        raise UsageError("expected at least one edge type, received none", where="metapath")
    path = [tuple(step) for step in metapath]
    cycle = [*path, path[0]] if length > len(path) else path
    for number, (step, following) in enumerate(pairwise(cycle)):
        if step[-1] != following[0]:
            raise UsageError(
                f"each step must start where the one before ends; `{' '.join(step)}` ends at `{step[-1]}`, "
                f"`{' '.join(following)}` starts at `{following[0]}`",
                where=f"metapath[{(number + 1) % len(path)}]",
            )
    return [(*_directed(edge_types, step), " ".join(step)) for step in path]


def _directed(edge_types: Sequence[EdgeType], step: tuple[str, ...]) -> tuple[EdgeType, Direction]:
    known = [tuple(edge_type) for edge_type in edge_types]
    if len(step) == 3:
        source, relation, target = step
        if step in known:
            return (source, relation, target), "out"
        against = (target, relation.removeprefix(_REVERSED), source)
        if relation.startswith(_REVERSED) and against in known:
            return against, "in"
    names = [" ".join(edge_type) for edge_type in known]
    raise UsageError(
        f"the graph has no edge type `{' '.join(step)}`, but: {', '.join(names)}",
        where="metapath",
        hint=did_you_mean(" ".join(step), names)
        or "to walk against the edges of (a, r, b) write (b, 'rev_r', a)",
    )


def is_tiered(graph: object) -> TypeIs[TieredGraph]:
    """Return whether ``graph`` is one that is read in tiers, see :meth:`graphbox.graph.Graph.tiered`."""
    # Who has one has imported its module, and with it the graph store, which samplers do without.
    module = sys.modules.get("graphbox.graph.tiered_graph")
    return module is not None and isinstance(graph, module.TieredGraph)
