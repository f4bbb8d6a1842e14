"""Where bytes of erased keys still lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphbox import _core
from graphbox.native import Int64Array
from graphbox.table.manifest import Part, read_manifest

__all__ = ["Remnants", "find_remnants"]


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
    """Look for keys in the segments of a table's folder and in checkpoints that exist."""
    wanted = np.unique(keys)
    files = [] if folder is None else sorted((folder / "segments").glob("*.segment"))
    segments = tuple(path for path in files if _holds(path, wanted))
    kept = [path for path in dict.fromkeys(path.absolute() for path in checkpoints) if path.exists()]
    found = tuple(path for path in kept if any(_holds(path / part.name, wanted) for part in _parts(path)))
    return Remnants(keys_in_table, segments, found)


def _parts(checkpoint: Path) -> tuple[Part, ...]:
    return read_manifest(checkpoint).parts


def _holds(segment: Path, wanted: Int64Array) -> bool:
    present: Any = np.isin(_core.segment_keys(str(segment)), wanted)
    return bool(present.any())
