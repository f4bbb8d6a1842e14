"""Counter of ids that were looked up in a model's stored vectors, and of those that had none."""

from __future__ import annotations

import threading
from typing import Protocol

__all__ = ["LookupCounter"]


class Slots(Protocol):
    """Two integers: rows, and default rows among them."""

    def __getitem__(self, position: int, /) -> int: ...

    def __setitem__(self, position: int, value: int, /) -> None: ...


class LookupCounter:
    """Rows answered for original ids, and the default rows among them. Safe to use from several threads.

    Args:
        slots: where to count, such as shared memory; no other object of this process adds to it. None: in
            this object.
    """

    def __init__(self, slots: Slots | None = None) -> None:
        self._lock = threading.Lock()
        self._slots: Slots = [0, 0] if slots is None else slots

    def add(self, rows: int, default_rows: int) -> None:
        """Count rows of one call, default rows among them."""
        with self._lock:
            self._slots[0] += rows
            self._slots[1] += default_rows

    def counts(self) -> tuple[int, int]:
        """Return rows and default rows, of the same calls."""
        with self._lock:
            return self._slots[0], self._slots[1]
