"""The manifest of a checkpoint: which table, which files, and where it stands in a chain of deltas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from graphbox.errors import FormatError, NotFoundError
from graphbox.table.document import RESTORE, digest_of, document_text, read_document

Kind: TypeAlias = Literal["full", "base", "delta"]
"""Kind of a checkpoint: all rows (``full``, ``base``) or those that changed; a base begins a chain."""

ServingValues: TypeAlias = Literal["float32", "float16", "int8"]
Contents: TypeAlias = Literal["records", "float32", "float16", "int8"]
"""Stored part of a row: all (``records``), or only its values, for serving, as that type."""

MANIFEST: Final = "manifest.json"
POLICIES: Final = "policies.state"
LIVE: Final = "live.bits"
_FORMAT: Final = "graphbox-table-checkpoint"
_VERSION: Final = 1
_PART_NAME: Final = re.compile(r"[a-z]+-[0-9]{5,9}\.segment")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Chain:
    """Where a delta stands.

    Attributes:
        base: digest of the base the chain began with.
        sequence: 1 for the first delta after the base.
        parent: digest of the delta before this one, or of the base.
    """

    base: str
    sequence: int
    parent: str


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a checkpoint.

    Attributes:
        name: in the checkpoint's folder.
        rows: number of rows, or of erased keys, in it.
        live_rows: how many of them count. The others are in a segment that a table on SSD and its checkpoint
            both have; :data:`LIVE` says which.
        bytes: its size.
        crc32c: checksum of its content.
        erased: it holds keys that were erased, not rows.
    """

    name: str
    rows: int
    live_rows: int
    bytes: int
    crc32c: int
    erased: bool


@dataclass(frozen=True, slots=True)
class SealedFile:
    """Size and digest of a file that is read at once.

    Attributes:
        bytes: its size.
        sha256: digest of its content.
    """

    bytes: int
    sha256: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of ``manifest.json``.

    Attributes:
        kind: see :data:`Kind`.
        contents: see :data:`Contents`.
        table: settings of the table, see :mod:`graphbox.table.checkpoint`.
        chain: chain of a delta, else None.
        parts: the files.
        live: the file :data:`LIVE`, where not all rows count.
    """

    kind: Kind
    contents: Contents
    table: Mapping[str, Any]
    chain: Chain | None
    parts: tuple[Part, ...]
    live: SealedFile | None = None

    @property
    def rows(self) -> int:
        """Number of rows in it that count."""
        return sum(part.live_rows for part in self.parts if not part.erased)

    @property
    def digest(self) -> str:
        """SHA-256 of all that it says; through the parts' checksums it identifies the checkpoint."""
        return digest_of(self._document())

    def after(self) -> Chain:
        """Return the place of the delta that follows this base or delta."""
        if self.chain is None:
            return Chain(self.digest, 1, self.digest)
        return Chain(self.chain.base, self.chain.sequence + 1, self.digest)

    def text(self) -> str:
        """Return the content of ``manifest.json``."""
        return document_text(self._document())

    def _document(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": self.kind,
            "contents": self.contents,
            "table": dict(self.table),
            "chain": None if self.chain is None else asdict(self.chain),
            "parts": [asdict(part) for part in self.parts],
            "live": None if self.live is None else self.live.document(),
        }


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of the checkpoint in ``folder``; the parts are checked when they are read.

    Raises:
        NotFoundError: there is none.
        FormatError: it is damaged, of another version, or no manifest.
    """
    path = folder / MANIFEST
    try:
        document = read_document(path, _FORMAT, _VERSION)
    except FileNotFoundError:
        is_folder = folder.is_dir()
        received = "a folder without it" if is_folder else "no such folder"
        raise NotFoundError(
            f"expected a checkpoint, a folder with {MANIFEST}, received {received}",
            where=str(path if is_folder else folder),
            hint="open it with EmbeddingTable.open, it is a table on SSD"
            if (folder / "catalogue").is_dir() or (folder / "segments").is_dir()
            else "give the path that the table was saved to",
        ) from None
    except NotADirectoryError:
        raise FormatError(
            f"expected a checkpoint, a folder with {MANIFEST}, received a file",
            where=str(folder),
            hint=RESTORE,
        ) from None
    try:
        return _manifest(document)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"the manifest is not one of version {_VERSION}: {error}", where=str(path), hint=RESTORE
        ) from None


def _manifest(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest; KeyError, TypeError or ValueError where the document is none."""
    kind, contents, chain = document["kind"], document["contents"], document["chain"]
    if kind not in get_args(Kind) or contents not in get_args(Contents) or (kind == "delta") != bool(chain):
        raise ValueError(f"kind {kind!r}, contents {contents!r}, chain {chain!r} do not go together")
    parts = tuple(_part(part) for part in document["parts"])
    _refuse_repetitions(part.name for part in parts)
    table, live = _object(document["table"]), document["live"]
    return Manifest(kind, contents, table, chain and _chain(chain), parts, live and _sealed_file(live))


def _chain(document: object) -> Chain:
    chain = Chain(**_object(document))
    _number(chain.sequence, "sequence")
    for digest in (chain.base, chain.parent):
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is no digest")
    return chain


def _part(document: object) -> Part:
    part = Part(**_object(document))
    if not isinstance(part.name, str) or not _PART_NAME.fullmatch(part.name):
        raise ValueError(f"{part.name!r} is no name of a part")
    for name in ("rows", "live_rows", "bytes", "crc32c"):
        _number(getattr(part, name), name)
    if part.live_rows > part.rows or (part.erased and part.live_rows < part.rows):
        raise ValueError(f"live_rows is {part.live_rows} of {part.rows}")
    if not isinstance(part.erased, bool):
        raise TypeError(f"erased is {part.erased!r}")
    return part


def _sealed_file(document: object) -> SealedFile:
    file = SealedFile(**_object(document))
    _number(file.bytes, "bytes")
    if not isinstance(file.sha256, str) or not _DIGEST.fullmatch(file.sha256):
        raise ValueError(f"{file.sha256!r} is no digest")
    return file


def _object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise TypeError(f"expected an object, received {document!r}")
    return document


def _number(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}")


def _refuse_repetitions(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{name} is listed twice")
        seen.add(name)
