"""A trainer's link to one shard, over all processes that have the shard's keys one after the other."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from graphbox.cluster.connection import ShardAddress, ShardConnection, ShardUnreachableError
from graphbox.cluster.deadlines import Deadlines
from graphbox.cluster.messages import Ack, Operation, Pull, Rows
from graphbox.errors import GraphboxError, ProcessLostError, ShardReplacedError
from graphbox.native import Int64Array
from graphbox.table.distributed import FILES_TIMEOUT_SECONDS

__all__ = ["LOOK_SECONDS", "LinkOptions", "ShardLink"]

LOOK_SECONDS: Final = 0.1
"""Interval at which the address of a shard is asked for."""
_UNREAD_ACKS: Final = 8

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class LinkOptions:
    """Options that the links of a trainer have in common.

    Attributes:
        addresses: returns where a shard is now, by its number; None: nobody knows yet.
        shards: how many there are.
        trainer: number of the trainer.
        life: number of this client; of two with the same trainer's number the later one counts.
        session: how often the trainers in step were started.
        token: of the cluster.
        is_half: rows come as float16.
        deadline_s: the longest wait for an answer, and for a successor.
    """

    addresses: Callable[[int], ShardAddress | None]
    shards: int
    trainer: int
    life: int
    session: int
    token: str | None
    is_half: bool
    deadline_s: float


class ShardLink:
    """One shard, as a trainer knows it.

    Methods that talk to the shard hold a lock, as a thread of the client makes a new connection where the
    shard has a successor.

    Args:
        number: of the shard.
        options: of all links.
        deadlines: ends waits.
        settings: of the tables by name, which every process of the shard must have.

    Attributes:
        sent: number of the last operation.
        kept_bytes: bytes of the operations that would be lost with the shard.
    """

    def __init__(
        self,
        number: int,
        options: LinkOptions,
        deadlines: Deadlines,
        settings: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.number = number
        self.sent = 0
        self.kept_bytes = 0
        self._options = options
        self._deadlines = deadlines
        self._settings = settings
        self._connection: ShardConnection | None = None
        self._is_known = False
        self._is_loaded = False
        self._kept: deque[Operation] = deque()
        self._unread = 0
        self._lock = threading.RLock()

    def close(self) -> None:
        """End the connection; a new one is made when it is needed."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._unread = None, 0

    # --- Rows

    def ask(self, pull: Pull) -> ShardConnection:
        """Send a pull; return what it was sent over."""

        def send(connection: ShardConnection) -> ShardConnection:
            connection.send_pull(pull)
            return connection

        return self._reach(send)

    def rows_of(self, pull: Pull, asked: ShardConnection) -> Rows:
        """Return the rows of a pull; it is sent again where the connection has ended meanwhile."""

        def receive(connection: ShardConnection) -> Rows:
            if connection is not asked:
                connection.send_pull(pull)
            rows = connection.receive_rows()
            self._note(rows.ack)
            return rows

        return self._reach(receive)

    # --- Operations

    def send(self, operation: Operation) -> None:
        """Send an operation, and keep it until it survives the shard.

        Raises:
            GraphboxError: what the shard refused of an earlier one.
        """
        with self._lock:
            connection = self._connected(self._deadline())
            self.sent += 1
            operation = replace(operation, sequence=self.sent)
            self._kept.append(operation)
            self.kept_bytes += operation.nbytes
            try:
                connection.send(operation)
                self._unread += 1
                while self._unread > _UNREAD_ACKS:
                    self._unread -= 1
                    self._note(connection.receive_ack())
            except (ShardUnreachableError, ShardReplacedError):
                self.close()
                self._connected(self._deadline())  # which sends what is kept

    def make_durable(self) -> None:
        """Let the shard keep what was applied."""

        def ask(connection: ShardConnection) -> None:
            self._note(connection.make_durable(self.sent))

        self._reach(ask)

    # --- Calls

    def call(self, name: str, asked: Mapping[str, Any], keys: Int64Array | None = None) -> Any:
        """Return the answer to a call, after all that was sent before."""
        return self._reach(lambda each: each.call(name, asked, keys, after=self.sent))

    def call_for_files(self, name: str, asked: Mapping[str, Any]) -> None:
        """Wait for a call that reads or writes files, as long as that takes."""
        self._reach(partial(self._call_for_files, name, asked))
        self._is_loaded = self._is_loaded or name == "load"

    def _call_for_files(self, name: str, asked: Mapping[str, Any], connection: ShardConnection) -> None:
        connection.long_call(name, asked, after=self.sent, limit_s=FILES_TIMEOUT_SECONDS)

    # --- Successors

    def meet_successor(self) -> None:
        """Give a successor what it lacks, if there is one by now."""
        connection, address = self._connection, self._options.addresses(self.number)
        if connection is None or address is None or address == connection.address:
            return
        connection.cancel()  # what waits for the one before waits in vain
        with self._lock:
            if self._connection is connection:
                self.close()
                with suppress(ShardUnreachableError, GraphboxError):  # the next use meets it, too
                    self._connect(address)

    # --- Details

    def _note(self, ack: Ack) -> None:
        """Forget operations that survive the shard."""
        while self._kept and self._kept[0].sequence <= ack.durable:
            self.kept_bytes -= self._kept.popleft().nbytes

    def _reach(self, ask: Callable[[ShardConnection], ResultT]) -> ResultT:
        """Return what the shard, or its successor, answers."""
        until = self._deadline()
        with self._lock:
            while True:
                try:
                    return ask(self._connected(until))
                except (ShardUnreachableError, ShardReplacedError) as error:
                    self.close()
                    self._wait(until, error)

    def _connected(self, until: float) -> ShardConnection:
        """Return a connection to a process that gets all that this trainer has sent."""
        while self._connection is None:
            try:
                address = self._options.addresses(self.number)
                if address is None:
                    self._wait(until, None)
                else:
                    self._connect(address)
            except (ShardUnreachableError, ShardReplacedError) as error:
                self._wait(until, error)
        return self._connection

    def _connect(self, address: ShardAddress) -> None:
        options = self._options
        connection = ShardConnection(
            address,
            options.trainer,
            self._deadlines,
            deadline_s=options.deadline_s,
            name=f"shard {self.number} of {options.shards}",
            token=options.token,
            is_half=options.is_half,
        )
        try:
            there = connection.greet(self.number, options.shards, options.life, options.session)
            self._check(there.applied, keeps=connection.keeps, who=connection.name)
            for table, settings in self._settings.items():
                connection.call("make", {"table": table, "settings": settings})
            missing = [each for each in self._kept if each.sequence > there.applied]
            for each in missing:
                connection.send(each)
        except BaseException:
            connection.close()
            raise
        if not self._is_known:
            self._is_known, self.sent = True, there.applied
        self._note(there)
        self._connection, self._unread = connection, len(missing)

    def _check(self, applied: int, *, keeps: bool, who: str) -> None:
        """Refuse a process that lacks what this trainer keeps no more."""
        if not self._is_known:
            return
        first = min((each.sequence for each in self._kept if each.sequence > applied), default=self.sent + 1)
        lost = f"operations {applied + 1} to {first - 1} of trainer {self._options.trainer}"
        if first > applied + 1 or (self._is_loaded and not keeps):
            raise ProcessLostError(
                f"lost {lost if first > applied + 1 else 'the rows of a checkpoint'} with the last process "
                "that had them",
                where=who,
                hint="resume from the last checkpoint; with a folder for its rows a shard loses nothing",
            )

    def _deadline(self) -> float:
        return time.monotonic() + self._options.deadline_s

    def _wait(self, until: float, error: BaseException | None) -> None:
        """Wait a moment before the shard is tried again.

        Raises:
            ProcessLostError: it has not come in time.
        """
        if time.monotonic() > until:
            said = "" if error is None else f": {error}"
            raise ProcessLostError(
                f"waited {self._options.deadline_s:g} seconds for a shard or its successor{said}",
                where=f"trainer {self._options.trainer}, shard {self.number} of {self._options.shards}",
                hint="resume the run from its last checkpoint when the host is back",
            )
        time.sleep(LOOK_SECONDS)
