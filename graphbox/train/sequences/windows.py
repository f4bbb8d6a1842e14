"""Windows: pieces of histories, packed into blocks in which little is padding.

A window is up to ``window`` events and the event after each of them. The events of a node are cut from the
last one backwards, so that each event but a node's first is predicted by one window, from the events of its
window before it. Only events that may be learnt from are in one: no window sees a held-out event, and no
prediction sees an event after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.train.compressed import CompressedRows

_LENGTHS_TO = 8
"""Up to this length windows share a block only with those of their own length."""
_LENGTH_RATIO = 1.25
"""Beyond it a window is at least this part of its block's length, about."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Pieces of histories to learn from.

    Attributes:
        items: int64 [e], items of the events, node by node.
        start: int64 [w], where the first event of each window is in ``items``.
        length: int64 [w], how many events it has to predict from; at least one.
    """

    items: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    @staticmethod
    def of(histories: CompressedRows, window: int) -> Windows:
        """Return the windows of histories; those of fewer than two events have none.

        Args:
            histories: items of the events of each node, in their order.
            window: most events of a window.
        """
        predicted = np.maximum(np.diff(histories.offsets) - 1, 0)
        count = -(-predicted // window)
        row = np.repeat(np.arange(len(predicted)), count)
        from_last = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        end = histories.offsets[1:][row] - 1 - from_last * window
        start = np.maximum(end - window, histories.offsets[:-1][row])
        return Windows(histories.values, start, end - start)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.start)

    def pack(self, rows: NDArray[np.int64]) -> PackedWindows:
        """Return some windows, given by their numbers, in blocks."""
        packed = pack(self.items, self.start[rows], self.length[rows])
        return PackedWindows(packed, self.items[packed.places + 1])


@dataclass(frozen=True, eq=False)
class PackedEvents:
    """Sequences in blocks; see :class:`graphbox.models.sequence_blocks.SequenceNetwork`.

    Attributes:
        items: int64 [sum of n * L], the item of each event; of padding that of the last event.
        shapes: of each block the number of sequences n and their padded length L.
        events: int64 [events], which places of ``items`` are events.
        places: int64 [events], where each of them is in the array that was packed.
        last: int64 [sequences], where the last event of each sequence is in ``items``, in the order in which
            the sequences were given.
    """

    items: NDArray[np.int64]
    shapes: tuple[tuple[int, int], ...]
    events: NDArray[np.int64]
    places: NDArray[np.int64]
    last: NDArray[np.int64]

    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sequence of each event, in the order of the blocks, and its place: int64 [events]."""
        counts, lengths = np.array(self.shapes, np.int64).reshape(-1, 2).T
        block = np.repeat(np.arange(len(counts)), counts * lengths)[self.events]
        within = self.events - (np.cumsum(counts * lengths) - counts * lengths)[block]
        first = (np.cumsum(counts) - counts)[block]
        return first + within // lengths[block], within % lengths[block]


@dataclass(frozen=True, eq=False)
class PackedWindows:
    """Windows in blocks, with what is to be predicted.

    Attributes:
        events: the windows.
        targets: int64 [events], the item after each event.
    """

    events: PackedEvents
    targets: NDArray[np.int64]


def pack(items: NDArray[np.int64], start: NDArray[np.int64], length: NDArray[np.int64]) -> PackedEvents:
    """Return sequences in blocks of like length, the shorter first.

    Args:
        items: int64 [e].
        start: int64 [s], where each sequence begins there.
        length: int64 [s], at least 1.
    """
    padded = _padded_length(length)
    order = np.argsort(padded, kind="stable")
    lengths, counts = np.unique(padded, return_counts=True)
    width = padded[order]
    first = np.cumsum(width) - width
    sequence = np.repeat(order, width)
    within = np.arange(len(sequence)) - np.repeat(first, width)
    places = start[sequence] + np.minimum(within, length[sequence] - 1)
    events = np.flatnonzero(within < length[sequence])
    last = np.empty(len(length), np.int64)
    last[order] = first + length[order] - 1
    shapes = tuple(zip(counts.tolist(), lengths.tolist(), strict=True))
    return PackedEvents(items[places], shapes, events, places[events], last)


def last_windows(histories: CompressedRows, window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the last ``window`` events of each history begin, and how many they are: int64 [n]."""
    length = np.minimum(np.diff(histories.offsets), window)
    return histories.offsets[1:] - length, length


def _padded_length(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the length of the block of a sequence of each length: the next of a geometric series."""
    longest = int(length.max(initial=1))
    series = list(range(1, _LENGTHS_TO + 1))
    while series[-1] < longest:
        series.append(max(series[-1] + 1, int(series[-1] * _LENGTH_RATIO)))
    found = np.array(series)
    return np.asarray(np.minimum(found[np.searchsorted(found, length)], longest))
