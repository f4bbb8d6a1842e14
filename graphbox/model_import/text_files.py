"""Rows of text files (word2vec, GloVe, PGLBox's dumps) and of word2vec's binary format, in blocks.

* word2vec's text has a first line with the number of rows and their length, GloVe's has none; then a line for
  each row: the word and its numbers, separated by spaces or tabs.
* PGLBox writes a folder of part files ``part-*`` with lines ``id TAB numbers``, without a first line.
* word2vec's binary format has the first line of the text, then for each row the word, a space and its float32
  numbers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import DataError, NotFoundError
from graphbox.model_import.row_blocks import RowBlock, block_rows

__all__ = ["part_blocks", "word2vec_binary_blocks", "word2vec_blocks"]

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_MAX_DIM = 65_536
_LONGEST_LINE_BYTES = 16 << 20
_LONGEST_WORD_BYTES = 1 << 16
_READ_BYTES = 1 << 20


def word2vec_blocks(path: Path) -> Iterator[RowBlock]:
    """Yield the rows of a text file, with or without a first line; ``.gz`` and ``.zst`` are decompressed.

    Raises:
        DataError: a line is no id with as many numbers as the first one, or rows are missing.
    """
    lines = _Lines(path)
    announced = None
    first = next(lines, None)
    if first is not None:
        fields = first.split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            announced = int(fields[0]), int(fields[1])
            first = next(lines, None)
    dim = None if announced is None else announced[1]
    count = 0
    for block in _parsed(first, lines, dim):
        count += len(block.rows)
        yield block
    if announced is not None and count != announced[0]:
        raise DataError(
            f"expected {announced[0]} rows, as the first line says, received {count}", where=str(path)
        )


def part_blocks(path: Path) -> Iterator[RowBlock]:
    """Yield the rows of a PGLBox dump: a part file, or a folder of ``part-*``, in the order of their names.

    Raises:
        NotFoundError: the folder has no part files.
        DataError: a line is no id with as many numbers as the first one.
    """
    parts = [path] if path.is_file() else sorted(each for each in path.rglob("part-*") if each.is_file())
    if not parts:
        raise NotFoundError("expected part files `part-*`, found none", where=str(path))
    dim: int | None = None
    for part in parts:
        lines = _Lines(part)
        for block in _parsed(next(lines, None), lines, dim):
            dim = block.rows.shape[1]
            yield block


def word2vec_binary_blocks(path: Path) -> Iterator[RowBlock]:
    """Yield the rows of a file in word2vec's binary format; ``.gz`` and ``.zst`` are decompressed.

    Raises:
        DataError: it is no such file, or it ends before its last row.
    """
    where = str(path)
    with _opened(path) as stream:
        fields = stream.readline(64).split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            raise DataError("expected a first line with two integers, rows and length", where=f"{where}:1")
        count, dim = map(int, fields)
        _check_dim(dim, f"{where}:1")
        words = _BinaryRows(stream, dim, where)
        step = block_rows(dim)
        for start in range(0, count, step):
            number = min(step, count - start)
            rows = np.empty((number, dim), np.float32)
            ids = [words.read(start + index, rows[index]) for index in range(number)]
            yield RowBlock(rows, pa.array(ids, pa.large_string()))
        if words.has_more():
            raise DataError(f"expected {count} rows, as the first line says, received more", where=where)


class _Lines:
    """Lines of a text file that are not empty; ``number`` counts from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self._lines = self._read()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._lines)

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"

    def _read(self) -> Iterator[bytes]:
        with _opened(self.path) as stream:
            while line := stream.readline(_LONGEST_LINE_BYTES):
                self.number += 1
                if len(line) == _LONGEST_LINE_BYTES:
                    raise DataError(
                        f"expected a text file, received a line of more than {_LONGEST_LINE_BYTES} bytes",
                        where=self.where,
                    )
                if line.strip():
                    yield line


class _BinaryRows:
    """Reads words and rows from a stream."""

    def __init__(self, stream: IO[bytes], dim: int, where: str) -> None:
        self._stream = stream
        self._row_bytes = 4 * dim
        self._where = where
        self._data = b""
        self._position = 0

    def read(self, number: int, row: npt.NDArray[np.float32]) -> str:
        """Read one row into ``row`` and return its word."""
        where = f"{self._where}, row {number}"
        while (space := self._data.find(b" ", self._position)) < 0:
            if len(self._data) - self._position > _LONGEST_WORD_BYTES or not self._read_more():
                raise DataError(
                    "expected a word and a space, the file ends or is of another format", where=where
                )
        while len(self._data) < space + 1 + self._row_bytes:
            kept_from = self._position
            if not self._read_more():
                raise DataError(f"expected {self._row_bytes} bytes of numbers, the file ends", where=where)
            space -= kept_from
        start = space + 1
        word = self._data[self._position : space].lstrip(b"\n")
        row[:] = np.frombuffer(self._data, "<f4", len(row), start)
        self._position = start + self._row_bytes
        return _decoded(word, where)

    def has_more(self) -> bool:
        """Return whether anything but line ends follows."""
        while not self._data[self._position :].strip():
            self._position = len(self._data)
            if not self._read_more():
                return False
        return True

    def _read_more(self) -> bool:
        more = self._stream.read(max(_READ_BYTES, self._row_bytes))
        self._data = self._data[self._position :] + more
        self._position = 0
        return bool(more)


def _parsed(first: bytes | None, lines: _Lines, dim: int | None) -> Iterator[RowBlock]:
    """Yield blocks of lines with an id and numbers.

    Args:
        first: line that was read already.
        lines: the others.
        dim: how many numbers; None: as many as the first line has.
    """
    if first is None:
        return
    if dim is None:
        dim = _dim_of(first)
    _check_dim(dim, lines.where)
    # Numbers are texts until a block is complete.
    step = block_rows(8 * dim)
    ids: list[str] = []
    numbers: list[bytes] = []
    places: list[int] = []
    line: bytes | None = first
    while line is not None:
        identifier, values = _fields(line, dim, lines.where)
        ids.append(identifier)
        numbers += values
        places.append(lines.number)
        line = next(lines, None)
        if len(ids) == step or line is None:
            yield RowBlock(_numbers(numbers, dim, places, lines.path), pa.array(ids, pa.large_string()))
            ids, numbers, places = [], [], []


def _fields(line: bytes, dim: int, where: str) -> tuple[str, list[bytes]]:
    """Return the id and the numbers of a line. An id may have spaces, as some of GloVe's have."""
    identifier, *values = line.rstrip().rsplit(None, dim)
    last = identifier.rsplit(None, 1)[-1]
    # A number that is part of the id is one too many, unless a tab says where the id ends.
    is_longer = b"\t" in identifier or (last != identifier and b"\t" not in line and _is_number(last))
    if len(values) != dim or is_longer:
        raise DataError(f"expected an id and {dim} numbers, received {len(line.split())} fields", where=where)
    return _decoded(identifier, where), values


def _dim_of(line: bytes) -> int:
    """Return how many numbers a line has after its id."""
    if b"\t" in line:
        return len(line.split(b"\t", 1)[1].split())
    are_numbers = [_is_number(field) for field in line.split()[1:]]
    words = next((place for place, is_number in enumerate(are_numbers) if is_number), 0)
    # Words and then numbers only: all words are the id.
    return len(are_numbers) - words if all(are_numbers[words:]) else len(are_numbers)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _numbers(fields: list[bytes], dim: int, places: list[int], path: Path) -> npt.NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            return np.array(fields).astype(np.float32).reshape(-1, dim)
    except ValueError:
        for index, field in enumerate(fields):
            if not _is_number(field):
                raise DataError(
                    f"expected a number in column {index % dim + 2}, received "
                    f"{field.decode('utf-8', 'replace')!r:.80}",
                    where=f"{path}:{places[index // dim]}",
                ) from None
        raise


def _decoded(word: bytes, where: str) -> str:
    try:
        text = word.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"expected an id in UTF-8, received other bytes ({error})", where=where) from error
    if not text:
        raise DataError("expected an id, received none", where=where)
    return text


def _check_dim(dim: int, where: str) -> None:
    if not 1 <= dim <= _MAX_DIM:
        raise DataError(
            f"expected an id and from 1 to {_MAX_DIM} numbers on a line, received {dim} numbers", where=where
        )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with _decompressed(path) as stream:
            yield stream
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"expected a whole file, could not read it ({error})", where=str(path)) from error


def _decompressed(path: Path) -> IO[bytes]:
    codec = _CODECS.get(path.suffix)
    return (
        path.open("rb") if codec is None else io.BufferedReader(pa.input_stream(str(path), compression=codec))
    )
