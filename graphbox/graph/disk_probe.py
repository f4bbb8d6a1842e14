"""Current read and write rates of a folder's disk, measured with a short file."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from graphbox.errors import UsageError

_PROBE_BYTES = 64 << 20
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class DiskRates:
    """Sequential rates of a disk.

    Attributes:
        read_bytes_per_s: reading what is not in the page cache.
        write_bytes_per_s: writing until it is on the disk.
    """

    read_bytes_per_s: float
    write_bytes_per_s: float


def existing_folder(path: Path) -> Path:
    """Return ``path``, or its nearest parent that is there: the disk where ``path`` would be."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def measure_disk(folder: Path, probe_bytes: int = _PROBE_BYTES) -> DiskRates:
    """Write and read a temporary file of ``probe_bytes``, or of half of what is free where that is less.

    Raises:
        UsageError: the folder cannot be written.
    """
    block = os.urandom(_BLOCK_BYTES)  # a disk that compresses must not look faster than it is
    try:
        free_bytes = shutil.disk_usage(existing_folder(folder)).free
        blocks = max(1, min(probe_bytes, free_bytes // 2) // _BLOCK_BYTES)
        with tempfile.TemporaryFile(dir=existing_folder(folder), buffering=0) as file:
            started = time.perf_counter()
            for _ in range(blocks):
                file.write(block)
            os.fsync(file.fileno())
            written = time.perf_counter() - started
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            started = time.perf_counter()
            while file.read(_BLOCK_BYTES):
                pass
            read = time.perf_counter() - started
    except OSError as error:
        raise UsageError(
            f"the disk cannot be measured: {error.strerror or error}",
            where=str(folder),
            hint="name a workspace that can be written with -C",
        ) from None
    size = blocks * _BLOCK_BYTES
    return DiskRates(size / max(read, 1e-6), size / max(written, 1e-6))
