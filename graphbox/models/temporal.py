"""Scores pairs of nodes in a stream by their latest events.

The design is of DyGFormer's kind (Yu et al., "Towards better dynamic graph learning", NeurIPS 2023): each end
is the list of its latest events, and of each partner in it is known how often it stands in either list. In
place of a transformer the lists are pooled by learnt weights, which costs a tenth; and time is told in events
of the stream, too, so that a stream which slows down looks the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphbox.models.dropout import Dropout
from graphbox.models.recent import FADING_EVENTS, RecentEvents, RecentView, count_in
from graphbox.table import Table
from graphbox.table.module import TableEmbedding

_FREQUENCIES = 4
_COUNT_DIM = 16
_POOLS = 2
_NOBODY = -1
_LONG_AGO_TIME, _LONG_AGO_EVENTS = 1e8, 1e6
"""Age that stands for nodes without an event."""

_PAIR_NUMBERS = 2 * (2 * len(FADING_EVENTS) + 5) + 4


@dataclass(frozen=True, eq=False)
class EventList:
    """One end of each pair: itself, then its latest events.

    Attributes:
        keys: int64 [n, 1 + length], the node's key, then its partners', -1 where there is none.
        kind: int64 [n, 1 + length], 0 for the node itself, then 1 plus the kind of event.
        age: float32 [n, 1 + length, 2], time since in mean gaps between events, and events since.
        counts: float32 [n, 1 + length, 2], how often each key stands in this list, and in the other end's.
    """

    keys: Tensor
    kind: Tensor
    age: Tensor
    counts: Tensor


@dataclass(frozen=True, eq=False)
class PairInputs:
    """Pairs to score.

    Attributes:
        source: the one end.
        target: the other.
        numbers: float32 [n, numbers], of the pair as a whole.
    """

    source: EventList
    target: EventList
    numbers: Tensor


def pair_inputs(
    memory: tuple[RecentEvents, RecentEvents],
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    time: NDArray[np.int64],
    *,
    now: int,
    gap: float,
) -> PairInputs:
    """Return what is known of pairs.

    Args:
        memory: of sources and of targets; one twice where they are of one type.
        source: int64 [n].
        target: int64 [n].
        time: int64 [n], for when each pair is asked for.
        now: events so far in the stream.
        gap: mean time between events so far.
    """
    views = memory[0].view(source, now), memory[1].view(target, now)
    keys = [_keys(memory, end, node, views[end].partner) for end, node in enumerate((source, target))]
    counts = [np.stack([count_in(keys[i], keys[i]), count_in(keys[i], keys[1 - i])], axis=2) for i in (0, 1)]
    lists = [_event_list(keys[i], views[i], counts[i], _ages(views[i], time, now, gap)) for i in (0, 1)]
    there = keys[0][:, 1:] >= 0
    pair = [
        np.log1p(counts[0][:, :1, 1]),
        np.log1p(counts[1][:, :1, 1]),
        np.log1p((counts[0][:, 1:, 1] * there).sum(axis=1, keepdims=True)),
        (keys[0][:, :1] == keys[1][:, :1]).astype(np.float64),
    ]
    numbers = np.concatenate([*(_numbers(view, time, now, gap) for view in views), *pair], axis=1)
    return PairInputs(lists[0], lists[1], _float(numbers))


class TemporalLinkScorer(nn.Module):
    """The network over :class:`PairInputs`.

    Args:
        kinds: number of kinds of events.
        dim: length of what is between layers.
        dropout: share of it that is left out in training.
        rows: table of rows by key, or None.
    """

    def __init__(self, kinds: int, dim: int, dropout: float, rows: Table | None = None) -> None:
        super().__init__()
        self.rows: TableEmbedding | None = None
        if rows is not None:
            self.set_table(rows)
        waves = torch.logspace(0.0, -1.5, _FREQUENCIES)
        self.frequencies = nn.Parameter(2 * math.pi * torch.stack([waves, waves]))
        self.count = nn.Sequential(nn.Linear(1, _COUNT_DIM), nn.ReLU(), nn.Linear(_COUNT_DIM, _COUNT_DIM))
        self.kind = nn.Embedding(kinds + 1, dim)
        ages = 3 + 4 * _FREQUENCIES
        self.event = nn.Linear(ages + _COUNT_DIM + (0 if rows is None else rows.dim), dim)
        self.mixed = nn.Sequential(nn.ReLU(), Dropout(dropout), nn.Linear(dim, dim), nn.ReLU())
        self.weight = nn.Linear(dim, _POOLS)
        self.head = nn.Sequential(
            nn.Linear((2 * _POOLS + 1) * dim + _PAIR_NUMBERS, dim),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(dim, 1),
        )

    def set_table(self, table: Table) -> None:
        """Take the rows from another table."""
        self.rows = TableEmbedding(table, padding_idx=_NOBODY).train(self.training)

    def encode(self, events: EventList) -> Tensor:
        """Return a vector of each list: float32 [n, 2 * dim]."""
        there = (events.keys != _NOBODY).unsqueeze(2)
        parts = [self._ages(events.age), self.count(events.counts.log1p().unsqueeze(3)).sum(dim=2)]
        if self.rows is not None:
            parts.append(self.rows(events.keys))
        mixed = self.mixed(self.event(torch.cat(parts, dim=2)) + self.kind(events.kind)) * there
        weight = self.weight(mixed).masked_fill(~there, -math.inf).softmax(dim=1)
        return torch.einsum("nld,nlp->npd", mixed, weight).flatten(1)

    def forward(self, pairs: PairInputs) -> Tensor:
        """Return the logit of each pair: float32 [n]."""
        source, target = self.encode(pairs.source), self.encode(pairs.target)
        both = (source * target)[:, : source.shape[1] // _POOLS]
        scores: Tensor = self.head(torch.cat([source, target, both, pairs.numbers], dim=1)).squeeze(1)
        return scores

    def _ages(self, age: Tensor) -> Tensor:
        """Return ages as numbers and waves of their logarithms: float32 [n, length, 3 + 4 * frequencies]."""
        logarithm = age.log1p()
        phase = (logarithm.unsqueeze(3) * self.frequencies).flatten(2)
        near = torch.rsqrt(1.0 + age[..., :1])
        return torch.cat([logarithm / 10.0, near, phase.cos(), phase.sin()], dim=2)


def node_events(
    memory: tuple[RecentEvents, RecentEvents],
    end: int,
    nodes: NDArray[np.int64],
    *,
    time: int,
    now: int,
    gap: float,
) -> EventList:
    """Return what is known of each node by itself, without a partner in view.

    Args:
        memory: of sources and of targets.
        end: 0: nodes are sources, 1: targets.
        nodes: int64 [n].
        time: for when.
        now: events so far in the stream.
        gap: mean time between events so far.
    """
    view = memory[end].view(nodes, now)
    keys = _keys(memory, end, nodes, view.partner)
    own = count_in(keys, keys)
    counts = np.stack([own, np.zeros_like(own)], axis=2)
    return _event_list(keys, view, counts, _ages(view, np.full(len(nodes), time), now, gap))


def _keys(
    memory: tuple[RecentEvents, RecentEvents], end: int, node: NDArray[np.int64], partner: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the keys of nodes, then of their partners, which are of the other end's type: int64 [n, 1 + m].

    The last bit of a key says which type.
    """
    own, other = (0, 0) if memory[0] is memory[1] else (end, 1 - end)
    partners = np.where(partner < 0, _NOBODY, 2 * partner + other)
    return np.concatenate([(2 * node + own)[:, None], partners], axis=1)


def _event_list(
    keys: NDArray[np.int64], view: RecentView, counts: NDArray[np.int64], ages: NDArray[np.float64]
) -> EventList:
    kind = np.concatenate([np.zeros_like(view.kind[:, :1]), view.kind + 1], axis=1)
    return EventList(torch.from_numpy(keys), torch.from_numpy(kind), _float(ages), _float(counts))


def _ages(view: RecentView, time: NDArray[np.int64], now: int, gap: float) -> NDArray[np.float64]:
    """Return ages of the last event at all, then of each event: float64 [n, 1 + length, 2]."""
    last, number = view.last_time.max(axis=1), view.last_number.max(axis=1)
    never = number < 0
    since = np.where(never, _LONG_AGO_TIME, (time - last) / gap)
    events = np.where(never, _LONG_AGO_EVENTS, now - number)
    times = np.where(view.partner < 0, 0.0, (time[:, None] - view.time) / gap)
    numbers = np.where(view.partner < 0, 0, now - view.number)
    ages = np.stack(
        [
            np.concatenate([since[:, None], times], axis=1),
            np.concatenate([events[:, None], numbers], axis=1),
        ],
        axis=2,
    )
    return np.asarray(np.maximum(ages, 0.0))


def _numbers(view: RecentView, time: NDArray[np.int64], now: int, gap: float) -> NDArray[np.float64]:
    """Return numbers of each node: how often it had events, and how long ago in either role."""
    never = view.last_number < 0
    since = np.where(never, _LONG_AGO_TIME, np.maximum(time[:, None] - view.last_time, 0) / gap)
    events = np.where(never, _LONG_AGO_EVENTS, now - view.last_number)
    rate = np.log(view.rate.reshape(len(view.rate), -1) + 1e-3) / 5.0
    count = np.log1p(view.count)[:, None] / 5.0
    return np.concatenate([rate, np.log1p(since) / 10.0, np.log1p(events) / 10.0, count], axis=1)


def _float(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
