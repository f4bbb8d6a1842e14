"""Where bytes of erased keys still lie."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphbox import _core
from graphbox.errors import FormatError, NotFoundError
from graphbox.native import Int64Array
from graphbox.table.manifest import read_manifest

_SETTLED_S = 1.0
"""A checkpoint that lacks something is damaged when it has been as it is for so long: one that is being
removed changes with each of its files."""

_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Remnants:
    """What is left of keys that are to be forgotten.

    Attributes:
        keys_in_table: how many of them the table holds now: they were not erased, or came back.
        segments: files of the table's folder that hold rows of them, or name them as erased;
            :meth:`graphbox.table.EmbeddingTable.purge` rewrites these.
        checkpoints: folders of checkpoints that hold rows of them, or name them as erased: remove these, or
            save them anew.
    """

    keys_in_table: int
    segments: tuple[Path, ...]
    checkpoints: tuple[Path, ...]

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.keys_in_table or self.segments or self.checkpoints)


def find_remnants(
    keys: Int64Array, keys_in_table: int, folder: Path | None, checkpoints: Iterable[Path]
) -> Remnants:
    """Look for keys in the segments of a table's folder and in checkpoints, which others may replace."""
    wanted = np.unique(keys)
    segments = () if folder is None else _segments_with(folder / "segments", wanted)
    kept = dict.fromkeys(path.absolute() for path in checkpoints)
    return Remnants(keys_in_table, segments, tuple(path for path in kept if _checkpoint_has(path, wanted)))


def _segments_with(folder: Path, wanted: Int64Array) -> tuple[Path, ...]:
    """Return the segments that have keys. What vanishes was rewritten: lists again until none does."""
    found: dict[Path, bool] = {}  # a segment never changes, and its name does not come back
    listed: list[Path] | None = None
    while listed != (files := sorted(folder.glob("*.segment"))):
        listed = files
        for path in listed:
            if path not in found:
                try:
                    found[path] = _has(path, wanted)
                except NotFoundError:
                    if os.path.lexists(path):  # a link to nowhere
                        raise
    return tuple(path for path in listed if found[path])


def _checkpoint_has(checkpoint: Path, wanted: Int64Array) -> bool:
    """Return whether a checkpoint has keys. Replaced meanwhile, it is read again; removed, it has none."""
    seen, since = None, time.monotonic()
    while (moment := _moment(checkpoint)) is not None:
        if moment != seen:
            seen, since = moment, time.monotonic()
        try:
            parts = read_manifest(checkpoint).parts
            has_keys = any(_has(checkpoint / part.name, wanted) for part in parts)
        except (FormatError, NotFoundError):
            if _moment(checkpoint) == moment and time.monotonic() - since >= _SETTLED_S:
                raise
            time.sleep(_LOOK_S)
        else:
            if _moment(checkpoint) == moment:
                return has_keys
    return False


def _moment(folder: Path) -> tuple[int, int, int] | None:
    """Return what tells a folder from what replaces it, or None where there is none."""
    try:
        status = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns  # numbers of inodes come back


def _has(segment: Path, wanted: Int64Array) -> bool:
    present: Any = np.isin(_core.segment_keys(str(segment)), wanted)
    return bool(present.any())
