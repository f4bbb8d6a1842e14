"""What the nodes of a graph have, gathered for the batches of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import FeatureSpec
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.features import LearntFeature, NodeFeatures
from graphbox.models.graph_inputs import InputSizes, NodeBatch, SlotBatch
from graphbox.sample.gather import gather_rows
from graphbox.train.transfer import CPU, moved, tensor_on
from graphbox.train.view import GraphView

__all__ = ["NodeData", "node_data"]


@dataclass(frozen=True, eq=False)
class _Slot:
    offsets: Tensor
    numbers: Tensor
    size: int

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        return self.offsets, self.numbers

    def take(self, nodes: Tensor) -> SlotBatch:
        begins = self.offsets[nodes]
        lengths = self.offsets[nodes + 1] - begins
        offsets = functional.pad(lengths.cumsum(0), (1, 0))
        shifts = (begins - offsets[:-1]).repeat_interleave(lengths)
        return SlotBatch(self.numbers[torch.arange(len(shifts), device=shifts.device) + shifts], offsets)


class NodeData:
    """The features of the nodes of one type as a network reads them.

    Vectors without a value (NaN) count as zeros; the values of slots are numbered in ascending order.

    Args:
        view: the graph.
        node_type: the type.
        names: of the features; None: all that may be read.
        stored: reads vectors from disk; None: they are in memory.
        learnt: what a network that was trained on another graph, or an earlier state of it, knows of these
            features; None: it is learnt of these nodes. Categories and slots it does not know are missing.

    Attributes:
        place: where the features are kept that are not read from disk.
        learnt: what is known of the features by name, in the order in which they are read.
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
        learnt: Mapping[str, LearntFeature] | None = None,
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
        self.place = CPU
        self.learnt = (
            {name: LearntFeature.of(known[name], view.feature(node_type, name)) for name in chosen}
            if learnt is None
            else dict(learnt)
        )
        features = NodeFeatures.build(columns, count, self.learnt)
        self._feature_sizes = features.sizes
        self._codes, self._numbers = torch.from_numpy(features.codes), torch.from_numpy(features.numbers)
        vectors = {name: view.feature(node_type, name) for name in chosen if known[name].kind == "vector"}
        self._node_type, self._stored = node_type, stored
        self._width = sum(each.shape[1] for each in vectors.values())
        self.stored_vectors = () if stored is None else tuple(vectors)
        self._vectors: Tensor | None = None
        if not self.stored_vectors:
            self._vectors = torch.from_numpy(_side_by_side(count, vectors.values()))
        slots = [name for name in chosen if known[name].kind == "slots"]
        self._slots = [_slot(view, node_type, name, self.learnt[name]) for name in slots]

    @property
    def sizes(self) -> InputSizes:
        """What the network must know to have parameters."""
        return InputSizes(self._feature_sizes, self._width, tuple(slot.size for slot in self._slots))

    @property
    def bytes(self) -> int:
        """Bytes of the features that are not read from disk."""
        held = [self._codes, self._numbers, *([] if self._vectors is None else [self._vectors])]
        return sum(each.nbytes for each in (*held, *(part for slot in self._slots for part in slot.tensors)))

    def move(self, place: torch.device) -> None:
        """Keep the features elsewhere."""
        self.place = place
        self._codes, self._numbers = moved((self._codes, self._numbers), place)
        self._vectors = None if self._vectors is None else moved(self._vectors, place)
        self._slots = [moved(each, place) for each in self._slots]

    def take(self, nodes: Tensor, fetched: Mapping[str, Tensor] | None = None) -> NodeBatch:
        """Return what some nodes have, in their order, where it is kept.

        Args:
            nodes: int64 [n].
            fetched: rows [n, ...] of those of ``stored_vectors`` that were read ahead, by name.
        """
        nodes = moved(nodes, self.place)
        return NodeBatch(
            keys=nodes,
            codes=_taken(self._codes, nodes),
            numbers=_taken(self._numbers, nodes),
            vectors=self._vectors_of(nodes, fetched or {}),
            slots=tuple(slot.take(nodes) for slot in self._slots),
        )

    def _vectors_of(self, nodes: Tensor, fetched: Mapping[str, Tensor]) -> Tensor:
        if self._vectors is not None:
            return _taken(self._vectors, nodes)
        assert self._stored is not None  # noqa: S101 - for the type checker
        found = [
            fetched[name].numpy()
            if name in fetched
            else self._stored.feature_rows(self._node_type, name, nodes.cpu().numpy())
            for name in self.stored_vectors
        ]
        return tensor_on(_side_by_side(len(nodes), found), self.place)


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


def _slot(view: GraphView, node_type: str, name: str, learnt: LearntFeature) -> _Slot:
    offsets, numbers = learnt.numbered(*view.slot_lists(node_type, name))
    size = max(1, 0 if learnt.slots is None else len(learnt.slots))
    return _Slot(torch.from_numpy(offsets), torch.from_numpy(numbers), size)


def _taken(table: Tensor, nodes: Tensor) -> Tensor:
    """Return rows of a table that is where the nodes are."""
    if table.device.type != "cpu":
        return table.index_select(0, nodes)
    return torch.from_numpy(gather_rows(table.numpy(), nodes.numpy(), threads=1))
