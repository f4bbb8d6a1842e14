"""The files of checkpoints: written as of one moment, and given to the core to be read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from graphbox import _core
from graphbox.errors import FormatError, NotFoundError
from graphbox.table.atomic_folder import write_durably
from graphbox.table.document import RESTORE
from graphbox.table.manifest import (
    LIVE,
    MANIFEST,
    POLICIES,
    Chain,
    Contents,
    Kind,
    Manifest,
    Part,
    SealedFile,
)
from graphbox.table.policy import TablePolicies
from graphbox.table.settings import POLICY_STATE, table_settings

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable

_logger = logging.getLogger(__name__)

ChainName: TypeAlias = Literal["training", "serving"]

CHAINS: Final[dict[ChainName, int]] = {"training": 0, "serving": 1}
"""Their numbers in the core: a table follows the changes for each of them."""

CONTENTS: Final[dict[Contents, int]] = {"records": 0, "float32": 1, "float16": 2, "int8": 3}
"""Their numbers in the core."""


@dataclass(frozen=True, slots=True)
class CheckpointOf:
    """A checkpoint to be written.

    Attributes:
        table: whose it is.
        folder: where to, empty.
        kind: see :data:`graphbox.table.manifest.Kind`. A base or delta takes the changes of its chain: the
            caller confirms or restores them.
        contents: of rows.
        chain: where a delta stands.
    """

    table: EmbeddingTable
    folder: Path
    kind: Kind
    contents: Contents = "records"
    chain: Chain | None = None

    @property
    def chain_number(self) -> int:
        """Of the chain in the core, -1 for none."""
        return -1 if self.kind == "full" else CHAINS["training" if self.contents == "records" else "serving"]


def write_checkpoint(wanted: CheckpointOf) -> tuple[Manifest, int]:
    """Write the files of a checkpoint, as of one moment.

    Returns:
        Its manifest, and the table's count of changes at that moment.
    """
    written = wanted.table._current.write_checkpoint(
        str(wanted.folder),
        CONTENTS[wanted.contents],
        wanted.chain_number,
        wanted.kind == "delta",
        wanted.table.threads,
    )
    if written.copied_files:
        _logger.info(
            "%s: %d segments were copied, the file system cannot link them there",
            wanted.folder.parent,
            written.copied_files,
        )
    settings = {**table_settings(wanted.table), "lr": written.lr}
    if wanted.contents == "records":
        settings[POLICY_STATE] = sealed(wanted.folder / POLICIES, written.policy_state).document()
    else:
        settings["policies"] = TablePolicies().to_document()  # which rows come and go is the trainer's affair
    parts = tuple(
        Part(part.name, part.rows, part.live_rows, part.stored_bytes, part.crc32c, part.erased)
        for part in written.parts
    )
    bits = b"".join(part.live for part in written.parts)
    live = sealed(wanted.folder / LIVE, bits) if bits else None
    manifest = Manifest(wanted.kind, wanted.contents, settings, wanted.chain, parts, live)
    write_durably(wanted.folder / MANIFEST, manifest.text().encode())
    return manifest, written.changes


def sealed(path: Path, content: bytes) -> SealedFile:
    """Write a file, and return what the manifest says of it."""
    write_durably(path, content)
    return SealedFile(len(content), hashlib.sha256(content).hexdigest())


def _read_sealed(path: Path, expected: Mapping[str, object] | None) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError("a file of the checkpoint is missing", where=str(path), hint=RESTORE) from None
    except OSError as error:
        raise FormatError(
            f"cannot read a file of the checkpoint: {error}", where=str(path), hint=RESTORE
        ) from None
    if SealedFile(len(content), hashlib.sha256(content).hexdigest()).document() != expected:
        raise FormatError("the file is not the one that the manifest lists", where=str(path), hint=RESTORE)
    return content


def read_policy_state(folder: Path, manifest: Manifest) -> bytes:
    """Return what the policies of the checkpoint's table knew besides the rows' counters.

    Raises:
        NotFoundError: the file is missing.
        FormatError: it is damaged.
    """
    return _read_sealed(folder / POLICIES, manifest.table.get(POLICY_STATE))


def native_parts(folder: Path, manifest: Manifest) -> list[_core.CheckpointPart]:
    """Return the parts as the core takes them, keys to be erased first.

    Raises:
        NotFoundError: the file that says which rows count is missing.
        FormatError: it is damaged.
    """
    bits = b"" if manifest.live is None else _read_sealed(folder / LIVE, manifest.live.document())
    parts = []
    begin = 0
    for part in manifest.parts:
        size = 0 if part.live_rows == part.rows else (part.rows + 63) // 64 * 8
        live = bits[begin : begin + size]
        begin += size
        if len(live) != size:
            raise FormatError(
                "it has too few bits for the rows of the manifest", where=str(folder / LIVE), hint=RESTORE
            )
        parts.append(
            _core.CheckpointPart(
                part.name, part.rows, part.live_rows, part.bytes, part.crc32c, part.erased, live
            )
        )
    return sorted(parts, key=lambda part: not part.erased)
