"""Recent events of nodes: the latest of each in a ring, and decaying counts of events.

Arrays of one row for each node, changed in place with each event; nothing is searched, and the size depends
on the number of nodes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FADING_EVENTS = (300.0, 3000.0, 20_000.0)
"""After so many events of the whole stream an event counts 1/e, in three counts side by side."""

_NEVER = -1
_LONG_AGO = -(2**62)
"""A time before all others; half of the least one, so that differences fit."""
_ROLES = 2


@dataclass(frozen=True, eq=False)
class RecentView:
    """The memory of some nodes.

    Attributes:
        partner: int64 [n, length], the other end of each remembered event, -1 where there are fewer.
        kind: int64 [n, length], what kind of event.
        time: int64 [n, length].
        number: int64 [n, length], the number of the event in the stream.
        count: int64 [n], events so far.
        last_time: int64 [n, 2], when the node was last a source and last a target; no time where never.
        last_number: int64 [n, 2], the number of that event, -1 for never.
        rate: float64 [n, 2, len(FADING_EVENTS)], fading counts of events as a source and as a target.
    """

    partner: NDArray[np.int64]
    kind: NDArray[np.int64]
    time: NDArray[np.int64]
    number: NDArray[np.int64]
    count: NDArray[np.int64]
    last_time: NDArray[np.int64]
    last_number: NDArray[np.int64]
    rate: NDArray[np.float64]


class RecentEvents:
    """The memory of the nodes of one type.

    Args:
        nodes: number of nodes.
        length: events that are remembered of each.
    """

    def __init__(self, nodes: int, length: int) -> None:
        self._length = length
        self._ring = np.full((4, 0, length), _NEVER, dtype=np.int64)  # partner, kind, time, number
        self._count = np.zeros(0, dtype=np.int64)
        self._last = _never(0)
        self._rate = np.zeros((0, _ROLES, len(FADING_EVENTS)))
        self._rate_number = np.zeros(0, dtype=np.int64)
        self.grow(nodes)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self._count)

    def grow(self, nodes: int) -> None:
        """Make room for nodes that did nothing yet; it never shrinks."""
        more = nodes - self.nodes
        if more <= 0:
            return
        ring = np.full((4, more, self._length), _NEVER, dtype=np.int64)
        self._ring = np.concatenate([self._ring, ring], axis=1)
        self._count = np.concatenate([self._count, np.zeros(more, dtype=np.int64)])
        self._last = np.concatenate([self._last, _never(more)], axis=1)
        self._rate = np.concatenate([self._rate, np.zeros((more, *self._rate.shape[1:]))])
        self._rate_number = np.concatenate([self._rate_number, np.zeros(more, dtype=np.int64)])

    def add(
        self,
        node: NDArray[np.int64],
        partner: NDArray[np.int64],
        kind: NDArray[np.int64],
        role: NDArray[np.int64],
        time: NDArray[np.int64],
        number: NDArray[np.int64],
    ) -> None:
        """Remember events of nodes: int64 [n] each.

        Args:
            node: whose event.
            partner: the other end.
            kind: what kind of event.
            role: 0 where the node is the source, 1 where it is the target.
            time: when.
            number: the number of each event in the stream, above all that came before.
        """
        if not len(node):
            return
        order = np.lexsort((number, node))
        node, role, number, time = node[order], role[order], number[order], time[order]
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        size = np.diff(starts, append=len(node))
        place = np.arange(len(node)) - np.repeat(starts, size)
        slot = (self._count[node] + place) % self._length
        kept = place >= np.repeat(size, size) - self._length  # of more than fit the latest
        values = np.stack([partner[order], kind[order], time, number])
        self._ring[:, node[kept], slot[kept]] = values[:, kept]
        met = node[starts]
        self._count[met] += size
        np.maximum.at(self._last[0], (node, role), time)
        np.maximum.at(self._last[1], (node, role), number)
        end = int(number.max()) + 1
        self._rate[met] *= _faded(end - self._rate_number[met])[:, None, :]
        self._rate_number[met] = end
        np.add.at(self._rate, (node, role), _faded(end - number))

    def view(self, node: NDArray[np.int64], now: int) -> RecentView:
        """Return the memory of nodes, those it has no room for included, which did nothing.

        Args:
            node: int64 [n].
            now: the number of the next event.
        """
        there = node < self.nodes
        row = np.where(there, node, 0)
        if not self.nodes:
            return RecentEvents(1, self._length).view(np.zeros_like(node), now)
        ring = np.where(there[None, :, None], self._ring[:, row], _NEVER)
        last = np.where(there[None, :, None], self._last[:, row], _never(1))
        rate = self._rate[row] * _faded(now - self._rate_number[row])[:, None, :]
        partner, kind, time, number = ring
        count = np.where(there, self._count[row], 0)
        return RecentView(partner, kind, time, number, count, last[0], last[1], rate * there[:, None, None])

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name; it shares no memory."""
        return {name: torch.from_numpy(array.copy()) for name, array in self._arrays().items()}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor]) -> RecentEvents:
        """Return the memory whose :meth:`tensors` are given."""
        memory = cls(0, tensors["ring"].shape[2])
        for name in memory._arrays():
            setattr(memory, f"_{name}", tensors[name].numpy().copy())
        return memory

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        return {
            "ring": self._ring,
            "count": self._count,
            "last": self._last,
            "rate": self._rate,
            "rate_number": self._rate_number,
        }


def count_in(keys: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each key stands in the other list of its row: int64 [n, a].

    Args:
        keys: int64 [n, a].
        others: int64 [n, b]; what is negative stands for nothing.
    """
    equal = (keys[:, :, None] == others[:, None, :]) & (others >= 0)[:, None, :]
    return np.asarray(equal.sum(axis=2))


def _never(nodes: int) -> NDArray[np.int64]:
    """Return the time and the number of the last event of nodes that had none: int64 [2, nodes, 2]."""
    last = np.full((2, nodes, _ROLES), _NEVER, dtype=np.int64)
    last[0] = _LONG_AGO
    return last


def _faded(events: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what an event counts so many events later: float64 [n, len(FADING_EVENTS)]."""
    return np.asarray(np.exp(-events[:, None] / np.array(FADING_EVENTS)))
