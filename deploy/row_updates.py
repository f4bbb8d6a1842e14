"""Row updates of a workspace's models: written for running servers, listed, rolled back.

A server applies the active update of each version it serves within a second, in all of its workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.artifact import Artifact, Ids
from graphbox.artifact.ids import Id
from graphbox.artifact.manifest import MANIFEST_FILE, Manifest
from graphbox.artifact.row_updates import TableRows, UpdateManifest, UpdatesFolder, UpdatesWriter, in_batches
from graphbox.artifact.updated_rows import UpdatedRows, takes_new_ids
from graphbox.errors import (
    DataError,
    DoesNotFitError,
    FormatError,
    NotFoundError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
    did_you_mean,
)
from graphbox.workspace import Workspace

__all__ = [
    "RowUpdater",
    "RowUpdates",
    "list_row_updates",
    "roll_back_rows",
    "row_updates_of",
    "table_to_update",
    "update_rows",
]

IdValues: TypeAlias = "pa.Array | npt.NDArray[np.int64] | Sequence[Id]"
_ANY_DIGEST: Final = "0" * 64
LONGEST_CHAIN: Final = 256
"""Updates that follow each other; the next one repeats the rows of all of them, and begins anew."""


@dataclass(frozen=True)
class RowUpdates:
    """The row updates of one model version.

    Attributes:
        name: of the model.
        version: of the model.
        active: number of the update that servers apply; 0: none.
        updates: those that can be active, ascending.
        damaged: numbers of updates that cannot be read, with the reason.
    """

    name: str
    version: int
    active: int
    updates: tuple[UpdateManifest, ...]
    damaged: Mapping[int, str]


def update_rows(
    workspace: Workspace,
    name: str,
    ids: IdValues,
    rows: npt.NDArray[Any],
    *,
    table: str | None = None,
    version: int | None = None,
    sequence: int | None = None,
) -> UpdateManifest:
    """Write new rows of some ids of a model version, and make them active.

    Ids that the version lacks are added, except to encoders. To write often, or to several tables at once,
    use `RowUpdater`.

    Args:
        workspace: of the model.
        name: of the model.
        ids: strings or integers [n], distinct.
        rows: floating-point numbers [n, dim], finite; kept as float32.
        table: name of the table; None: the only one.
        version: of the model; None: the active one.
        sequence: number that the update has to get; None: the next one.

    Raises:
        NotFoundError: there is no such model, version or table, or an encoder lacks an id.
        DataError: there is no row, rows are of another length or not finite, or ids repeat or are of another
            type.
        UnsupportedError: the model has no tables.
        ConflictError: ``sequence`` is not the next number, another writer does not finish, or nodes are being
            forgotten.
        TimeLimitError: the database is locked; no update is left behind.
        DoesNotFitError: the disk is full; no update is left behind.
    """
    updater = RowUpdater(workspace, name, version)
    return updater.write({table_to_update(updater.manifest, table): (ids, rows)}, sequence)


def roll_back_rows(workspace: Workspace, name: str, sequence: int, version: int | None = None) -> int:
    """Make an earlier, or again a later, row update active; return the number of the one that was.

    Args:
        workspace: of the model.
        name: of the model.
        sequence: number of the update; 0: the rows of the version itself.
        version: of the model; None: the active one.

    Raises:
        NotFoundError: there is no such model, version or update.
        FormatError: the update, or one that it follows, is damaged.
        ConflictError: another writer does not finish, or nodes are being forgotten.
    """
    return RowUpdater(workspace, name, version).roll_back(sequence)


def list_row_updates(workspace: Workspace, name: str, version: int | None = None) -> RowUpdates:
    """Return the row updates of a model version.

    Raises:
        NotFoundError: there is no such model or version.
    """
    record = workspace.model(name, version)
    active = workspace.serving_records().row_sequence(name, record.version)
    return row_updates_of(record.path, name, record.version, active)


def row_updates_of(path: Path, name: str, version: int, active: int, most: int | None = None) -> RowUpdates:
    """Return the row updates in the folder of a model version.

    Args:
        path: the folder.
        name: of the model.
        version: of the model.
        active: number of the active update.
        most: how many of the newest to read; None: all.
    """
    folder = UpdatesFolder(path, _ANY_DIGEST)
    found: list[UpdateManifest] = []
    damaged: dict[int, str] = {}
    for sequence in folder.sequences()[-most if most else 0 :]:
        try:
            found.append(folder.manifest(sequence))
        except FormatError as error:
            damaged[sequence] = error.message
    return RowUpdates(name, version, active, tuple(found), damaged)


def table_to_update(manifest: Manifest, table: str | None) -> str:
    """Return the name of a table of a model version; without one, that of its only table.

    Raises:
        UnsupportedError: it has no tables.
        UsageError: it has several, and none is named.
        NotFoundError: it has no such table.
    """
    known = list(manifest.tables)
    if not known:
        raise UnsupportedError(f"expected a model with tables of rows, `{manifest.name}` has none")
    if table is None:
        if len(known) > 1:
            raise UsageError(
                f"expected the name of one of the tables {', '.join(known)}, received none", where="table"
            )
        return known[0]
    if table not in manifest.tables:
        raise NotFoundError(
            f"expected one of the tables {', '.join(known)}, received `{table[:64]}`",
            hint=did_you_mean(table, known),
        )
    return table


class RowUpdater:
    """Writes row updates of one model version, from one thread.

    Args:
        workspace: of the model.
        name: of the model.
        version: None: the active one.
        longest_chain: updates that follow each other before the next one repeats the rows of all of them.
        artifact: the version as it is open already, whose ids need not be read again.

    Attributes:
        version: number of the version.
        manifest: of the version.

    Raises:
        NotFoundError: there is no such model or version.
        FormatError: the version is damaged.
    """

    def __init__(
        self,
        workspace: Workspace,
        name: str,
        version: int | None = None,
        longest_chain: int = LONGEST_CHAIN,
        artifact: Artifact | None = None,
    ) -> None:
        record = workspace.model(name, version)
        self.version = record.version
        self._name = name
        self._path: Path = record.path
        self._workspace = workspace
        self._longest_chain = longest_chain
        self._records = workspace.serving_records()
        self._open(artifact)

    def _open(self, artifact: Artifact | None = None) -> None:
        self._stamp = self._read_stamp()
        opened = Artifact.open(self._path, verify=False)
        is_same = artifact is not None and artifact.manifest.digest == opened.manifest.digest
        self._artifact = artifact if is_same and artifact is not None else opened
        self.manifest: Manifest = self._artifact.manifest
        self._updates = UpdatesWriter(self._path, self.manifest.digest)

    def write(
        self, tables: Mapping[str, tuple[IdValues, npt.NDArray[Any]]], sequence: int | None = None
    ) -> UpdateManifest:
        """Write new rows as one update, and make it active; servers apply all of it at once.

        Args:
            tables: ids and rows by table; see `update_rows`.
            sequence: number that the update has to get; None: the next one.

        Raises:
            See `update_rows`.
        """
        if not tables:
            raise DataError("expected rows of at least one table, received none")
        with self._without_forgetting():
            checked: TableRows = {name: self._checked(name, *given) for name, given in tables.items()}
            self._check_new_ids(checked)
            with self._updates.locked():
                return self._write(checked, sequence)

    @contextmanager
    def _without_forgetting(self) -> Iterator[None]:
        """Keep `graphbox forget` away while the block runs; a version that it has written again is read."""
        with self._workspace.without_forgetting():
            if self._read_stamp() != self._stamp:
                self._open()
            yield

    def _read_stamp(self) -> tuple[int, int]:
        """Return numbers that differ once the version was written again."""
        file = self._path / MANIFEST_FILE
        try:
            status = file.stat()
        except OSError as error:
            raise NotFoundError(
                f"expected version {self.version} of the model `{self._name}`, received: {error.strerror}",
                where=str(file),
                hint="it was removed: `graphbox models list` lists the versions that are there",
            ) from error
        return status.st_ino, status.st_mtime_ns

    def _write(self, checked: TableRows, sequence: int | None) -> UpdateManifest:
        """Write rows that fit as an update that follows the active one, and make it active."""
        before = self._active_manifest()
        parent = self._updates.root if before is None else before.point
        depth = 1 if before is None else before.depth + 1
        first = 0
        if depth > self._longest_chain:
            checked, first = self._with_all_before(checked, parent.sequence)
            parent, depth = self._updates.root, 1
        written = self._updates.write(checked, parent, depth, sequence)
        try:
            self._records.write_row_sequence(self._name, self.version, written.sequence)
        except (TimeLimitError, DoesNotFitError, UsageError, FormatError):  # it surely is not active
            with suppress(OSError):  # the error that led here matters more; the update is never served
                self._updates.remove(written.sequence)
            raise
        self._updates.remove_before(first)
        return written

    def has_integer_ids(self, table: str) -> bool:
        """Return whether the ids of a table are integers; else they are strings."""
        schema = pq.read_schema(self._path / self.manifest.tables[table].ids)
        return bool(pa.types.is_int64(schema.field("id").type))

    def roll_back(self, sequence: int) -> int:
        """Make an earlier, or again a later, update active; see `roll_back_rows`."""
        with self._without_forgetting():
            self._check_is_there(sequence)
            with self._updates.locked():
                before = self._records.row_sequence(self._name, self.version)
                self._updates.chain(sequence)
                self._records.write_row_sequence(self._name, self.version, sequence)
        return before

    def _check_is_there(self, sequence: int) -> None:
        there = self._updates.sequences()
        if sequence and sequence not in there:
            raise NotFoundError(
                f"the model `{self._name}` version {self.version} has no row update {sequence}",
                hint=f"there are: {', '.join(map(str, there[-20:])) or 'none'}; "
                "0 are the rows of the version itself",
            )

    def _active_manifest(self) -> UpdateManifest | None:
        active = self._records.row_sequence(self._name, self.version)
        return self._updates.manifest(active) if active else None

    def _with_all_before(self, tables: TableRows, sequence: int) -> tuple[TableRows, int]:
        """Return rows with those of all updates before them, and the number of the first of these."""
        _, chain = self._updates.chain(sequence)
        rows = UpdatedRows.of(self._artifact)
        for manifests in in_batches(chain):
            rows = rows.apply([self._updates.read(manifest) for manifest in manifests])
        return rows.as_one_update(tables), chain[0].sequence

    def _checked(
        self, name: str, ids: IdValues, rows: npt.NDArray[Any]
    ) -> tuple[pa.Array, npt.NDArray[np.float32]]:
        table = table_to_update(self.manifest, name)
        spec = self.manifest.tables[table]
        values = _id_array(ids, table)
        given = np.asarray(rows)
        if given.ndim != 2 or given.dtype.kind != "f" or given.shape != (len(values), spec.dim):
            raise DataError(
                f"expected rows of floating-point numbers {[len(values), spec.dim]}, received {given.dtype} "
                f"{list(given.shape)}",
                where=f"table `{table}`",
            )
        if not len(given):
            raise DataError("expected at least one row, received none", where=f"table `{table}`")
        with np.errstate(over="ignore"):
            kept = np.ascontiguousarray(given, np.float32)
        is_finite = np.isfinite(kept).all(axis=1)
        if not is_finite.all():
            row = int(np.flatnonzero(~is_finite)[0])
            raise DataError(
                "expected finite numbers of 32 bits, received others",
                where=f"table `{table}`, row {row}, id `{str(values[row].as_py())[:64]}`",
            )
        kind = "int64" if self.has_integer_ids(table) else "string"
        try:
            own = Ids(values, spec.node_type)
        except FormatError as error:
            raise DataError(error.message, where=f"table `{table}`") from error
        if own.kind != kind:
            raise DataError(f"expected ids of type {kind}, received {own.kind}", where=f"table `{table}`")
        return own.to_arrow(), kept

    def _check_new_ids(self, tables: TableRows) -> None:
        """Refuse new ids where the model cannot have any, or that lack a row in a table of their type.

        Only then are the ids of the version read.
        """
        for name, (values, _) in tables.items():
            node_type = self.manifest.tables[name].node_type
            of_type = [each for each, spec in self.manifest.tables.items() if spec.node_type == node_type]
            may_be_new = takes_new_ids(self._artifact.preprocess, node_type)
            if may_be_new and len(of_type) == 1:
                continue
            is_new = self._artifact.ids(node_type).index_of(Ids(values, node_type)) < 0
            if not is_new.any():
                continue
            first = values[int(np.flatnonzero(is_new)[0])].as_py()
            if not may_be_new:
                raise NotFoundError(
                    f"expected ids of nodes of the model, received `{str(first)[:64]}` of `{node_type}`",
                    where=f"table `{name}`",
                    hint="an encoder takes new ids of candidates alone, of a type that its network does not "
                    "read: ask for others by their features, or export again",
                )
            new = values.filter(pa.array(is_new))
            self._check_covered(tables, name, of_type, new)

    def _check_covered(self, tables: TableRows, name: str, of_type: list[str], new: pa.Array) -> None:
        node_type = self.manifest.tables[name].node_type
        for other in of_type:
            values = tables[other][0] if other in tables else new[:0]
            is_new = self._artifact.ids(node_type).index_of(Ids(values, node_type)) < 0
            if not values.filter(pa.array(is_new)).equals(new):
                raise DataError(
                    f"expected rows of the same new ids, in one order, in the tables {', '.join(of_type)}",
                    where=f"table `{other}`",
                )


def _id_array(ids: IdValues, table: str) -> pa.Array:
    """Return ids as int64 or large_string."""
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        return ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    try:
        if all(type(each) is int for each in values):
            return pa.array(values, pa.int64())
        if all(type(each) is str for each in values):
            return pa.array(values, pa.large_string())
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid) as error:
        raise DataError(
            f"expected ids of 64 bits or in UTF-8, received others ({error})", where=f"table `{table}`"
        ) from error
    raise DataError("expected ids that are all strings or all integers", where=f"table `{table}`")
