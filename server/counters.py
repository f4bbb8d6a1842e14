"""Counters in shared memory: one file for each worker, summed by whichever worker is asked.

A file is an append-only sequence of records in int64 slots. A record belongs to a group, such as the
statistics of one model version, and has a name within it::

    slot 0        process id of the worker that writes the file, 0: it has ended
    slot 8 on     records: slots of the record in total, bytes of its key, the key, padded, then its counters

The first slot of a record is written last, so that readers in other processes see whole records. A worker
writes to its own file alone, so counting is a plain addition without a lock between processes. The files
have no name in any folder; they are inherited by the workers (``memfd_create``). The successor of a worker
that was killed continues its file, so that no count is lost.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Iterable, Sequence

__all__ = ["GAUGE", "Counters", "create_counter_file", "mark_ended"]

logger = logging.getLogger("graphbox.server")

_SLOT_BYTES = 8
# Address space alone: pages take memory once they are written to.
_FILE_BYTES = 64 * 1024 * 1024
_FIRST_RECORD = 8
_HEADER_SLOTS = 2
_SEPARATOR = "\0"
GAUGE = "gauge"
"""First part of groups whose records say how a worker is, not what it did: its successor begins at 0."""
_GAUGES = (GAUGE,)

Group = tuple[str, ...]


def create_counter_file() -> int:
    """Return the descriptor of a new counter file, all zeros; closed by the caller or with the process."""
    descriptor = os.memfd_create("graphbox-counters")
    os.ftruncate(descriptor, _FILE_BYTES)
    return descriptor


def mark_ended(descriptor: int) -> None:
    """Note in a counter file that its worker has ended: its gauges count no more."""
    os.pwrite(descriptor, bytes(_SLOT_BYTES), 0)


class Counters:
    """The counters of all workers of a server; this process adds to those of one of them.

    Safe to use from several threads, except that additions to one record need a lock of the caller.

    Args:
        descriptors: counter file of each worker; must stay open until this returns.
        worker: position of the file that this process writes.
    """

    def __init__(self, descriptors: Sequence[int], worker: int = 0) -> None:
        self._lock = threading.Lock()
        self._files = [_CounterFile(descriptor) for descriptor in descriptors]
        self._own = self._files[worker]
        self._own.slots[0] = os.getpid()
        for group in self._own.groups():
            if _begins_with(group, _GAUGES):
                for record in self._own.group(group).values():  # of the worker that this one succeeds
                    record[:] = memoryview(bytes(record.nbytes)).cast("q")

    @classmethod
    def of_one_process(cls) -> Counters:
        """Return the counters of a server whose only worker is this process."""
        descriptor = create_counter_file()
        try:
            return cls([descriptor])
        finally:
            os.close(descriptor)

    def record(self, group: Group, name: str, slots: int) -> memoryview[int]:
        """Return the counters of a record of this worker, int64 [slots], 0 where they are new.

        Records of one group and name have the same number of slots everywhere.
        """
        with self._lock:
            return self._own.record(_SEPARATOR.join(group), name, slots)

    def records(self, group: Group) -> dict[str, list[memoryview[int]]]:
        """Return the records of a group by name, one for each worker that has it; to be read alone."""
        key = _SEPARATOR.join(group)
        found: dict[str, list[memoryview[int]]] = {}
        with self._lock:
            for file in self._files:
                for name, counters in file.group(key).items():
                    found.setdefault(name, []).append(counters)
        return found

    def records_of_workers(self, first: Group) -> list[tuple[int, Group, memoryview[int]]]:
        """Return the records of all groups whose first parts are ``first``, of the workers that run.

        Returns:
            Position of the worker, the other parts of the group, and the counters, to be read alone.
        """
        with self._lock:
            return [
                (worker, tuple(group.split(_SEPARATOR)[len(first) :]), counters)
                for worker, file in enumerate(self._files)
                if file.slots[0]
                for group in file.groups()
                if _begins_with(group, first)
                for counters in file.group(group).values()
            ]

    def gauge(self, name: str) -> memoryview[int]:
        """Return the gauge of this worker, int64 [1]; 0 at its start."""
        return self.record(_GAUGES, name, 1)

    def gauge_total(self, name: str) -> int:
        """Return the sum of a gauge over the workers that run."""
        key = _SEPARATOR.join(_GAUGES)
        with self._lock:
            return sum(
                file.group(key)[name][0] for file in self._files if file.slots[0] and name in file.group(key)
            )

    def process_ids(self) -> dict[int, int]:
        """Return the process id of each worker that runs, by position."""
        return {position: file.slots[0] for position, file in enumerate(self._files) if file.slots[0]}


def total(records: Iterable[memoryview[int]]) -> list[int]:
    """Return the sums of each counter over records of the same number of slots; none: no sums."""
    return [sum(values) for values in zip(*records, strict=True)]


class _CounterFile:
    """A mapped counter file, with an index of the records that were found in it."""

    def __init__(self, descriptor: int) -> None:
        self.slots = memoryview(mmap.mmap(descriptor, _FILE_BYTES)).cast("q")
        self._bytes = memoryview(self.slots).cast("B")
        self._end = _FIRST_RECORD
        self._groups: dict[str, dict[str, memoryview[int]]] = {}
        self._is_full = False

    def group(self, group: str) -> dict[str, memoryview[int]]:
        """Return the records of a group by name."""
        self._find_new()
        return self._groups.get(group, {})

    def groups(self) -> list[str]:
        """Return the names of all groups."""
        self._find_new()
        return list(self._groups)

    def record(self, group: str, name: str, slots: int) -> memoryview[int]:
        """Return a record; append it if it is new."""
        self._find_new()
        found = self._groups.get(group, {}).get(name)
        return self._append(group, name, slots) if found is None else found

    def _find_new(self) -> None:
        while self._end < len(self.slots) and (size := self.slots[self._end]):
            key_bytes = self.slots[self._end + 1]
            start = (self._end + _HEADER_SLOTS) * _SLOT_BYTES
            group, _, name = bytes(self._bytes[start : start + key_bytes]).decode().rpartition(_SEPARATOR)
            counters = self.slots[self._end + _HEADER_SLOTS + _slots_of(key_bytes) : self._end + size]
            self._groups.setdefault(group, {})[name] = counters
            self._end += size

    def _append(self, group: str, name: str, slots: int) -> memoryview[int]:
        key = (group + _SEPARATOR + name).encode()
        size = _HEADER_SLOTS + _slots_of(len(key)) + slots
        if self._end + size >= len(self.slots):
            return self._uncounted(group, slots)
        # A writer that was killed here left bytes behind; the size of the record after this one is zero, too.
        zeros = bytes((size + 1) * _SLOT_BYTES)
        self._bytes[self._end * _SLOT_BYTES : self._end * _SLOT_BYTES + len(zeros)] = zeros
        start = (self._end + _HEADER_SLOTS) * _SLOT_BYTES
        self._bytes[start : start + len(key)] = key
        self.slots[self._end + 1] = len(key)
        self.slots[self._end] = size
        self._find_new()
        return self._groups[group][name]

    def _uncounted(self, group: str, slots: int) -> memoryview[int]:
        """Return counters that nothing reads: the file is full."""
        if not self._is_full:
            logger.error("statistics of %s and others are not counted: their file is full", group)
        self._is_full = True
        return memoryview(bytearray(slots * _SLOT_BYTES)).cast("q")


def _begins_with(group: str, first: Group) -> bool:
    return tuple(group.split(_SEPARATOR)[: len(first)]) == first


def _slots_of(size_bytes: int) -> int:
    return -(-size_bytes // _SLOT_BYTES)
