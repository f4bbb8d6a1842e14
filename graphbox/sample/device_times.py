"""The edges of each node by time, where kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from graphbox.sample.adjacency import Adjacency, EdgeColumn, edge_column
from graphbox.sample.derived import same_memory, times_of, weight_sums_of

if TYPE_CHECKING:
    import torch

    from graphbox.native import Int64Array
    from graphbox.sample.resident_lists import Residents

_ORDER_COLUMNS = 2  # times and shifts; what draws by weight need comes after them

Column = TypeVar("Column")


class DeviceColumn(NamedTuple):
    """Values of the edges of a :class:`graphbox.sample.device.DeviceAdjacency`.

    Attributes:
        values: [edges], on the device or in pinned host memory.
        residents: lists that are on the device as well; None: there can be none.
    """

    values: torch.Tensor
    residents: Residents | None


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """The edges of each node by time, of equal times by position: what is at each place of that order.

    Attributes:
        times: int64 [edges], those of each node ascending.
        shifts: int32 [edges], how far each is from its place in the order to its position.
        sums: float64 [edges], of the weights of a node up to and with each; None: edges are equally likely.
        weight: float32 [edges]; None: as for ``sums``.
        node_time: int64 [neighbours], whose times those of the edges are; None: edges have their own.
    """

    times: DeviceColumn
    shifts: DeviceColumn
    sums: DeviceColumn | None = None
    weight: DeviceColumn | None = None
    node_time: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class HeldTimes(Generic[Column]):
    """An order by time that is held.

    Attributes:
        host_node_time: int64, whose times it is by; None: those of the edges.
        columns: as :class:`DeviceTimes` names them, with those of weights or without.
        node_time: ``host_node_time`` where kernels read it.
    """

    host_node_time: Int64Array | None
    columns: list[Column]
    node_time: torch.Tensor | None

    @property
    def sums(self) -> Column | None:
        """Sums of weights that draws read first; None: there are no sums."""
        return self.columns[_ORDER_COLUMNS] if len(self.columns) > _ORDER_COLUMNS else None

    def is_by(self, node_time: Int64Array | None) -> bool:
        """Return whether it is by these times."""
        own = self.host_node_time
        if own is None or node_time is None:
            return own is node_time
        return same_memory(own, node_time) or np.array_equal(own, node_time)


def host_times(
    adjacency: Adjacency, name: str, node_time: Int64Array | None, threads: int | None, *, weighted: bool
) -> list[np.ndarray[Any, Any]]:
    """Return the columns of :class:`DeviceTimes` in host memory; see :func:`.derived.times_of`."""
    order = times_of(adjacency, name, threads, node_time).base
    columns: list[np.ndarray[Any, Any]] = [order.times, order.shifts]
    if weighted:
        sums = weight_sums_of(adjacency, name, threads, node_time).base
        weights: EdgeColumn = edge_column(adjacency, "weight", name)  # type: ignore[assignment]
        columns += [sums.sums, weights.base[np.arange(len(order.shifts)) + order.shifts]]
    return columns
