"""Features of a batch's edges, gathered from a graph's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from graphbox.errors import NotFoundError, UnsupportedError, UsageError, did_you_mean
from graphbox.native import Int64Array
from graphbox.sample.adjacency import EdgeType, GraphLike, edge_type_name
from graphbox.sample.loader.columns import FeatureColumn, add_rows
from graphbox.sample.sampled import HeteroSample

EdgeFeatureNames: TypeAlias = Mapping[EdgeType, Sequence[str]] | Sequence[str] | None
"""Names by edge type, of the only edge type, or None for all."""

EdgeFeatureRows: TypeAlias = dict[EdgeType, dict[str, Any]]
"""Rows of the sampled edges by edge type and feature."""


@runtime_checkable
class _WithColumns(Protocol):
    """Lists the features of its edges; :class:`graphbox.graph.Graph` does."""

    def edge_columns(self, edge_type: EdgeType) -> Mapping[str, FeatureColumn]: ...


class EdgeFeatures:
    """Gathers rows of edges from arrays in memory or mapped into it.

    Args:
        graph: has the features.
        names: of features by edge type; a sequence where there is one type. None: all that the graph lists,
            without slots; ``()``: none.

    Raises:
        UsageError: an edge type is unknown, or the graph has no features of edges.
        NotFoundError: a feature does not exist.
    """

    def __init__(self, graph: GraphLike, names: EdgeFeatureNames) -> None:
        self._columns: dict[EdgeType, dict[str, FeatureColumn]] = {}
        for edge_type, wanted in _names_by_type(graph, names).items():
            known = _columns_of(graph, edge_type)
            for name in wanted:
                if name not in known:
                    raise NotFoundError(
                        f"there is no feature `{name}` of edges of type `{edge_type_name(edge_type)}`",
                        where="edge_features",
                        hint=did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}",
                    )
            if wanted:
                self._columns[edge_type] = {name: known[name] for name in wanted}

    def check_host(self) -> None:
        """Raise if there is something to gather, which loaders on a device cannot.

        Raises:
            UnsupportedError: there is.
        """
        if self._columns:
            raise UnsupportedError(
                "features of edges are not read by a device",
                where="edge_features",
                hint="give the loader the graph itself and `device=`, or edge_features=()",
            )

    @property
    def names(self) -> frozenset[str]:
        """Names of all features that are gathered."""
        return frozenset(name for columns in self._columns.values() for name in columns)

    def fetch(self, sample: HeteroSample[Int64Array]) -> EdgeFeatureRows:
        """Return the rows of the sampled edges, in their order; see :func:`add_rows`."""
        return {
            edge_type: _rows(columns, np.asarray(sample.edge_ids[edge_type]))
            for edge_type, columns in self._columns.items()
            if edge_type in sample.edge_ids
        }


def _rows(columns: Mapping[str, FeatureColumn], edges: Int64Array) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, column in columns.items():
        add_rows(rows, name, column, edges)
    return rows


def _columns_of(graph: GraphLike, edge_type: EdgeType) -> Mapping[str, FeatureColumn]:
    return graph.edge_columns(edge_type) if isinstance(graph, _WithColumns) else {}


def _names_by_type(graph: GraphLike, names: EdgeFeatureNames) -> dict[EdgeType, tuple[str, ...]]:
    if names is None:
        return {
            edge_type: tuple(
                name for name, column in _columns_of(graph, edge_type).items() if column.kind != "slots"
            )
            for edge_type in graph.edge_types
        }
    if not names:
        return {}
    if not isinstance(graph, _WithColumns):
        raise UsageError(f"{type(graph).__name__} has no features of edges", where="edge_features")
    if not isinstance(names, Mapping):
        if len(graph.edge_types) != 1 or isinstance(names, str):
            raise UsageError(
                f"expected names of features by edge type, received {names!r}", where="edge_features"
            )
        names = {graph.edge_types[0]: names}
    for edge_type, wanted in names.items():
        if edge_type not in graph.edge_types:
            there = ", ".join(edge_type_name(each) for each in graph.edge_types)
            raise UsageError(
                f"unknown edge type {edge_type!r}; the graph has: {there}", where="edge_features"
            )
        if isinstance(wanted, str):
            raise UsageError(f"expected a sequence of names, received {wanted!r}", where="edge_features")
    return {edge_type: tuple(wanted) for edge_type, wanted in names.items()}
