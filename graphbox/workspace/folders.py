"""The folders of a workspace: which may become one, what may be called how, how large they are."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from graphbox.errors import FormatError, NotFoundError, UsageError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_OWN_FOLDERS = ("compress", "graphs", "runs", "models")
_OF_FILE_SYSTEM = "lost+found"
"""Folder in the root of a new volume with an ext4 file system."""


def check_folder(root: Path, *, create: bool, own_database: bool) -> None:
    """Refuse a folder that is no workspace and must not become one.

    Args:
        root: the folder.
        create: whether a workspace may be made there.
        own_database: whether the database is in the folder.

    Raises:
        NotFoundError: there is no workspace, and none may be made.
        UsageError: it is a file, or holds other things.
        FormatError: the database has been lost.
    """
    if root.exists() and not root.is_dir():
        raise UsageError(
            "expected a workspace folder, received a file",
            where=str(root),
            hint="name a folder with -C",
        )
    has_database = (root / "graphbox.db").exists() or not own_database
    if has_database and (create or root.is_dir()):
        return
    if not create:
        raise NotFoundError(
            "there is no workspace here",
            where=str(root),
            hint="`graphbox demo` and `graphbox run FILE` make one; -C names one elsewhere",
        )
    present = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    own = [name for name in _OWN_FOLDERS if name in present and any((root / name).iterdir())]
    if own:
        raise FormatError(
            f"the workspace's database graphbox.db is not there, but its folders are ({', '.join(own)})",
            where=str(root),
            hint="restore graphbox.db, or move those folders away to start anew",
        )
    ignored = {*_OWN_FOLDERS, _OF_FILE_SYSTEM}
    others = [name for name in present if name not in ignored and not name.startswith(".")]
    if others:
        raise UsageError(
            f"expected a workspace or an empty folder, received one with other files "
            f"({', '.join(others[:3])}{', ...' if len(others) > 3 else ''})",
            where=str(root),
            hint="name an empty or new folder with -C",
        )


def make_folders(root: Path) -> None:
    """Make the workspace's folders where they are not there.

    Raises:
        UsageError: they cannot be written.
    """
    try:
        for name in _OWN_FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the workspace folder cannot be written: {error.strerror}",
            where=str(error.filename or root),
            hint="check its permissions, or name another one with -C",
        ) from None


def require_folder(path: Path, what: str, hint: str) -> None:
    """Refuse to go on when the folder of something the database knows is gone.

    Raises:
        FormatError: it is.
    """
    if not path.is_dir():
        raise FormatError(f"the folder of the {what} is gone", where=str(path), hint=hint)


def is_name(name: str) -> bool:
    """Return whether a graph, run or model can be called so."""
    return _NAME.fullmatch(name) is not None


def valid_name(name: str, what: str) -> str:
    """Return ``name`` if it can name a folder.

    Raises:
        UsageError: it cannot.
    """
    if not is_name(name):
        raise UsageError(
            f"expected a {what} name of letters, digits, `_`, `.` and `-` "
            f"(at most 128, not starting with `.` or `-`), received {name!r}"
        )
    return name


def folder_size(path: Path) -> int:
    """Return the bytes of all files below ``path``, which may change meanwhile; 0 when it is not there.

    A file with several names (hard links) counts once.
    """
    size_bytes_by_inode: dict[tuple[int, int], int] = {}
    for folder, _, files in os.walk(path):
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                status = (Path(folder) / file).lstat()
                if stat.S_ISREG(status.st_mode):
                    size_bytes_by_inode[status.st_dev, status.st_ino] = status.st_size
    return sum(size_bytes_by_inode.values())
