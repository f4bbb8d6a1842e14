"""Batches: a sampled subgraph with its features and what its seeds are for, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from graphbox.sample.adjacency import EdgeType
from graphbox.sample.neighbor import HeteroSample

__all__ = ["Batch", "NodeSeeds", "Place", "Seeds"]

Array = TypeVar("Array")

Place: TypeAlias = str | EdgeType
"""A node type or an edge type: which part of a ``HeteroData`` an attribute belongs to."""


class Seeds(Protocol):
    """What the seeds of a batch are, and the attributes PyTorch Geometric has for that."""

    def attributes(self) -> Iterator[tuple[Place, str, Any]]:
        """Give each attribute: where it belongs, its name, its value."""
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

    def attributes(self) -> Iterator[tuple[Place, str, Any]]:
        """Give each attribute: where it belongs, its name, its value."""
        yield self.node_type, "input_id", self.input_id
        yield self.node_type, "batch_size", len(self.input_id)  # type: ignore[arg-type]  # an array or tensor
        if self.seed_time is not None:
            yield self.node_type, "seed_time", self.seed_time


@dataclass(frozen=True, slots=True)
class Batch(Generic[Array]):
    """A batch as plain arrays: NumPy arrays or torch tensors.

    Attributes:
        epoch: number of the epoch.
        number: of the batch within its epoch.
        sample: the sampled subgraph, by node type and edge type.
        features: rows of ``sample.nodes`` by node type and name. Of slots the values of all rows under their
            name, and int64 [n + 1] offsets under ``name_ptr``.
        seeds: what the seeds are: :class:`NodeSeeds` of a :class:`NeighborLoader`.
    """

    epoch: int
    number: int
    sample: HeteroSample[Array]
    features: dict[str, dict[str, Array]]
    seeds: Any
