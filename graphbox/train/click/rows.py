"""Rows of a log, read from the store by blocks: in order to be measured, shuffled to be learnt.

A log may be larger than memory. What is in memory is a window of blocks, and the one that is read ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from graphbox.fields import Rows, take_rows
from graphbox.graph.columns import Column, stacked
from graphbox.models.click_fields import ClickFields
from graphbox.sample.loader.prefetch import OrderedPrefetch, Prefetching
from graphbox.train.click.labels import UNKNOWN
from graphbox.train.view import GraphView

BLOCK_ROWS = 8192
"""Rows that are read together."""

_WINDOW_BLOCKS = 32
_SPREAD_BLOCKS = 8
_MEASURED_ROWS = 32_768

Window = tuple[Rows, NDArray[np.int8]]
"""Prepared rows, and their labels: int8 [rows, labels]."""


@dataclass(frozen=True, eq=False)
class LogRows:
    """Some rows of a log, with their labels.

    Attributes:
        view: the graph; the labels may be hidden in it.
        node_type: whose nodes the rows are.
        fields: what is read of a row.
        chosen: bool [n], which of the nodes ``first`` to ``first + n - 1`` these are.
        labels: int8 [n, labels], 1 positive, 0 negative, -1 unknown.
        first: see ``chosen``.
    """

    view: GraphView
    node_type: str
    fields: ClickFields
    chosen: NDArray[np.bool_]
    labels: NDArray[np.int8]
    first: int = 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self.chosen))

    def with_label(self, number: int) -> LogRows:
        """Return the rows that have one of the labels, with that one alone."""
        labels = self.labels[:, number : number + 1]
        return replace(self, chosen=self.chosen & (labels[:, 0] != UNKNOWN), labels=labels)

    def chosen_labels(self) -> NDArray[np.int8]:
        """Return the labels of these rows, in order: int8 [rows, labels]."""
        return self.labels[self.chosen]

    def block_sizes(self) -> NDArray[np.int64]:
        """Return the number of rows in each block: int64 [blocks]."""
        starts = np.arange(0, len(self.chosen), BLOCK_ROWS)
        return np.add.reduceat(self.chosen, starts, dtype=np.int64) if len(starts) else starts

    def read(self, blocks: Sequence[int] | NDArray[np.int64]) -> Window:
        """Return the rows of some blocks, one block after the other, and their labels."""
        places = [
            start + np.flatnonzero(self.chosen[start : start + BLOCK_ROWS])
            for start in (int(block) * BLOCK_ROWS for block in blocks)
        ]
        return self.fields.prepare(self._columns(places)), self.labels[np.concatenate(places)]

    def some_columns(self, count: int) -> dict[str, Column]:
        """Return the columns of at most ``count`` rows, evenly spread over some blocks, in order."""
        blocks = np.flatnonzero(self.block_sizes())
        blocks = blocks[np.unique(np.linspace(0, len(blocks) - 1, _SPREAD_BLOCKS).astype(int))]
        places = np.concatenate(
            [
                start + np.flatnonzero(self.chosen[start : start + BLOCK_ROWS])
                for start in (blocks * BLOCK_ROWS).tolist()
            ]
        )
        places = places[np.unique(np.linspace(0, len(places) - 1, min(count, len(places))).astype(int))]
        return self._columns(np.split(places, np.flatnonzero(np.diff(places // BLOCK_ROWS)) + 1))

    def windows(self) -> Iterator[Window]:
        """Yield all rows in order, as many at a time as memory is to hold."""
        blocks = np.flatnonzero(self.block_sizes())
        for start in range(0, len(blocks), _WINDOW_BLOCKS):
            yield self.read(blocks[start : start + _WINDOW_BLOCKS])

    def measured_windows(self) -> list[NDArray[np.int64]]:
        """Return the blocks of windows over all rows in order, small enough for processes to divide.

        They depend on the rows alone, so that each window is measured by the same operations in one process
        and in several.
        """
        sizes = self.block_sizes()
        blocks = np.flatnonzero(sizes)
        number = (np.cumsum(sizes[blocks]) - sizes[blocks]) // _MEASURED_ROWS
        return np.split(blocks, np.flatnonzero(np.diff(number)) + 1) if len(blocks) else []

    def _columns(self, places: Sequence[NDArray[np.int64]]) -> dict[str, Column]:
        return {
            field.name: stacked([self._column(field.name, rows) for rows in places if len(rows)])
            for field in self.fields.fields
        }

    def _column(self, name: str, places: NDArray[np.int64]) -> Column:
        low, high = int(places[0]), int(places[-1]) + 1
        column = self.view.feature_rows(self.node_type, name, self.first + low, self.first + high)
        return column.take(places - low)


class ShuffledBatches:
    """The batches of an epoch: blocks in a shuffled order, and the rows of a window of them shuffled.

    Which rows a batch has depends on the rows, the seed, the epoch and the batch alone.

    Args:
        log: the rows.
        batch_size: rows in a batch, about: those of a window are dealt out evenly.
        seed: of the order.
        epoch: of the order.
    """

    def __init__(self, log: LogRows, batch_size: int, seed: int, epoch: int) -> None:
        self._log = log
        self._seed, self._epoch = seed, epoch
        sizes = log.block_sizes()
        blocks = np.flatnonzero(sizes)
        self._generator().shuffle(blocks)
        self._windows = [
            blocks[start : start + _WINDOW_BLOCKS] for start in range(0, len(blocks), _WINDOW_BLOCKS)
        ]
        self._sizes = [int(sizes[window].sum()) for window in self._windows]
        counts = [max(1, round(size / batch_size)) for size in self._sizes]
        self._ends = np.cumsum([0, *counts])
        self._ahead: OrderedPrefetch[Window] | None = None
        self._held: tuple[int, Window] | None = None
        self._next = -1

    def __len__(self) -> int:
        return int(self._ends[-1])

    def batch(self, number: int, part: tuple[int, int] = (0, 1)) -> Window:
        """Return the rows of a batch and their labels; batches are best asked for in order.

        Args:
            number: of the batch.
            part: (i, n): part i of n of the batch alone.
        """
        place, begin, end = self._place(number)
        rows, labels = self._window(place)
        index = np.arange(begin, end)
        index = index[part[0] * len(index) // part[1] : (part[0] + 1) * len(index) // part[1]]
        return take_rows(rows, index), labels[index]

    def size_of(self, number: int) -> int:
        """Return how many rows a batch has."""
        _, begin, end = self._place(number)
        return end - begin

    def _place(self, number: int) -> tuple[int, int, int]:
        """Return the window of a batch, and where in that it begins and ends."""
        place = int(np.searchsorted(self._ends, number, side="right")) - 1
        parts = int(self._ends[place + 1] - self._ends[place])
        part, size = number - int(self._ends[place]), self._sizes[place]
        return place, part * size // parts, (part + 1) * size // parts

    def close(self) -> None:
        """Stop reading ahead."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = self._held = None

    def _window(self, number: int) -> Window:
        if self._held is not None and self._held[0] == number:
            return self._held[1]
        if self._ahead is None or number != self._next:
            self.close()
            self._ahead = OrderedPrefetch(
                self._shuffled,
                range(number, len(self._windows)),
                lambda window: f"window {window + 1} of {len(self._windows)} of rows",
                Prefetching(threads=1, ahead=1, timeout_seconds=0, thread_name="graphbox-rows"),
            )
        self._held = None  # before another one is waited for
        self._held = number, next(self._ahead)
        self._next = number + 1
        return self._held[1]

    def _shuffled(self, number: int) -> Window:
        rows, labels = self._log.read(self._windows[number])
        order = self._generator(number).permutation(len(labels))
        return take_rows(rows, order), labels[order]

    def _generator(self, *window: int) -> np.random.Generator:
        """Return what orders the blocks, or the rows of a window; no window is not window 0."""
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(self._epoch, *window)))
