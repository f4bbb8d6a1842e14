"""Checkpoints of a table in several processes: each writes its rows, the first puts them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphbox.table.atomic_folder import atomic_folder, write_durably
from graphbox.table.checkpoint import is_checkpoint
from graphbox.table.checkpoint_files import CheckpointOf, sealed, write_checkpoint
from graphbox.table.distributed import FILES_TIMEOUT_SECONDS, ProcessGroup
from graphbox.table.manifest import LIVE, MANIFEST, POLICIES, Part, read_manifest

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable


def save_sharded(table: EmbeddingTable, path: Path, processes: ProcessGroup, name: str) -> None:
    """Write one checkpoint of the rows of all processes; all return when it is in place.

    Args:
        table: the rows of this process.
        path: of the checkpoint, the same in all processes.
        processes: which take part.
        name: what messages call it.
    """
    with ExitStack() as saving:
        saving.enter_context(table._saving)
        folder = ""
        if processes.is_first:
            folder = str(saving.enter_context(checkpoint_in_parts(path, processes.size)))
        own = part_of_checkpoint(Path(processes.tell(f"{name}: place", folder)), processes.rank)
        own.mkdir()
        write_checkpoint(CheckpointOf(table, own, "full"))
        processes.barrier(f"{name}: rows", timeout_seconds=FILES_TIMEOUT_SECONDS)
    processes.barrier(f"{name}: checkpoint", timeout_seconds=FILES_TIMEOUT_SECONDS)


@contextmanager
def checkpoint_in_parts(path: Path, size: int) -> Iterator[Path]:
    """Yield a folder for the checkpoints of all parts of a table, which become one when the block ends.

    Args:
        path: of the checkpoint, see :func:`graphbox.table.atomic_folder.atomic_folder`.
        size: how many parts there are; each has a checkpoint at :func:`part_of_checkpoint`.
    """
    with atomic_folder(path, is_checkpoint, "a checkpoint") as beside:
        yield beside
        _put_together(beside, size)


def part_of_checkpoint(beside: Path, number: int) -> Path:
    """Return the folder of a part of a table."""
    return beside / f"part-{number}"


def _put_together(beside: Path, size: int) -> None:
    """Make one checkpoint of those of all parts: their files, and a manifest that lists them."""
    folders = [part_of_checkpoint(beside, number) for number in range(size)]
    manifests = [read_manifest(folder) for folder in folders]
    parts: list[Part] = []
    live = b""
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.live is not None:
            live += (folder / LIVE).read_bytes()
            (folder / LIVE).unlink()
        for part in manifest.parts:
            name = f"rows-{len(parts):05d}.segment"
            (folder / part.name).rename(beside / name)
            parts.append(replace(part, name=name))
    # What policies know besides the rows: the number of passes, which all processes count alike.
    (folders[0] / POLICIES).rename(beside / POLICIES)
    manifest = replace(manifests[0], parts=tuple(parts), live=sealed(beside / LIVE, live) if live else None)
    write_durably(beside / MANIFEST, manifest.text().encode())
    for folder in folders:
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()
