"""Name and instruction sets of the processor."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

__all__ = ["processor_features", "processor_name"]


def processor_name() -> str:
    """Return the model of the processor, or its architecture where the system does not say."""
    return _first("model name") or platform.machine()


def processor_features() -> str:
    """Return the architecture and a digest of the instruction sets; machine code depends on them."""
    listed = _first("flags") or _first("Features")
    digest = hashlib.sha256(" ".join(sorted(listed.split())).encode()).hexdigest()
    return f"{platform.machine()} {digest[:12]}"


@functools.cache
def _first(key: str) -> str:
    """Return the first value of a key of ``/proc/cpuinfo``; empty: there is none."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
