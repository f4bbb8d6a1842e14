"""Writing a file so that a reader, also after a crash, sees the old one or the new one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["replace_file", "save_tensors", "sync_folder", "write_atomically"]


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary stream whose content becomes ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        replace_file(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def replace_file(beside: Path, path: Path) -> None:
    """Move a finished, synced file or folder into place and make the move durable."""
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors as safetensors.

    Raises:
        OSError: the system refuses, as when the disk is full.
    """
    try:
        save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
