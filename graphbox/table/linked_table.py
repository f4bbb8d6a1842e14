"""Tables on SSD made of a checkpoint's own files: segments never change, so both can have them."""

from __future__ import annotations

import os
from pathlib import Path

from graphbox import _core
from graphbox.errors import FormatError
from graphbox.table.catalogue_contents import FolderContents, ListedSegment
from graphbox.table.checkpoint_files import native_parts, read_policy_state
from graphbox.table.document import RESTORE
from graphbox.table.manifest import Manifest
from graphbox.table.settings import table_arguments, table_settings
from graphbox.table.table import EmbeddingTable
from graphbox.table.tier import TableFolder


def linked_table(
    checkpoint: Path, manifest: Manifest, folder: Path, *, memory_bytes: int | None, threads: int
) -> EmbeddingTable:
    """Return the table of a full checkpoint, with its rows in ``folder``.

    Segments that the saved table had are linked there, and their rows verified when they are read; other
    parts are read, and so are those that the file system cannot link.

    Raises:
        NotFoundError: a file of the checkpoint is missing.
        FormatError: one is damaged.
        DoesNotFitError: ``memory_bytes`` has no room for the index and some rows, or the disk is full.
    """
    parts = native_parts(checkpoint, manifest)
    policy_state = read_policy_state(checkpoint, manifest)
    table = EmbeddingTable(
        **table_arguments(manifest.table, checkpoint), memory_bytes=memory_bytes, threads=threads
    )
    table_folder = TableFolder.created(folder)
    try:
        linked: list[ListedSegment] = []
        read = []
        for part in parts:
            segment = _linked(checkpoint / part.name, part, folder / "segments")
            if segment is None:
                read.append(part)
            else:
                linked.append(segment)
        linked.sort(key=lambda segment: segment.sequence)
        table_folder.attach(table, FolderContents(table_settings(table), linked, (policy_state,)))
        table._table.load_checkpoint(str(checkpoint), read, False, (0, 1), threads)
        table_folder.flush(table, table_settings(table))
    except BaseException:
        table_folder.discard(table._table)
        raise
    table._own(table_folder)
    return table


def _linked(path: Path, part: _core.CheckpointPart, segments: Path) -> ListedSegment | None:
    """Link a part into a folder of segments, or return None for one that is none of a table's segments."""
    sequence, _, rows, _, content_crc32c = _core.segment_header(str(path))
    if sequence == 0:
        return None
    if (rows, path.stat().st_size, content_crc32c) != (part.rows, part.stored_bytes, part.crc32c):
        raise FormatError("the part is not the one that the manifest lists", where=str(path), hint=RESTORE)
    try:
        os.link(path, segments / f"{sequence:016x}.segment")
    except OSError:
        return None
    live = part.live
    if part.live_rows == rows:
        live = ((1 << rows) - 1).to_bytes((rows + 63) // 64 * 8, "little")
    return ListedSegment(sequence, False, rows, live)
