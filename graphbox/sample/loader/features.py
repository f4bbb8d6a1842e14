"""Features of a batch's nodes, gathered from a graph's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphbox.errors import NotFoundError, UnsupportedError, UsageError, did_you_mean
from graphbox.native import Int64Array
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.gather import gather_rows
from graphbox.sample.loader.columns import FeatureColumn, add_rows
from graphbox.sample.loader.stages import Features
from graphbox.sample.sampled import HeteroSample

FeatureNames: TypeAlias = Mapping[str, Sequence[str]] | Sequence[str] | None
"""As users give them: by node type, of the only node type, or None for all."""


@runtime_checkable
class _WithColumns(Protocol):
    """Lists its features; :class:`graphbox.graph.Graph` does."""

    def node_columns(self, node_type: str) -> Mapping[str, FeatureColumn]: ...


@runtime_checkable
class _WithFeatures(Protocol):
    """Gives a feature by name, and does not say what there are."""

    def feature(self, node_type: str, name: str) -> npt.NDArray[Any]: ...


class MemoryFetch:
    """Gathers rows from arrays in memory or mapped into it.

    Args:
        graph: has the features.
        names: of features by node type, see :func:`feature_names`.
    """

    def __init__(self, graph: GraphLike, names: Mapping[str, Sequence[str]]) -> None:
        self._columns: dict[tuple[str, str], FeatureColumn] = {}
        self._arrays: dict[tuple[str, str], npt.NDArray[Any]] = {}
        for node_type, wanted in names.items():
            known = graph.node_columns(node_type) if isinstance(graph, _WithColumns) else {}
            for name in wanted:
                if name in known:
                    self._columns[node_type, name] = known[name]
                elif isinstance(graph, _WithFeatures):
                    self._arrays[node_type, name] = np.ascontiguousarray(graph.feature(node_type, name))

    def fetch(self, samples: Sequence[HeteroSample[Int64Array]]) -> list[Features]:
        """Return the rows of each sample's nodes."""
        return [self._fetch(sample) for sample in samples]

    def _fetch(self, sample: HeteroSample[Int64Array]) -> Features:
        features: Features = {}
        for (node_type, name), array in self._arrays.items():
            features.setdefault(node_type, {})[name] = gather_rows(
                array, sample.nodes[node_type], num_threads=1
            )
        for (node_type, name), column in self._columns.items():
            add_rows(features.setdefault(node_type, {}), name, column, sample.nodes[node_type])
        return features


class FeatureArray(NamedTuple):
    """A feature as one array.

    Attributes:
        values: [nodes, ...].
        is_categorical: they are codes.
    """

    values: npt.NDArray[Any]
    is_categorical: bool


def feature_arrays(
    graph: GraphLike, names: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], FeatureArray]:
    """Return features as arrays, by node type and name.

    Args:
        graph: has the features.
        names: of features by node type, see :func:`feature_names`.

    Raises:
        UnsupportedError: slots, whose lists differ in length.
    """
    arrays = {}
    for node_type, wanted in names.items():
        known = graph.node_columns(node_type) if isinstance(graph, _WithColumns) else {}
        for name in wanted:
            if name in known and known[name].offsets is not None:
                raise UnsupportedError(
                    f"slots are not read by a device, received `{name}` of `{node_type}`",
                    where=f"features[{node_type!r}]",
                    hint="name the other features, or give the loader the graph itself",
                )
            if name in known:
                values, kind = known[name].values, known[name].kind
                arrays[node_type, name] = FeatureArray(np.ascontiguousarray(values), kind == "categorical")
            elif isinstance(graph, _WithFeatures):
                values = np.ascontiguousarray(graph.feature(node_type, name))
                arrays[node_type, name] = FeatureArray(values, is_categorical=False)
    return arrays


def feature_names(graph: GraphLike, features: FeatureNames) -> dict[str, tuple[str, ...]]:
    """Return the names of the features to fetch by node type.

    Args:
        graph: has the features.
        features: as users give them. None: all that the graph lists, without slots.

    Raises:
        UsageError: an unknown node type or feature, or a graph without features.
    """
    if features is None:
        return _all_names(graph)
    if not features:
        return {}
    if not isinstance(graph, _WithColumns | _WithFeatures):
        raise UsageError(f"{type(graph).__name__} has no features", where="features")
    if not isinstance(features, Mapping):
        if len(graph.node_types) != 1 or isinstance(features, str):
            raise UsageError(
                f"expected names of features by node type, received {features!r}", where="features"
            )
        features = {graph.node_types[0]: features}
    for node_type, names in features.items():
        if node_type not in graph.node_types:
            raise UsageError(
                f"unknown node type; the graph has: {', '.join(graph.node_types)}",
                where=f"features[{node_type!r}]",
            )
        if isinstance(names, str):
            raise UsageError(
                f"expected a sequence of names, received {names!r}", where=f"features[{node_type!r}]"
            )
        _check_names(graph, node_type, names)
    return {node_type: tuple(names) for node_type, names in features.items()}


def _all_names(graph: GraphLike) -> dict[str, tuple[str, ...]]:
    if not isinstance(graph, _WithColumns):
        return {}
    found = {
        node_type: tuple(
            name for name, column in graph.node_columns(node_type).items() if column.kind != "slots"
        )
        for node_type in graph.node_types
    }
    return {node_type: names for node_type, names in found.items() if names}


def _check_names(graph: Any, node_type: str, names: Sequence[str]) -> None:
    if not isinstance(graph, _WithColumns):
        for name in names:
            graph.feature(node_type, name)  # which says what is wrong
        return
    known = graph.node_columns(node_type)
    for name in names:
        if name not in known:
            raise NotFoundError(
                f"there is no feature `{name}` of `{node_type}`",
                where=f"features[{node_type!r}]",
                hint=did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}",
            )
