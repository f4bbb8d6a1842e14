"""The on-disk format of graphs: a manifest and the ``.npy`` arrays it names (docs/formats/graph.md).

A graph is a folder. ``manifest.json`` is replaced in one step and names every array with its size and
CRC-32C; the arrays of one import lie in one ``base-NNNNNN`` folder, those of each later change in a
``delta-NNNNNN`` folder of their own, and neither is ever changed once the manifest names it. So a reader sees
the graph before a change or after it, and a writer that dies leaves the one before.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from graphbox.durable import NO_ROOM, flush_to_disk
from graphbox.errors import (
    ConflictError,
    DoesNotFitError,
    FormatError,
    NotFoundError,
    TimeLimitError,
    UsageError,
    did_you_mean,
)
from graphbox.graph.array_file import HEADER_BYTES, ArrayFile, ArrayWriter, check_array, digest_of, map_array
from graphbox.graph.lock import LOCK_TIMEOUT_S, compaction_lock, graph_lock
from graphbox.graph.manifest import FORMAT, FORMAT_VERSION, decode_manifest, encode_manifest
from graphbox.graph.version_files import (
    VERSIONS,
    is_version,
    kept_manifests,
    remove_versions,
    version_of,
    version_path,
)

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "LOCK_TIMEOUT_S",
    "MANIFEST",
    "FolderWriter",
    "Snapshot",
    "check_digests",
    "graph_lock",
    "open_snapshot",
    "read_content",
    "read_manifest",
    "remove_graph",
    "remove_unnamed",
    "verify",
]

MANIFEST = "manifest.json"

_FOLDER = re.compile(r"(base|delta|compaction)-(\d{6})")
_SCRATCH = "scratch"
_OPEN_ATTEMPTS = 10
_SYNCED_TOGETHER = 128

Array = npt.NDArray[Any]


# Reading


@dataclass(frozen=True)
class Snapshot:
    """An opened graph folder.

    Attributes:
        path: the folder.
        version: the version of the graph: the checksum of its manifest.
        manifest: what the manifest says.
        arrays: every array by its path within the folder, memory-mapped and read-only.
    """

    path: Path
    version: str
    manifest: Mapping[str, Any]
    arrays: Mapping[str, Array]

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays on disk."""
        return sum(int(entry["bytes"]) for entry in self.manifest["files"].values())

    def file_of(self, names: Mapping[str, str], name: str, where: str) -> ArrayFile:
        """Return where an array lies on disk.

        Args:
            names: paths of arrays within the folder, by name.
            name: which of them.
            where: what they belong to, for the message.

        Raises:
            NotFoundError: there is no array of this name.
        """
        if name not in names:
            raise NotFoundError(
                f"there is no array `{name}`",
                where=where,
                hint=did_you_mean(name, names) or f"there are {', '.join(names) or 'none'}",
            )
        entry = self.manifest["files"][names[name]]
        return ArrayFile(
            self.path / names[name], HEADER_BYTES, np.dtype(entry["dtype"]), tuple(entry["shape"])
        )


def open_snapshot(path: Path, version: str | None = None) -> Snapshot:
    """Open a graph folder: read its manifest and map its arrays, whose content is not read.

    Args:
        path: the folder.
        version: a version that is kept; None for the current one.

    Raises:
        NotFoundError: there is no graph, or the version is not kept.
        FormatError: a file is missing, has another size or another header than the manifest says, or the
            manifest itself is damaged.
    """
    for _ in range(_OPEN_ATTEMPTS):
        content = read_content(path, version)
        manifest = _checked_manifest(content, path / MANIFEST)
        failure: FormatError | None = None
        try:
            with manifest_of_this_version(path):
                arrays = {
                    name: map_array(f"{path}/{name}", manifest["files"][name]) for name in manifest["files"]
                }
        except FormatError as error:
            failure = error
        # A writer may have put the next graph in place in the meantime; then this one is looked at again.
        if read_content(path, version) == content:
            if failure is not None:
                raise failure
            return Snapshot(path, version_of(content), manifest, arrays)
    raise ConflictError(
        f"expected a graph that stays while it is opened, found a new one {_OPEN_ATTEMPTS} times in a row",
        where=str(path),
        hint="try again when the imports into it have finished",
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """Return what the manifest of a graph folder says.

    Raises:
        NotFoundError: there is no graph.
        FormatError: the manifest is damaged, of another format or of another version.
    """
    return _checked_manifest(read_content(path), path / MANIFEST)


def read_content(path: Path, version: str | None = None) -> bytes:
    """Return the text of the manifest of a graph folder, or of a version that is kept in it."""
    try:
        content = (path / MANIFEST).read_bytes()
        is_asked = version is None or is_version(content, version)
        return content if is_asked or version is None else version_path(path, version).read_bytes()
    except FileNotFoundError as error:
        if version is not None and (path / MANIFEST).exists():
            raise NotFoundError(
                f"the graph no longer has its version {version[:19]}",
                where=str(path),
                hint="nodes or edges were removed, or it was imported again: run the run file again",
            ) from error
        raise NotFoundError(
            f"there is no graph (no {MANIFEST})"
            if path.is_dir()
            else "there is no graph, and no such folder",
            where=str(path),
            hint="import one with `graphbox import`",
        ) from error
    except NotADirectoryError as error:
        raise NotFoundError("expected a graph's folder, received a file", where=str(path)) from error


def _checked_manifest(content: bytes, file: Path) -> dict[str, Any]:
    manifest = decode_manifest(content, file)
    with manifest_of_this_version(file.parent):
        for name in manifest["files"]:
            if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
                raise FormatError(f"expected a path within the folder, received {name!r}", where=str(file))
        for folder in (manifest["base"], *(delta["folder"] for delta in manifest["deltas"])):
            if not _FOLDER.fullmatch(folder):
                raise FormatError(f"expected the name of a folder, received {folder!r}", where=str(file))
    return manifest


@contextlib.contextmanager
def manifest_of_this_version(path: Path) -> Iterator[None]:
    """Turn what goes wrong in a block that reads a manifest into an error that names it.

    Args:
        path: the graph's folder.

    Raises:
        FormatError: the manifest is a whole one, but says something else than this version writes.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
        raise FormatError(
            f"expected a manifest of this version, received one with other content ({error!r})",
            where=str(path / MANIFEST),
            hint="import the graph again",
        ) from error


def verify(path: Path) -> None:
    """Read every file of a graph folder and compare it with its digest.

    Raises:
        NotFoundError: there is no graph.
        FormatError: naming the files that are damaged or missing.
    """
    check_digests(open_snapshot(path))


def check_digests(snapshot: Snapshot) -> None:
    """Read every array of an opened graph folder and compare it with its digest.

    Raises:
        FormatError: naming the files that are damaged.
    """
    damaged = [
        name
        for name, entry in snapshot.manifest["files"].items()
        if _digest_text(digest_of(snapshot.arrays[name])) != entry["crc32c"]
    ]
    if damaged:
        raise FormatError(
            f"expected the content that was written, received other bytes in {', '.join(damaged)}",
            where=str(snapshot.path),
            hint="import the graph again, with --again",
        )


# Writing


class FolderWriter:
    """Writes a new graph, or a change of the one that is there, which takes its place in :meth:`commit`.

    A context manager: it holds the folder's lock, and on an error removes what it wrote.

    Args:
        path: the graph's folder; a new graph's is made when it is not there.
        timeout_s: seconds to wait for another writer.
        kind: ``base`` for a new graph, ``delta`` for a change of the one that is there.
        activity: what is done, in one word, told to those who wait for the lock.

    Raises:
        TimeLimitError: another process is writing this graph.
        ConflictError: the path is a file, or a folder with other things in it.
        NotFoundError, FormatError: there is no graph to change, or its manifest is damaged.
    """

    def __init__(
        self,
        path: Path,
        timeout_s: float = LOCK_TIMEOUT_S,
        *,
        kind: Literal["base", "delta"] = "base",
        activity: str = "writing",
    ) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._kind = kind
        self._activity = activity
        self._files: dict[str, dict[str, Any]] = {}
        self._open: dict[str, ArrayWriter] = {}
        self._unsynced: list[Path] = []
        self._held = contextlib.ExitStack()
        self._committed = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            held.enter_context(graph_lock(self.path, self._timeout_s, activity=self._activity))
            self._existed = self.path.exists()
            _check_destination(self.path)
            self._before = read_manifest(self.path) if self._kind == "delta" else None
            self.path.mkdir(exist_ok=True)
            named = _named_folders(self.path) if self._before is None else folders_of(self._before)
            _remove_others(self.path, keep=named)
            self.folder = next_folder(self.path, self._kind)
            self._directory = self.path / self.folder
            self._directory.mkdir()
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._held:
            for writer in self._open.values():
                writer.discard()
            if (self.path / _SCRATCH).exists():
                shutil.rmtree(self.path / _SCRATCH)
            if not self._committed:
                shutil.rmtree(self._directory)
                if not self._existed:
                    self.path.rmdir()

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays written so far."""
        return sum(int(entry["bytes"]) for entry in self._files.values())

    @property
    def scratch(self) -> Path:
        """A folder for temporary files on the same disk, removed at the end and by the next writer."""
        folder = self.path / _SCRATCH
        folder.mkdir(exist_ok=True)
        return folder

    def reserve(self, needed_bytes: int) -> None:
        """Check that the disk has room for ``needed_bytes`` more.

        Raises:
            DoesNotFitError: it has not.
        """
        free = shutil.disk_usage(self.path).free
        if needed_bytes > free:
            raise self._does_not_fit(self.path, needed_bytes, f"{free:,} bytes are free")

    def add(self, name: str, array: Array) -> str:
        """Write one array as ``<name>.npy`` and return its path within the folder.

        Raises:
            DoesNotFitError: the disk has not enough room.
        """
        self.reserve(array.nbytes)
        writer = self.open_array(name, array.dtype, array.shape[1:])
        writer.append(array)
        return writer.close()

    def open_array(self, name: str, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Return a writer of the array ``<name>.npy`` that takes it block by block.

        Args:
            name: path of the array without its suffix.
            dtype: type of its numbers.
            row_shape: shape of one row; () for a flat array.
        """
        path = self.path_of(name)

        def close(shape: tuple[int, ...], digest: int) -> str:
            del self._open[name]
            if not writer.is_synced:
                self._unsynced.append(path)
            return self._record(path, np.dtype(dtype), shape, digest)

        def failure(error: OSError, size: int) -> Exception:
            if error.errno in NO_ROOM:
                return self._does_not_fit(path, size, str(error.strerror))
            return error

        writer = ArrayWriter(path, dtype, row_shape, on_close=close, on_failure=failure)
        self._open[name] = writer
        return writer

    def path_of(self, name: str) -> Path:
        """Return where a native writer shall write the array ``<name>.npy``, for :meth:`adopt`."""
        path = self._directory / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def adopt(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...], crc32c: int) -> str:
        """Take an array that was written, and fsynced, at :meth:`path_of` and return its path in the folder.

        Args:
            name: path of the array without its suffix.
            dtype: type of its numbers.
            shape: its shape.
            crc32c: digest of its data.

        Raises:
            FormatError: the file is missing, or its size or header is another one.
        """
        path = self.path_of(name)
        relative = self._record(path, np.dtype(dtype), shape, crc32c)
        check_array(path, self._files[relative])
        return relative

    def _record(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], digest: int) -> str:
        relative = f"{self.folder}/{path.relative_to(self._directory).as_posix()}"
        self._files[relative] = {
            "bytes": path.stat().st_size,
            "crc32c": _digest_text(digest),
            "dtype": dtype.str,
            "shape": list(shape),
        }
        return relative

    def _does_not_fit(self, path: Path, size: int, reason: str) -> DoesNotFitError:
        return DoesNotFitError(
            f"expected room for {self.size_bytes + size:,} bytes or more ({size:,} for this file): {reason}",
            where=str(path),
            hint="free some disk space or choose another folder; the graph that was here before is untouched",
        )

    def commit(
        self, body: Mapping[str, Any], stream: Mapping[str, Any] | None = None, *, removes: bool = False
    ) -> None:
        """Put the new graph, or the changed one, in place.

        A new graph, or a change that removes, ends all kept versions.

        Args:
            body: what the manifest says beside the format, the byte order and the files: ``name`` (of a new
                graph), ``node_types`` and ``edge_types``.
            stream: what it says of the stream from now on, see :mod:`graphbox.graph.chunks`; None: nothing
                (of a new graph), or what it said before.
            removes: whether the change removes nodes or edges.
        """
        self._sync()
        before = self._before
        manifest = self._new_graph(body) if before is None else self._changed_graph(before, body)
        manifest = manifest if stream is None else {**manifest, "stream": stream}
        self._put(manifest, keep_versions=before is not None and not removes)

    def _sync(self) -> None:
        """Have all that was written on disk.

        Many small files begin to be written before the first is waited for: then the file system takes most
        of them in one commit of its journal.
        """
        paths = [path for path in self._unsynced if path.exists()]
        self._unsynced = []
        try:
            for start in range(0, len(paths), _SYNCED_TOGETHER):
                _sync_files(paths[start : start + _SYNCED_TOGETHER])
        except OSError as error:
            if error.errno in NO_ROOM:
                raise self._does_not_fit(self._directory, 0, str(error.strerror)) from error
            raise
        for folder, _, _ in os.walk(self._directory, topdown=False):
            flush_to_disk(Path(folder))

    def _put(self, manifest: Mapping[str, Any], *, keep_versions: bool = True) -> None:
        """Put the manifest, which names all that was written, in place, and remove what it names no more."""
        beside = self.path / f"{MANIFEST}.tmp"
        with beside.open("wb") as file:
            file.write(encode_manifest(manifest))
            file.flush()
            os.fsync(file.fileno())
        if not keep_versions:
            remove_versions(self.path)  # first: what is removed must not stay readable if this process dies
        beside.replace(self.path / MANIFEST)
        self._committed = True
        flush_to_disk(self.path)
        _remove_others(self.path, keep=folders_of(manifest))

    def _new_graph(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **body,
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "byte_order": sys.byteorder,
            "base": self.folder,
            "deltas": [],
            "files": self._files,
        }

    def _changed_graph(self, before: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **before,
            "deltas": [*before["deltas"], {**body, "folder": self.folder}],
            "files": {**before["files"], **self._files},
        }


def remove_graph(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Remove a graph folder. A process that has it open can go on reading.

    Raises:
        NotFoundError: there is no graph.
        TimeLimitError: another process is writing it.
    """
    if not (path / MANIFEST).is_file():
        raise NotFoundError("there is no graph to remove", where=str(path))
    with compaction_lock(path, timeout_s), graph_lock(path, timeout_s, activity="removing"):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)


def _check_destination(path: Path) -> None:
    """Raise when ``path`` is there and is neither empty nor a graph's folder."""
    if not path.exists():
        return
    if not path.is_dir():
        raise ConflictError("expected a graph's folder, received a file", where=str(path))
    foreign = sorted(entry.name for entry in path.iterdir() if not _is_ours(entry.name))
    if foreign:
        raise ConflictError(
            f"expected a graph's folder or an empty one, found `{foreign[0]}` in it",
            where=str(path),
            hint="choose another folder",
        )


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, f"{MANIFEST}.tmp", _SCRATCH, VERSIONS) or _FOLDER.fullmatch(name) is not None


def _named_folders(path: Path) -> set[str]:
    """Return the folders that the manifest names, none when there is no graph that could be kept."""
    try:
        return folders_of(read_manifest(path))
    except NotFoundError:
        return set()
    except (FormatError, KeyError, TypeError):
        # Damaged: nothing to keep, but its arrays stay until the new graph is in place.
        return {entry.name for entry in path.iterdir() if _FOLDER.fullmatch(entry.name)}


def folders_of(manifest: Mapping[str, Any]) -> set[str]:
    """Return the folders that a manifest names."""
    return {manifest["base"], *(delta["folder"] for delta in manifest["deltas"])}


def next_folder(path: Path, kind: Literal["base", "delta"]) -> str:
    """Return the name of the next ``base`` or ``delta`` folder: none that is there, nor a compaction's."""
    kinds = ("base", "compaction") if kind == "base" else (kind,)
    numbered = [found for entry in path.iterdir() if (found := _FOLDER.fullmatch(entry.name))]
    taken = [int(found[2]) for found in numbered if found[1] in kinds]
    return f"{kind}-{max(taken, default=0) + 1:06d}"


def remove_unnamed(path: Path) -> None:
    """Remove folders that neither the manifest nor a kept version names; the caller holds the lock."""
    _remove_others(path, keep=folders_of(read_manifest(path)))


def _remove_others(path: Path, keep: set[str]) -> None:
    """Remove what dead writers left: folders that no manifest names, and their temporary files.

    Of a compaction that may be running everything stays.
    """
    keep = keep.union(*map(folders_of, kept_manifests(path).values()))
    compactions = []
    for entry in path.iterdir():
        found = _FOLDER.fullmatch(entry.name)
        if found and found[1] == "compaction":
            compactions.append(entry)
        elif entry.name == _SCRATCH or (found and entry.name not in keep):
            shutil.rmtree(entry)
    (path / f"{MANIFEST}.tmp").unlink(missing_ok=True)
    if compactions:
        with contextlib.suppress(TimeLimitError), compaction_lock(path, 0):
            remove_compactions(path)


def remove_compactions(path: Path) -> None:
    """Remove what dead compactions left; the caller holds their lock."""
    for entry in path.iterdir():
        if entry.name.startswith("compaction-"):
            shutil.rmtree(entry)


def _digest_text(digest: int) -> str:
    return f"{digest:08x}"


def _sync_files(paths: Sequence[Path]) -> None:
    """Have the content of some files on disk."""
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(path.open("rb")) for path in paths]
        for file in files:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for file in files:
            os.fsync(file.fileno())
