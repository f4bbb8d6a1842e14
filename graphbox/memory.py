"""Memory of this process: what it has, the most it had for a while, and what it may still take."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

SAMPLE_S = 0.05
"""Seconds between samples where the kernel does not keep the peak."""
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1
_MAPPED_BLOCK_BYTES = 1 << 20
_LARGEST_MESSAGE_BYTES = 64 << 20
_KEPT_BYTES = 1 << 30
_MEMORY_INFO = Path("/proc/meminfo")
_CONTROL_GROUPS = Path("/proc/self/cgroup")
_CONTROL_GROUP_ROOT = Path("/sys/fs/cgroup")


class PeakMemory:
    """Measures peak resident memory while its block runs.

    The kernel keeps the peak itself and can reset it (``proc(5)``, ``clear_refs``); where it does not
    allow that, the size is sampled every 50 ms, which can miss short peaks.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampled_bytes = 0
        self._final_bytes: int | None = None

    def __enter__(self) -> Self:
        self._sampled_bytes = resident_bytes()
        if not _reset_peak():
            self._thread = threading.Thread(target=self._sample, name="peak-memory", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._final_bytes = self.bytes
        if self._thread is not None:
            self._stop.set()
            self._thread.join()

    @property
    def bytes(self) -> int:
        """The peak so far, and of the whole block once it has ended."""
        if self._final_bytes is not None:
            return self._final_bytes
        if self._thread is not None:
            return max(self._sampled_bytes, resident_bytes())
        return _status_bytes("VmHWM")

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sampled_bytes = max(self._sampled_bytes, resident_bytes())


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _status_bytes("VmRSS")


def mapped_bytes() -> int:
    """Return how much of it are pages of files, like libraries, that processes have in common."""
    return _status_bytes("RssFile")


def anonymous_bytes() -> int:
    """Return how much of it is anonymous: what the system cannot drop and read again from a file."""
    return _status_bytes("RssAnon")


def release_free_pages() -> None:
    """Return the pages of freed heap blocks to the system, where the C library can (glibc), and Arrow's.

    From the first call on, blocks of 1 MiB and more are mapped one by one, and so returned as they are freed:
    glibc would take blocks of up to 32 MiB from a heap that fragments and shrinks at its end alone
    (``mallopt(3)``, ``malloc_trim(3)``).
    """
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return ``malloc_trim``, after a fixed threshold for mapped blocks was set; None: no glibc."""
    try:
        library = ctypes.CDLL(None)
        trim: Callable[[int], int] = library.malloc_trim
        library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BLOCK_BYTES)
    except (OSError, AttributeError):
        return None
    return trim


def keep_freed_messages() -> None:
    """Let the heap keep freed blocks of up to 64 MiB, 1 GiB of them, where the C library can (glibc).

    Messages of some megabytes come and go all the time in a process that exchanges rows: as mapped blocks
    each would be given back to the system, and all its pages be made anew for the next one, which takes about
    as long as the message. What :func:`release_free_pages` is called for is given back all the same.
    """
    if _malloc_trim() is not None:  # which sets another threshold when it is looked up
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MESSAGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def available_bytes() -> int:
    """Return the memory that can still be taken without swapping.

    That is what the system has available, or less where a control group (of a container, a service, a job)
    allows less: page cache that the group may drop counts as available.
    """
    fields = dict(line.split(":", 1) for line in _MEMORY_INFO.read_text().splitlines())
    system = int(fields["MemAvailable"].split()[0]) * 1024
    return max(0, min([system, *_allowed_by_groups()]))


def _allowed_by_groups() -> Iterator[int]:
    """Yield what each control group that this process is in, or one above it, still allows."""
    try:
        groups = _CONTROL_GROUPS.read_text().splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if not controllers:  # version 2
            root, limit, usage = _CONTROL_GROUP_ROOT, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root = _CONTROL_GROUP_ROOT / "memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = root / path.strip("/")
        for folder in (inner, *inner.parents):
            if folder != root and root not in folder.parents:
                break
            yield from _allowed(folder, limit, usage)


def _allowed(folder: Path, limit: str, usage: str) -> Iterator[int]:
    try:
        text = (folder / limit).read_text().strip()
        used = int((folder / usage).read_text())
        statistics = (folder / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return  # no such group is seen from within a container, and the root group has no limit
    if text == "max":
        return
    fields = dict(zip(statistics[::2], map(int, statistics[1::2]), strict=True))
    droppable = fields.get("inactive_file", 0) + fields.get("active_file", 0)
    yield int(text) - used + droppable


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0
