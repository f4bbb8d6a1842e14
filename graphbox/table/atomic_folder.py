"""Folders that appear whole or not at all, and replace each other in one step."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphbox import _core
from graphbox.durable import NO_ROOM, flush_to_disk, is_running
from graphbox.errors import ConflictError, DoesNotFitError, GraphboxError, NotFoundError


@contextmanager
def atomic_folder(path: Path, is_ours: Callable[[Path], bool], what: str) -> Iterator[Path]:
    """Yield a new folder beside ``path``, which takes its place when the block ends without an error.

    The files in it must be durable by then. What a killed process left beside is removed.

    Args:
        path: of the folder to be. A folder that is there is replaced in one step.
        is_ours: whether a folder may be replaced.
        what: is written, for messages.

    Raises:
        NotFoundError: the folder around it does not exist.
        ConflictError: something else is at ``path``, or the file system cannot replace folders in one step.
        DoesNotFitError: the disk is full.
        GraphboxError: the system refuses.
    """
    path = path.absolute()
    with system_errors(path):
        if not path.parent.is_dir():
            raise NotFoundError(
                f"expected an existing folder to save {what} in, there is none",
                where=str(path.parent),
                hint=f"make the folder {path.parent}",
            )
        _refuse_others(path, is_ours, what)
        _remove_leftovers(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
        beside.mkdir()
        descriptor = os.open(beside, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield beside
            os.fsync(descriptor)
            _refuse_others(path, is_ours, what)
            _move_into_place(beside, path, what)
            flush_to_disk(path.parent)
        finally:
            try:
                # By now this is what was replaced, or what was not finished.
                shutil.rmtree(beside, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors into ours, about ``path``."""
    try:
        yield
    except OSError as error:
        kind: type[GraphboxError] = GraphboxError
        hint = None
        if error.errno in NO_ROOM:
            kind, hint = DoesNotFitError, "free some disk space, or write somewhere else"
        elif error.errno == errno.ENOENT:
            kind, hint = NotFoundError, f"make the folder {path.parent}"
        file = f"{error.filename}: " if error.filename else ""
        raise kind(f"cannot write: {file}{error.strerror or error}", where=str(path), hint=hint) from error


def write_durably(path: Path, content: bytes) -> None:
    """Write a new file and make it durable."""
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _refuse_others(path: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    if path.is_symlink() or (path.exists() and not is_ours(path)):
        raise ConflictError(
            f"expected no file, or {what} to replace, received something else",
            where=str(path),
            hint="save under another name, or remove what is there",
        )


def _move_into_place(beside: Path, path: Path, what: str) -> None:
    if not path.exists():
        beside.rename(path)
    elif not _core.exchange_paths(str(beside), str(path)):
        raise ConflictError(
            f"this file system cannot replace {what} in one step",
            where=str(path),
            hint="save under another name, then remove the old one",
        )


def _remove_leftovers(path: Path) -> None:
    """Remove folders of processes that were killed: those that live hold a lock."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        try:
            descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # no folder, or its owner has just removed it
        try:
            if not any(leftover.iterdir()) and is_running(leftover):
                continue  # its owner is about to lock it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(leftover, ignore_errors=True)
        except BlockingIOError:
            continue  # it is being written
        finally:
            os.close(descriptor)
