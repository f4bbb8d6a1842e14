"""Writing a new base beside a graph that goes on changing: the lock is held only while it takes its place."""

from __future__ import annotations

import contextlib
import filecmp
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from graphbox.durable import flush_to_disk
from graphbox.errors import ConflictError, NotFoundError
from graphbox.graph.array_file import map_array
from graphbox.graph.format import (
    MANIFEST,
    FolderWriter,
    graph_lock,
    next_folder,
    read_manifest,
    remove_compactions,
)
from graphbox.graph.version_files import kept_files, kept_manifests, remove_version


@dataclass(frozen=True)
class Rebased:
    """The graph that takes the place of another one.

    Attributes:
        node_types: what the manifest says of the nodes of the new base ...
        edge_types: ... and of its edges.
        deltas: the changes that follow the new base.
        replaced: paths of arrays of these changes that are named no more.
    """

    node_types: list[dict[str, Any]]
    edge_types: list[dict[str, Any]]
    deltas: list[dict[str, Any]]
    replaced: frozenset[str]


class CompactionWriter(FolderWriter):
    """Writes a new base of a graph while other writers change the graph.

    A context manager, to be used by who holds the compaction lock. Until :meth:`commit_rebased` the arrays
    lie in a folder ``compaction-NNNNNN``, which other writers leave alone while that lock is held; it is
    renamed to the ``base-NNNNNN`` of its number.

    Args:
        path: the graph's folder.
        before: the manifest of the graph whose base is written anew.
    """

    def __init__(self, path: Path, before: Mapping[str, Any]) -> None:
        super().__init__(path)
        self._compacted = before

    def __enter__(self) -> Self:
        remove_compactions(self.path)
        self.folder = next_folder(self.path, "base")
        self._directory = self.path / self.folder.replace("base", "compaction")
        self._directory.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for writer in self._open.values():
            writer.discard()
        if self._committed:
            return
        was_removed = not (self.path / MANIFEST).exists()
        shutil.rmtree(self._directory, ignore_errors=was_removed)
        if was_removed:
            with contextlib.suppress(OSError):  # not there, or not empty
                self.path.rmdir()
            if isinstance(error, FileNotFoundError):
                raise NotFoundError(
                    "expected a graph that stays while it is compacted, it was removed meanwhile",
                    where=str(self.path),
                ) from error

    @property
    def scratch(self) -> Path:
        """A folder for temporary files on the same disk, removed before the graph takes its place."""
        folder = self._directory / "scratch"
        folder.mkdir(exist_ok=True)
        return folder

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array that was written, memory-mapped.

        Args:
            name: its path, as :meth:`FolderWriter.add` returned it.
        """
        return map_array(self._path_of(name), self._files[name])

    def drop(self, names: Iterable[str]) -> None:
        """Remove arrays that were written."""
        for name in names:
            del self._files[name]
            self._path_of(name).unlink()

    def _path_of(self, name: str) -> Path:
        return self._directory / name.removeprefix(f"{self.folder}/")

    def commit_rebased(self, rebase: Callable[[Mapping[str, Any]], Rebased], timeout_s: float) -> None:
        """Put the new base in place, followed by the changes that were committed meanwhile.

        Args:
            rebase: says these changes against the new base, given the manifest of now.
            timeout_s: seconds to wait for another writer.

        Raises:
            ConflictError: another graph has taken the place of the one that was read.
            NotFoundError: the graph was removed meanwhile.
            TimeLimitError: another process is writing this graph.
        """
        shutil.rmtree(self._directory / "scratch", ignore_errors=True)
        self._share_arrays()
        self._sync()  # most of the work, before anyone has to wait
        with graph_lock(self.path, timeout_s, activity="compacting"):
            now = read_manifest(self.path)
            self._check_follows(now)
            rebased = rebase(now)
            if self._unsynced:
                self._sync()
            followers = {delta["folder"] for delta in rebased.deltas}
            self._end_versions(followers)
            kept = {
                name: entry
                for name, entry in now["files"].items()
                if name.split("/")[0] in followers and name not in rebased.replaced
            }
            base = self.path / self.folder
            self._directory.rename(base)
            self._directory = base
            flush_to_disk(self.path)
            self._put(
                {
                    **now,
                    "base": self.folder,
                    "node_types": rebased.node_types,
                    "edge_types": rebased.edge_types,
                    "deltas": rebased.deltas,
                    "files": {**self._files, **kept},
                }
            )
            for name in rebased.replaced - kept_files(self.path).keys():
                (self.path / name).unlink()

    def _end_versions(self, followers: set[str]) -> None:
        """End kept versions whose base holds what one of their changes removed: it must leave the disk."""
        for version, manifest in kept_manifests(self.path).items():
            compacted = [delta for delta in manifest["deltas"] if delta["folder"] not in followers]
            entries = [entry for delta in compacted for entry in (*delta["node_types"], *delta["edge_types"])]
            if any("removed" in entry for entry in entries):
                remove_version(self.path, version)

    def _share_arrays(self) -> None:
        """Replace arrays that a kept version has with the same content by hard links to its files."""
        kept = {_content_key(entry): self.path / name for name, entry in kept_files(self.path).items()}
        for name, entry in self._files.items():
            known = kept.get(_content_key(entry))
            path = self._path_of(name)
            if known is None or not filecmp.cmp(known, path, shallow=False):
                continue
            beside = path.with_suffix(".link")
            with contextlib.suppress(OSError):  # a file system without hard links keeps the copy
                beside.hardlink_to(known)
                beside.replace(path)

    def _check_follows(self, now: Mapping[str, Any]) -> None:
        before = self._compacted
        done = before["deltas"]
        if now["base"] != before["base"] or now["deltas"][: len(done)] != done or _differ(before, now):
            raise ConflictError(
                "expected the graph that was compacted, with more changes or without, found another one: "
                "it was imported anew meanwhile",
                where=str(self.path),
                hint="nothing was changed; compact it again if it has changes",
            )


def _content_key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (entry["bytes"], entry["crc32c"], entry["dtype"], *entry["shape"])


def _differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether any array that was read is another one now, under the same name."""
    return any(now["files"].get(name) != entry for name, entry in before["files"].items())
