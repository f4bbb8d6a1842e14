"""Batches: a sampled subgraph with its features and what its seeds are for, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from graphbox.sample.adjacency import EdgeType
from graphbox.sample.sampled import HeteroSample

Array = TypeVar("Array")

Place: TypeAlias = str | EdgeType
"""A node type or an edge type: which part of a ``HeteroData`` an attribute belongs to."""


class Seeds(Protocol):
    """Seeds of a batch, and the attributes PyTorch Geometric has for them."""

    def attributes(self) -> Iterator[tuple[Place | None, str, Any]]:
        """Give each attribute: where it belongs (None: to the batch as a whole), its name, its value."""
        ...


@dataclass(frozen=True, slots=True)
class NodeSeeds(Generic[Array]):
    """Seeds that are nodes: the first ``len(input_id)`` nodes of the batch of type ``node_type``.

    Attributes:
        node_type: of the seeds.
        input_id: int64 [s], positions of the seeds in the loader's ``input_nodes``.
        seed_time: int64 [s], the times of the seeds, or None.
    """

    node_type: str
    input_id: Array
    seed_time: Array | None = None

    def attributes(self) -> Iterator[tuple[Place | None, str, Any]]:
        """Give each attribute: where it belongs, its name, its value."""
        yield self.node_type, "input_id", self.input_id
        yield self.node_type, "batch_size", len(self.input_id)  # type: ignore[arg-type]  # an array or tensor
        if self.seed_time is not None:
            yield self.node_type, "seed_time", self.seed_time


@dataclass(frozen=True, slots=True)
class LinkSeeds(Generic[Array]):
    """Seeds that are links: their ends, and those of negatives, are the first nodes of the batch.

    Positions are those in the batch's nodes of the source or target type. Without negatives and with pairs as
    negatives there is ``edge_label_index``; with targets as negatives the three ``..._index`` by node.

    Attributes:
        edge_type: of the links.
        input_id: int64 [s], positions of the links in the loader's ``edge_label_index``.
        edge_label_index: int64 [2, s + negatives]: positions of the ends, the negatives after the links.
        edge_label: [s + negatives, ...], the labels, 0 for negatives; None where there are none.
        edge_label_time: int64 [s + negatives], times; a negative has that of a link. None without times.
        src_index: int64 [s], positions of the sources.
        dst_pos_index: int64 [s], positions of their targets.
        dst_neg_index: int64 [s] or, with several for each, [s, amount]: positions of negative targets.
        seed_time: int64 [s], times of triplets, or None.
    """

    edge_type: EdgeType
    input_id: Array
    edge_label_index: Array | None = None
    edge_label: Any = None
    edge_label_time: Array | None = None
    src_index: Array | None = None
    dst_pos_index: Array | None = None
    dst_neg_index: Array | None = None
    seed_time: Array | None = None

    def attributes(self) -> Iterator[tuple[Place | None, str, Any]]:
        """Give each attribute: where it belongs, its name, its value."""
        source, _, target = self.edge_type
        for place, name in (
            (self.edge_type, "input_id"),
            (self.edge_type, "edge_label_index"),
            (self.edge_type, "edge_label"),
            (self.edge_type, "edge_label_time"),
            (source, "src_index"),
            (target, "dst_pos_index"),
            (target, "dst_neg_index"),
            (source, "seed_time"),
            (target, "seed_time"),
        ):
            value = getattr(self, name)
            if value is not None:
                yield place, name, value


@dataclass(frozen=True, slots=True)
class Batch(Generic[Array]):
    """A batch as plain arrays: NumPy arrays or torch tensors.

    Attributes:
        epoch: number of the epoch.
        number: of the batch within its epoch.
        sample: the sampled subgraph, by node type and edge type.
        features: rows of ``sample.nodes`` by node type and name. Of slots the values of all rows under their
            name, and int64 [n + 1] offsets under ``name_ptr``.
        seeds: what the seeds are: :class:`NodeSeeds` or :class:`LinkSeeds`.
        edge_features: rows of the sampled edges by edge type and name, like ``features``.
    """

    epoch: int
    number: int
    sample: HeteroSample[Array]
    features: dict[str, dict[str, Array]]
    seeds: Any
    edge_features: dict[EdgeType, dict[str, Array]] = field(default_factory=dict)
