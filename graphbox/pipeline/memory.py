"""The largest resident memory of this process during a stretch of work."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["SAMPLE_S", "PeakMemory", "resident_bytes"]

SAMPLE_S = 0.05
"""Seconds between samples where the kernel does not keep the peak."""
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


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
