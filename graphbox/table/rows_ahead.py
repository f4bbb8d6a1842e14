"""Rows of batches to come, read from SSD into memory while other batches are used."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from graphbox.native import Int64Array
from graphbox.table.host_table import host_table

if TYPE_CHECKING:
    from graphbox.table.protocol import Table
    from graphbox.table.tier import Prefetch

BatchKeys: TypeAlias = Mapping[str, Int64Array]
"""Keys that a batch will look up, by the name of their table."""

_SHARE_OF_ROOM: Final = 0.4
"""Part of the room in memory that the rows of a window may take: two windows are there at a time."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Batches whose rows are read together."""

    batches: int
    reading: Sequence[Prefetch]


class RowsAhead:
    """Brings rows of tables on SSD into memory before their batches are used.

    Batches that follow each other are a window. While one is used the rows of the next are read, each once,
    in the order of the disk (:meth:`EmbeddingTable.prefetch`). A window has as many batches as leave room for
    two windows' rows; the first has one, and each may have twice as many as the one before, so that no loop
    waits long for its first batch. Nothing but where rows are depends on this.

    Args:
        tables: by name; those that have all their rows in memory are left alone.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = {
            name: host_table(table, "reading rows ahead")
            for name, table in tables.items()
            if table.path is not None
        }
        # How many different keys there were for each key of a window: fewer, the more batches it has.
        self._different = dict.fromkeys(self._tables, 1.0)

    @property
    def is_needed(self) -> bool:
        """Whether a table has rows on SSD."""
        return bool(self._tables)

    def over(self, passes: Iterable[Sequence[BatchKeys]]) -> Generator[None, None, None]:
        """Yield for each batch of each pass, in order, when its rows are in memory.

        The next pass is taken from ``passes`` when the last window of the one before is about to be used.
        Closing this ends the reading.

        Args:
            passes: the keys of batches that are known together.

        Raises:
            GraphboxError: what went wrong while rows were read.
        """
        windows = self._windows(iter(passes))
        ahead: _Window | None = None
        try:
            ahead = next(windows, None)
            while ahead is not None:
                for each in ahead.reading:
                    each.wait()
                batches, ahead = ahead.batches, None
                ahead = next(windows, None)
                for _ in range(batches):
                    yield
        finally:
            for each in () if ahead is None else ahead.reading:
                each.cancel()
                each.join()

    def _windows(self, passes: Iterator[Sequence[BatchKeys]]) -> Iterator[_Window]:
        most_batches = 1
        for batches in passes:
            room = {
                name: _SHARE_OF_ROOM * table.tier_statistics().room_rows
                for name, table in self._tables.items()
            }
            first = 0
            while first < len(batches):
                window = self._fitting(batches, first, most_batches, room)
                first, most_batches = first + len(window), 2 * len(window)
                yield _Window(len(window), self._read(window))

    def _fitting(
        self, batches: Sequence[BatchKeys], first: int, most_batches: int, room: Mapping[str, float]
    ) -> list[BatchKeys]:
        """Return the batches of a window: at least one."""
        counts = dict.fromkeys(room, 0)
        window: list[BatchKeys] = []
        for number in range(first, min(first + most_batches, len(batches))):
            keys = batches[number]
            for name in counts:
                counts[name] += len(keys.get(name, ()))
            if window and any(counts[name] * self._different[name] > room[name] for name in counts):
                break
            window.append(keys)
        return window

    def _read(self, window: Sequence[BatchKeys]) -> list[Prefetch]:
        """Begin to read the rows of a window."""
        reading = []
        for name, table in self._tables.items():
            parts = [keys[name] for keys in window if name in keys]
            wanted = _different(parts)
            if len(wanted):
                self._different[name] = len(wanted) / sum(map(len, parts))
                reading.append(table.prefetch(wanted))
        return reading


def _different(parts: Sequence[Int64Array]) -> Int64Array:
    keys = np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))
    is_first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]
