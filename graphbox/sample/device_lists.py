"""Lists of a graph where kernels read them: what these are given, and what a device's graph keeps of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphbox.native import Int64Array
from graphbox.sample.adjacency import Adjacency
from graphbox.sample.device_times import HeldTimes
from graphbox.sample.resident_lists import ListColumn, Residents

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DeviceAdjacency:
    """Compressed rows where kernels read them; see :class:`graphbox.sample.adjacency.Adjacency`.

    Attributes:
        indptr: int64 [rows + 1], on the device or in pinned host memory.
        indices: int32 or int64 [edges], on the device or in pinned host memory.
        residents: lists that are on the device as well, while ``indices`` are not; None: there can be none.
        uses: int32 [rows], on the device, where kernels count the sectors they read of each list; None:
            nobody wants to know.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    residents: Residents | None = None
    uses: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """Weights and alias tables of a :class:`DeviceAdjacency`, in the places of its edges.

    Attributes:
        alias_tables: int32 [edges, 2], bits of thresholds and aliases: see ``csrc/sample/alias.h``.
        weight: float32 [edges].
        alias_residents: lists of ``alias_tables`` that are on the device as well; ``places`` count pairs.
        weight_residents: lists of ``weight`` that are.
    """

    alias_tables: torch.Tensor
    weight: torch.Tensor
    alias_residents: Residents | None = None
    weight_residents: Residents | None = None


@dataclass(frozen=True, slots=True)
class HeldColumn:
    """A column of edges: the whole of it, and what says which lists of it are resident, if they can be."""

    values: torch.Tensor
    tiered: ListColumn | None


@dataclass(slots=True)
class HeldLists:
    """The lists of an edge type in a direction."""

    host: Adjacency
    name: str
    indptr: torch.Tensor
    is_indptr_near: bool
    indices: HeldColumn = field(init=False)
    uses: torch.Tensor | None = None
    alias_tables: HeldColumn | None = None
    weight: HeldColumn | None = None
    times: list[HeldTimes[HeldColumn]] = field(default_factory=list)

    def times_by(self, node_time: Int64Array | None, *, weighted: bool) -> HeldTimes[HeldColumn] | None:
        """Return the order by these times, with what draws by weight need if it is wanted; None: not held."""
        found = next((each for each in self.times if each.is_by(node_time)), None)
        return None if found is None or (weighted and found.sums is None) else found
