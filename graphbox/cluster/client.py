"""A trainer's view of all shards: rows that it pulls, operations that it sends until they are kept."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from graphbox.cluster.connection import ShardAddress, ShardConnection, ShardUnreachableError
from graphbox.cluster.deadlines import Deadlines
from graphbox.cluster.messages import Ack, Kind, Operation, Pull, Rows, TablePart
from graphbox.errors import GraphboxError, ProcessLostError, ShardReplacedError, UsageError
from graphbox.memory import keep_freed_messages
from graphbox.native import Int64Array
from graphbox.table.distributed import FILES_TIMEOUT_SECONDS
from graphbox.table.policy import ShrinkReport

__all__ = ["KeyedChange", "KeyedRows", "ShardClient"]

DEADLINE_SECONDS: Final = 90.0
"""Longer than a shard waits for other trainers: what it says of them comes before."""
REPLAY_BYTES: Final = 1 << 30
_UNREAD_ACKS: Final = 8
_LOOK_SECONDS: Final = 0.1

_NOTHING: Final = np.zeros(0, np.float32)

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """A request for rows of one table.

    Attributes:
        table: its name.
        keys: int64 [n], each once, those of the first shard first.
        bounds: int64 [shards + 1], where the keys of each shard begin.
    """

    table: str
    keys: Int64Array
    bounds: Int64Array


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """Change of one table by an operation.

    Attributes:
        keys: int64 [n], each once, those of the first shard first.
        bounds: int64 [shards + 1], where the keys of each shard begin.
        values: float32 [n, dim], gradients of a push; [0, dim] of other operations.
        counts: float32 [n, 0 to 2], shows and clicks.
        lr: learning rate; None: that of the table.
    """

    keys: Int64Array
    bounds: Int64Array
    values: npt.NDArray[np.float32]
    counts: npt.NDArray[np.float32]
    lr: float | None = None


@dataclass(slots=True)
class _Shard:
    """One shard, as the trainer knows it.

    Attributes:
        number: of the shard.
        connection: to it; None: it is to be made.
        is_known: whether the trainer has ever reached it.
        sent: number of the last operation.
        kept: operations that would be lost with the shard, in their order.
        unread: operations that were sent and whose answers were not read.
        lock: held by who uses the connection or makes a new one.
    """

    number: int
    connection: ShardConnection | None = None
    is_known: bool = False
    sent: int = 0
    kept: deque[Operation] = field(default_factory=deque)
    unread: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def note(self, ack: Ack) -> None:
        """Forget operations that survive the shard."""
        while self.kept and self.kept[0].sequence <= ack.durable:
            self.kept.popleft()

    def disconnect(self) -> None:
        """End the connection; a new one is made when it is needed."""
        if self.connection is not None:
            self.connection.close()
        self.connection, self.unread = None, 0


class ShardClient:
    """All shards, for one trainer: one request to each for a batch, whatever the tables.

    Operations are numbered for each shard and kept until it says that they survive it. When a shard is gone
    the client waits for its successor, sends what that does not have, and asks again for the rows it waits
    for: nobody goes back to a checkpoint. A thread looks whether shards have successors, so that one gets
    what it lacks also while this trainer waits for something else, which may wait for that.

    Not safe to use from several threads, nor in a forked process.

    Args:
        addresses: returns where a shard is now, by its number; None: nobody knows yet. Asked ten times a
            second, by two threads.
        shards: how many there are.
        trainer: number of this trainer. One that is started in the place of another has another number,
            unless all trainers learn in step, where it is the rank.
        staleness: how many of this trainer's operations may be missing in the rows that it pulls.
        in_step: all trainers send operations alike, to all shards.
        token: of the cluster.
        is_half: have rows sent as float16.
        deadline_s: the longest wait for an answer, and for a successor.
        checkpoints: folder of checkpoints, as the shards have it; None: none are saved or loaded.
        replay_bytes: bytes of operations that are kept; beyond this shards are asked to make them durable.

    Attributes:
        clipped_values: values of rows that exceeded what float16 holds.
        pulls: requests for rows, of all shards together.
    """

    def __init__(
        self,
        addresses: Callable[[int], ShardAddress | None],
        shards: int,
        trainer: int,
        *,
        staleness: int = 0,
        in_step: bool = False,
        token: str | None = None,
        is_half: bool = False,
        deadline_s: float = DEADLINE_SECONDS,
        checkpoints: Path | None = None,
        replay_bytes: int = REPLAY_BYTES,
    ) -> None:
        self.size = shards
        self.trainer = trainer
        self.in_step = in_step
        self.clipped_values = 0
        self.pulls = 0
        self._addresses = addresses
        self._staleness = staleness
        self._token = token
        self._is_half = is_half
        self._deadline_s = deadline_s
        self._replay_bytes = replay_bytes
        self._checkpoints = checkpoints
        self._deadlines = Deadlines()
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._pending: dict[str, KeyedChange] = {}
        self._shards = [_Shard(number) for number in range(shards)]
        keep_freed_messages()
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._look_for_successors, name="shards", daemon=True)
        self._watch.start()

    def close(self) -> None:
        """End all streams. Operations that no shard has answered may have been applied or not."""
        self._ends.set()
        self._watch.join()
        for shard in self._shards:
            shard.disconnect()
        self._deadlines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------- tables

    def make(self, table: str, settings: Mapping[str, Any]) -> None:
        """Make a table in all shards, or check that the one of this name has these settings.

        Args:
            table: its name.
            settings: see :func:`graphbox.table.settings.table_settings`.

        Raises:
            ConflictError: there is one with other settings.
        """
        self._settings[table] = settings
        self._call_all("make", {"table": table, "settings": settings})

    def save(self, table: str, folder: Path) -> None:
        """Let each shard write a checkpoint of its rows of a table into a folder.

        Raises:
            UsageError: the folder is not below the one for checkpoints.
            GraphboxError: see :meth:`graphbox.table.EmbeddingTable.save`.
        """
        self._call_all("save", {"table": table, "place": self._place(folder)})

    def load(self, table: str, checkpoint: Path) -> None:
        """Let each shard take its rows of a checkpoint.

        Raises:
            UsageError: the folder is not below the one for checkpoints.
            GraphboxError: see :meth:`graphbox.table.EmbeddingTable.load`.
        """
        self._call_all("load", {"table": table, "place": self._place(checkpoint)})

    def shrink_report(self, table: str) -> ShrinkReport:
        """Return what the last shrink of a table dropped in all shards together."""
        self.settle()
        reports = self._call_all("shrink_report", {"table": table})
        return ShrinkReport(*(sum(each[name.name] for each in reports) for name in fields(ShrinkReport)))

    # ------------------------------------------------------------------------------------------------ rows

    def pull(self, wanted: Sequence[KeyedRows], *, create: bool = True) -> list[list[npt.NDArray[Any]]]:
        """Return rows of several tables: of each request what each shard has, [keys of the shard, dim].

        Changes that were put together before are sent first. Rows are where Arrow put them, and cannot be
        written to.

        Raises:
            TimeLimitError: a shard did not answer, or waited in vain for other trainers.
            ProcessLostError: a shard has no successor, or lost operations that this trainer keeps no more.
            GraphboxError: what a shard refuses.
        """
        self.send_changes()
        dims = [int(self._settings[each.table]["dim"]) for each in wanted]
        pulls = [self._pull_of(shard, wanted, create=create) for shard in self._shards]
        asked = [shard for shard in self._shards if len(pulls[shard.number].keys)]
        self.pulls += len(asked)
        answers = self._answers({shard.number: pulls[shard.number] for shard in asked})
        found: list[list[npt.NDArray[Any]]] = [[] for _ in wanted]
        for shard in asked:
            rows = answers[shard.number]
            self.clipped_values += rows.clipped
            begin = 0
            for parts, part, dim in zip(found, pulls[shard.number].parts, dims, strict=True):
                parts.append(rows.values[begin : begin + part.keys * dim].reshape(part.keys, dim))
                begin += part.keys * dim
        return found

    def contains(self, wanted: KeyedRows) -> npt.NDArray[np.bool_]:
        """Return which keys have a row, after all that this trainer has sent: bool [n]."""
        self.settle()
        found = []
        for shard in self._shards:
            keys = wanted.keys[wanted.bounds[shard.number] : wanted.bounds[shard.number + 1]]
            if len(keys):
                asked = {"table": wanted.table}
                ask = partial(ShardConnection.call, name="contains", asked=asked, keys=keys)
                found.append(self._reach(shard, ask))
        return np.frombuffer(b"".join(found), np.bool_)

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table in all shards, after all that this trainer has sent."""
        self.settle()
        return sum(int(each["rows"].get(table, 0)) for each in self._call_all("rows", {}))

    # ------------------------------------------------------------------------------------------ operations

    def push(self, table: str, change: KeyedChange) -> None:
        """Put a push together with those of other tables; sent when all tables have one, or rows are pulled.

        Raises:
            GraphboxError: what a shard refused, of this one or an earlier one.
        """
        if table in self._pending:
            self.send_changes()
        self._pending[table] = change
        if len(self._pending) == len(self._settings):
            self.send_changes()

    def send_changes(self) -> None:
        """Send the pushes that were put together, as one operation."""
        if self._pending:
            pending, self._pending = self._pending, {}
            self.operate("push", pending)

    def operate(self, kind: Kind, changes: Mapping[str, KeyedChange]) -> None:
        """Send an operation to the shards whose keys it has; to all where trainers learn in step.

        Raises:
            GraphboxError: what a shard refused, of this one or an earlier one.
        """
        if kind != "push":
            self.send_changes()
        for shard in self._shards:
            operation = _operation_of(shard.number, self.trainer, kind, changes)
            if self.in_step or len(operation.keys) or kind in ("end_pass", "shrink"):
                self._send(shard, operation)
        if sum(each.nbytes for shard in self._shards for each in shard.kept) > self._replay_bytes:
            self.make_durable()

    def settle(self) -> None:
        """Wait until all that this trainer has sent was applied."""
        self.send_changes()
        self._answers(
            {
                shard.number: Pull(0, self.trainer, shard.sent, False, (), np.zeros(0, np.int64))
                for shard in self._shards
            }
        )

    def make_durable(self) -> None:
        """Let all shards keep what was applied, so that this trainer need not.

        Raises:
            DoesNotFitError: the disk of a shard is full.
        """
        for shard in self._shards:
            ack = self._reach(shard, ShardConnection.make_durable)
            with shard.lock:
                shard.note(ack)

    # --------------------------------------------------------------------------------------------- details

    def _call_all(self, name: str, asked: Mapping[str, Any]) -> list[Any]:
        """Return what all shards answer to a call."""
        limit_s = FILES_TIMEOUT_SECONDS if name in ("save", "load") else None
        return [
            self._reach(shard, lambda each: each.call(name, asked, limit_s=limit_s)) for shard in self._shards
        ]

    def _place(self, folder: Path) -> str:
        """Return a folder as shards are told it: relative to that of checkpoints."""
        root = self._checkpoints
        if root is None or not folder.resolve().is_relative_to(root.resolve()):
            raise UsageError(
                f"expected a folder below the one for checkpoints, {root}, received {folder}",
                where=f"trainer {self.trainer}",
                hint="save into the folder of the run",
            )
        return str(folder.resolve().relative_to(root.resolve()))

    def _pull_of(self, shard: _Shard, wanted: Sequence[KeyedRows], *, create: bool) -> Pull:
        keys = [each.keys[each.bounds[shard.number] : each.bounds[shard.number + 1]] for each in wanted]
        parts = tuple(TablePart(each.table, len(own)) for each, own in zip(wanted, keys, strict=True))
        after = max(0, shard.sent - self._staleness)
        return Pull(0, self.trainer, after, create, parts, _joined(keys))

    def _answers(self, pulls: Mapping[int, Pull]) -> dict[int, Rows]:
        """Return the answers of shards, which work on them side by side."""
        try:
            asked = {number: self._ask(self._shards[number], pull) for number, pull in pulls.items()}
            return {number: self._rows_of(self._shards[number], *each) for number, each in asked.items()}
        except BaseException:
            for number in pulls:  # answers that nobody reads are not to be taken for later ones
                with self._shards[number].lock:
                    self._shards[number].disconnect()
            raise

    def _ask(self, shard: _Shard, pull: Pull) -> tuple[Pull, ShardConnection]:
        """Send a pull; return it, and what it was sent over."""

        def ask(connection: ShardConnection) -> ShardConnection:
            connection.send_pull(pull)
            return connection

        return pull, self._reach(shard, ask)

    def _rows_of(self, shard: _Shard, pull: Pull, asked: ShardConnection) -> Rows:
        """Return the rows of a pull; it is sent again where the connection has ended meanwhile."""

        def receive(connection: ShardConnection) -> Rows:
            if connection is not asked:
                connection.send_pull(pull)
            return connection.receive_rows()

        rows = self._reach(shard, receive)
        with shard.lock:
            shard.note(rows.ack)
        return rows

    def _send(self, shard: _Shard, operation: Operation) -> None:
        with shard.lock:
            connection = self._connected(shard, self._deadline())
            shard.sent += 1
            operation = replace(operation, sequence=shard.sent)
            shard.kept.append(operation)
            try:
                connection.send(operation)
                shard.unread += 1
                while shard.unread > _UNREAD_ACKS:
                    shard.note(connection.receive_ack())
                    shard.unread -= 1
            except (ShardUnreachableError, ShardReplacedError):
                shard.disconnect()
                self._connected(shard, self._deadline())  # which sends what is kept

    def _reach(self, shard: _Shard, ask: Callable[[ShardConnection], ResultT]) -> ResultT:
        """Return what a shard, or its successor, answers."""
        until = self._deadline()
        with shard.lock:
            while True:
                try:
                    return ask(self._connected(shard, until))
                except (ShardUnreachableError, ShardReplacedError) as error:
                    shard.disconnect()
                    self._wait(shard, until, error)

    def _look_for_successors(self) -> None:
        """Let a successor have what it lacks as soon as it is there."""
        while not self._ends.wait(_LOOK_SECONDS):
            for shard in self._shards:
                connection, address = shard.connection, self._addresses(shard.number)
                if connection is None or address is None or address == connection.address:
                    continue
                connection.cancel()  # what waits for the one before waits in vain
                with shard.lock:
                    if shard.connection is connection:
                        shard.disconnect()
                        with suppress(ShardUnreachableError, GraphboxError):  # the next use meets it, too
                            self._connect(shard, address)

    def _connected(self, shard: _Shard, until: float) -> ShardConnection:
        """Return the connection to a shard that has all that this trainer has sent."""
        while shard.connection is None:
            try:
                address = self._addresses(shard.number)
                if address is None:
                    self._wait(shard, until, None)
                else:
                    self._connect(shard, address)
            except (ShardUnreachableError, ShardReplacedError) as error:
                shard.disconnect()
                self._wait(shard, until, error)
        return shard.connection

    def _connect(self, shard: _Shard, address: ShardAddress) -> None:
        shard.connection = connection = ShardConnection(
            address,
            self.trainer,
            self._deadlines,
            deadline_s=self._deadline_s,
            name=f"shard {shard.number} of {self.size}",
            token=self._token,
            is_half=self._is_half,
        )
        there = connection.greeted(shard.number, self.size)
        if not shard.is_known:
            shard.is_known, shard.sent = True, there.applied
        shard.note(there)
        for table, settings in self._settings.items():
            connection.call("make", {"table": table, "settings": settings})
        missing = [each for each in shard.kept if each.sequence > there.applied]
        first = missing[0].sequence if missing else shard.sent + 1
        if first > there.applied + 1:
            raise ProcessLostError(
                f"lost operations {there.applied + 1} to {first - 1} of trainer {self.trainer} with the last "
                "process that had them",
                where=connection.name,
                hint="resume from the last checkpoint; with a folder for its rows a shard loses nothing",
            )
        for each in missing:
            connection.send(each)
        shard.unread = len(missing)

    def _deadline(self) -> float:
        return time.monotonic() + self._deadline_s

    def _wait(self, shard: _Shard, until: float, error: BaseException | None) -> None:
        """Wait a moment before a shard is asked for anew.

        Raises:
            ProcessLostError: it has not come in time.
        """
        if time.monotonic() > until:
            said = "" if error is None else f": {error}"
            raise ProcessLostError(
                f"waited {self._deadline_s:g} seconds for a shard or its successor{said}",
                where=f"trainer {self.trainer}, shard {shard.number} of {self.size}",
                hint="resume the run from its last checkpoint when the host is back",
            )
        time.sleep(_LOOK_SECONDS)


def _operation_of(shard: int, trainer: int, kind: Kind, changes: Mapping[str, KeyedChange]) -> Operation:
    """Return the part of changes that is a shard's, without number and incarnation."""
    parts: list[TablePart] = []
    keys, values, counts = [np.zeros(0, np.int64)], [_NOTHING], [_NOTHING]
    for table, each in changes.items():
        own = slice(each.bounds[shard], each.bounds[shard + 1])
        parts.append(TablePart(table, len(each.keys[own]), each.lr, each.counts.shape[1]))
        keys.append(each.keys[own])
        values.append((each.values[own] if kind == "push" else each.values).reshape(-1))
        counts.append(each.counts[own].reshape(-1))
    return Operation(0, trainer, 0, kind, tuple(parts), _joined(keys), _joined(values), _joined(counts))


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return arrays as one, which is not copied if the others are empty."""
    filled = [each for each in parts if len(each)]
    return np.concatenate(filled or parts[:1]) if len(filled) != 1 else filled[0]
