"""Text files as blocks of whole records: opened, decompressed and cut, ahead of who parses them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox import _core
from graphbox.errors import DataError
from graphbox.graph.source.location import InputFile

TEXT_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
"""Codec by the last suffix of a text file's name."""

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_RECORD_BYTES = 16 << 20
_HEADER_BYTES = 1 << 16


@dataclass(frozen=True, eq=False)
class TextBlock:
    """Whole records of a text.

    Attributes:
        text: their bytes, uint8.
        offset: place of the first one in the decompressed file.
        read_bytes: bytes of the file consumed so far, compressed ones where it is compressed.
    """

    text: npt.NDArray[np.uint8]
    offset: int
    read_bytes: int


@dataclass(frozen=True)
class TextHeader:
    """The first record of a text.

    Attributes:
        cells: its cells; empty when the file is.
        line: its line, from 1.
        next_offset: place of the record after it in the decompressed file.
        next_line: line of the record after it, from 1.
    """

    cells: tuple[str, ...]
    line: int
    next_offset: int
    next_line: int


@dataclass(frozen=True)
class TextOpening:
    """First lines of a text without a header line.

    Attributes:
        comment_lines: number of comment lines before the first record.
        offset: place of the line after them in the decompressed file; 0 where there are none.
        line: that line, from 1.
        records: the first lines after them that are not blank, at most two; what is not UTF-8 is replaced.
    """

    comment_lines: int
    offset: int
    line: int
    records: tuple[str, ...]


class TextFile:
    """A text file of records, plain, gzipped or Zstandard compressed.

    Args:
        file: the file.
        delimiter: the character between cells.
        quote: the character that quotes cells, or an empty string where none does.
    """

    def __init__(self, file: InputFile, delimiter: str, quote: str) -> None:
        self.file = file
        self.delimiter = delimiter.encode()
        self.quote = quote.encode()

    def header(self) -> TextHeader:
        """Read the first record that is not blank.

        Raises:
            DataError: it is malformed or not UTF-8, or the file is damaged.
        """
        text = b""
        found = None
        with self._opened() as (_, stream):
            while found is None:
                more = self._read(stream, max(_HEADER_BYTES, len(text)))
                text += more
                skipped = self.mark_bytes(text)
                last = not more or len(text) > _LONGEST_RECORD_BYTES
                rest = np.frombuffer(text, np.uint8)[skipped:]
                found = _core.read_text_header(rest, self.delimiter, self.quote, last)
        cells, size, lines, malformed = found
        if malformed:
            raise DataError(
                "expected a header line of UTF-8 text, received "
                + repr(b",".join(cells)[:80].decode("utf-8", "backslashreplace")),
                where=f"{self.file.name}:{max(lines, 1)}",
                hint="save the file as UTF-8, with every quoted cell closed",
            )
        return TextHeader(tuple(cell.decode() for cell in cells), max(lines, 1), skipped + size, lines + 1)

    def opening(self, comment: re.Pattern[bytes]) -> TextOpening:
        """Read the beginning of a file without a header line.

        Args:
            comment: what a line of comment begins with.

        Raises:
            DataError: the text is UTF-16, or the file is damaged.
        """
        text = b""
        found = None
        with self._opened() as (_, stream):
            while found is None:
                more = self._read(stream, max(_HEADER_BYTES, len(text)))
                text += more
                last = not more or len(text) > _LONGEST_RECORD_BYTES
                found = _opening_of(text, self.mark_bytes(text), comment, last=last)
        return found

    def mark_bytes(self, start: bytes) -> int:
        """Return how many bytes at the start of the file are no text: the byte order mark of UTF-8.

        Raises:
            DataError: the mark is that of UTF-16.
        """
        if start.startswith(_UTF16_MARKS):
            raise DataError(
                "expected text in UTF-8, received UTF-16", where=self.file.name, hint="save the file as UTF-8"
            )
        return len(_UTF8_MARK) if start.startswith(_UTF8_MARK) else 0

    def blocks(self, block_bytes: int, offset: int = 0) -> Iterator[TextBlock]:
        """Yield the records from a place on, in blocks of about ``block_bytes``.

        Args:
            block_bytes: about how many bytes a block has; a longer record makes it longer.
            offset: place in the decompressed file where a record starts.

        Raises:
            DataError: the file is damaged, or a record is longer than 16 MiB.
        """
        with self._opened(offset) as (raw, stream):
            rest = b""
            while True:
                more = self._read(stream, max(block_bytes, len(rest)))
                text = rest + more if rest else more
                if offset == 0 and text:
                    offset = self.mark_bytes(text)
                    text = text[offset:]
                bytes_of_text = np.frombuffer(text, np.uint8)
                size = _core.whole_records(bytes_of_text, self.delimiter, self.quote) if more else len(text)
                if not size and len(text) > _LONGEST_RECORD_BYTES:
                    raise DataError(
                        f"expected lines of at most {_LONGEST_RECORD_BYTES >> 20} MiB, received a longer one",
                        where=f"{self.file.name}, from byte {offset:,} on",
                        hint="check that this is a text file of lines",
                    )
                if size:
                    yield TextBlock(bytes_of_text[:size], offset, raw.tell())
                if not more:
                    return
                offset += size
                rest = text[size:]

    def lines_at(self, places: Sequence[float], block_bytes: int, first_offset: int) -> Iterator[TextBlock]:
        """Yield whole lines at places all over a plain file; nothing of one that is compressed.

        Args:
            places: ascending shares of the file, from 0 to below 1.
            block_bytes: about how many bytes a block has; blocks do not overlap.
            first_offset: where the first record starts.

        Raises:
            DataError: the file is damaged.
        """
        size = self.file.size_bytes
        with self._opened() as (raw, stream):
            if raw is not stream or size is None or not raw.seekable():
                return
            end = first_offset
            for place in places:
                offset = max(end, min(int(place * size), size - block_bytes))
                raw.seek(offset)
                text = self._read(raw, block_bytes)
                end = offset + len(text)
                begin = 0 if offset == first_offset else text.find(b"\n") + 1
                last = text.rfind(b"\n") + 1
                if begin or offset == first_offset:
                    yield TextBlock(np.frombuffer(text, np.uint8)[begin:last], offset + begin, end)

    @contextlib.contextmanager
    def _opened(self, offset: int = 0) -> Iterator[tuple[pa.NativeFile, pa.NativeFile]]:
        """Open the file at a place of its decompressed text; give the file itself and the text."""
        with self.file.open() as raw:
            codec = self._codec(raw)
            if codec is None:
                if offset:
                    self._skip(raw, offset)
                yield raw, raw
                return
            with pa.CompressedInputStream(raw, codec) as stream:
                self._skip(stream, offset)
                yield raw, stream

    def _codec(self, raw: pa.NativeFile) -> str | None:
        suffix = "." + self.file.file_name.lower().rpartition(".")[2]
        named = TEXT_COMPRESSIONS.get(suffix)
        if not raw.seekable():
            return named
        start = self._read(raw, 4)
        raw.seek(0)
        found = next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)
        if named is not None and found != named and start:
            raise DataError(
                f"expected a {named} file, received one that starts otherwise",
                where=self.file.name,
                hint=f"write the file again, or take the suffix {suffix} away if it is not compressed",
            )
        return found

    def _skip(self, stream: pa.NativeFile, size: int) -> None:
        if stream.seekable():
            stream.seek(size)
            return
        while size > 0:
            skipped = len(self._read(stream, min(size, _LONGEST_RECORD_BYTES)))
            if not skipped:
                return
            size -= skipped

    def _read(self, stream: pa.NativeFile, size: int) -> bytes:
        try:
            return bytes(stream.read(size))
        except (pa.ArrowException, OSError) as error:
            raise self.file.unreadable(error, "a whole file", "write or fetch the file again") from None


def _opening_of(text: bytes, begin: int, comment: re.Pattern[bytes], *, last: bool) -> TextOpening | None:
    """Return how a text begins, or None where more of it must be read to know."""
    comment_lines, offset, line = 0, 0, 1
    records: list[str] = []
    at, number = begin, 1
    while at < len(text) and len(records) < 2:
        end = text.find(b"\n", at)
        if end < 0 and not last:
            return None
        record = text[at:] if end < 0 else text[at:end]
        at, number = (len(text) if end < 0 else end + 1), number + 1
        if not records and comment.match(record):
            comment_lines, offset, line = comment_lines + 1, at, number
        elif record.strip():
            records.append(record.decode("utf-8", "replace").rstrip("\r"))
    return TextOpening(comment_lines, offset, line, tuple(records)) if last or len(records) == 2 else None
