"""Features of the nodes of a graph, gathered for the batches of a network, on a GPU or in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

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
from graphbox.sample import Batch
from graphbox.sample.device_arrays import DeviceArrays, RowBlocks
from graphbox.sample.gather import gather_rows
from graphbox.sample.pinned import as_tensor
from graphbox.sample.sampled import HeteroSample
from graphbox.train.transfer import CPU, moved
from graphbox.train.view import GraphView
from graphbox.words import counted_bytes

ArrayKey = tuple[str, str]
"""A node type, and what is held of its nodes."""

_CODES, _NUMBERS, _VECTORS = "codes", "numbers", "vectors"
_POSITIONS = "positions"
_INPUTS = "inputs"


class _Arrays(Protocol):
    """Where rows are read, and on which device they then are."""

    device: torch.device

    def rows(self, key: ArrayKey, index: Tensor) -> Tensor: ...


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
        positions: float32 [nodes, width], rows of another model; None: there are none.

    Attributes:
        learnt: what is known of the features by name, in the order in which they are read.
        stored_vectors: names of the vectors that are read from disk, in the order of their columns.
        blocks: what is to be held of the nodes; rows are taken once :meth:`read_from` said where they are.

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
        positions: NDArray[np.float32] | None = None,
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
        self.learnt = (
            {name: LearntFeature.of(known[name], view.feature(node_type, name)) for name in chosen}
            if learnt is None
            else dict(learnt)
        )
        features = NodeFeatures.build(columns, count, self.learnt)
        vectors = {name: view.feature(node_type, name) for name in chosen if known[name].kind == "vector"}
        self._node_type, self._stored = node_type, stored
        self._width = sum(each.shape[1] for each in vectors.values())
        self._feature_sizes = features.sizes
        self.stored_vectors = () if stored is None else tuple(vectors)
        self.blocks = {
            _CODES: RowBlocks.of(torch.from_numpy(features.codes.astype(np.int32))),
            _NUMBERS: RowBlocks.of(torch.from_numpy(features.numbers)),
        }
        if not self.stored_vectors:
            self.blocks[_VECTORS] = _side_by_side_of(count, self._width, list(vectors.values()))
        self._position_width = 0 if positions is None else positions.shape[1]
        if positions is not None:
            self.blocks[_POSITIONS] = _side_by_side_of(count, self._position_width, [positions])
        self._slots: dict[str, int] = {}
        for name in chosen:
            if known[name].kind == "slots":
                offsets, numbers = self.learnt[name].numbered(*view.slot_lists(node_type, name))
                self.blocks[_offsets(name)] = RowBlocks.of(torch.from_numpy(offsets))
                self.blocks[_values(name)] = RowBlocks.of(torch.from_numpy(numbers))
                slots = self.learnt[name].slots
                self._slots[name] = max(1, 0 if slots is None else len(slots))
        self._arrays: _Arrays | None = None

    @property
    def sizes(self) -> InputSizes:
        """Input sizes, which determine the network's parameters."""
        return InputSizes(self._feature_sizes, self._width, tuple(self._slots.values()), self._position_width)

    def read_from(self, arrays: _Arrays) -> None:
        """Read rows from arrays that have all of ``blocks``, which are let go of."""
        self._arrays = arrays
        self.blocks = {}

    def take(self, nodes: Tensor, read_ahead: Tensor | None = None) -> NodeBatch:
        """Return what some nodes have, in their order, on the device where it is read.

        Args:
            nodes: int64 [n].
            read_ahead: rows [n, width] of ``stored_vectors`` that were read ahead, see :meth:`side_by_side`.
        """
        assert self._arrays is not None  # noqa: S101 - for the type checker
        place = self._arrays.device
        vectors = self._from_disk(nodes) if self.stored_vectors and read_ahead is None else read_ahead
        nodes = moved(nodes, place)
        return NodeBatch(
            keys=nodes,
            codes=self._read(_CODES, nodes).to(torch.int64),
            numbers=self._read(_NUMBERS, nodes),
            vectors=self._read(_VECTORS, nodes) if vectors is None else moved(vectors, place),
            slots=tuple(self._slot(name, nodes) for name in self._slots),
            positions=self._read(_POSITIONS, nodes)
            if self._position_width
            else torch.zeros(len(nodes), 0, device=nodes.device),
        )

    def side_by_side(self, rows: Mapping[str, Tensor]) -> Tensor:
        """Return rows of ``stored_vectors``, by name, as a network reads them, where they are."""
        return _side_by_side([rows[name] for name in self.stored_vectors])

    def _read(self, part: str, index: Tensor) -> Tensor:
        assert self._arrays is not None  # noqa: S101 - for the type checker
        return self._arrays.rows((self._node_type, part), index)

    def _slot(self, name: str, nodes: Tensor) -> SlotBatch:
        begins = self._read(_offsets(name), nodes)
        lengths = self._read(_offsets(name), nodes + 1) - begins
        offsets = functional.pad(lengths.cumsum(0), (1, 0))
        shifts = (begins - offsets[:-1]).repeat_interleave(lengths)
        places = torch.arange(len(shifts), device=shifts.device) + shifts
        return SlotBatch(self._read(_values(name), places), offsets)

    def _from_disk(self, nodes: Tensor) -> Tensor:
        assert self._stored is not None  # noqa: S101 - for the type checker
        wanted = nodes.cpu().numpy()
        found = [self._stored.feature_rows(self._node_type, name, wanted) for name in self.stored_vectors]
        return _side_by_side([torch.from_numpy(each) for each in found])


class NetworkData(Mapping[str, NodeData]):
    """The features of all node types of a network, by type.

    Codes, numbers, vectors, and offsets and values of slots are arrays, whose rows are read where they lie.
    It is what loaders over a graph on a device fetch by: batches then come with what their nodes have.

    Args:
        types: by name.
        on_device: brings arrays to where kernels of the network's device read them. None, here or from it:
            they are in host memory, gathered there and copied to where the network computes.

    Attributes:
        arrays: what kernels read; None: all is in host memory.
    """

    def __init__(
        self,
        types: Mapping[str, NodeData],
        on_device: Callable[[Mapping[ArrayKey, RowBlocks]], DeviceArrays[ArrayKey] | None] | None = None,
    ) -> None:
        self._types = dict(types)
        blocks = {
            (node_type, part): each for node_type in types for part, each in types[node_type].blocks.items()
        }
        self.arrays = None if on_device is None else on_device(blocks)
        held = self.arrays or _HostArrays(blocks)
        for each in self._types.values():
            each.read_from(held)

    def __getitem__(self, node_type: str) -> NodeData:
        return self._types[node_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    @property
    def place(self) -> str:
        """Where features are, in words."""
        if any(each.stored_vectors for each in self._types.values()):
            vectors = "vectors on disk, read ahead in host memory and copied; the rest: "
        else:
            vectors = ""
        return f"{vectors}{CPU if self.arrays is None else _place_of(self.arrays)}"

    def inputs(
        self, nodes: Mapping[str, Tensor], ahead: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, NodeBatch]:
        """Return what the nodes of a batch have, by type, where it is read.

        Args:
            nodes: int64 [n] by type; those of other types are passed over.
            ahead: what :meth:`fetch` or :meth:`with_vectors` put into the batch.
        """
        found = {}
        for name, each in self._types.items():
            made = (ahead or {}).get(name, {})
            found[name] = made[_INPUTS] if _INPUTS in made else each.take(nodes[name], made.get(_VECTORS))
        return found

    # What loaders do ahead

    def fetch(self, samples: Sequence[HeteroSample[Any]]) -> list[dict[str, dict[str, NodeBatch]]]:
        """Return what the nodes of each sample have, by type: see :class:`graphbox.sample.NeighborLoader`."""
        return [
            {name: {_INPUTS: each.take(sample.nodes[name])} for name, each in self._types.items()}
            for sample in samples
        ]

    def with_vectors(self, batch: Batch[Tensor], *, pinned: bool) -> Batch[Tensor]:
        """Return a batch whose vectors were read from disk with these as a network reads them.

        Args:
            batch: made by a loader, which fetched ``stored_vectors``.
            pinned: put those in host memory where a GPU copies from without anybody waiting.
        """
        features: dict[str, dict[str, Any]] = {}
        for name, each in self._types.items():
            if each.stored_vectors:
                vectors = each.side_by_side(batch.features[name])
                is_below = pinned and vectors.device == CPU
                features[name] = {_VECTORS: vectors.pin_memory() if is_below else vectors}
        return Batch(batch.epoch, batch.number, batch.sample, features, batch.seeds)

    def end_pass(self) -> None:
        """Let the rows that were read the most be on the device; what is read does not change by it."""
        if self.arrays is not None:
            self.arrays.end_pass()


def node_data(
    view: GraphView,
    node_types: Sequence[str],
    features: Mapping[str, Sequence[str]] | None,
    stored: TieredGraph | None = None,
    on_device: Callable[[Mapping[ArrayKey, RowBlocks]], DeviceArrays[ArrayKey] | None] | None = None,
    positions: Mapping[str, NDArray[np.float32]] | None = None,
) -> NetworkData:
    """Return the data of node types.

    Args:
        view: the graph.
        node_types: which.
        features: names of features by node type; None: all that may be read, of all types.
        stored: reads vectors from disk; None: they are in memory.
        on_device: see :class:`NetworkData`.
        positions: float32 [nodes, width] by node type, rows of another model; types without have none.

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
    types = {
        name: NodeData(
            view,
            name,
            None if features is None else features.get(name, ()),
            stored,
            positions=(positions or {}).get(name),
        )
        for name in node_types
    }
    return NetworkData(types, on_device)


class _HostArrays:
    """Arrays in host memory, whose rows the host gathers."""

    def __init__(self, arrays: Mapping[ArrayKey, RowBlocks]) -> None:
        self.device = CPU
        self._arrays = {
            key: each.copy_to(torch.empty(each.shape, dtype=each.dtype)) for key, each in arrays.items()
        }

    def rows(self, key: ArrayKey, index: Tensor) -> Tensor:
        return torch.from_numpy(gather_rows(self._arrays[key].numpy(), index.numpy(), num_threads=1))


def _side_by_side_of(count: int, width: int, vectors: Sequence[NDArray[Any]]) -> RowBlocks:
    def read(first: int, last: int) -> Tensor:
        none = torch.zeros(last - first, 0)
        return _side_by_side([none, *(as_tensor(each[first:last]) for each in vectors)])

    return RowBlocks((count, width), torch.float32, read)


def _side_by_side(vectors: Sequence[Tensor]) -> Tensor:
    """Return vectors of the same nodes as one, float32, zeros where a value is missing."""
    return torch.cat([each.float() for each in vectors], dim=1).nan_to_num_()


def _offsets(slot: str) -> str:
    return f"offsets of {slot}"


def _values(slot: str) -> str:
    return f"values of {slot}"


def _place_of(arrays: DeviceArrays[ArrayKey]) -> str:
    if not arrays.pinned_bytes:
        return str(arrays.device)
    pinned = f"{counted_bytes(arrays.pinned_bytes)} in pinned host memory, which it reads"
    if not arrays.device_bytes:
        return f"{arrays.device}: {pinned}"
    return f"{arrays.device}: {counted_bytes(arrays.device_bytes)} there, rows by their use; {pinned}"
