"""Counter of ids that were looked up in a model's stored vectors, and of those that had none."""

from __future__ import annotations

import threading

__all__ = ["LookupCounter"]


class LookupCounter:
    """Rows answered for original ids, and the default rows among them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = 0
        self._default_rows = 0

    def add(self, rows: int, default_rows: int) -> None:
        """Count rows of one call, default rows among them."""
        with self._lock:
            self._rows += rows
            self._default_rows += default_rows

    def counts(self) -> tuple[int, int]:
        """Return rows and default rows, of the same calls."""
        with self._lock:
            return self._rows, self._default_rows
