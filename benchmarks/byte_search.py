"""Searches every byte below a folder for byte strings, also within compressed Parquet and NumPy files."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

__all__ = ["ByteSearch"]

_WINDOW_BYTES = 8
_BLOCK_BYTES = 1 << 24


class ByteSearch:
    """Finds byte strings of at least 8 bytes at any offset.

    Each string is found by its first 8 bytes that are not all the same, then compared whole.

    Args:
        patterns: what each string is called; strings that are called the same are counted together.

    Raises:
        ValueError: a string is shorter than 8 bytes, or of one byte repeated.
    """

    def __init__(self, patterns: Mapping[bytes, str]) -> None:
        self._patterns: dict[int, list[tuple[int, bytes, str]]] = {}
        self._longest = max(map(len, patterns), default=0)
        for pattern, name in patterns.items():
            offset = next(
                (
                    start
                    for start in range(len(pattern) - _WINDOW_BYTES + 1)
                    if len(set(pattern[start : start + _WINDOW_BYTES])) > 1
                ),
                None,
            )
            if offset is None:
                raise ValueError(f"expected at least 8 bytes that differ, received {pattern!r}")
            key = int.from_bytes(pattern[offset : offset + _WINDOW_BYTES], "little")
            self._patterns.setdefault(key, []).append((offset, pattern, name))
        self._keys = np.array(sorted(self._patterns), np.uint64)

    def below(self, folder: Path) -> dict[str, Counter[str]]:
        """Return by file how often each name is found in the files below a folder; {}: nowhere."""
        found = {}
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            counts: Counter[str] = Counter()
            for content in _contents(path):
                counts.update(self.within(content))
            if counts:
                found[str(path.relative_to(folder))] = counts
        return found

    def within(self, content: bytes | npt.NDArray[np.uint8]) -> Iterator[str]:
        """Yield the name of each string that is found."""
        data = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
        overlap = self._longest + _WINDOW_BYTES
        for start in range(0, len(data), _BLOCK_BYTES):
            block = data[start : start + _BLOCK_BYTES + overlap]
            for shift in range(_WINDOW_BYTES):
                words = block[shift : shift + (len(block) - shift) // _WINDOW_BYTES * _WINDOW_BYTES]
                numbers = words.view(np.uint64) if words.flags.c_contiguous else words.copy().view(np.uint64)
                place = np.minimum(np.searchsorted(self._keys, numbers), len(self._keys) - 1)
                for index in np.flatnonzero(self._keys[place] == numbers).tolist():
                    at = start + shift + index * _WINDOW_BYTES
                    if at < start + _BLOCK_BYTES:
                        yield from self._at(data, at)

    def _at(self, data: npt.NDArray[np.uint8], at: int) -> Iterator[str]:
        key = int.from_bytes(data[at : at + _WINDOW_BYTES].tobytes(), "little")
        for offset, pattern, name in self._patterns[key]:
            first = at - offset
            if first >= 0 and data[first : first + len(pattern)].tobytes() == pattern:
                yield name


def _contents(path: Path) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the bytes of a file, and what it has compressed."""
    if path.stat().st_size:
        yield np.memmap(path, np.uint8, "r")
    if path.suffix == ".parquet":
        yield from _columns(path)
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield np.frombuffer(archive.read(name), np.uint8)


def _columns(path: Path) -> Iterable[npt.NDArray[np.uint8]]:
    table = pq.read_table(io.BytesIO(path.read_bytes()), partitioning=None)
    for column in table.columns:
        for chunk in column.chunks:
            arrays = [chunk, chunk.dictionary] if hasattr(chunk, "dictionary") else [chunk]
            for array in arrays:
                yield from (
                    np.frombuffer(buffer, np.uint8) for buffer in array.buffers() if buffer is not None
                )
