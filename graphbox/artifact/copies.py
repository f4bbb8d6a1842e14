"""Copies of the files of a model version, from which it is served.

A file that is mapped into memory and truncated by another program ends the process with SIGBUS, so a model
is never served from its files themselves. A process on its own makes private copies. The workers of a server
share theirs (`graphbox.artifact.shared_copies`): each announces that with `use_copies` before it opens a
model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from graphbox.artifact.array_bundle import Arrays
from graphbox.artifact.arrays import private_array
from graphbox.artifact.manifest import FileRecord
from graphbox.errors import FormatError

__all__ = [
    "DAMAGED_HINT",
    "Copies",
    "PrivateCopies",
    "copies_in_use",
    "sha256_of",
    "use_copies",
    "wrong_digest",
]

DAMAGED_HINT = "the version is damaged: remove it and export or compress it again"
_HASH_BLOCK_BYTES = 1 << 20


class Copies(Protocol):
    """Makes copies of files whose size and digest are known. Safe to use from several threads."""

    def verify(self, file: Path, record: FileRecord) -> object:
        """Compare the digest of a file.

        Returns:
            An object to keep while the version is open; the same file is not read again meanwhile.

        Raises:
            FormatError: the file has another digest, or became shorter.
            DoesNotFitError: there is no room for a copy.
        """

    def array(self, file: Path, record: FileRecord) -> npt.NDArray[Any]:
        """Return the array of a ``.npy`` file, read-only, unaffected by later changes of the file.

        Raises:
            FormatError: the file holds no array of numbers, or has another digest.
            DoesNotFitError: there is no room for the copy.
        """

    def content(self, file: Path, record: FileRecord) -> bytes | None:
        """Return the verified content of a file to build `derived` arrays from; None: read the file.

        Raises:
            FormatError: the file has another digest.
        """

    def derived(self, file: Path, record: FileRecord, kind: str, build: Callable[[], Arrays]) -> Arrays:
        """Return arrays that follow from the content of a file alone, read-only.

        Args:
            file: the file.
            record: its size and digest.
            kind: name of the arrays among those of the file.
            build: returns them; called in one process of those that share copies.

        Raises:
            GraphboxError: as ``build`` does.
        """


class PrivateCopies:
    """Copies of this process alone: in memory, or in an unnamed file where they are large."""

    def verify(self, file: Path, record: FileRecord) -> object:
        """Compare the digest; nothing is kept. See `Copies.verify`."""
        if (digest := sha256_of(file)) != record.sha256:
            raise wrong_digest(file, record, digest)
        return None

    def array(self, file: Path, record: FileRecord) -> npt.NDArray[Any]:  # noqa: ARG002 - of the protocol
        """Return a copy of an array. See `Copies.array`."""
        return private_array(file)

    def content(self, file: Path, record: FileRecord) -> bytes | None:  # noqa: ARG002 - of the protocol
        """Return None. See `Copies.content`."""
        return None

    def derived(self, file: Path, record: FileRecord, kind: str, build: Callable[[], Arrays]) -> Arrays:  # noqa: ARG002 - of the protocol
        """Return what ``build`` does. See `Copies.derived`."""
        return build()


_in_use: Copies = PrivateCopies()


def use_copies(copies: Copies) -> None:
    """Let model versions that are opened from now on in this process have these copies."""
    global _in_use  # noqa: PLW0603 - a property of the process, as its role among the workers is
    _in_use = copies


def copies_in_use() -> Copies:
    """Return the copies of model versions that are opened now."""
    return _in_use


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file's content, read in blocks."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def wrong_digest(file: Path, record: FileRecord, digest: str) -> FormatError:
    """Return the error of a file whose content is not that of its record."""
    return FormatError(
        f"expected the sha256 {record.sha256}, received {digest}", where=str(file), hint=DAMAGED_HINT
    )
