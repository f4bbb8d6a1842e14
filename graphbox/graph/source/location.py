"""Where tables lie: local files, folders and globs of part files, and URLs that fsspec opens."""

from __future__ import annotations

import contextlib
import mmap
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from graphbox.errors import (
    BackendMissingError,
    DataError,
    GraphboxError,
    NotFoundError,
    did_you_mean,
    missing_extra,
)

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::|://)")
_GLOB = re.compile(r"[*?\[]")


class InputFile(ABC):
    """A file that can be opened for reading, any number of times.

    Attributes:
        name: how messages call it: a path, or a URL without credentials.
        size_bytes: its size, or None when the server does not say.
    """

    name: str
    size_bytes: int | None

    @property
    def file_name(self) -> str:
        """The last part of the name, whose suffix tells the format."""
        return self.name.rpartition("/")[2]

    @abstractmethod
    def open(self) -> pa.NativeFile:
        """Open the file for reading.

        Raises:
            NotFoundError: it is not there any more.
            DataError: it cannot be read.
        """

    def map(self) -> mmap.mmap | None:
        """Map the file into memory, or return None where it is not a local one that has bytes.

        Raises:
            NotFoundError: it is not there any more.
            DataError: it cannot be read.
        """
        return None

    def unreadable(self, error: Exception, expected: str, hint: str | None = None) -> GraphboxError:
        """Return the error for a file that is damaged or something else than expected."""
        reason = self.without_credentials((str(error) or type(error).__name__).splitlines()[0][:200])
        return DataError(
            f"expected {expected}, received a damaged file or something else ({reason})",
            where=self.name,
            hint=hint,
        )

    def without_credentials(self, text: str) -> str:
        """Return a message of a library as it may be shown."""
        return text


@dataclass(frozen=True)
class _LocalFile(InputFile):
    path: Path
    name: str
    size_bytes: int

    def open(self) -> pa.NativeFile:
        with self._readable():
            return pa.OSFile(str(self.path))

    def map(self) -> mmap.mmap | None:
        if not self.size_bytes:
            return None
        with self._readable(), self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError("there is no such file any more", where=self.name) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise DataError(
                f"expected a file that can be read: {reason}",
                where=self.name,
                hint="check its permissions" if isinstance(error, PermissionError) else None,
            ) from None


@dataclass(frozen=True)
class _RemoteFile(InputFile):
    file_system: Any
    path: str
    name: str
    size_bytes: int | None
    secrets: tuple[str, ...]

    def open(self) -> pa.NativeFile:
        try:
            return pa.PythonFile(_RemoteStream(self.file_system.open(self.path, "rb")), mode="r")
        except FileNotFoundError:
            raise NotFoundError("there is no such file any more", where=self.name) from None
        except Exception as error:  # noqa: BLE001 - every file system of fsspec has errors of its own
            raise _cannot_reach(self.name, error, self.secrets) from None

    def unreadable(self, error: Exception, expected: str, hint: str | None = None) -> GraphboxError:
        if isinstance(error, _TransferError):
            return _cannot_reach(self.name, error, self.secrets)
        return super().unreadable(error, expected, hint)

    def without_credentials(self, text: str) -> str:
        return _hide(text, self.secrets)


class _TransferError(OSError):
    """A remote file could not be read on, for whatever reason its file system has."""


class _RemoteStream:
    """A file of fsspec with one kind of error, whatever errors its file system has."""

    def __init__(self, file: Any) -> None:
        self._file = file

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._file.close()

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        with _transfer_errors():
            return int(self._file.seek(offset, whence))

    def read(self, size: int = -1) -> bytes:
        with _transfer_errors():
            return bytes(self._file.read(size))


@contextlib.contextmanager
def _transfer_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - every file system of fsspec has errors of its own
        raise _TransferError(f"{type(error).__name__}: {error}") from None


def is_url(text: str) -> bool:
    """Return whether a text names a file by URL (``scheme://`` or a chain of fsspec, ``scheme::``)."""
    return _URL.match(text) is not None


def shown_name(data: object) -> str:
    """Return what messages call a path or URL (without credentials), or the kind of another object."""
    if isinstance(data, str) and is_url(data):
        return _split_credentials(data)[0]
    return str(data) if isinstance(data, str | Path) else type(data).__name__


def find_files(data: str | Path, suffixes: Sequence[str]) -> tuple[InputFile, ...]:
    """Return the files that a path, folder, glob or URL means, part files sorted by name.

    In a folder, hidden files and those that start with ``_`` (as ``_SUCCESS``) are no parts, nor are those
    that end otherwise than one of ``suffixes``, unless all do.

    Raises:
        NotFoundError: there is none.
        DataError: a folder has folders in it, or a server does not answer, or refuses.
        BackendMissingError: fsspec, or the package it needs for this kind of URL, is not installed.
    """
    if isinstance(data, str) and is_url(data):
        return _find_remote(data, suffixes)
    path = Path(data)
    if data == "":
        raise NotFoundError("expected a path, received an empty text")
    if path.is_dir():
        entries = list(path.iterdir())
        _check_no_folders(str(data), [entry.name for entry in entries if entry.is_dir()])
        chosen = _parts({entry.name: entry for entry in entries if entry.is_file()}, suffixes)
    elif _GLOB.search(path.name) or (_GLOB.search(str(path)) and not path.exists()):
        chosen = _glob(path)
    elif path.is_file():
        chosen = [path]
    else:
        raise NotFoundError("there is no such file", where=str(data), hint=_closest_file(path))
    if not chosen:
        raise NotFoundError("expected at least one file there, received none", where=str(data))
    return tuple(_LocalFile(entry, str(entry), entry.stat().st_size) for entry in chosen)


def _parts(entries: dict[str, Any], suffixes: Sequence[str]) -> list[Any]:
    """Return the entries of a folder that are part files, sorted by name."""
    visible = {name: entry for name, entry in sorted(entries.items()) if not name.startswith((".", "_"))}
    named = [entry for name, entry in visible.items() if name.lower().endswith(tuple(suffixes))]
    return named or list(visible.values())


def _check_no_folders(folder: str, names: Sequence[str]) -> None:
    """Raise when a folder has folders in it, whose files would be left out without a word."""
    visible = sorted(name for name in names if not name.startswith((".", "_")))
    if visible:
        raise DataError(
            f"expected a folder of part files, received one with the folder `{visible[0]}` in it"
            + (f" and {len(visible) - 1:,} more" if len(visible) > 1 else ""),
            where=folder,
            hint=f"name the files by a pattern, e.g. {folder.rstrip('/')}/*/*.parquet",
        )


def _glob(pattern: Path) -> list[Path]:
    if pattern.exists():  # a file whose name has brackets
        return [pattern]
    anchor = Path(pattern.anchor)
    relative = str(pattern.relative_to(anchor)) if pattern.is_absolute() else str(pattern)
    found = [entry for entry in anchor.glob(relative) if entry.is_file()]
    return sorted(entry for entry in found if _is_visible(entry.name, pattern.name))


def _is_visible(name: str, pattern: str) -> bool:
    """Return whether a pattern means a file: a hidden one only where the pattern says so, as in shells."""
    return not name.startswith(".") or pattern.startswith(".")


def _closest_file(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    return did_you_mean(path.name, [entry.name for entry in path.parent.iterdir() if entry.is_file()])


# URLs


def _find_remote(url: str, suffixes: Sequence[str]) -> tuple[InputFile, ...]:
    shown, secrets = _split_credentials(url)
    try:
        import fsspec
    except ImportError:
        raise missing_extra("fsspec", "remote") from None
    try:
        file_system, path = fsspec.core.url_to_fs(url)
        if _GLOB.search(path) and not url.startswith(("http://", "https://")):
            pattern = path.rpartition("/")[2]
            found = sorted(file_system.glob(path))
            paths = [entry for entry in found if _is_visible(entry.rpartition("/")[2], pattern)]
        elif file_system.isdir(path) and not file_system.isfile(path):
            entries = {entry["name"].rpartition("/")[2]: entry for entry in file_system.ls(path, detail=True)}
            folders = [name for name, entry in entries.items() if entry["type"] == "directory"]
            _check_no_folders(shown, folders)
            files = {name: entry["name"] for name, entry in entries.items() if entry["type"] == "file"}
            paths = _parts(files, suffixes)
        else:
            paths = [path] if file_system.exists(path) else []
        sizes = [file_system.size(entry) for entry in paths]
    except GraphboxError:
        raise
    except ImportError as error:
        raise _missing_backend(shown, error) from None
    except Exception as error:  # noqa: BLE001 - every file system of fsspec has errors of its own
        raise _cannot_reach(shown, error, secrets) from None
    if not paths:
        raise NotFoundError("there is no such file", where=shown)
    names = (
        [shown]
        if paths == [path]
        else [_split_credentials(str(file_system.unstrip_protocol(p)))[0] for p in paths]
    )
    return tuple(
        _RemoteFile(file_system, entry, name, size, secrets)
        for entry, name, size in zip(paths, names, sizes, strict=True)
    )


def _split_credentials(url: str) -> tuple[str, tuple[str, ...]]:
    """Return a URL as it may be shown, and the parts that may not: user, password, query and fragment."""
    chain, _, last = url.rpartition("::")
    parts = urlsplit(last)
    user_info, _, host = parts.netloc.rpartition("@")
    hidden = [user_info, *user_info.split(":"), parts.query, parts.fragment]
    shown = f"{parts.scheme}://{host}{parts.path}" if "://" in last else last
    secrets = {text for part in hidden if part for text in (part, unquote(part))}
    prefix = f"{chain}::" if chain and "@" not in chain else ""
    return prefix + shown, tuple(sorted(secrets, key=len, reverse=True))


def _hide(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "...")
    return text


def _cannot_reach(shown: str, error: Exception, secrets: Sequence[str]) -> GraphboxError:
    reason = _hide((str(error) or type(error).__name__).splitlines()[0], secrets)[:300]
    kind = "" if isinstance(error, _TransferError) else f"{type(error).__name__}: "
    return DataError(
        f"expected a file that can be read, received {kind}{reason}",
        where=shown,
        hint="check the address, the network and the credentials (from the environment or its files)",
    )


def _missing_backend(shown: str, error: ImportError) -> GraphboxError:
    named = re.search(r"[Ii]nstall `?([A-Za-z][\w-]*)", str(error))
    package = error.name or (named[1] if named else str(error).splitlines()[0][:100])
    return BackendMissingError(
        f"this kind of URL needs the package `{package}`, which is not installed",
        where=shown,
        hint=f"pip install {package}",
    )
