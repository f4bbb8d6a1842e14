"""An embedding table whose rows are divided among several processes by the hash of their keys."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import torch
from torch import Tensor

from graphbox.errors import ConflictError, DataError, UnsupportedError, UsageError
from graphbox.native import Int64Array, integer_array, is_torch
from graphbox.table.arguments import writable_rows
from graphbox.table.distributed import FILES_TIMEOUT_SECONDS, ProcessGroup
from graphbox.table.distributed_checkpoint import save_sharded
from graphbox.table.distributed_keys import KeyExchange
from graphbox.table.distributed_lookup import ShardedGradient, ShardedLookup
from graphbox.table.keyed_gradients import GradientReader, KeyedGradients
from graphbox.table.policy import CountAdmission
from graphbox.table.settings import table_settings
from graphbox.table.sharding import shard_of
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    from graphbox.table.device_table import DeviceTable
    from graphbox.table.key_bags import KeyBags
    from graphbox.table.policy import ShrinkReport

_WHOLE, _IN_PARTS, _REFUSED = range(3)
"""Gradients of a process in a push: for all keys of one exchange; others; refused, as one is not finite."""


class ShardedTable:
    """One table in several processes: each has the rows of the keys that :func:`shard_of` says are its own.

    Every method is a collective unless it says otherwise: all processes call the same in the same order, each
    with its own keys, or none. So W processes that each push the gradients of a part of a batch have together
    the rows of one process that pushed all of them: to float tolerance, and bit for bit where no process but
    the first that has a key, in the order of ranks, has more than one gradient of it (others add theirs
    first). How many processes there are is part of the result's bits, threads and devices of the tables are
    not. The rows of a pull are always bit for bit those of one process.

    A process that fails takes the others with it: see :class:`ProcessGroup`. Gradients that hold NaN or
    infinity are refused in all processes alike, before anything changes, and training can go on.

    :class:`TableEmbedding` and :class:`TableEmbeddingBag` take it as any table. Rows then learn by a
    :class:`TableOptimizer`, at its ``step()``: a backward pass that comes to a table in one process only must
    not wait for the others.

    Args:
        table: the rows of this process, in host memory or, a :class:`DeviceTable`, on its GPU; tables of all
            processes have the same settings.
        processes: the processes.
        name: what messages call it.
        average_gradients: divide the sums of gradients by the number of processes, as
            ``DistributedDataParallel`` does with those of parameters: right where each process has the mean
            loss of its own part of a batch. Without it gradients are added up: right where each process has
            its share of the loss of the whole batch.

    Raises:
        UsageError: the table has keys of another process.
        ConflictError: the tables of processes differ in their settings.
        UnsupportedError: a table with admission by count, which nothing counts over processes.
    """

    def __init__(
        self,
        table: EmbeddingTable | DeviceTable,
        processes: ProcessGroup,
        *,
        name: str = "table",
        average_gradients: bool = True,
    ) -> None:
        self._rows = table
        self.device = torch.device("cpu") if isinstance(table, EmbeddingTable) else table.device
        self.processes = processes
        self.name = name
        self.average_gradients = bool(average_gradients)
        self._reader = GradientReader(self.local, self.device)
        self._exchanges = 0
        self._skipped = 0
        with processes.failing():
            self._check()

    def __repr__(self) -> str:
        group = self.processes
        return f"ShardedTable({self.name!r}, rank {group.rank} of {group.size}, local={self.local!r})"

    def __reduce__(self) -> Never:
        raise UsageError(
            "a table can be neither copied nor pickled",
            hint="save it with save(path), and load that with ShardedTable.load(path, processes)",
        )

    @property
    def local(self) -> EmbeddingTable:
        """The table of this process that keeps its rows; no collective."""
        return self._rows if isinstance(self._rows, EmbeddingTable) else self._rows.local

    @property
    def is_collective(self) -> bool:
        """Always: all processes call each method together; no collective itself."""
        return True

    @property
    def dim(self) -> int:
        """Values of a row; no collective."""
        return self.local.dim

    @property
    def lr(self) -> float:
        """Learning rate, which all processes set alike; no collective."""
        return self.local.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.local.lr = value

    @property
    def path(self) -> Path | None:
        """Folder of the rows of this process that are on SSD, or None; no collective."""
        return self.local.path

    @property
    def skipped_gradients(self) -> int:
        """Number of gradients of this process left out for NaN or infinity; no collective."""
        return self._skipped + self._rows.skipped_gradients

    def total_rows(self) -> int:
        """Return the number of rows in all processes."""
        counts = self.processes.gather(self._named("total_rows"), np.array([len(self.local)]))
        return int(counts.sum())

    # ------------------------------------------------------------------------------- rows

    def pull(self, keys: Any, out: Any = None, create: bool = True) -> Any:
        """Return the rows of ``keys`` from the processes that have them; see :meth:`EmbeddingTable.pull`.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
            DoesNotFitError: new rows would exceed ``memory_bytes`` of this process; the others end, too.
            ProcessLostError: another process has ended or failed.
            TimeLimitError: another process did not come.
        """
        wanted = self._keys(keys)
        shape = (*wanted.shape, self.dim)
        _, rows = self._pull(wanted.reshape(-1), create, "pull")
        if out is not None:
            writable_rows(out, "out", shape)[...] = rows.cpu().numpy().reshape(-1, self.dim)
            return out
        found = rows.reshape(shape)
        return found.to(keys.device) if is_torch(keys) else found.cpu().numpy()

    def push(self, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Apply the gradients of all processes, each row's once; see :meth:`EmbeddingTable.push`.

        Each process adds up those of equal keys, in their order; the owner of a key adds what comes, in the
        order of ranks.

        Raises:
            UsageError: wrong shapes or dtypes, or shows or clicks that nothing counts.
            DataError: in all processes, a gradient of one of them that holds NaN or infinity, where those are
                not skipped; none was applied.
            DoesNotFitError: new rows would exceed ``memory_bytes`` of this process; the others end, too.
            ProcessLostError: another process has ended or failed.
            TimeLimitError: another process did not come.
        """
        self._push([self._reader.read(self._keys(keys), grads, shows, clicks)], "push")

    def contains(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether each key has a row: bool [*keys.shape]."""
        wanted = self._keys(keys)
        name = self._named("contains")
        exchange = self._exchange(wanted.reshape(-1), name)
        with self.processes.failing():
            known = torch.from_numpy(self.local.contains(exchange.owned.cpu().numpy())).to(self.device)
        found = exchange.fetch(self.processes, name, known.to(torch.uint8)[:, None])
        return found[:, 0].bool().cpu().numpy().reshape(wanted.shape)

    def erase(self, keys: Any) -> int:
        """Forget keys of any process; return how many in all had a row."""
        name = self._named("erase")
        exchange = self._exchange(self._keys(keys).reshape(-1), name)
        with self.processes.failing():
            erased = self._rows.erase(exchange.owned)
        return int(self.processes.gather(name, np.array([erased])).sum())

    def end_pass(self) -> None:
        """Say that a pass over the data has ended; no collective, but for all processes alike."""
        self._rows.end_pass()

    def shrink(self) -> ShrinkReport:
        """Drop rows of this process that have expired or are of low score, and report them; no collective."""
        return self._rows.shrink()

    # ------------------------------------------------------------------------- checkpoints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one checkpoint of all rows: each process writes its own, rank 0 puts them together.

        It is a checkpoint as :meth:`EmbeddingTable.save` writes: one process loads it, or any number.
        A reader sees the old one or the new one, and all processes go on when the new one is durable.

        Args:
            path: the same folder in all processes.

        Raises:
            GraphboxError: see :meth:`EmbeddingTable.save`; what goes wrong in one process ends the others.
        """
        with self.processes.failing():
            save_sharded(self.local, Path(path), self.processes, self._named("save"))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        processes: ProcessGroup,
        *,
        name: str = "table",
        average_gradients: bool = True,
        **options: Any,
    ) -> ShardedTable:
        """Return the table of a checkpoint that any number of processes saved.

        Args:
            path: of the checkpoint.
            processes: the processes.
            name: see the class.
            average_gradients: see the class.
            **options: more arguments of :meth:`EmbeddingTable.load`, of this process's table.

        Raises:
            GraphboxError: see :meth:`EmbeddingTable.load`.
        """
        with processes.failing():
            table = EmbeddingTable.load(path, shard=(processes.rank, processes.size), **options)
        return cls(table, processes, name=name, average_gradients=average_gradients)

    # ----------------------------------------------------------------------- torch modules

    def lookup_keys(self, keys: Tensor, name: str) -> Tensor:
        """Return keys of a module's lookup as it is done here: int64 where this process has its rows."""
        return self._rows.lookup_keys(keys, name)

    def lookup(self, keys: Tensor, bags: KeyBags | None = None) -> ShardedLookup[KeyExchange]:
        """Return what pulls the rows of keys, or the sums of bags, and makes gradients of their rows."""
        return ShardedLookup(self, keys, bags)

    def reference(self) -> dict[str, Any]:
        """Return what a ``state_dict`` holds of the rows of this process; no collective."""
        return self.local.reference()

    def check_reference(self, state: object) -> None:
        """Compare the rows of this process: see :meth:`EmbeddingTable.check_reference`; no collective."""
        self.local.check_reference(state)

    def pull_exchange(self, keys: Tensor, *, create: bool) -> tuple[KeyExchange, Tensor]:
        """Return the rows of keys, float32 [keys, dim], and which process has which.

        Args:
            keys: int64 [keys], where this process has its rows.
            create: give unknown keys a row.
        """
        return self._pull(keys, create, "look up")

    def learn(self, gradients: Sequence[ShardedGradient[KeyExchange]]) -> None:
        """Apply the gradients of lookups, in their order; none where this process has none.

        Raises:
            DataError: in all processes, a gradient of one of them that holds NaN or infinity, where those are
                not skipped; none was applied.
        """
        parts = [
            KeyedGradients(each.keys, each.values, self._reader.counts_of(each.keys.shape), each.exchange)
            for each in gradients
        ]
        self._push(parts, "learn")

    # ----------------------------------------------------------------------------- details

    def _check(self) -> None:
        group = self.processes
        if isinstance(self.local.policies.admission, CountAdmission):
            raise UnsupportedError(
                "expected a table that admits keys at once or by probability, received one that counts them: "
                "each process would count for itself",
                where=self.name,
                hint="make it without admission=CountAdmission(...)",
            )
        if self.device.type not in ("cpu", group.device.type):
            raise UsageError(
                f"expected processes on {self.device.type}, where the rows are, received those of {group!r}",
                where=self.name,
                hint="make ProcessGroup(device) on the device of the table",
            )
        # Rows on GPUs go another way than those in host memory: all wait for all on the same one.
        place = {"rows": self.device.type}
        settings = json.dumps(table_settings(self.local) | place, sort_keys=True).encode()
        digest = np.frombuffer(_digest(settings), np.int64)
        # Some may still be loading their rows.
        group.barrier(self._named("begin"), timeout_seconds=FILES_TIMEOUT_SECONDS)
        digests = group.gather(self._named("settings"), digest)
        if (digests != digests[0]).any():
            other = int(np.flatnonzero((digests != digests[0]).any(axis=1))[0])
            raise ConflictError(
                f"expected tables of the same settings in all processes, rank {other} has others than rank 0",
                where=self.name,
                hint="make all with the same arguments, rows on GPUs in all or in none; only memory_bytes, "
                "path, threads and hbm_bytes may differ",
            )
        keys = self.local.keys()
        foreign = keys[shard_of(keys, group.size) != group.rank] if len(keys) else keys
        if len(foreign):
            raise UsageError(
                f"expected keys of rank {group.rank} of {group.size} alone, received key {foreign[0]} of "
                f"another process",
                where=self.name,
                hint="ShardedTable.load(path, processes) divides a saved table",
            )

    def _named(self, operation: str) -> str:
        return f"{operation} of table {self.name}"

    def _keys(self, keys: Any) -> Tensor:
        """Return keys as int64 where this process has its rows."""
        if is_torch(keys):
            return self._rows.lookup_keys(keys, "keys")
        return torch.from_numpy(integer_array(keys, "keys", dimensions=None)).to(self.device)

    def _exchange(self, keys: Tensor, name: str) -> KeyExchange:
        self._exchanges += 1
        return KeyExchange.of(self.processes, name, self._exchanges, keys)

    def _pull(self, keys: Tensor, create: bool, operation: str) -> tuple[KeyExchange, Tensor]:
        name = self._named(operation)
        exchange = self._exchange(keys, name)
        with self.processes.failing():
            if create:
                rows, exchange.slots = self._rows.pull_slots(exchange.owned)
            else:
                rows = self._rows.pull(exchange.owned, create=False)
        return exchange, exchange.fetch(self.processes, name, rows)

    def _push(self, given: Sequence[KeyedGradients[KeyExchange]], operation: str) -> None:
        """Apply gradients of this process and of the others."""
        name = self._named(operation)
        whole = self._reader.joined(given)
        refused = None
        is_finite = torch.isfinite(whole.values).all(dim=1)
        if not bool(is_finite.all()):
            if self.local._native.skip_nonfinite:
                self._skipped += int((~is_finite).sum())
                whole = whole.take(is_finite)
            else:
                refused = int(whole.keys[~is_finite][0])
        state = [_IN_PARTS, 0, 0] if whole.exchange is None else [_WHOLE, whole.exchange.number, 0]
        states = self.processes.gather(
            f"{name}: what processes have", np.array(state if refused is None else [_REFUSED, 0, refused])
        )
        self._refuse(states)
        exchange = whole.exchange
        if exchange is None or (states[:, :2] != states[0, :2]).any():
            exchange = self._exchange(whole.keys, name)
        self._apply(exchange, whole, name)

    def _apply(self, exchange: KeyExchange, given: KeyedGradients[KeyExchange], name: str) -> None:
        sums = given.summed(exchange.divided, self.processes.size if self.average_gradients else 1)
        gradients, counts = self._reader.split(exchange.deliver(self.processes, name, sums))
        with self.processes.failing():
            if exchange.slots is None:
                self._rows.push(exchange.owned, gradients, **counts)
            else:
                self._rows.push_slots(exchange.slots, gradients, **counts)

    def _refuse(self, states: Int64Array) -> None:
        refusing = np.flatnonzero(states[:, 0] == _REFUSED)
        if len(refusing):
            rank = int(refusing[0])
            raise DataError(
                f"gradients must be finite; one of rank {rank} holds NaN or infinity, and no process applied "
                "any",
                where=f"{self.name}, key {int(states[rank, 2])}",
                hint='lower the learning rate, or make the table with nonfinite="skip"',
            )


def _digest(content: bytes) -> bytes:
    import hashlib

    return hashlib.blake2b(content, digest_size=32).digest()
