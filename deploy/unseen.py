"""Nodes that a model was never given: what enters the network for them, and their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, NeighborLists, PaddedBlockForm, RelationGroup
from graphbox.artifact.ids import Id
from graphbox.artifact.preprocess import NodeFeature, UnseenInputs
from graphbox.deploy.field_columns import RequestColumn, columns_of_rows
from graphbox.errors import (
    FormatError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    did_you_mean,
)

__all__ = ["UnseenFeeds", "UnseenNode", "UnseenReader"]

Float = npt.NDArray[np.float32]
_SEPARATOR = "__"


@dataclass(frozen=True)
class UnseenNode:
    """A node that the model was never given.

    Attributes:
        features: value of each feature that the model reads, by name, as in a row of the node's table; null
            where one is missing.
        neighbors: original ids of the nodes whose edges arrive at it, by relation
            ``source__relation__target``; a relation that is left out has none.
        weights: of these edges, in the same order; without them all weigh 1.
    """

    features: Mapping[str, Any] = field(default_factory=dict)
    neighbors: Mapping[str, Sequence[Id]] = field(default_factory=dict)
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class UnseenFeeds:
    """Unseen nodes as the feeds of a model are made of them.

    Attributes:
        rows: float32 [k, dim], what goes into the first layer.
        lists: their neighbours in the relations of each group that arrives at them, by the group's
            ``neighbors`` path; a neighbour of index ``nodes of the type + i`` is the i-th of them.
    """

    rows: Float
    lists: Mapping[str, NeighborLists]


class UnseenReader:
    """Reads unseen nodes; safe to use from several threads.

    Args:
        artifact: the model version, of kind ``encoder``.
        form: its preprocess.

    Raises:
        UnsupportedError: the model encodes the nodes of its graph alone.
        FormatError: its arrays do not fit together.
    """

    def __init__(self, artifact: Artifact, form: PaddedBlockForm) -> None:
        if form.unseen is None:
            raise UnsupportedError(
                "expected an encoder of unseen nodes, this model encodes those of its graph alone",
                where=str(artifact.path),
                hint="a `gnn` that is exported with `form: encoder` encodes them",
            )
        self._artifact = artifact
        self._node_type = form.node_type
        self._inputs: UnseenInputs = form.unseen
        self._bias = artifact.array(form.unseen.bias, "<f4")
        self._weights = {each.name: artifact.array(each.weights, "<f4") for each in form.unseen.features}
        self._values = {
            each.name: artifact.array(each.values, "<i8")
            for each in form.unseen.features
            if each.values is not None
        }
        self._groups = {
            group.neighbors: group
            for layer in form.layers
            for group in layer.groups
            if group.target == form.node_type
        }
        self._scales = {
            name: artifact.array(group.source_scales, "<f4")
            for name, group in self._groups.items()
            if group.source_scales is not None
        }
        self._check_shapes(form)
        self._relations = [
            _SEPARATOR.join(edge_type) for group in self._groups.values() for edge_type in group.edge_types
        ]

    @property
    def features(self) -> tuple[NodeFeature, ...]:
        """The features that are read."""
        return self._inputs.features

    @property
    def relations(self) -> list[str]:
        """The relations along which neighbours can be given."""
        return self._relations

    def read(self, nodes: Sequence[UnseenNode]) -> UnseenFeeds:
        """Return nodes as the feeds are made of them.

        Raises:
            InvalidRequestError: a feature is missing, unknown or of another kind, a relation is unknown, or
                weights are not those of the neighbours; node and name are given.
            NotFoundError: a neighbour is no node of the model.
        """
        known = [each.name for each in self._inputs.features]
        for number, node in enumerate(nodes):
            _check_names(number, "feature", node.features, known)
            _check_names(number, "relation", node.neighbors, self._relations)
            _check_names(number, "relation", node.weights, list(node.neighbors))
        rows = self._rows([node.features for node in nodes])
        return UnseenFeeds(rows, {name: self._lists(nodes, group) for name, group in self._groups.items()})

    def _check_shapes(self, form: PaddedBlockForm) -> None:
        """Check the shapes of all arrays, so that no request meets one that does not fit."""
        tables = form.rows[form.node_type].tables if form.node_type in form.rows else ()
        dims = [self._artifact.manifest.tables[name].dim for name in tables]
        dim = sum(dims) if dims else self._bias.size
        found: dict[str, tuple[npt.NDArray[Any], tuple[int, ...]]] = {self._inputs.bias: (self._bias, (dim,))}
        for each in self._inputs.features:
            values = self._values.get(each.name, np.empty(0, np.int64))
            rows = {
                "categorical": len(each.categories) + 1,
                "vector": each.dim or 0,
                "slots": values.size,
            }.get(each.kind, 1)
            found[each.weights] = self._weights[each.name], (rows, dim)
            if each.values is not None:
                found[each.values] = values, (values.size,)
        for name, scales in self._scales.items():
            group = self._groups[name]
            shape = (len(self._artifact.ids(group.source)), len(group.edge_types))
            found[group.source_scales or name] = scales, shape
        for path, (array, expected) in found.items():
            if array.shape != expected:
                raise FormatError(
                    f"expected an array of shape {list(expected)}, received {list(array.shape)}",
                    where=str(self._artifact.path / path),
                )

    def _rows(self, features: Sequence[Mapping[str, Any]]) -> Float:
        columns = columns_of_rows(self._inputs.features, features, row="node", column="feature")
        rows = np.repeat(self._bias[None], len(features), axis=0)
        for each in self._inputs.features:
            rows += self._vectors(each, columns[each.name])
        return np.maximum(rows, 0) if self._inputs.relu else rows

    def _vectors(self, feature: NodeFeature, column: RequestColumn) -> Float:
        """Return what a feature adds to each node's row: float32 [k, dim]."""
        weights = self._weights[feature.name]
        if feature.kind == "categorical":
            number = {text: code for code, text in enumerate(feature.categories, 1)}
            names = [] if column.categories is None else column.categories.to_pylist()
            codes = np.array([0, *(number.get(name, 0) for name in names)], np.int64)
            return np.asarray(weights[codes[column.values + 1]])
        if feature.kind == "vector":
            return np.asarray(np.nan_to_num(column.values) @ weights)
        if feature.kind != "slots":
            values = column.values.astype(np.float64)
            scaled = (np.sign(values) * np.log1p(np.abs(values)) - feature.mean) / feature.deviation
            return np.asarray(np.nan_to_num(scaled)[:, None].astype(np.float32) * weights)
        learnt, offsets = self._values[feature.name], column.offsets
        if offsets is None:
            raise TypeError(f"the column of slots `{feature.name}` has no offsets")
        means = np.zeros((len(offsets) - 1, weights.shape[1]), np.float32)
        for row in range(len(means)):
            values = column.values[offsets[row] : offsets[row + 1]]
            places = np.searchsorted(learnt, values)
            found = places[(places < len(learnt)) & (learnt[np.minimum(places, len(learnt) - 1)] == values)]
            if len(found):
                means[row] = weights[found].mean(axis=0)
        return means

    def _lists(self, nodes: Sequence[UnseenNode], group: RelationGroup) -> NeighborLists:
        ids, own = self._artifact.ids(group.source), len(self._artifact.ids(self._node_type))
        scales = self._scales.get(group.neighbors)
        counts = np.zeros((len(nodes), len(group.edge_types)), np.int64)
        neighbors: list[npt.NDArray[np.int64]] = []
        weights: list[Float] = []
        for number, node in enumerate(nodes):
            for place, edge_type in enumerate(group.edge_types):
                relation = _SEPARATOR.join(edge_type)
                where = f"node {number}, neighbours `{relation}`"
                found = _indices(ids, node.neighbors.get(relation, ()), where)
                weight = _edge_weights(node.weights.get(relation), len(found), where)
                if scales is not None:
                    degree = float(weight.sum()) + group.self_loops
                    arriving = np.float32(1 / np.sqrt(degree)) if degree > 0 else np.float32(0)
                    weight = weight * scales[found, place] * arriving
                    if group.self_loops:
                        found, weight = np.append(found, own + number), np.append(weight, arriving**2)
                counts[number, place] = len(found)
                neighbors.append(found)
                weights.append(weight.astype(np.float32))
        none = np.empty(0, np.int64)
        start = np.cumsum(counts.reshape(-1)) - counts.reshape(-1)
        return NeighborLists(
            start.reshape(counts.shape),
            counts.astype(np.uint16),
            np.concatenate([none, *neighbors]).astype(np.int32),
            None if group.normalization != "table" else np.concatenate([none.astype(np.float32), *weights]),
        )


def _check_names(number: int, what: str, received: Mapping[str, Any], known: Sequence[str]) -> None:
    listed = ", ".join(f"`{each}`" for each in known) or "(none)"
    for name in received:
        if name not in known:
            raise InvalidRequestError(
                f"expected one of the {what}s {listed}, received `{name[:64]}`",
                where=f"node {number}",
                hint=did_you_mean(name, known),
            )


def _indices(ids: Any, wanted: Sequence[Id], where: str) -> npt.NDArray[np.int64]:
    if len(wanted) > np.iinfo(np.uint16).max - 1:
        raise InvalidRequestError(
            f"expected at most {np.iinfo(np.uint16).max - 1} neighbours, received {len(wanted)}", where=where
        )
    try:
        found: npt.NDArray[np.int64] = ids.index(list(wanted))
    except NotFoundError as error:
        raise NotFoundError(error.message, where=where, hint=error.hint) from error
    return found


def _edge_weights(given: Sequence[float] | None, count: int, where: str) -> Float:
    if given is None:
        return np.ones(count, np.float32)
    weights = np.asarray(given, np.float32)
    if weights.shape != (count,) or not np.isfinite(weights).all():
        raise InvalidRequestError(
            f"expected {count} finite weights, one for each neighbour, received {list(weights.shape)}",
            where=where,
        )
    return weights
