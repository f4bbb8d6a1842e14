"""A trainer's view of all shards: rows that it pulls, operations that it sends until they are kept."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from graphbox.cluster.connection import ShardAddress
from graphbox.cluster.deadlines import Deadlines
from graphbox.cluster.link import LOOK_SECONDS, LinkOptions, ShardLink
from graphbox.cluster.messages import Kind, Operation, Pull, Rows, TablePart
from graphbox.errors import UsageError
from graphbox.memory import keep_freed_messages
from graphbox.native import Int64Array
from graphbox.table.policy import ShrinkReport

__all__ = ["KeyedChange", "KeyedRows", "ShardClient"]

DEADLINE_SECONDS: Final = 90.0
"""Longer than a shard waits for other trainers, so that the error that names them arrives first."""
REPLAY_BYTES: Final = 1 << 30

_NOTHING: Final = np.zeros(0, np.float32)


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
        session: of trainers in step, how often they were started all together; what waits of an earlier
            session is dropped.
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
        session: int = 0,
        token: str | None = None,
        is_half: bool = False,
        deadline_s: float = DEADLINE_SECONDS,
        checkpoints: Path | None = None,
        replay_bytes: int = REPLAY_BYTES,
    ) -> None:
        if in_step and staleness:
            raise UsageError(
                f"expected rows with all pushes of the steps before, received staleness={staleness} beside "
                "in_step",
                where="staleness",
                hint="leave one of both out",
            )
        self.size = shards
        self.trainer = trainer
        self.in_step = in_step
        self.clipped_values = 0
        self.pulls = 0
        self._staleness = staleness
        self._replay_bytes = replay_bytes
        self._checkpoints = checkpoints
        self._deadlines = Deadlines()
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._pending: dict[str, KeyedChange] = {}
        self._life = secrets.randbits(53)
        options = LinkOptions(addresses, shards, trainer, self._life, session, token, is_half, deadline_s)
        self._links = [
            ShardLink(number, options, self._deadlines, self._settings) for number in range(shards)
        ]
        keep_freed_messages()
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._look_for_successors, name="shards", daemon=True)
        self._watch.start()

    def close(self) -> None:
        """End all streams; operations after the last :meth:`settle` may be lost. Leaving a block settles."""
        self._ends.set()
        self._watch.join()
        for link in self._links:
            link.close()
        self._deadlines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.settle()
        finally:
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
        self._call_all("make", {"table": table, "settings": settings})
        self._settings[table] = settings

    def save(self, table: str, folder: Path) -> None:
        """Let each shard write a checkpoint of its rows of a table into a folder.

        Raises:
            UsageError: the folder is not below the one for checkpoints.
            GraphboxError: see :meth:`graphbox.table.EmbeddingTable.save`.
        """
        self._call_for_files("save", table, folder)

    def load(self, table: str, checkpoint: Path) -> None:
        """Let each shard take its rows of a checkpoint.

        Raises:
            UsageError: the folder is not below the one for checkpoints.
            GraphboxError: see :meth:`graphbox.table.EmbeddingTable.load`.
        """
        self._call_for_files("load", table, checkpoint)

    def shrink_report(self, table: str) -> ShrinkReport:
        """Return what the last shrink of a table dropped in all shards together."""
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
        pulls = {link.number: self._pull_of(link, wanted, create=create) for link in self._links}
        pulls = {number: pull for number, pull in pulls.items() if len(pull.keys)}
        self.pulls += len(pulls)
        found: list[list[npt.NDArray[Any]]] = [[] for _ in wanted]
        for number, rows in self._answers(pulls).items():
            self.clipped_values += rows.clipped
            begin = 0
            for parts, part, dim in zip(found, pulls[number].parts, dims, strict=True):
                parts.append(rows.values[begin : begin + part.keys * dim].reshape(part.keys, dim))
                begin += part.keys * dim
        return found

    def contains(self, wanted: KeyedRows) -> npt.NDArray[np.bool_]:
        """Return which keys have a row, after all that this trainer has sent: bool [n]."""
        self.send_changes()
        found = []
        for link in self._links:
            keys = wanted.keys[wanted.bounds[link.number] : wanted.bounds[link.number + 1]]
            if len(keys):
                found.append(link.call("contains", {"table": wanted.table}, keys))
        return np.frombuffer(b"".join(found), np.bool_)

    def count_rows(self, table: str) -> int:
        """Return the number of rows of a table in all shards, after all that this trainer has sent."""
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
        for link in self._links:
            operation = self._operation_of(link.number, kind, changes)
            if self.in_step or len(operation.keys) or kind in ("end_pass", "shrink"):
                link.send(operation)
        if sum(link.kept_bytes for link in self._links) > self._replay_bytes:
            self.make_durable()

    def settle(self) -> None:
        """Wait until all that this trainer has sent was applied.

        Raises:
            GraphboxError: what a shard refused.
        """
        self.send_changes()
        nothing = np.zeros(0, np.int64)
        self._answers(
            {
                link.number: Pull(0, self.trainer, link.sent, False, (), nothing, self._life)
                for link in self._links
            }
        )

    def make_durable(self) -> None:
        """Let all shards keep what was applied, so that this trainer need not.

        Raises:
            DoesNotFitError: the disk of a shard is full.
        """
        self.send_changes()
        for link in self._links:
            link.make_durable()

    # --------------------------------------------------------------------------------------------- details

    def _look_for_successors(self) -> None:
        """Let a successor have what it lacks as soon as it is there."""
        while not self._ends.wait(LOOK_SECONDS):
            for link in self._links:
                with suppress(Exception):  # of `addresses`, which the next use asks, too
                    link.meet_successor()

    def _call_all(self, name: str, asked: Mapping[str, Any]) -> list[Any]:
        """Return what all shards answer to a call, after all that was sent before."""
        self.send_changes()
        return [link.call(name, asked) for link in self._links]

    def _call_for_files(self, name: str, table: str, folder: Path) -> None:
        self.send_changes()
        place = self._place(folder)
        for link in self._links:
            link.call_for_files(name, {"table": table, "place": place})

    def _answers(self, pulls: Mapping[int, Pull]) -> dict[int, Rows]:
        """Return the answers of shards, which work on them side by side."""
        try:
            asked = {number: self._links[number].ask(pull) for number, pull in pulls.items()}
            return {
                number: self._links[number].rows_of(pulls[number], each) for number, each in asked.items()
            }
        except BaseException:
            for number in pulls:  # answers that nobody reads are not to be taken for later ones
                self._links[number].close()
            raise

    def _place(self, folder: Path) -> str:
        """Return the name of a folder in requests: its path below the folder for checkpoints."""
        root = self._checkpoints
        if root is None or not folder.resolve().is_relative_to(root.resolve()):
            raise UsageError(
                f"expected a folder below the one for checkpoints, {root}, received {folder}",
                where=f"trainer {self.trainer}",
                hint="save into the folder of the run",
            )
        return str(folder.resolve().relative_to(root.resolve()))

    def _pull_of(self, link: ShardLink, wanted: Sequence[KeyedRows], *, create: bool) -> Pull:
        keys = [each.keys[each.bounds[link.number] : each.bounds[link.number + 1]] for each in wanted]
        parts = tuple(TablePart(each.table, len(own)) for each, own in zip(wanted, keys, strict=True))
        after = max(0, link.sent - self._staleness)
        return Pull(0, self.trainer, after, create, parts, _joined(keys), self._life)

    def _operation_of(self, shard: int, kind: Kind, changes: Mapping[str, KeyedChange]) -> Operation:
        """Return the part of changes that is a shard's, in memory of its own, without its number."""
        parts: list[TablePart] = []
        keys, values, counts = [np.zeros(0, np.int64)], [_NOTHING], [_NOTHING]
        for table, each in changes.items():
            own = slice(each.bounds[shard], each.bounds[shard + 1])
            parts.append(TablePart(table, len(each.keys[own]), each.lr, each.counts.shape[1]))
            keys.append(each.keys[own])
            values.append((each.values[own] if kind == "push" else each.values).reshape(-1))
            counts.append(each.counts[own].reshape(-1))
        # A shard that cannot make them durable would keep the parts of all others in memory, too.
        join = np.concatenate if self.size > 1 else _joined
        return Operation(
            0, self.trainer, 0, kind, tuple(parts), join(keys), join(values), join(counts), self._life
        )


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return arrays as one, which is not copied if the others are empty."""
    filled = [each for each in parts if len(each)]
    return np.concatenate(filled or parts[:1]) if len(filled) != 1 else filled[0]
