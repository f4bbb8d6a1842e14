"""Tables of a model version in other codecs, each encoded once for all models that have it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphbox.artifact import Artifact
from graphbox.compress.neighbors import ShortenedLists
from graphbox.compress.popularity import popularity_of
from graphbox.compress.tables import TIERED_PRECISIONS, TableError, codec_of, table_error
from graphbox.durable import NO_ROOM
from graphbox.errors import DataError, DoesNotFitError
from graphbox.row_codecs import Arrays, RowCodec, TableShape, open_rows

__all__ = ["EncodedTable", "EncodedTables"]


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table in a codec.

    Attributes:
        codec: of the table.
        arrays: by file name.
        error: of the rows.
    """

    codec: RowCodec
    arrays: Arrays
    error: TableError


class EncodedTables:
    """Encodes the float32 tables of a model version.

    Args:
        artifact: the version.
        folder: where encoded tables are kept for the next model that has them; the caller removes it. None:
            they are encoded each time.
    """

    def __init__(self, artifact: Artifact, folder: Path | None = None) -> None:
        self._artifact = artifact
        self._folder = folder
        self._kept: dict[tuple[str, str, int | None], EncodedTable] = {}
        self._numbers = itertools.count()

    def encoded(self, name: str, precision: str, lists: ShortenedLists | None = None) -> EncodedTable:
        """Return a table in the codec of a precision.

        Args:
            name: of the table.
            precision: of its rows.
            lists: neighbour lists by which rows are popular; None: those of the version.

        Raises:
            UnsupportedError: tiers are wanted of a table whose popular rows are not known.
            BackendMissingError: the codec is trained by a package that is missing.
            DataError: the codec cannot hold the table.
            DoesNotFitError: the disk is full.
        """
        lists = lists if precision in TIERED_PRECISIONS else None
        key = name, precision, None if lists is None else lists.most
        found = self._kept.get(key) or self._encode(name, precision, lists)
        if self._folder is not None:
            self._kept[key] = found
        return found

    def _encode(self, name: str, precision: str, lists: ShortenedLists | None) -> EncodedTable:
        source, spec = self._artifact.table(name), self._artifact.manifest.tables[name]
        popularity = popularity_of(self._artifact, name, lists) if precision in TIERED_PRECISIONS else None
        codec = codec_of(precision, popularity)
        try:
            arrays = codec.encode(source)
        except DataError as error:
            raise DataError(error.message, where=f"table `{name}`", hint=error.hint) from error
        if self._folder is not None:
            arrays = _mapped(arrays, self._folder / f"{next(self._numbers)}")
        shape = TableShape(spec.rows, spec.dim, spec.node_type)
        return EncodedTable(codec, arrays, table_error(source, open_rows(codec, arrays, shape)))


def _mapped(arrays: Arrays, folder: Path) -> Arrays:
    """Write arrays to a new folder and return them mapped, so that they need no memory.

    Raises:
        DoesNotFitError: the disk is full.
    """
    try:
        folder.mkdir(parents=True)
        for file, array in arrays.items():
            np.save(folder / file, array, allow_pickle=False)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DoesNotFitError(
            f"there is no room for an encoded table: {error.strerror}",
            where=str(folder),
            hint="free some space; the same command continues",
        ) from error
    return {
        file: np.load(folder / file, mmap_mode="r" if array.size else None, allow_pickle=False)
        for file, array in arrays.items()
    }
