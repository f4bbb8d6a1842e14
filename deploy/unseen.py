"""Nodes that a model was never given: what enters the network for them, and their neighbours."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import (
    Artifact,
    EdgeFeature,
    GroupEdges,
    NeighborLists,
    PaddedBlockForm,
    RelationGroup,
    TensorSpec,
)
from graphbox.artifact.fields_form import column_tensor
from graphbox.artifact.ids import Id
from graphbox.artifact.manifest import Datatype
from graphbox.artifact.preprocess import NodeFeature, UnseenInputs
from graphbox.deploy.edge_values import category_codes, columns_of_cells, columns_of_edges, standardized
from graphbox.deploy.field_columns import RequestColumn, columns_of_rows, columns_of_tensors
from graphbox.deploy.signature import by_name, node_indices
from graphbox.errors import (
    FormatError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    did_you_mean,
)

__all__ = ["UnseenFeeds", "UnseenNode", "UnseenReader"]

Float = npt.NDArray[np.float32]
_Edges: TypeAlias = tuple[npt.NDArray[np.int64], Float, Float]
"""Node indices of a node's neighbours in a relation, and the weights and columns of the edges."""
_SEPARATOR = "__"
_FEATURE, _NEIGHBORS, _NUM_NEIGHBORS, _WEIGHTS = "feature.", "neighbors.", "num_neighbors.", "weights."
_EDGE = "edge."
_MAX_NEIGHBORS = np.iinfo(np.uint16).max - 1
_EXAMPLE_NEIGHBORS = 5
# Keeps the example of a feature with huge values within float32, and within 64-bit integers.
_LARGEST_EXPONENT = 43.0


@dataclass(frozen=True)
class UnseenNode:
    """A node that the model was never given.

    Attributes:
        features: value of each feature that the model reads, by name, as in a row of the node's table; null
            where one is missing.
        neighbors: original ids of the nodes whose edges arrive at it, by relation
            ``source__relation__target``; a relation that is left out has none.
        weights: of these edges, in the same order; without them all weigh 1.
        edge_features: features of these edges, in the same order: of each edge the values by name, or None;
            what is left out or null is missing: a number counts as the mean of training, a vector as 0.
    """

    features: Mapping[str, Any] = field(default_factory=dict)
    neighbors: Mapping[str, Sequence[Id]] = field(default_factory=dict)
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    edge_features: Mapping[str, Sequence[Mapping[str, Any] | None]] = field(default_factory=dict)


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
        self._relations = {
            _SEPARATOR.join(edge_type): group.source
            for group in self._groups.values()
            for edge_type in group.edge_types
        }
        self._weighed = frozenset(
            _SEPARATOR.join(edge_type)
            for group in self._groups.values()
            for edge_type in group.edge_types
            if group.normalization == "table"
        )
        self._edge_features = {
            _SEPARATOR.join(edge_type): group.edges.features[place] if group.edges is not None else ()
            for group in self._groups.values()
            for place, edge_type in enumerate(group.edge_types)
        }
        self._edge_columns = {
            _SEPARATOR.join(edge_type): group.edges.columns if group.edges is not None else 0
            for group in self._groups.values()
            for edge_type in group.edge_types
        }

    @property
    def features(self) -> tuple[NodeFeature, ...]:
        """The features that are read."""
        return self._inputs.features

    @property
    def relations(self) -> dict[str, str]:
        """Node type of the neighbours, by the relation along which they can be given."""
        return self._relations

    @property
    def history(self) -> str | None:
        """Relation whose neighbours are the events of a node in order; None: order is not read."""
        for group in self._groups.values():
            if group.window is not None:
                return _SEPARATOR.join(group.edge_types[0])
        return None

    def with_rows(self, artifact: Artifact) -> UnseenReader:
        """Return the same for the model version with other rows of the same nodes."""
        view = copy.copy(self)
        view._artifact = artifact
        return view

    def example(self, lists: Mapping[str, NeighborLists]) -> UnseenNode:
        """Return a node that can be encoded: typical features, and neighbours of the first example id.

        A number is the mean of training on the scale on which numbers are read, a category the first one. A
        vector of zeros and a slot without values add nothing. A relation has at most five neighbours.

        Args:
            lists: the neighbours of all nodes, by the ``neighbors`` path of their group.
        """
        features = {each.name: _typical_value(each) for each in self._inputs.features}
        ids = self._artifact.example_ids()[:1]
        node = self._artifact.ids(self._node_type).index(ids, missing=-1)
        if not len(node) or node[0] < 0:
            return UnseenNode(features)
        neighbors: dict[str, list[Id]] = {}
        for group in self._groups.values():
            of_all, sources = lists[group.neighbors], self._artifact.ids(group.source)
            for place, edge_type in enumerate(group.edge_types):
                start, count = int(of_all.start[node[0], place]), int(of_all.counts[node[0], place])
                found = of_all.neighbors[start : start + count]
                others = found[found != node[0]] if group.self_loops else found
                neighbors[_SEPARATOR.join(edge_type)] = sources.take(others[:_EXAMPLE_NEIGHBORS])
        edges = {
            relation: [{each.name: _typical_value(each) for each in self._edge_features[relation]}] * len(ids)
            for relation, ids in neighbors.items()
            if self._edge_features[relation]
        }
        return UnseenNode(features, neighbors, edge_features=edges)

    def neighbors_of_type(self, nodes: Sequence[UnseenNode], node_type: str) -> list[npt.NDArray[np.int64]]:
        """Return the node indices of each node's neighbours of a node type, each once, ascending.

        Raises:
            NotFoundError: a neighbour is no node of the model.
        """
        relations = [name for name, source in self._relations.items() if source == node_type]
        found = []
        for number, node in enumerate(nodes):
            lists = [
                _indices(
                    self._artifact.ids(node_type), node.neighbors.get(name, ()), self._place(number, name)
                )
                for name in relations
            ]
            found.append(np.unique(np.concatenate([np.empty(0, np.int64), *lists])))
        return found

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
            _check_names(number, "relation", node.neighbors, list(self._relations))
            _check_names(number, "relation", node.weights, list(node.neighbors))
            _check_names(number, "relation", node.edge_features, list(self._relations))
            for relation in node.weights.keys() - self._weighed:
                raise InvalidRequestError(
                    "expected no weights, the model does not weigh the edges of this relation",
                    where=self._place(number, relation),
                    hint="leave them out",
                )
            for relation in node.edge_features:
                if relation not in node.neighbors:
                    raise InvalidRequestError(
                        "expected `neighbors` of a relation beside its `edge_features`, received none",
                        where=self._place(number, relation),
                        hint="name the neighbours, or leave the features out",
                    )
                if not self._edge_features[relation]:
                    raise InvalidRequestError(
                        "expected no features of edges, the model reads none of this relation",
                        where=self._place(number, relation),
                        hint="leave them out",
                    )
        rows = [node.features for node in nodes]
        columns = columns_of_rows(self._inputs.features, rows, row="node", column="feature")

        def edges(number: int, relation: str) -> _Edges:
            where = self._place(number, relation)
            node, ids = nodes[number], self._artifact.ids(self._relations[relation])
            given = node.neighbors.get(relation, ())
            if len(given) > _MAX_NEIGHBORS:
                raise InvalidRequestError(
                    f"expected at most {_MAX_NEIGHBORS} neighbours, received {len(given)}", where=where
                )
            neighbors = _indices(ids, given, where)
            weights = _edge_weights(node.weights.get(relation), len(neighbors), where)
            return neighbors, weights, self._columns(relation, node.edge_features.get(relation), given, where)

        return self._read(len(nodes), columns, edges)

    @cached_property
    def inputs(self) -> dict[str, TensorSpec]:
        """Tensors of n nodes, by name.

        For each feature F ``feature.F``, as a column of a click model. For each relation R
        ``num_neighbors.R``, INT64 [n], how many neighbours each node has, and ``neighbors.R``, BYTES or INT64
        [m], the original ids of those of all nodes, one node after the other; of relations whose edges the
        model weighs also ``weights.R``, FP32 [m]. For each feature F of the edges of a relation ``edge.R.F``,
        as a column of a click model, with m values.
        """
        specs = [column_tensor(_FEATURE + each.name, each.kind, each.dim) for each in self._inputs.features]
        for relation, source in self._relations.items():
            kind: Datatype = "INT64" if self._artifact.ids(source).kind == "int64" else "BYTES"
            specs.append(TensorSpec(name=_NUM_NEIGHBORS + relation, datatype="INT64", shape=(-1,)))
            specs.append(TensorSpec(name=_NEIGHBORS + relation, datatype=kind, shape=(-1,)))
            if relation in self._weighed:
                specs.append(TensorSpec(name=_WEIGHTS + relation, datatype="FP32", shape=(-1,)))
            specs += [
                column_tensor(self._prefix(relation) + each.name, each.kind, each.dim)
                for each in self._edge_features[relation]
            ]
        return by_name(specs)

    @property
    def lists(self) -> dict[str, str]:
        """Inputs with values of all nodes, one node after the other; with the input of each node's number."""
        found = {}
        for relation in self._relations:
            names = [_NEIGHBORS + relation, *([_WEIGHTS + relation] if relation in self._weighed else [])]
            names += [self._prefix(relation) + each.name for each in self._edge_features[relation]]
            found.update(dict.fromkeys(names, _NUM_NEIGHBORS + relation))
        return found

    @property
    def weighed(self) -> frozenset[str]:
        """The relations whose edges the model weighs."""
        return self._weighed

    @property
    def edge_features(self) -> Mapping[str, tuple[EdgeFeature, ...]]:
        """The features of edges that the model reads, by relation; none of one without."""
        return self._edge_features

    def read_tensors(self, tensors: Mapping[str, npt.NDArray[Any]]) -> UnseenFeeds:
        """Return nodes given as tensors as the feeds are made of them.

        Args:
            tensors: those of `inputs`, of their dtypes and shapes.

        Raises:
            InvalidRequestError: tensors of different numbers of nodes, or values that cannot be read.
            NotFoundError: a neighbour is no node of the model.
        """
        columns = columns_of_tensors(self._inputs.features, tensors, _FEATURE)
        first = next(iter(self.inputs))
        count = len(tensors[first])
        for relation in self._relations:
            name = _NUM_NEIGHBORS + relation
            if len(tensors[name]) != count:
                raise InvalidRequestError(
                    f"expected {count} nodes, as in input `{first}`, received {len(tensors[name])}",
                    where=f"input `{name}`",
                )
        lists = {relation: self._split(relation, tensors) for relation in self._relations}
        return self._read(count, columns, lambda number, relation: lists[relation][number])

    def _split(self, relation: str, tensors: Mapping[str, npt.NDArray[Any]]) -> list[_Edges]:
        """Return the edges of each node."""
        ids, counts = tensors[_NEIGHBORS + relation], tensors[_NUM_NEIGHBORS + relation]
        if (counts < 0).any() or (counts > _MAX_NEIGHBORS).any() or counts.sum() != len(ids):
            raise InvalidRequestError(
                f"expected counts from 0 to {_MAX_NEIGHBORS} with the sum {len(ids)}, the number of ids in "
                f"`{_NEIGHBORS}{relation}`, received others",
                where=f"input `{_NUM_NEIGHBORS}{relation}`",
            )
        known = self._artifact.ids(self._relations[relation])
        found = node_indices(ids, known, f"{_NEIGHBORS}{relation}")
        weights = tensors[_WEIGHTS + relation].tolist() if relation in self._weighed else None
        weight = _edge_weights(weights, len(found), f"input `{_WEIGHTS}{relation}`")
        columns = self._columns_of_tensors(relation, tensors, len(found))
        ends = np.cumsum(counts)
        return [
            (found[end - each : end], weight[end - each : end], columns[end - each : end])
            for each, end in zip(counts, ends, strict=True)
        ]

    def _columns(
        self,
        relation: str,
        edges: Sequence[Mapping[str, Any] | None] | None,
        neighbors: Sequence[Id],
        where: str,
    ) -> Float:
        """Return the columns of a node's edges: float32 [neighbours, columns of the group]."""
        if edges is None:
            edges = [None] * len(neighbors)
        if len(edges) != len(neighbors):
            raise InvalidRequestError(
                f"expected the features of {len(neighbors)} edges, one for each neighbour, received "
                f"{len(edges)}",
                where=where,
                hint="write null for an edge whose features are not known",
            )
        return columns_of_edges(self._edge_features[relation], edges, self._edge_columns[relation], where)

    def _columns_of_tensors(
        self, relation: str, tensors: Mapping[str, npt.NDArray[Any]], count: int
    ) -> Float:
        features, prefix = self._edge_features[relation], self._prefix(relation)
        for each in features:
            if len(tensors[prefix + each.name]) != count:
                raise InvalidRequestError(
                    f"expected {count} edges, as in input `{_NEIGHBORS}{relation}`, received "
                    f"{len(tensors[prefix + each.name])}",
                    where=f"input `{prefix}{each.name}`",
                )
        columns = columns_of_tensors(features, tensors, prefix)
        return columns_of_cells(features, columns, count, self._edge_columns[relation])

    def _prefix(self, relation: str) -> str:
        """Return how the inputs of the features of a relation's edges begin."""
        return f"{_EDGE}{relation}."

    def _place(self, number: int, relation: str) -> str:
        """Return where in a request a relation is, for errors."""
        return f"node {number}, {'history' if relation == self.history else f'neighbours `{relation}`'}"

    def _read(
        self, count: int, columns: Mapping[str, RequestColumn], edges: Callable[[int, str], _Edges]
    ) -> UnseenFeeds:
        return UnseenFeeds(
            self._rows(count, columns),
            {name: self._lists(count, group, edges) for name, group in self._groups.items()},
        )

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

    def _rows(self, count: int, columns: Mapping[str, RequestColumn]) -> Float:
        rows = np.repeat(self._bias[None], count, axis=0)
        for each in self._inputs.features:
            rows += self._vectors(each, columns[each.name])
        return np.maximum(rows, 0) if self._inputs.relu else rows

    def _vectors(self, feature: NodeFeature, column: RequestColumn) -> Float:
        """Return what a feature adds to each node's row: float32 [k, dim]."""
        weights = self._weights[feature.name]
        if feature.kind == "categorical":
            return np.asarray(weights[category_codes(feature.categories, column)])
        if feature.kind == "vector":
            return np.asarray(np.nan_to_num(column.values) @ weights)
        if feature.kind != "slots":
            scaled = standardized(column.values, feature.mean, feature.deviation)
            return np.asarray(scaled[:, None] * weights)
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

    def _lists(self, count: int, group: RelationGroup, edges: Callable[[int, str], _Edges]) -> NeighborLists:
        own, scales = len(self._artifact.ids(self._node_type)), self._scales.get(group.neighbors)
        counts = np.zeros((count, len(group.edge_types)), np.int64)
        neighbors: list[npt.NDArray[np.int64]] = []
        weights: list[Float] = []
        columns: list[Float] = []
        for number in range(count):
            for place, edge_type in enumerate(group.edge_types):
                found, weight, of_edges = edges(number, _SEPARATOR.join(edge_type))
                if group.window is not None:
                    found, weight = found[-group.window :], weight[-group.window :]
                    of_edges = of_edges[-group.window :]
                if scales is not None:
                    degree = float(weight.sum()) + group.self_loops
                    arriving = np.float32(1 / np.sqrt(degree)) if degree > 0 else np.float32(0)
                    weight = weight * scales[found, place] * arriving
                    if group.self_loops:
                        found, weight = np.append(found, own + number), np.append(weight, arriving**2)
                counts[number, place] = len(found)
                neighbors.append(found)
                weights.append(weight.astype(np.float32))
                columns.append(of_edges)
        none = np.empty(0, np.int64)
        start = np.cumsum(counts.reshape(-1)) - counts.reshape(-1)
        return NeighborLists(
            start.reshape(counts.shape),
            counts.astype(np.uint16),
            np.concatenate([none, *neighbors]).astype(np.int32),
            None if group.normalization != "table" else np.concatenate([none.astype(np.float32), *weights]),
            None if group.edges is None else np.concatenate([_no_columns(group.edges), *columns]),
        )


def _no_columns(edges: GroupEdges) -> Float:
    return np.empty((0, edges.columns), np.float32)


def _typical_value(feature: NodeFeature | EdgeFeature) -> Any:
    if feature.kind == "categorical":
        return feature.categories[0] if feature.categories else None
    if feature.kind == "vector":
        return [0.0] * (feature.dim or 0)
    if feature.kind == "slots":
        return []
    if feature.kind == "boolean":
        return feature.mean > math.log1p(1) / 2  # more often true than not
    if isinstance(feature, EdgeFeature) and feature.latest is not None:
        return feature.latest
    # Inverse of the scale by which `UnseenReader` reads numbers.
    value = math.copysign(math.expm1(min(abs(feature.mean), _LARGEST_EXPONENT)), feature.mean)
    return round(value) if feature.kind == "integer" else float(f"{value:.4g}")


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
    try:
        found: npt.NDArray[np.int64] = ids.index(list(wanted))
    except (InvalidRequestError, NotFoundError) as error:
        raise type(error)(error.message, where=where, hint=error.hint) from error
    return found


def _edge_weights(given: Sequence[float] | None, count: int, where: str) -> Float:
    if given is None:
        return np.ones(count, np.float32)
    try:
        with np.errstate(over="ignore"):
            weights = np.asarray(given, np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        weights = np.full(count, np.nan, np.float32)
    if weights.shape != (count,) or not np.isfinite(weights).all():
        raise InvalidRequestError(
            f"expected {count} finite weights, one for each neighbour, received {list(weights.shape)}",
            where=where,
        )
    return weights
