"""Splits of tasks, as arrays: one module for each kind; :mod:`graphbox.train.splitting` makes them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Literal
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib.format import read_array, read_array_header_1_0, read_magic
from numpy.typing import NDArray

from graphbox.config.tasks import TASK_KINDS
from graphbox.errors import FormatError
from graphbox.train.tasks.classify import ClassifySplit
from graphbox.train.tasks.click import ClickSplit
from graphbox.train.tasks.complete import CompleteSplit
from graphbox.train.tasks.next import NextSplit
from graphbox.train.tasks.predict_links import LinkPart, LinkSplit
from graphbox.train.tasks.recommend import RecommendSplit, distinct_keys, ends_of_keys, pair_keys
from graphbox.train.tasks.split import FOLDS, Fold, Split

__all__ = [
    "FOLDS",
    "ClassifySplit",
    "ClickSplit",
    "CompleteSplit",
    "Fold",
    "LinkPart",
    "LinkSplit",
    "NextSplit",
    "RecommendSplit",
    "Split",
    "distinct_keys",
    "ends_of_keys",
    "load_split",
    "pair_keys",
    "save_split",
]

_MAPPED_BYTES = 1 << 20
"""Arrays of so many bytes are mapped, smaller ones read."""

_FORMAT = "graphbox-split"
_FORMAT_VERSION = 1


def save_split(split: Split, path: Path) -> None:
    """Write a split as ``.npz``: beside, synced, then moved into place.

    It is not compressed, so that it can be mapped.
    """
    from graphbox.durable import write_atomically

    arrays: dict[str, Any] = {name: value for name, value in vars(split).items() if _is_array(value)}
    fields = {name: value for name, value in vars(split).items() if not _is_array(value)}
    header = json.dumps({"format": _FORMAT, "version": _FORMAT_VERSION, "kind": split.KIND, "fields": fields})
    with write_atomically(path) as stream:
        np.savez(stream, header=np.frombuffer(header.encode(), np.uint8), **arrays)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def load_split(path: Path) -> Split:
    """Read a split written by :func:`save_split`; its large arrays are mapped from the file.

    Raises:
        FormatError: the file is no split, damaged or of another version.
    """
    try:
        with ZipFile(path) as archive:
            arrays: dict[str, Any] = {
                member.filename.removesuffix(".npy"): _array(archive, member) for member in archive.infolist()
            }
        header = json.loads(arrays.pop("header").tobytes())
        kind, version = header["kind"], header["version"]
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy, zipfile, zlib and json raise all kinds on damaged files
        raise FormatError(
            f"expected a split, received a file that cannot be read ({type(error).__name__}: {error})",
            where=str(path),
            hint="delete it: it is made again from the graph and the seed",
        ) from error
    if header.get("format") != _FORMAT or version != _FORMAT_VERSION or kind not in TASK_KINDS:
        raise FormatError(
            f"expected {_FORMAT} {_FORMAT_VERSION}, received {header.get('format')} {version} of kind {kind}",
            where=str(path),
            hint="delete it: it is made again from the graph and the seed",
        )
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header["fields"].items()
    }
    return TASK_KINDS[kind].split_class()(**fields, **arrays)


def _array(archive: ZipFile, member: ZipInfo) -> NDArray[Any]:
    """Return an array of an archive: read, and so checked, or mapped where it is large."""
    if member.compress_type != ZIP_STORED or member.file_size < _MAPPED_BYTES:
        with archive.open(member) as stream:
            return np.asarray(read_array(stream, allow_pickle=False))
    with archive.open(member) as stream:
        if read_magic(stream) != (1, 0):
            raise ValueError(f"{member.filename} is an array of another version")
        shape, is_fortran, dtype = read_array_header_1_0(stream)
        header_bytes = stream.tell()
    # The name and the extra field of the local header, which may be longer than those of the directory.
    with Path(str(archive.filename)).open("rb") as file:
        file.seek(member.header_offset + 26)
        lengths = struct.unpack("<HH", file.read(4))
    offset = member.header_offset + 30 + sum(lengths) + header_bytes
    order: Literal["C", "F"] = "F" if is_fortran else "C"
    return np.asarray(np.memmap(str(archive.filename), dtype, "r", offset, shape, order))
