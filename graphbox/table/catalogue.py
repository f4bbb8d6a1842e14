"""The catalogue of a table's folder: which segments hold it, and which of their rows. Kept in LMDB."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Final

import lmdb
import lmdb.verify
import numpy as np

from graphbox import _core
from graphbox.errors import DoesNotFitError, FormatError, GraphboxError
from graphbox.table.catalogue_contents import CatalogueContents, CatalogueDamage, ListedSegment

_FORMAT_VERSION: Final = 1
_FORMAT_TEXT: Final = json.dumps(
    {"format": "graphbox table catalogue", "format_version": _FORMAT_VERSION}
).encode()
_FORMAT_KEY: Final = b"format"
_STATE_KEY: Final = b"state"
_SEGMENT_PREFIX: Final = b"segment/"
_HEADER: Final = struct.Struct("<IIQ")  # checksum of the rest, kind, rows
_KIND_ROWS: Final = 1
_KIND_ERASED: Final = 2
_SMALLEST_MAP_BYTES: Final = 1 << 22


class Catalogue:
    """The LMDB environment of a table's catalogue.

    Each write is one transaction: a reader finds the old contents or the new ones. All values carry a
    checksum, since LMDB has none.

    Args:
        path: its folder; made if it is not there.

    Raises:
        FormatError: there is an LMDB of something else.
        CatalogueDamage: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map_bytes = _SMALLEST_MAP_BYTES
        data = path / "data.mdb"
        if data.exists():
            self._map_bytes = max(self._map_bytes, data.stat().st_size)
            _check_pages(data)
        self._environment = self._opened()
        try:
            self._check_owner()
        except BaseException:
            self._environment.close()
            raise

    def close(self) -> None:
        """Let go of the files."""
        self._environment.close()

    def read(self) -> CatalogueContents:
        """Return what the catalogue says.

        Raises:
            CatalogueDamage: some of it cannot be read.
        """
        state_records: tuple[int, ...] | None = None
        segments = []
        try:
            with self._environment.begin() as transaction:
                for key, value in transaction.cursor():
                    if key == _STATE_KEY:
                        state_records = tuple(json.loads(_unsealed(value)))
                    elif key.startswith(_SEGMENT_PREFIX):
                        segments.append(_segment_of(key, value))
        except (lmdb.Error, ValueError, struct.error) as error:
            raise CatalogueDamage(str(error)) from error
        if state_records is None:
            raise CatalogueDamage("it does not say where the table's settings are")
        in_order = sorted(segments, key=lambda segment: segment.sequence)
        return CatalogueContents(in_order, state_records)

    def write(self, contents: CatalogueContents) -> None:
        """Replace all that the catalogue says, durably and at once.

        Raises:
            DoesNotFitError: the disk is full.
            GraphboxError: the system refuses to write.
        """
        needed = sum(len(segment.live or b"") + 256 for segment in contents.segments)
        while True:
            if self._map_bytes < 4 * needed:
                self._grow(4 * needed)
            try:
                self._write(contents)
                return
            except lmdb.MapFullError:
                self._grow(2 * self._map_bytes)
            except lmdb.Error as error:
                is_full = isinstance(error, lmdb.DiskError) and "space" in str(error).lower()
                raise (DoesNotFitError if is_full else GraphboxError)(
                    f"cannot write the catalogue of the table: {error}",
                    where=str(self._path),
                    hint="free some disk space; what was flushed before is still there",
                ) from error

    def _opened(self) -> lmdb.Environment:
        try:
            return lmdb.open(
                str(self._path), map_size=self._map_bytes, lock=False, max_dbs=0, readahead=False
            )
        except lmdb.Error as error:
            raise CatalogueDamage(str(error)) from error

    def _grow(self, map_bytes: int) -> None:
        self._map_bytes = (map_bytes + _SMALLEST_MAP_BYTES - 1) // _SMALLEST_MAP_BYTES * _SMALLEST_MAP_BYTES
        self._environment.set_mapsize(self._map_bytes)

    def _check_owner(self) -> None:
        try:
            with self._environment.begin() as transaction:
                if transaction.stat()["entries"] == 0:
                    return
                found = transaction.get(_FORMAT_KEY)
        except lmdb.Error as error:
            raise CatalogueDamage(str(error)) from error
        if found is None:
            raise FormatError(
                "expected the catalogue of a table, received an LMDB of something else",
                where=str(self._path),
                hint="give the table a folder of its own",
            )
        try:
            described = json.loads(_unsealed(found))
        except ValueError as error:
            raise CatalogueDamage(str(error)) from error
        if described.get("format_version") != _FORMAT_VERSION:
            raise FormatError(
                f"expected a catalogue of format version {_FORMAT_VERSION}, received "
                f"{described.get('format_version')}",
                where=str(self._path),
                hint="use the version of graphbox that wrote it",
            )

    def _write(self, contents: CatalogueContents) -> None:
        listed = {_segment_key(segment.sequence) for segment in contents.segments}
        with self._environment.begin(write=True) as transaction:
            transaction.put(_FORMAT_KEY, _sealed(_FORMAT_TEXT))
            transaction.put(_STATE_KEY, _sealed(json.dumps(contents.state_records).encode()))
            for key in [key for key, _ in transaction.cursor() if key.startswith(_SEGMENT_PREFIX)]:
                if key not in listed:
                    transaction.delete(key)
            for segment in contents.segments:
                if segment.live is not None:
                    kind = _KIND_ERASED if segment.is_erased else _KIND_ROWS
                    rest = _HEADER.pack(0, kind, segment.rows)[4:] + segment.live
                    transaction.put(_segment_key(segment.sequence), _sealed(rest))


def _check_pages(data: Path) -> None:
    """Check the file's pages before they are mapped: damaged ones could end the process."""
    try:
        problems = lmdb.verify.verify(str(data), subdir=False)  # type: ignore[no-untyped-call]
    except (lmdb.verify.VerifyError, OSError) as error:
        problems = [str(error)]
    if problems:
        raise CatalogueDamage(problems[0])


def _segment_key(sequence: int) -> bytes:
    return _SEGMENT_PREFIX + f"{sequence:016x}".encode()


def _segment_of(key: bytes, value: bytes) -> ListedSegment:
    rest = _unsealed(value)
    _, kind, rows = _HEADER.unpack_from(b"\0" * 4 + rest)
    return ListedSegment(
        int(key.removeprefix(_SEGMENT_PREFIX), 16), kind == _KIND_ERASED, rows, rest[_HEADER.size - 4 :]
    )


def _sealed(value: bytes) -> bytes:
    return struct.pack("<I", _core.crc32c(np.frombuffer(value, np.uint8))) + value


def _unsealed(value: bytes) -> bytes:
    rest = value[4:]
    if len(value) < 4 or struct.unpack_from("<I", value)[0] != _core.crc32c(np.frombuffer(rest, np.uint8)):
        raise ValueError("a value has another checksum than when it was written")
    return rest
