"""The on-disk format of graphs: a manifest and the ``.npy`` arrays it names (docs/formats/graph.md).

A graph is a folder. ``manifest.json`` is replaced in one step and names every array with its size and
SHA-256; the arrays of one import lie in one ``base-NNNNNN`` folder that is never changed once the manifest
names it. So a reader sees the old graph or the new one, and a writer that dies leaves the old one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import filelock
import numpy as np
import numpy.typing as npt

from graphbox.errors import (
    ConflictError,
    DoesNotFitError,
    FormatError,
    NotFoundError,
    TimeLimitError,
    UsageError,
)

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MANIFEST",
    "FolderWriter",
    "Snapshot",
    "graph_lock",
    "open_snapshot",
    "remove_graph",
    "verify",
]

FORMAT = "graphbox-graph"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
LOCK_TIMEOUT_S = 10.0

_CHECKSUM = "checksum"
_BASE = re.compile(r"base-(\d{6})")
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_DTYPES = ("<f4", "<i4", "<i8", "|b1", "|u1")
_BLOCK_BYTES = 1 << 24
_OPEN_ATTEMPTS = 10
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Array = npt.NDArray[Any]


# Manifest


def _encode_manifest(body: Mapping[str, Any]) -> bytes:
    """Return the one text a manifest may have: a damaged byte anywhere in it shows."""

    def text(value: Mapping[str, Any]) -> bytes:
        return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    return text({**body, _CHECKSUM: f"sha256:{hashlib.sha256(text(body)).hexdigest()}"})


def _decode_manifest(content: bytes, path: Path) -> dict[str, Any]:
    hint = "import the graph again"
    try:
        body = json.loads(content)
    except ValueError as error:
        raise FormatError(
            f"expected JSON, received something else ({error})", where=str(path), hint=hint
        ) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise FormatError(f"expected a manifest of format {FORMAT!r}, received another file", where=str(path))
    if body.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"expected format version {FORMAT_VERSION}, received {body.get('format_version')!r}",
            where=str(path),
            hint="open it with the version of graphbox that wrote it, or import the graph again",
        )
    checksum = body.pop(_CHECKSUM, None)
    if _encode_manifest(body) != content:
        raise FormatError(
            f"expected the content that was written, received other bytes (checksum {checksum})",
            where=str(path),
            hint=hint,
        )
    if body.get("byte_order") != sys.byteorder:
        raise FormatError(
            f"expected byte order {sys.byteorder}, received {body.get('byte_order')}",
            where=str(path),
            hint=hint,
        )
    return body


# Reading


@dataclass(frozen=True)
class Snapshot:
    """An opened graph folder.

    Attributes:
        path: the folder.
        manifest: what ``manifest.json`` says.
        arrays: every array by its path within the folder, memory-mapped and read-only.
    """

    path: Path
    manifest: Mapping[str, Any]
    arrays: Mapping[str, Array]

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays on disk."""
        return sum(int(entry["bytes"]) for entry in self.manifest["files"].values())


def open_snapshot(path: Path) -> Snapshot:
    """Open a graph folder: read its manifest and map its arrays, whose content is not read.

    Raises:
        NotFoundError: there is no graph.
        FormatError: a file is missing, has another size or another header than the manifest says, or the
            manifest itself is damaged.
    """
    for _ in range(_OPEN_ATTEMPTS):
        manifest = read_manifest(path)
        failure: FormatError | None = None
        try:
            arrays = {name: _map_array(path, name, manifest) for name in manifest["files"]}
        except FormatError as error:
            failure = error
        # A writer may have put the next graph in place in the meantime; then this one is looked at again.
        if read_manifest(path) == manifest:
            if failure is not None:
                raise failure
            return Snapshot(path, manifest, arrays)
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
    file = path / MANIFEST
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no graph (no {MANIFEST})"
            if path.is_dir()
            else "there is no graph, and no such folder",
            where=str(path),
            hint="import one with `graphbox import`",
        ) from error
    except NotADirectoryError as error:
        raise NotFoundError("expected a graph's folder, received a file", where=str(path)) from error
    manifest = _decode_manifest(content, file)
    for name in manifest["files"]:
        if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
            raise FormatError(f"expected a path within the folder, received {name!r}", where=str(file))
    return manifest


def _map_array(folder: Path, name: str, manifest: Mapping[str, Any]) -> Array:
    entry = manifest["files"][name]
    path = folder / name
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise FormatError(
            "expected the file that the manifest names, found none",
            where=str(path),
            hint="import the graph again",
        ) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            raise FormatError(
                f"expected {entry['bytes']:,} bytes, received {size:,}: the file is damaged or truncated",
                where=str(path),
                hint="import the graph again",
            )
        if entry["dtype"] not in _DTYPES:
            raise FormatError(
                f"expected one of {', '.join(_DTYPES)}, received {entry['dtype']!r}", where=str(path)
            )
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        header = _array_header(dtype, shape)
        if file.read(len(header)) != header or size != len(header) + dtype.itemsize * math.prod(shape):
            raise FormatError(
                f"expected the header of a .npy array {dtype.str} {list(shape)}, received another one",
                where=str(path),
                hint="import the graph again",
            )
        if 0 in shape:
            return np.empty(shape, dtype)
        mapped = np.memmap(file, dtype, "r", len(header), shape)
    return mapped.view(np.ndarray)


def _array_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a .npy file of version 1.0, padded with spaces to a multiple of 64 bytes.

    Written here and not by NumPy, whose padding differs between versions: a file has one header it may have.
    """
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    padding = -(len(_NPY_MAGIC) + 2 + len(text) + 1) % 64
    return _NPY_MAGIC + struct.pack("<H", len(text) + padding + 1) + text + b" " * padding + b"\n"


def verify(path: Path) -> None:
    """Read every file of a graph folder and compare it with its digest.

    Raises:
        NotFoundError: there is no graph.
        FormatError: naming the files that are damaged or missing.
    """
    snapshot = open_snapshot(path)
    damaged = [
        name
        for name, entry in snapshot.manifest["files"].items()
        if _sha256_of(path / name) != entry["sha256"]
    ]
    if damaged:
        raise FormatError(
            f"expected the content that was written, received other bytes in {', '.join(damaged)}",
            where=str(path),
            hint="import the graph again",
        )


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Writing


@contextlib.contextmanager
def graph_lock(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold the lock that excludes other writers of the graph folder ``path``.

    The lock is a file beside the folder, so that it outlives the folder's removal.

    Raises:
        TimeLimitError: another process held it for ``timeout_s`` seconds.
        UsageError: the parent folder cannot be written.
    """
    file = path.parent / f".{path.name}.lock"
    lock = filelock.FileLock(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=timeout_s)
    except filelock.Timeout as error:
        raise TimeLimitError(
            f"waited {timeout_s:g} s for another process that is writing this graph (it holds {file})",
            where=str(path),
            hint="try again when it has finished",
        ) from error
    except OSError as error:
        raise UsageError(f"cannot write here: {error.strerror}", where=str(path.parent)) from error
    try:
        yield
    finally:
        lock.release()


class FolderWriter:
    """Writes one new graph into a folder, in place of what is there once :meth:`commit` is called.

    A context manager: it holds the folder's lock, and on an error removes what it wrote.

    Args:
        path: the graph's folder; made when it is not there.
        timeout_s: seconds to wait for another writer.

    Raises:
        TimeLimitError: another process is writing this graph.
        ConflictError: the path is a file, or a folder with other things in it.
    """

    def __init__(self, path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._files: dict[str, dict[str, Any]] = {}
        self._held = contextlib.ExitStack()
        self._committed = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            held.enter_context(graph_lock(self.path, self._timeout_s))
            self._existed = self.path.exists()
            _check_destination(self.path)
            self.path.mkdir(exist_ok=True)
            self._current = _current_base(self.path)
            _remove_bases(self.path, keep=self._current)
            self._base = f"base-{int(self._current[-6:] if self._current else 0) + 1:06d}"
            (self.path / self._base).mkdir()
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._held:
            if not self._committed:
                shutil.rmtree(self.path / self._base)
                if not self._existed:
                    self.path.rmdir()

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return sum(int(entry["bytes"]) for entry in self._files.values())

    def add(self, name: str, array: Array) -> str:
        """Write one array as ``<name>.npy`` and return its path within the folder.

        Raises:
            DoesNotFitError: the disk has not enough room.
        """
        relative = f"{self._base}/{name}.npy"
        path = self.path / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        array = np.ascontiguousarray(array)
        header = _array_header(array.dtype, array.shape)
        size = len(header) + array.nbytes
        free = shutil.disk_usage(self.path).free
        if size > free:
            raise self._does_not_fit(path, size, f"{free:,} bytes are free")
        try:
            digest = _write(path, header, array)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise self._does_not_fit(path, size, str(error.strerror)) from error
            raise
        self._files[relative] = {
            "bytes": size,
            "sha256": digest,
            "dtype": array.dtype.str,
            "shape": list(array.shape),
        }
        return relative

    def _does_not_fit(self, path: Path, size: int, reason: str) -> DoesNotFitError:
        return DoesNotFitError(
            f"expected room for {self.size_bytes + size:,} bytes or more ({size:,} for this file): {reason}",
            where=str(path),
            hint="free some disk space or choose another folder; the graph that was here before is untouched",
        )

    def commit(self, body: Mapping[str, Any]) -> None:
        """Put the new graph in place.

        Args:
            body: what the manifest says beside the format, the byte order and the files.
        """
        for folder, _, _ in os.walk(self.path / self._base, topdown=False):
            _sync_folder(Path(folder))
        manifest = _encode_manifest(
            {
                **body,
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "byte_order": sys.byteorder,
                "base": self._base,
                "files": self._files,
            }
        )
        beside = self.path / f"{MANIFEST}.tmp"
        with beside.open("wb") as file:
            file.write(manifest)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path / MANIFEST)
        self._committed = True
        _sync_folder(self.path)
        _remove_bases(self.path, keep=self._base)


def remove_graph(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Remove a graph folder. A process that has it open can go on reading.

    Raises:
        NotFoundError: there is no graph.
        TimeLimitError: another process is writing it.
    """
    if not (path / MANIFEST).is_file():
        raise NotFoundError("there is no graph to remove", where=str(path))
    with graph_lock(path, timeout_s):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)


def _check_destination(path: Path) -> None:
    """Raise when ``path`` is there and is neither empty nor a graph's folder."""
    if not path.exists():
        return
    if not path.is_dir():
        raise ConflictError("expected a graph's folder, received a file", where=str(path))
    foreign = sorted(
        entry.name
        for entry in path.iterdir()
        if not (entry.name.startswith(MANIFEST) or _BASE.fullmatch(entry.name))
    )
    if foreign:
        raise ConflictError(
            f"expected a graph's folder or an empty one, found `{foreign[0]}` in it",
            where=str(path),
            hint="choose another folder",
        )


def _current_base(path: Path) -> str | None:
    """Return the folder that the manifest names, or None when there is no graph that could be kept."""
    try:
        base = read_manifest(path)["base"]
    except (NotFoundError, FormatError):
        # Damaged: nothing to keep, but its arrays stay until the new graph is in place.
        bases = sorted(entry.name for entry in path.iterdir() if _BASE.fullmatch(entry.name))
        return bases[-1] if bases and (path / MANIFEST).exists() else None
    return str(base)


def _remove_bases(path: Path, keep: str | None) -> None:
    for entry in path.iterdir():
        if _BASE.fullmatch(entry.name) and entry.name != keep:
            shutil.rmtree(entry)


def _write(path: Path, header: bytes, array: Array) -> str:
    """Write header and array to a new file, have it on disk, and return the SHA-256 of its bytes."""
    digest = hashlib.sha256(header)
    with path.open("xb") as file:
        file.write(header)
        content = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(content), _BLOCK_BYTES):
            block = content[start : start + _BLOCK_BYTES]
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
