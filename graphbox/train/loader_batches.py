"""Batches of a loader by epoch and number, as a training asks for them."""

from __future__ import annotations

from typing import Any

from graphbox.sample.loader.base import Loader, LoaderIterator


class LoaderBatches:
    """Gives the batches of a loader by their numbers; threads make those ahead that come in order.

    Args:
        loader: the loader, which nothing else iterates over.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._batches: LoaderIterator | None = None
        self._next = (0, 0)

    def __len__(self) -> int:
        return len(self._loader)

    def take(self, epoch: int, batch: int) -> Any:
        """Return a batch of an epoch."""
        if self._batches is None or self._next != (epoch, batch):
            self.close()
            self._loader.load_state_dict({**self._loader.state_dict(), "epoch": epoch, "batch": batch})
            self._batches = iter(self._loader)
        self._next = (epoch, batch + 1)
        return next(self._batches)

    def close(self) -> None:
        """End the threads that make batches ahead."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None
