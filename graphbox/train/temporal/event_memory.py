"""Events of a stream in the order of time, and the memory that they leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.models.recent import RecentEvents
from graphbox.models.temporal import EventList, PairInputs, node_events, pair_inputs

_SOURCES, _TARGETS = "sources", "targets"


@dataclass(frozen=True, eq=False)
class Events:
    """Events in the order of time.

    Attributes:
        source: int64 [n].
        target: int64 [n].
        relation: int64 [n], the number of the edge type among those that are learnt.
        time: int64 [n].
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    relation: NDArray[np.int64]
    time: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: slice) -> Events:
        return Events(self.source[rows], self.target[rows], self.relation[rows], self.time[rows])

    @staticmethod
    def merged(parts: Sequence[Events]) -> Events:
        """Return the events of several parts in the order of time; equal times keep their order."""
        columns = [
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("source", "target", "relation", "time")
        ]
        order = np.argsort(columns[3], kind="stable")
        return Events(*(column[order] for column in columns))


class EventMemory:
    """Memory of a stream's events so far.

    Args:
        sources: number of nodes of the source type.
        targets: number of nodes of the target type.
        length: events that are remembered of each node.
        one_type: sources and targets are nodes of one type.
    """

    def __init__(self, sources: int, targets: int, length: int, *, one_type: bool) -> None:
        left = RecentEvents(sources, length)
        self.ends = (left, left if one_type else RecentEvents(targets, length))
        self.events = 0
        self._first_time = 0
        self._last_time = 0

    @property
    def one_type(self) -> bool:
        """Whether sources and targets are nodes of one type."""
        return self.ends[0] is self.ends[1]

    def grow(self, sources: int, targets: int) -> None:
        """Make room for new nodes."""
        self.ends[0].grow(sources)
        self.ends[1].grow(targets)

    def add(self, events: Events) -> None:
        """Remember events, which are not before those it knows."""
        if not len(events):
            return
        number = self.events + np.arange(len(events))
        if not self.events:
            self._first_time = self._last_time = int(events.time.min())
        self._last_time = max(self._last_time, int(events.time.max()))
        self.events += len(events)
        kind = 2 * events.relation
        roles = np.zeros(len(events), dtype=np.int64), np.ones(len(events), dtype=np.int64)
        as_source = (events.source, events.target, kind, roles[0], events.time, number)
        as_target = (events.target, events.source, kind + 1, roles[1], events.time, number)
        if self.one_type:
            both = [np.concatenate(columns) for columns in zip(as_source, as_target, strict=True)]
            self.ends[0].add(*both)
        else:
            self.ends[0].add(*as_source)
            self.ends[1].add(*as_target)

    def inputs(
        self, source: NDArray[np.int64], target: NDArray[np.int64], time: NDArray[np.int64]
    ) -> PairInputs:
        """Return what is known of pairs at a time."""
        return pair_inputs(self.ends, source, target, time, now=self.events, gap=self._gap())

    def node_events(self, end: int, nodes: NDArray[np.int64]) -> EventList:
        """Return what is known of each node as source (0) or target (1) after the last event."""
        return node_events(self.ends, end, nodes, time=self._last_time, now=self.events, gap=self._gap())

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name."""
        state = {"clock": torch.tensor([self.events, self._first_time, self._last_time])}
        names = (_SOURCES,) if self.one_type else (_SOURCES, _TARGETS)
        for name, end in zip(names, self.ends, strict=False):
            state |= {f"{name}.{key}": value for key, value in end.tensors().items()}
        return state

    @classmethod
    def restore(cls, state: Mapping[str, Tensor]) -> EventMemory:
        """Return the memory whose :meth:`tensors` are given."""
        memory = cls.__new__(cls)
        ends = []
        for name in (_SOURCES, _TARGETS):
            prefix = f"{name}."
            own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            ends += [RecentEvents.restore(own)] if own else []
        memory.ends = (ends[0], ends[-1])
        memory.events, memory._first_time, memory._last_time = (int(value) for value in state["clock"])
        return memory

    def _gap(self) -> float:
        """Return the mean time between events so far, 1 where it cannot be told."""
        span = self._last_time - self._first_time
        return max(span / self.events, 1e-9) if self.events > 1 and span > 0 else 1.0
