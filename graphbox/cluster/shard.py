"""A shard: rows of some keys of every table, and what was applied to them of whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.cluster.changes import Change, Changes, Steps, changes_of
from graphbox.cluster.generations import Generations
from graphbox.cluster.lease import Lease
from graphbox.cluster.messages import LARGEST_FLOAT16, Ack, Kind, Operation, Pull, Rows
from graphbox.errors import (
    ConflictError,
    DataError,
    FormatError,
    GraphboxError,
    NotFoundError,
    ProcessLostError,
    ShardReplacedError,
    TimeLimitError,
    UsageError,
)
from graphbox.native import Int64Array
from graphbox.table import EmbeddingTable, shard_of
from graphbox.table.distributed_checkpoint import part_of_checkpoint
from graphbox.table.policy import ShrinkReport
from graphbox.table.settings import check_same_settings, table_arguments, table_settings

__all__ = ["DEADLINE_SECONDS", "Buffer", "TableShard"]

DEADLINE_SECONDS: Final = 60.0
"""The longest wait of a pull for operations that must come before it."""
_LOOK_SECONDS: Final = 0.5


class Buffer:
    """Memory that the rows of one stream are gathered into, over and over.

    It may be used again when the next request of the stream has come: then the answer before has arrived.
    """

    def __init__(self) -> None:
        self._values = np.empty(0, np.float32)

    def of(self, count: int) -> npt.NDArray[np.float32]:
        """Return memory for so many values."""
        if count > self._values.size:
            self._values = np.empty(count, np.float32)
        return self._values[:count]


class TableShard:
    """The rows of the keys of one shard, of every table, and the operations that were applied to them.

    Each operation of a trainer is applied once, in the order of the trainer's sequence numbers: one that
    comes again is acknowledged and not applied, one that comes too early is refused. What was applied is kept
    together with the rows, so a successor knows it too, and trainers send again what it does not have.

    Safe to use from several threads.

    Args:
        index: number of this shard.
        shards: how many there are.
        incarnation: number of this process among all that had these keys; grows.
        lease: the right to serve.
        folder: where generations of the rows are kept; None: nowhere, rows are lost when the process ends.
        checkpoints: folder below which trainers may have checkpoints saved and loaded; None: nowhere.
        trainers: how many trainers learn in step: their operations of one number are applied together, in
            the order of their ranks. None: each operation is applied when it comes.
        deadline_s: how long a pull waits for operations before it.
    """

    def __init__(
        self,
        index: int,
        shards: int,
        *,
        incarnation: int = 1,
        lease: Lease | None = None,
        folder: Path | None = None,
        checkpoints: Path | None = None,
        trainers: int | None = None,
        deadline_s: float = DEADLINE_SECONDS,
    ) -> None:
        self.index = index
        self.shards = shards
        self.incarnation = incarnation
        self.lease = Lease(None) if lease is None else lease
        self._checkpoints = checkpoints
        self._deadline_s = deadline_s
        self._shrunk: dict[str, ShrinkReport] = {}
        self._tables: dict[str, EmbeddingTable] = {}
        self._applied: dict[int, int] = {}
        self._durable: dict[int, int] = {}
        self._steps = None if trainers is None else Steps(trainers)
        self._order = threading.Lock()  # of operations and durable states, held while rows change
        self._changed = threading.Condition()  # of what was applied, held for a moment
        self._failure: GraphboxError | None = None
        self._refused: dict[int, GraphboxError] = {}
        self._lives: dict[int, int] = {}
        self._session = 0
        self._generations = None if folder is None else Generations(folder, incarnation)
        if self._generations is not None:
            self._tables, self._applied = self._generations.load()
            self._durable = dict(self._applied)

    @property
    def name(self) -> str:
        """Name of the shard in messages."""
        return f"shard {self.index} of {self.shards}, incarnation {self.incarnation}"

    # ------------------------------------------------------------------------------------------------ rows

    def pull(self, asked: Pull, buffer: Buffer, *, is_half: bool = False) -> Rows:
        """Return rows, when the trainer's operations that must come before have been applied.

        Args:
            asked: tables and keys.
            buffer: memory for the rows, which is used again by the next call with it.
            is_half: return float16.

        Raises:
            ShardReplacedError: the request is for another incarnation, or the lease has run out.
            NotFoundError: there is no such table.
            FormatError: keys of another shard.
            TimeLimitError: operations that must come before did not come.
            ProcessLostError: an operation failed half way.
            DoesNotFitError: new rows exceed the memory of the table.
        """
        self._check(asked.incarnation)
        self._check_life(asked.trainer, asked.life)
        self._wait(asked.trainer, asked.after)
        self._check_keys(asked.keys)
        tables = [self._table(part.table) for part in asked.parts]
        sizes = [part.keys * table.dim for part, table in zip(asked.parts, tables, strict=True)]
        values = buffer.of(sum(sizes))
        begin = first = 0
        for part, table, size in zip(asked.parts, tables, sizes, strict=True):
            rows = values[begin : begin + size].reshape(part.keys, table.dim)
            table.pull(asked.keys[first : first + part.keys], out=rows, create=asked.create)
            begin, first = begin + size, first + part.keys
        ack = self.ack(asked.trainer)
        self.lease.check(self.name)
        if not is_half:
            return Rows(values, 0, ack)
        clipped = np.clip(values, -LARGEST_FLOAT16, LARGEST_FLOAT16)
        return Rows(clipped.astype(np.float16), int((clipped != values).sum()), ack)

    def contains(self, table: str, keys: Int64Array) -> npt.NDArray[np.bool_]:
        """Return which keys have a row: bool [n]."""
        self._check_keys(keys)
        return self._table(table).contains(keys)

    # ------------------------------------------------------------------------------------------ operations

    def apply(self, operation: Operation) -> Ack:
        """Apply an operation, or keep it until those of the other trainers have come.

        Raises:
            ShardReplacedError: the request is for another incarnation, or the lease has run out.
            ConflictError: an operation before this one is missing.
            ProcessLostError: an operation failed half way.
            GraphboxError: what is wrong with it. Nothing was applied, unless a later call says otherwise.
        """
        self._check(operation.incarnation)
        with self._order:
            self._check_whole()
            trainer = operation.trainer
            self._check_life(trainer, operation.life)
            received = self._received(trainer)
            if operation.sequence > received + 1:
                raise ConflictError(
                    f"expected operation {received + 1} of trainer {trainer}, received {operation.sequence}",
                    where=self.name,
                    hint="send again what the shard does not have",
                )
            if operation.sequence == received + 1:
                try:
                    self._take(operation)
                except GraphboxError as error:
                    self._refuse(trainer, error)
                    raise
        return self.ack(trainer)

    def _take(self, operation: Operation) -> None:
        self._check_keys(operation.keys)
        changes = changes_of(operation, self._tables)
        self.lease.check(self.name)
        trainer, sequence = operation.trainer, operation.sequence
        if self._steps is None:
            self._change(operation.kind, changes)
            self._note_applied({trainer: sequence})
            return
        self._steps.add(trainer, sequence, operation.kind, changes)
        with self._failing(is_begun=True):
            while (found := self._steps.take(sequence)) is not None:
                self._change(*found)
                self._note_applied(dict.fromkeys(range(self._steps.trainers), sequence))
                sequence += 1

    def _note_applied(self, applied: Mapping[int, int]) -> None:
        with self._changed:
            self._applied |= applied
            if self._generations is None:
                self._durable |= applied
            self._changed.notify_all()

    def _change(self, kind: Kind, changes: Changes) -> None:
        """Change each table; what is refused before anything has changed can be refused."""
        if kind == "push" and len(changes) > 1:
            for name, each in changes.items():
                _check_finite(each, name, self._tables[name])
        for number, (name, change) in enumerate(changes.items()):
            with self._failing(is_begun=number > 0):
                self._apply(kind, change, name)

    def _apply(self, kind: Kind, change: Change, name: str) -> None:
        table = self._tables[name]
        if change.lr is not None:
            table.lr = change.lr
        if kind == "push":
            shows, clicks = (*change.counts.T, None, None)[:2]
            table.push(change.keys, change.values, shows=shows, clicks=clicks)
        elif kind == "erase":
            table.erase(change.keys)
        elif kind == "end_pass":
            table.end_pass()
        else:
            self._shrunk[name] = table.shrink()

    @contextmanager
    def _failing(self, *, is_begun: bool) -> Iterator[None]:
        """Let the shard be of no use if the block fails after a part of an operation may have been applied.

        Args:
            is_begun: whether something was applied before; else errors of ours say that nothing was.
        """
        try:
            yield
        except GraphboxError as error:
            if is_begun:
                self._fail(error)
            raise
        except BaseException as error:
            self._fail(GraphboxError(f"{type(error).__name__}: {error}", where=self.name))
            raise

    def _fail(self, error: GraphboxError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _refuse(self, trainer: int, error: GraphboxError) -> None:
        """Remember why an operation was not applied, for who waits for it."""
        if not isinstance(error, ShardReplacedError):
            with self._changed:
                self._refused[trainer] = error
                self._changed.notify_all()

    def greet(self, incarnation: int, trainer: int, life: int, session: int) -> Ack:
        """Return what the shard has of a trainer, and answer this client of it alone from now on.

        Args:
            incarnation: of the shard that is asked.
            trainer: number of the trainer.
            life: number of the client.
            session: how often the trainers in step were started; what waits of an earlier session is dropped.

        Raises:
            ShardReplacedError: see :meth:`pull`.
            ConflictError: a client of an earlier session.
        """
        self._check(incarnation)
        with self._order:
            if session < self._session:
                raise ConflictError(
                    f"expected trainers of session {self._session}, received one of {session}",
                    where=self.name,
                    hint="the training was restarted: end this trainer",
                )
            if session > self._session:
                self._session = session
                self._lives.clear()
                if self._steps is not None:
                    self._steps.clear()
            self._lives[trainer] = life
            self._refused.pop(trainer, None)
            return self.ack(trainer)

    def ack(self, trainer: int) -> Ack:
        """Return what the shard has of a trainer."""
        with self._changed:
            return Ack(self.incarnation, self._applied.get(trainer, 0), self._durable.get(trainer, 0))

    def wait(self, incarnation: int, trainer: int, after: int) -> Ack:
        """Return what the shard has of a trainer when so many of its operations have been applied.

        Raises:
            GraphboxError: see :meth:`pull`.
        """
        self._check(incarnation)
        self._wait(trainer, after)
        return self.ack(trainer)

    # ---------------------------------------------------------------------------------------------- tables

    def make(self, name: str, settings: Mapping[str, Any]) -> None:
        """Make a table, or check that the one of this name has the same settings.

        Args:
            name: of the table.
            settings: as :func:`graphbox.table.settings.table_settings` has them.

        Raises:
            ConflictError: there is one with other settings.
            FormatError: they are no settings.
        """
        with self._order:
            table = self._tables.get(name)
            if table is not None:
                check_same_settings(settings, table_settings(table), Path(name))
                return
            self._tables[name] = _table_of(settings, name)

    @property
    def keeps(self) -> bool:
        """True if the rows survive the process."""
        return self._generations is not None

    def save(self, name: str, place: str) -> None:
        """Write a checkpoint of this shard's rows of a table, beside those of the other shards.

        Args:
            name: of the table.
            place: folder of all parts, relative to the shard's folder of checkpoints.

        Raises:
            UsageError: a folder elsewhere.
            GraphboxError: see :meth:`EmbeddingTable.save`.
        """
        folder = part_of_checkpoint(self._checkpoint(place), self.index)
        with self._order:
            self.lease.check(self.name)
            self._table(name).save(folder)

    def load(self, name: str, place: str) -> None:
        """Take the rows of a checkpoint that are this shard's, in the place of those that a table has.

        Args:
            name: of the table.
            place: the checkpoint, relative to the shard's folder of checkpoints.

        Raises:
            UsageError: a folder elsewhere.
            GraphboxError: see :meth:`EmbeddingTable.load`.
        """
        table = EmbeddingTable.load(self._checkpoint(place), shard=(self.index, self.shards))
        with self._order:
            self.lease.check(self.name)
            self._tables[name] = table
            if self._steps is not None:
                self._steps.clear()
            self._write_generation()

    def shrink_report(self, name: str) -> ShrinkReport:
        """Return what the last shrink of a table dropped here."""
        self._table(name)
        return self._shrunk.get(name, ShrinkReport(0, 0, 0, 0, 0))

    @property
    def tables(self) -> Mapping[str, EmbeddingTable]:
        """The rows of this shard, by the name of their table."""
        return MappingProxyType(self._tables)

    def make_durable(self) -> None:
        """Write what has changed since the last time, so that trainers need not keep it.

        Raises:
            ShardReplacedError: the lease has run out.
            DoesNotFitError: the disk is full; trainers keep what they sent.
        """
        with self._order:
            if self._failure is None and self._durable != self._applied:
                self._write_generation()

    # --------------------------------------------------------------------------------------------- details

    def _write_generation(self) -> None:
        """Keep rows and what was applied to them, where there is a folder."""
        if self._generations is None:
            return
        self.lease.check(self.name)
        applied = dict(self._applied)
        self._generations.save(self._tables, applied)
        # One written after the lease ended is not acknowledged: the successor may have loaded before.
        self.lease.check(self.name)
        with self._changed:
            self._durable = applied

    def _check_life(self, trainer: int, life: int) -> None:
        if self._lives.get(trainer, 0) != life:
            raise ConflictError(
                f"expected requests of the last client with number {trainer}, received those of another",
                where=self.name,
                hint="give each trainer a number of its own",
            )

    def _check(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            raise ShardReplacedError(
                f"expected a request for incarnation {self.incarnation}, received one for {incarnation}",
                where=self.name,
                hint="ask for the shard's present address, and send again",
            )
        self.lease.check(self.name)

    def _check_keys(self, keys: Int64Array) -> None:
        is_own = shard_of(keys, self.shards) == self.index
        if not is_own.all():
            raise FormatError(
                f"expected keys of this shard alone, received key {keys[~is_own][0]}",
                where=self.name,
                hint="trainers and shards must have the same number of shards",
            )

    def _checkpoint(self, place: str) -> Path:
        """Return the folder that a trainer means."""
        root = self._checkpoints
        found = None if root is None else (root / place).resolve()
        if root is None or found is None or not found.is_relative_to(root.resolve()):
            raise UsageError(
                f"expected a folder below the one for checkpoints, received {place!r}",
                where=self.name,
                hint="start shards and trainers with the same folder for checkpoints",
            )
        return found

    def _table(self, name: str) -> EmbeddingTable:
        table = self._tables.get(name)
        if table is None:
            raise NotFoundError(
                f"expected one of the tables {sorted(self._tables)}, received `{name}`", where=self.name
            )
        return table

    def _received(self, trainer: int) -> int:
        applied = self._applied.get(trainer, 0)
        return applied if self._steps is None else self._steps.received(trainer, applied)

    def _wait(self, trainer: int, after: int) -> None:
        """Wait until operations of a trainer have been applied."""
        until = time.monotonic() + self._deadline_s
        with self._changed:
            while self._applied.get(trainer, 0) < after and self._failure is None:
                if trainer in self._refused:
                    raise self._refused[trainer]
                left_s = until - time.monotonic()
                if left_s < 0:
                    raise TimeLimitError(
                        f"waited {self._deadline_s:g} seconds for {self._missing(trainer)}", where=self.name
                    )
                self._changed.wait(min(left_s, _LOOK_SECONDS))
                self.lease.check(self.name)  # else a successor may be waited for
            self._check_whole()

    def _check_whole(self) -> None:
        """Refuse the use of rows to which a part of an operation was applied."""
        if self._failure is not None:
            raise ProcessLostError(
                f"an operation failed, and a part of it was applied: {self._failure.message}",
                where=self.name,
                hint="resume from the last checkpoint",
            )

    def _missing(self, trainer: int) -> str:
        step = self._applied.get(trainer, 0) + 1
        if self._steps is None:
            return f"operation {step} of trainer {trainer}"
        ranks = ", ".join(map(str, self._steps.missing(step)))
        return f"step {step} of the trainers of rank {ranks}"


def _table_of(settings: Mapping[str, Any], name: str) -> EmbeddingTable:
    """Return a table in memory with the settings of a request, which name nothing else: no path, say."""
    known = table_settings(EmbeddingTable(1)).keys()
    if settings.keys() != known:
        different = ", ".join(sorted(settings.keys() ^ known))
        raise FormatError(
            f"expected the settings of a table, all of them and no others; {different} differ",
            where=name,
            hint="install the same version of graphbox on all hosts",
        )
    try:
        return EmbeddingTable(**table_arguments(settings, Path(name)))
    except (FormatError, TypeError, ValueError) as error:
        raise FormatError(f"expected the settings of a table: {error}", where=name) from None


def _check_finite(change: Change, name: str, table: EmbeddingTable) -> None:
    """Refuse gradients of several tables that one of them would refuse."""
    if table._native.skip_nonfinite:
        return
    is_finite = np.isfinite(change.values).all(axis=1)
    if not is_finite.all():
        raise DataError(
            "gradients must be finite; one holds NaN or infinity, and none was applied",
            where=f"{name}, key {change.keys[~is_finite][0]}",
            hint='lower the learning rate, or make the table with nonfinite="skip"',
        )
