"""Kept versions of a graph: states of it that stay readable after later changes.

A version is what one manifest names, and its name is the manifest's checksum. Keeping one costs the bytes of
its manifest until a compaction: from then on those of the arrays that compaction changed. Removing nodes or
edges, and importing anew, end all kept versions: what was removed must not stay readable. Compaction ends
those whose arrays still hold what was removed before they were kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbox.graph.format import LOCK_TIMEOUT_S, graph_lock, read_content, read_manifest, remove_unnamed
from graphbox.graph.version_files import (
    add_holder,
    holders_of,
    is_version,
    kept_manifests,
    remove_holder,
    remove_version,
    version_of,
    version_path,
)


@dataclass(frozen=True)
class KeptVersion:
    """A version that is kept.

    Attributes:
        version: its name.
        holders: who needs it.
        is_current: whether it is the current version.
        size_bytes: bytes that it needs and the current version does not.
    """

    version: str
    holders: tuple[str, ...]
    is_current: bool
    size_bytes: int

    @property
    def short_name(self) -> str:
        """The first digits of its name."""
        return self.version.rpartition(":")[2][:12]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "version": self.version,
            "runs": list(self.holders),
            "current": self.is_current,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True)
class KeptVersions:
    """The versions of a graph that are kept.

    Attributes:
        versions: each of them.
        size_bytes: bytes that the current version does not need; arrays of several versions count once.
    """

    versions: tuple[KeptVersion, ...]
    size_bytes: int


def keep_version(path: Path, holder: str, lock_timeout_s: float = LOCK_TIMEOUT_S) -> str:
    """Keep the current version of a graph for a holder, in place of another one that it held; return it.

    Args:
        path: the graph's folder.
        holder: who needs it: letters, digits, ``-``, ``_`` and ``.``.
        lock_timeout_s: seconds to wait for another writer.

    Raises:
        NotFoundError: there is no graph.
        TimeLimitError: another process is writing the graph.
    """
    with graph_lock(path, lock_timeout_s, activity="keeping a version of"):
        content = read_content(path)
        version = version_of(content)
        add_holder(path, version, content, holder)
        for other in kept_manifests(path).keys() - {version}:
            remove_holder(path, other, holder)
        remove_unnamed(path)
    return version


def has_version(path: Path, version: str) -> bool:
    """Return whether a version can be opened: it is the current one or kept.

    Raises:
        NotFoundError: there is no graph.
    """
    return is_version(read_content(path), version) or version_path(path, version).is_file()


def kept_versions(path: Path) -> KeptVersions:
    """Return the versions that are kept, and what they cost.

    Raises:
        NotFoundError: there is no graph.
    """
    content = read_content(path)
    current = _file_sizes(path, read_manifest(path))
    found: list[KeptVersion] = []
    together: dict[int, int] = {}
    for version, manifest in kept_manifests(path).items():
        is_current = is_version(content, version)
        own = {file: size for file, size in _file_sizes(path, manifest).items() if file not in current}
        together |= own
        holders = tuple(holders_of(path, version))
        found.append(KeptVersion(version, holders, is_current, sum(own.values())))
    return KeptVersions(tuple(found), sum(together.values()))


def release_versions(
    path: Path, holders: Collection[str] = (), lock_timeout_s: float = LOCK_TIMEOUT_S
) -> None:
    """Release the versions that only others than ``holders`` hold, and remove their arrays.

    Args:
        path: the graph's folder.
        holders: who still needs versions; nobody: all are released.
        lock_timeout_s: seconds to wait for another writer.

    Raises:
        NotFoundError: there is no graph.
        TimeLimitError: another process is writing the graph.
    """
    with graph_lock(path, lock_timeout_s, activity="releasing versions of"):
        for version in kept_manifests(path):
            for holder in holders_of(path, version):
                if holder not in holders:
                    remove_holder(path, version, holder)
            # A process that was killed while it kept the version left it without a holder.
            if not holders_of(path, version):
                remove_version(path, version)
        remove_unnamed(path)


def _file_sizes(path: Path, manifest: Mapping[str, Any]) -> dict[int, int]:
    """Return the bytes of each file that a manifest names, by inode: files may be hard links."""
    found = {}
    for name in manifest["files"]:
        status = (path / name).stat()
        found[status.st_ino] = status.st_size
    return found
