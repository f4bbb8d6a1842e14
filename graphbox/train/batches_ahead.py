"""Batches of an epoch in their order, whose rows are read from SSD before it is their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Generic, TypeVar

from graphbox.table import RowsAhead, Table
from graphbox.table.rows_ahead import BatchKeys

Batch = TypeVar("Batch")

_PASS_BATCHES = 32
"""Batches that are made ahead together, where rows are on SSD; at most two such passes are held."""


class BatchesAhead(Generic[Batch]):
    """Makes batches when they are asked for or, where tables have rows on SSD, ahead of that.

    Args:
        make: makes a batch of an epoch, by their numbers; the batch depends on nothing else.
        keys: what a batch looks up, by the name of the table.
        tables: by name.
    """

    def __init__(
        self,
        make: Callable[[int, int], Batch],
        keys: Callable[[Batch], BatchKeys],
        tables: Mapping[str, Table],
    ) -> None:
        self._make = make
        self._keys = keys
        self._rows = RowsAhead(tables)
        self._stream: Generator[Batch, None, None] | None = None
        self._next = (0, 0)

    def take(self, epoch: int, batch: int, batches: int) -> Batch:
        """Return a batch; those after it, of ``batches`` in the epoch, are expected to be asked for next."""
        if not self._rows.is_needed:
            return self._make(epoch, batch)
        if self._stream is None or self._next != (epoch, batch):
            self.close()
            self._stream = self._batches(epoch, batch, batches)
        self._next = (epoch, batch + 1)
        return next(self._stream)

    def close(self) -> None:
        """Forget what was made ahead; before what batches depend on changes, and before tables are closed."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _batches(self, epoch: int, first: int, batches: int) -> Generator[Batch, None, None]:
        made: deque[Batch] = deque()

        def passes() -> Iterator[list[BatchKeys]]:
            for start in range(first, batches, _PASS_BATCHES):
                together = [
                    self._make(epoch, batch) for batch in range(start, min(start + _PASS_BATCHES, batches))
                ]
                made.extend(together)
                yield [self._keys(each) for each in together]

        rows = self._rows.over(passes())
        try:
            for _ in rows:
                yield made.popleft()
        finally:
            rows.close()
