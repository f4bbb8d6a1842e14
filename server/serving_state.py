"""Models unloaded by request: written by the worker that answers the request, read by all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from graphbox.workspace.serving import ServedModelRecord, ServedModels, ServingRecords
from graphbox.workspace.traffic import ModelTraffic, ShadowSums

__all__ = ["ServingState"]

logger = logging.getLogger("graphbox.server")


class ServingState:
    """The requests about models, as far as this process knows them. Safe to use from any thread.

    Reading never blocks. A database that cannot be read leaves what is known.

    Args:
        records: shared with the other workers; None: this process alone serves, and keeps them itself.

    Attributes:
        traffic: canaries and shadows by model name, as last read; replaced, never changed.
        row_sequences: active row update by name and version of a model, as last read.

    Raises:
        GraphboxError: the records cannot be read.
    """

    def __init__(self, records: ServingRecords | None = None) -> None:
        self.traffic: Mapping[str, ModelTraffic] = {}
        self.row_sequences: Mapping[tuple[str, int], int] = {}
        self._records = records
        self._lock = threading.Lock()
        self._known: Mapping[str, ServedModelRecord] = {}
        self._unloaded: frozenset[str] = frozenset()
        self._change = 0
        self._stamp: tuple[int, ...] | None = None
        self._error: type[Exception] | None = None
        if records is not None:
            self._take(records.read())

    def is_unloaded(self, name: str) -> bool:
        """Return whether a model is not to be served."""
        return name in self._unloaded

    def write(self, name: str, *, unloaded: bool) -> None:
        """Note that a model is, or is not, to be served; this process sees it at once, others when they poll.

        Raises:
            GraphboxError: the database cannot be written; nothing changes.
        """
        if self._records is not None:
            record = self._records.write(name, unloaded=unloaded)
        else:
            record = ServedModelRecord(unloaded, self._change + 1)
        with self._lock:
            self._know({**self._known, name: record})

    def row_sequence(self, name: str, version: int) -> int:
        """Return the number of the active row update of a model version; 0: none is."""
        return self.row_sequences.get((name, version), 0)

    def add_shadow_sums(self, name: str, change: int, sums: ShadowSums) -> None:
        """Add to the sums of a shadow, unless it has ended.

        Raises:
            GraphboxError: the database cannot be written; nothing changes.
        """
        if self._records is not None:
            self._records.add_shadow_sums(name, change, sums)

    def poll(self) -> frozenset[str]:
        """Read what other processes have written; return the names of the models they wrote about.

        An error is logged, unless the last poll had one of the same type.
        """
        if self._records is None:
            return frozenset()
        try:
            stamp = self._records.stamp()
            if stamp is not None and stamp == self._stamp:
                return frozenset()
            written = self._records.read() if self._records.change() != self._change else None
            self._stamp = stamp
        except Exception as error:  # noqa: BLE001 - no error of a database may stop what is served
            if self._error is not type(error):
                logger.error("requests about models cannot be read, retrying: %s", error)
            self._error = type(error)
            return frozenset()
        if self._error is not None:
            logger.warning("requests about models can be read again")
            self._error = None
        return frozenset() if written is None else self._take(written)

    def _take(self, written: ServedModels) -> frozenset[str]:
        """Take over what was read; a request of this process may be later."""
        with self._lock:
            newer = {name: each for name, each in self._known.items() if each.change > written.change}
            records = {**written.records, **newer}
            names = records.keys() | self._known.keys()
            changed = frozenset(name for name in names if records.get(name) != self._known.get(name))
            if written.traffic != self.traffic:
                self.traffic = written.traffic
            self.row_sequences = written.row_sequences
            self._change = written.change
            self._know(records)
        return changed

    def _know(self, records: Mapping[str, ServedModelRecord]) -> None:
        self._known = records
        self._unloaded = frozenset(name for name, record in records.items() if record.unloaded)
