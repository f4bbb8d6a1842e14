"""What the nodes of a graph have, gathered for the batches of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import FeatureSpec
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.features import NodeFeatures
from graphbox.models.graph_inputs import InputSizes, NodeBatch, SlotBatch
from graphbox.sample.gather import gather_rows
from graphbox.train.view import GraphView

__all__ = ["NodeData", "node_data"]


@dataclass(frozen=True, eq=False)
class _Slot:
    offsets: NDArray[np.int64]
    numbers: NDArray[np.int64]
    size: int

    def take(self, nodes: NDArray[np.int64]) -> SlotBatch:
        lengths = self.offsets[nodes + 1] - self.offsets[nodes]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[nodes] - offsets[:-1], lengths)
        return SlotBatch(torch.from_numpy(self.numbers[places]), torch.from_numpy(offsets))


class NodeData:
    """The features of the nodes of one type as a network reads them.

    Vectors without a value (NaN) count as zeros; the values of slots are numbered in ascending order.

    Args:
        view: the graph.
        node_type: the type.
        names: of the features; None: all that may be read.
        stored: reads vectors from disk; None: they are in memory.

    Attributes:
        stored_vectors: names of the vectors that are read from disk, in the order of their columns.

    Raises:
        UsageError: there is no such feature, or it is what is to be predicted.
    """

    def __init__(
        self,
        view: GraphView,
        node_type: str,
        names: Sequence[str] | None,
        stored: TieredGraph | None = None,
    ) -> None:
        known = view.features(node_type)
        count = view.num_nodes(node_type)
        chosen = list(known) if names is None else list(names)
        for name in chosen:
            view.feature(node_type, name)  # which refuses what may not be read
            if name not in known:
                raise UsageError(
                    f"there is no feature `{name}` of `{node_type}`",
                    where="features",
                    hint=did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}",
                )
        columns: dict[str, tuple[FeatureSpec, NDArray[Any]]] = {
            name: (known[name], view.feature(node_type, name))
            for name in chosen
            if known[name].kind not in {"vector", "slots"}
        }
        self._features = NodeFeatures.build(columns, count)
        vectors = {name: view.feature(node_type, name) for name in chosen if known[name].kind == "vector"}
        self._node_type, self._stored = node_type, stored
        self._width = sum(each.shape[1] for each in vectors.values())
        self.stored_vectors = () if stored is None else tuple(vectors)
        self._vectors = None if self.stored_vectors else _side_by_side(count, vectors.values())
        self._slots = [_slot(view, node_type, name) for name in chosen if known[name].kind == "slots"]

    @property
    def sizes(self) -> InputSizes:
        """What the network must know to have parameters."""
        return InputSizes(self._features.sizes, self._width, tuple(slot.size for slot in self._slots))

    def take(self, nodes: NDArray[np.int64], fetched: Mapping[str, NDArray[Any]] | None = None) -> NodeBatch:
        """Return what some nodes have, in their order.

        Args:
            nodes: int64 [n].
            fetched: rows [n, ...] of those of ``stored_vectors`` that were read ahead, by name.
        """
        return NodeBatch(
            keys=torch.from_numpy(nodes),
            codes=torch.from_numpy(gather_rows(self._features.codes, nodes, threads=1)),
            numbers=torch.from_numpy(gather_rows(self._features.numbers, nodes, threads=1)),
            vectors=torch.from_numpy(self._vectors_of(nodes, fetched or {})),
            slots=tuple(slot.take(nodes) for slot in self._slots),
        )

    def _vectors_of(
        self, nodes: NDArray[np.int64], fetched: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float32]:
        if self._vectors is not None:
            return gather_rows(self._vectors, nodes, threads=1)
        assert self._stored is not None  # noqa: S101 - for the type checker
        return _side_by_side(
            len(nodes),
            [
                fetched[name] if name in fetched else self._stored.feature_rows(self._node_type, name, nodes)
                for name in self.stored_vectors
            ],
        )


def node_data(
    view: GraphView,
    node_types: Sequence[str],
    features: Mapping[str, Sequence[str]] | None,
    stored: TieredGraph | None = None,
) -> dict[str, NodeData]:
    """Return the data of node types by name.

    Args:
        view: the graph.
        node_types: which.
        features: names of features by node type; None: all that may be read, of all types.
        stored: reads vectors from disk; None: they are in memory.

    Raises:
        UsageError: a type or feature that is not there.
    """
    for name in features or ():
        if name not in node_types:
            raise UsageError(
                f"there is no node type `{name}` at an end of the model's relations",
                where="features",
                hint=did_you_mean(name, node_types) or f"there are: {', '.join(node_types)}",
            )
    return {
        name: NodeData(view, name, None if features is None else features.get(name, ()), stored)
        for name in node_types
    }


def _side_by_side(count: int, vectors: Iterable[NDArray[Any]]) -> NDArray[np.float32]:
    """Return vectors of ``count`` nodes as one, zeros where a value is missing."""
    columns = np.concatenate([np.zeros((count, 0), np.float32), *vectors], axis=1).astype(np.float32)
    return np.nan_to_num(columns, copy=False)


def _slot(view: GraphView, node_type: str, name: str) -> _Slot:
    offsets, values = view.slot_lists(node_type, name)
    different, numbers = np.unique(values, return_inverse=True)
    return _Slot(offsets, numbers.astype(np.int64), max(1, len(different)))
