"""Row updates: new values for some rows of a model version, applied in order while it is served.

``updates/<sequence>/`` inside a version holds ``manifest.json``, and for each table
``tables/<name>/ids.parquet`` and ``rows.npy``. The layout is described in ``docs/formats/row-updates.md``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, ValidationError, field_validator

from graphbox.artifact.arrays import private_array, write_array
from graphbox.artifact.copies import sha256_of
from graphbox.artifact.manifest import MANIFEST_FILE, FileRecord, Name, Record, RelativePath, first_problem
from graphbox.artifact.reader import read_parquet, regular_file
from graphbox.durable import NO_ROOM, flush_to_disk, replace_durably
from graphbox.errors import (
    ConflictError,
    DoesNotFitError,
    FormatError,
    GraphboxError,
    NotFoundError,
    UsageError,
)

__all__ = [
    "UPDATES_FOLDER",
    "RowUpdate",
    "UpdateManifest",
    "UpdatesFolder",
    "UpdatesWriter",
    "VersionPoint",
    "in_batches",
]

UPDATES_FOLDER: Final = "updates"
FORMAT: Final = "graphbox-row-update"
FORMAT_VERSION: Final = 1

_SEQUENCE = re.compile(r"[1-9][0-9]{0,8}")
_LOCK_FILE: Final = ".lock"
_PARTIAL_SUFFIX: Final = ".partial"
_LARGEST_MANIFEST_BYTES: Final = 1 << 20
_BATCH_BYTES: Final = 64 << 20
_LOCK_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.01
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_IDS_FILE, _ROWS_FILE = "ids.parquet", "rows.npy"

TableRows = Mapping[str, tuple[pa.Array, npt.NDArray[np.float32]]]
"""By table, ids (large_string or int64 [n]) and rows (float32 [n, dim])."""


class VersionPoint(Record):
    """A state of a model version's rows: the version itself (sequence 0), or the version after an update.

    Attributes:
        sequence: number of the update; 0: none.
        digest: of the manifest of the update, or of the version.
    """

    sequence: int = Field(ge=0)
    digest: str = Field(pattern="^[0-9a-f]{64}$")


class UpdatedTableSpec(Record):
    """Rows of one table in an update, and the length of a row."""

    rows: int = Field(ge=1)
    dim: int = Field(ge=1)


class UpdateManifest(Record):
    """Description of one row update.

    Attributes:
        sequence: its number; higher than its parent's.
        parent: state that it changes.
        depth: number of updates that lead from the version to this one, itself included.
        created_at: when it was written, UTC.
        tables: what it changes, by table.
        files: every other file of its folder.
        digest: sha256 of the rest of the manifest.
    """

    format: Literal["graphbox-row-update"] = FORMAT
    format_version: Literal[1] = FORMAT_VERSION
    byte_order: Literal["little"] = "little"
    sequence: int = Field(ge=1)
    parent: VersionPoint
    depth: int = Field(ge=1)
    created_at: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$")
    tables: dict[Name, UpdatedTableSpec] = Field(min_length=1)
    files: dict[RelativePath, FileRecord]
    digest: str = ""

    @property
    def point(self) -> VersionPoint:
        """State of the version after this update."""
        return VersionPoint(sequence=self.sequence, digest=self.digest)

    @property
    def created(self) -> datetime:
        """When it was written."""
        return datetime.strptime(self.created_at, _TIME).replace(tzinfo=UTC)

    @property
    def num_rows(self) -> int:
        """Rows of all tables."""
        return sum(table.rows for table in self.tables.values())

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows of all tables."""
        return sum(4 * table.rows * table.dim for table in self.tables.values())

    @field_validator("created_at")
    @classmethod
    def _check_time(cls, text: str) -> str:
        """Refuse digits that are no time, such as those of a 13th month."""
        datetime.strptime(text, _TIME)
        return text

    def computed_digest(self) -> str:
        """Return the sha256 of this manifest without its ``digest`` field."""
        content = self.model_dump(mode="json", exclude={"digest"})
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class RowUpdate:
    """A row update that was read and verified.

    Attributes:
        manifest: its description.
        tables: ids and rows by table; rows are finite.
    """

    manifest: UpdateManifest
    tables: TableRows


class UpdatesFolder:
    """The row updates of one model version, as a reader sees them.

    Args:
        version_folder: folder of the model version.
        version_digest: digest of its manifest.
    """

    def __init__(self, version_folder: Path, version_digest: str) -> None:
        self.path = version_folder / UPDATES_FOLDER
        self.root = VersionPoint(sequence=0, digest=version_digest)

    def sequences(self) -> list[int]:
        """Return the numbers of all complete updates, ascending."""
        try:
            names = [each.name for each in self.path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if _SEQUENCE.fullmatch(name))

    def newest(self) -> int:
        """Return the highest number of a complete update; 0: there is none."""
        return max(self.sequences(), default=0)

    def manifest(self, sequence: int) -> UpdateManifest:
        """Return the description of an update.

        Raises:
            FormatError: it is missing, damaged, or of another version of the format.
        """
        folder = self.path / str(sequence)
        where = str(folder / MANIFEST_FILE)
        try:
            text = regular_file(folder, MANIFEST_FILE, _LARGEST_MANIFEST_BYTES).read_bytes()
        except FileNotFoundError:
            raise FormatError(
                f"expected row update {sequence}, found none",
                where=where,
                hint="roll back to an update that is there: `graphbox models updates NAME --roll-back-to N`",
            ) from None
        except OSError as error:
            raise FormatError(f"expected a readable file, received: {error.strerror}", where=where) from error
        manifest = _parsed(text, where)
        if manifest.sequence != sequence:
            raise FormatError(
                f"expected row update {sequence}, as the folder is named, received {manifest.sequence}",
                where=where,
            )
        return manifest

    def chain(self, sequence: int, known: VersionPoint | None = None) -> tuple[bool, list[UpdateManifest]]:
        """Return the updates that lead to a state, oldest first.

        Args:
            sequence: number of the last of them; 0: the version itself, which has none.
            known: state to begin at where the chain passes it; None: the version itself.

        Returns:
            Whether the updates begin at ``known``, and the updates; else they begin at the version itself.

        Raises:
            FormatError: an update is missing or damaged, or its parent has another digest.
        """
        found: list[UpdateManifest] = []
        point: VersionPoint | None = None
        while sequence:
            if known is not None and sequence == known.sequence and point in (None, known):
                return True, found[::-1]
            manifest = self.manifest(sequence)
            self._check_follows(manifest, point)
            found.append(manifest)
            point = manifest.parent
            sequence = point.sequence
        if point is not None and point != self.root:
            raise FormatError(
                "expected row updates of this model version, received those of another one",
                where=str(self.path),
                hint="the version was written again: remove its updates, and write them again",
            )
        return known == self.root, found[::-1]

    def _check_follows(self, manifest: UpdateManifest, expected: VersionPoint | None) -> None:
        if expected is not None and manifest.digest != expected.digest:
            raise FormatError(
                f"expected row update {expected.sequence} with the digest {expected.digest[:16]}..., "
                f"which the next one names as its parent, received {manifest.digest[:16]}...",
                where=str(self.path / str(manifest.sequence)),
            )
        if manifest.parent.sequence >= manifest.sequence:
            raise FormatError(
                f"expected a parent before row update {manifest.sequence}, received "
                f"{manifest.parent.sequence}",
                where=str(self.path / str(manifest.sequence)),
            )

    def read(self, manifest: UpdateManifest) -> RowUpdate:
        """Return ids and rows of an update; every byte is verified.

        Raises:
            FormatError: a file is missing or damaged, or holds other than the manifest says.
        """
        folder = self.path / str(manifest.sequence)
        for name, record in manifest.files.items():
            try:
                file = regular_file(folder, name, record.bytes)
                digest = sha256_of(file)
            except OSError as error:
                raise FormatError(
                    "expected a file of the row update, found none", where=str(folder / name)
                ) from error
            if digest != record.sha256:
                raise FormatError(
                    f"expected the sha256 {record.sha256}, received {digest}", where=str(folder / name)
                )
        return RowUpdate(manifest, {name: _read_table(folder, manifest, name) for name in manifest.tables})


class UpdatesWriter(UpdatesFolder):
    """Writes row updates of one model version.

    Writers of all processes take turns (`locked`). An update is written beside its place, to the disk, and
    then moved into place, so that a reader sees it whole or not at all.
    """

    @contextmanager
    def locked(self, timeout_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the lock of all writers; leftovers of killed writers are removed.

        Args:
            timeout_s: longest time to wait for another writer, which may be stopped.

        Raises:
            ConflictError: another writer holds it for longer.
            NotFoundError: the version is gone.
            DoesNotFitError: the disk is full.
            UsageError: the folder cannot be written to.
        """
        try:
            self.path.mkdir(exist_ok=True)
            descriptor = os.open(
                self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise self._not_written(error) from error
        try:
            self._wait_for(descriptor, timeout_s)
            for leftover in self.path.glob(f".*{_PARTIAL_SUFFIX}"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield
        finally:
            os.close(descriptor)

    def _wait_for(self, descriptor: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConflictError(
                        f"the row updates of this model version are in use by another writer; waited "
                        f"{timeout_s:g} s for it",
                        where=str(self.path / _LOCK_FILE),
                        hint="wait until it has finished, or continue or end it if it is stopped, then try "
                        "again",
                    ) from None
                time.sleep(_POLL_S)
            else:
                return

    def _not_written(self, error: OSError) -> GraphboxError:
        reason = error.strerror or str(error)
        if error.errno in NO_ROOM:
            return DoesNotFitError(
                f"there is no room to write the row update: {reason}",
                where=str(self.path),
                hint="free some space, or remove old versions with `graphbox models rm`",
            )
        if isinstance(error, FileNotFoundError):
            return NotFoundError(
                f"expected the folder of a model version, found none: {reason}",
                where=str(self.path.parent),
                hint="the version was removed: `graphbox models list` lists those that are there",
            )
        return UsageError(
            f"expected a folder of row updates that can be written to, received: {reason}",
            where=str(error.filename or self.path),
            hint="check its permissions, and that it is a folder",
        )

    def write(
        self, tables: TableRows, parent: VersionPoint, depth: int, sequence: int | None = None
    ) -> UpdateManifest:
        """Write an update; the caller holds `locked` and has checked ids and rows.

        Args:
            tables: ids and rows by table, at least one of each.
            parent: state that it changes.
            depth: number of updates that lead to it, itself included.
            sequence: its number; None: the next one.

        Raises:
            ConflictError: ``sequence`` is not the next number.
            NotFoundError: the version is gone.
            DoesNotFitError: the disk is full; nothing is left behind.
            UsageError: the folder cannot be written to.
        """
        expected = self.newest() + 1
        if sequence is not None and sequence != expected:
            raise ConflictError(
                f"expected row update {expected}, the next one, received {sequence}",
                hint="read the updates that are there, and write the next one",
            )
        partial = self._partial(expected)
        try:
            return self._write(partial, tables, parent, depth, expected)
        except OSError as error:
            raise self._not_written(error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _partial(self, sequence: int) -> Path:
        """Return a new path for an update that is not complete, or not any more."""
        return self.path / f".{sequence}-{secrets.token_hex(8)}{_PARTIAL_SUFFIX}"

    def _write(
        self, partial: Path, tables: TableRows, parent: VersionPoint, depth: int, sequence: int
    ) -> UpdateManifest:
        files: dict[str, FileRecord] = {}
        partial.mkdir()  # not with its parents: a version that was removed meanwhile must not come back
        for name, (ids, rows) in tables.items():
            folder = partial / "tables" / name
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"id": ids}), folder / _IDS_FILE, compression="zstd")
            with (folder / _ROWS_FILE).open("wb") as stream:
                write_array(stream, np.asarray(rows, np.float32))
            for file in (_IDS_FILE, _ROWS_FILE):
                path = folder / file
                record = FileRecord(bytes=path.stat().st_size, sha256=sha256_of(path))
                files[f"tables/{name}/{file}"] = record
        now = datetime.now(UTC)
        manifest = UpdateManifest(
            sequence=sequence,
            parent=parent,
            depth=depth,
            created_at=f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z",
            tables={
                name: UpdatedTableSpec(rows=len(rows), dim=rows.shape[1])
                for name, (_, rows) in tables.items()
            },
            files=files,
        )
        manifest = manifest.model_copy(update={"digest": manifest.computed_digest()})
        (partial / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n")
        for folder_name, _, names in os.walk(partial, topdown=False):
            for each in names:
                flush_to_disk(Path(folder_name) / each)
            flush_to_disk(Path(folder_name))
        if not self.newest():
            flush_to_disk(self.path.parent)  # the folder of updates itself is new
        replace_durably(partial, self.path / str(sequence))
        return manifest

    def remove(self, sequence: int) -> None:
        """Remove an update in one step; the next writer removes what a killed process leaves of it.

        Raises:
            OSError: it cannot be moved.
        """
        aside = self._partial(sequence)
        (self.path / str(sequence)).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def remove_before(self, sequence: int) -> None:
        """Remove the updates with lower numbers, newest first, so that those left are whole chains.

        One that cannot be removed stays, with those before it, until the next call.
        """
        with suppress(OSError):  # the update that takes their place is active: it was written
            for each in reversed(self.sequences()):
                if each < sequence:
                    self.remove(each)


def in_batches(
    chain: Sequence[UpdateManifest], most_bytes: int = _BATCH_BYTES
) -> Iterator[list[UpdateManifest]]:
    """Yield updates in their order, as many at a time as may be in memory together.

    Args:
        chain: the updates.
        most_bytes: bytes of the files of a batch; a larger update is a batch of its own.
    """
    batch: list[UpdateManifest] = []
    batch_bytes = 0
    for manifest in chain:
        update_bytes = sum(record.bytes for record in manifest.files.values())
        if batch and batch_bytes + update_bytes > most_bytes:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(manifest)
        batch_bytes += update_bytes
    if batch:
        yield batch


def _read_table(
    folder: Path, manifest: UpdateManifest, name: str
) -> tuple[pa.Array, npt.NDArray[np.float32]]:
    spec = manifest.tables[name]
    prefix = f"tables/{name}"
    for file in (_IDS_FILE, _ROWS_FILE):
        if f"{prefix}/{file}" not in manifest.files:
            raise FormatError(f"the file {prefix}/{file} is not listed", where=str(folder / MANIFEST_FILE))
    rows: npt.NDArray[Any] = private_array(folder / prefix / _ROWS_FILE)
    where = str(folder / prefix / _ROWS_FILE)
    if rows.dtype.str != "<f4" or rows.shape != (spec.rows, spec.dim):
        raise FormatError(
            f"expected rows of type <f4 and shape {[spec.rows, spec.dim]}, received {rows.dtype.str} "
            f"{list(rows.shape)}",
            where=where,
        )
    if not np.isfinite(rows).all():
        raise FormatError("expected finite numbers, received NaN or infinity", where=where)
    column = read_parquet(folder / prefix / _IDS_FILE, ["id"], spec.rows).column("id")
    return column.combine_chunks(), rows


def _parsed(text: bytes, where: str) -> UpdateManifest:
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON, received something else ({error})", where=where) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FormatError(f"expected the format `{FORMAT}`, received another document", where=where)
    if content.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"expected format version {FORMAT_VERSION}, received {content.get('format_version')!r:.32}",
            where=where,
            hint="it was written by another version of graphbox",
        )
    try:
        manifest = UpdateManifest.model_validate(content)
    except ValidationError as error:
        raise FormatError(first_problem(error), where=where) from error
    if manifest.digest != (computed := manifest.computed_digest()):
        raise FormatError(
            f"expected the digest {manifest.digest or '(none)'}, the content has {computed}", where=where
        )
    return manifest
