"""An embedding table whose rows are in the shards of a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphbox.cluster.client import KeyedChange, KeyedRows, ShardClient
from graphbox.cluster.messages import Kind
from graphbox.errors import DataError, UnsupportedError, UsageError
from graphbox.native import Int64Array, is_torch
from graphbox.table import EmbeddingTable
from graphbox.table.arguments import Float32Array, nonnegative, writable_rows
from graphbox.table.distributed import FILES_TIMEOUT_SECONDS
from graphbox.table.distributed_checkpoint import checkpoint_in_parts
from graphbox.table.distributed_keys import DividedKeys
from graphbox.table.distributed_lookup import ShardedGradient, ShardedLookup
from graphbox.table.keyed_gradients import GradientReader, KeyedGradients
from graphbox.table.manifest import read_manifest
from graphbox.table.policy import CountAdmission, ShrinkReport
from graphbox.table.settings import table_arguments, table_settings

if TYPE_CHECKING:
    from graphbox.table import ProcessGroup
    from graphbox.table.key_bags import KeyBags

__all__ = ["RemoteTable", "pull_together"]


class RemoteTable:
    """One table in the shards of a cluster, as a trainer sees it.

    Where trainers learn in step every method that changes rows is a collective, as those of
    :class:`graphbox.table.ShardedTable` are: all trainers call the same in the same order, with keys of their
    own or none, and rows are bit for bit those of a :class:`graphbox.table.ShardedTable` in as many
    processes. Otherwise a shard applies a push when it comes, and a pull may lack as many of this trainer's
    pushes as the client's ``staleness`` says.

    :class:`graphbox.table.TableEmbedding` takes it as any table.

    Args:
        client: the shards.
        name: of the table, unique among theirs.
        settings: a table without rows that says what this one is.
        processes: the trainers that learn in step; None: this one alone, or they do not.
        average_gradients: divide gradients by the number of trainers in step; see
            :class:`graphbox.table.ShardedTable`.

    Raises:
        ConflictError: the shards have a table of this name with other settings.
        UsageError: ``settings`` has rows.
        UnsupportedError: admission by count, which no trainer can count for others.
    """

    def __init__(
        self,
        client: ShardClient,
        name: str,
        settings: EmbeddingTable,
        *,
        processes: ProcessGroup | None = None,
        average_gradients: bool = True,
    ) -> None:
        if len(settings):
            raise UsageError(
                f"expected a table without rows, received one of {len(settings)}: rows are in the shards",
                where=name,
            )
        if isinstance(settings.policies.admission, CountAdmission):
            raise UnsupportedError(
                "expected a table that admits keys at once or by probability, received one that counts them: "
                "each trainer asks for a key of a batch once",
                where=name,
                hint="make it without admission=CountAdmission(...)",
            )
        if client.in_step and processes is None and average_gradients:
            raise UsageError(
                "expected the processes of the trainers in step, by whose number gradients are divided",
                where=name,
                hint="give `processes`, or `average_gradients=False`, which adds gradients up",
            )
        self.name = name
        self._client = client
        self._settings = settings
        self._processes = processes
        self._trainers = 1 if processes is None or not average_gradients else processes.size
        self._reader = GradientReader(settings, torch.device("cpu"))
        self._skipped = 0
        self._together: _Pulled | None = None
        client.make(name, table_settings(settings))

    def __repr__(self) -> str:
        return f"RemoteTable({self.name!r}, dim={self.dim}, shards={self._client.size})"

    def __len__(self) -> int:
        return self._client.count_rows(self.name)

    def __reduce__(self) -> Never:
        raise UsageError("a table can be neither copied nor pickled", hint="its rows are in the shards")

    @property
    def is_collective(self) -> bool:
        """True if trainers learn in step."""
        return self._client.in_step

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self._settings.dim

    @property
    def lr(self) -> float:
        """Learning rate of this trainer's pushes."""
        return self._settings.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._settings.lr = nonnegative(value, "lr")

    @property
    def path(self) -> Path | None:
        """None: no row is on a disk of this process."""
        return None

    @property
    def skipped_gradients(self) -> int:
        """Number of gradients of this trainer left out for NaN or infinity."""
        return self._skipped

    # ------------------------------------------------------------------------------------------------ rows

    def pull(self, keys: Any, out: Any = None, create: bool = True) -> Any:
        """Return the rows of ``keys``: float32 [*keys.shape, dim]; see :meth:`EmbeddingTable.pull`.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
            GraphboxError: see :meth:`ShardClient.pull`.
        """
        wanted = self.lookup_keys(keys, "keys")
        shape = (*wanted.shape, self.dim)
        _, rows = self.pull_exchange(wanted.reshape(-1), create=create)
        if out is not None:
            writable_rows(out, "out", shape)[...] = rows.numpy().reshape(-1, self.dim)
            return out
        return rows.reshape(shape) if is_torch(keys) else rows.numpy().reshape(shape)

    def push(self, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Send gradients, those of equal keys summed; see :meth:`EmbeddingTable.push`.

        Raises:
            UsageError: wrong shapes or dtypes, or shows or clicks that nothing counts.
            DataError: a gradient that holds NaN or infinity, where those are not skipped; of any trainer
                where they learn in step. None was applied.
            GraphboxError: what a shard refused, of this push or an earlier one.
        """
        self._push([self._reader.read(self.lookup_keys(keys, "keys"), grads, shows, clicks)])

    def contains(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Return whether each key has a row: bool [*keys.shape]."""
        wanted = self.lookup_keys(keys, "keys")
        divided = DividedKeys.of(wanted.reshape(-1), self._client.size)
        known: npt.NDArray[np.bool_] = self._client.contains(_rows_of(self.name, divided))
        found: npt.NDArray[np.bool_] = known[divided.places.numpy()]
        return found.reshape(tuple(wanted.shape))

    def erase(self, keys: Any) -> int:
        """Forget keys; return how many of this trainer's had a row before."""
        divided = DividedKeys.of(self.lookup_keys(keys, "keys").reshape(-1), self._client.size)
        known = int(self._client.contains(_rows_of(self.name, divided)).sum())
        self._operate("erase", divided)
        return known

    def end_pass(self) -> None:
        """Say that a pass over the data has ended."""
        self._operate("end_pass", DividedKeys.of(torch.zeros(0, dtype=torch.int64), self._client.size))

    def shrink(self) -> ShrinkReport:
        """Drop rows that have expired or are of low score, and report those of all shards together."""
        self._operate("shrink", DividedKeys.of(torch.zeros(0, dtype=torch.int64), self._client.size))
        return self._client.shrink_report(self.name)

    # ----------------------------------------------------------------------------------------- checkpoints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one checkpoint of all rows, with all that was sent before: each shard writes its own.

        It is a checkpoint as :meth:`EmbeddingTable.save` writes: one process loads it, or any number of
        shards. Shards and trainers see the same files.

        Args:
            path: a folder below the client's ``checkpoints``, the same in all trainers.

        Raises:
            UsageError: a folder elsewhere.
            GraphboxError: see :meth:`EmbeddingTable.save`.
        """
        self._client.settle()
        self._meet("save")
        if self._is_first:
            with checkpoint_in_parts(Path(path), self._client.size) as parts:
                self._client.save(self.name, parts)
        self._meet("save")

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        client: ShardClient,
        name: str,
        *,
        processes: ProcessGroup | None = None,
        average_gradients: bool = True,
    ) -> RemoteTable:
        """Return the table of a checkpoint, whose rows the shards read.

        Args:
            path: of the checkpoint, a folder below the client's ``checkpoints``.
            client: see the class.
            name: see the class.
            processes: see the class.
            average_gradients: see the class.

        Raises:
            UsageError: a folder elsewhere.
            GraphboxError: see :meth:`EmbeddingTable.load`.
        """
        place = Path(path)
        settings = EmbeddingTable(**table_arguments(read_manifest(place).table, place))
        table = cls(client, name, settings, processes=processes, average_gradients=average_gradients)
        table._client.settle()
        table._meet("load")
        if table._is_first:
            client.load(name, place)
        table._meet("load")
        return table

    # ----------------------------------------------------------------------------------------- torch modules

    def lookup_keys(self, keys: Any, name: str) -> Tensor:
        """Return keys as int64 in host memory."""
        return self._settings.lookup_keys(keys, name)

    def lookup(self, keys: Tensor, bags: KeyBags | None = None) -> ShardedLookup[DividedKeys]:
        """Return what pulls the rows of keys, or the sums of bags, and makes gradients of their rows."""
        return ShardedLookup(self, keys, bags)

    def pull_exchange(self, keys: Tensor, *, create: bool) -> tuple[DividedKeys, Tensor]:
        """Return the rows of keys, float32 [keys, dim], and which shard has which.

        Args:
            keys: int64 [keys].
            create: give unknown keys a row.
        """
        pulled, self._together = self._together, None
        if pulled is None or pulled.create != create or not torch.equal(pulled.keys, keys):
            divided = DividedKeys.of(keys, self._client.size)
            (parts,) = self._client.pull([_rows_of(self.name, divided)], create=create)
            pulled = _Pulled(keys, create, divided, parts)
        return pulled.divided, _gathered(pulled.parts, pulled.divided.places, self.dim)

    def learn(self, gradients: Sequence[ShardedGradient[DividedKeys]]) -> None:
        """Send the gradients of lookups, in their order, as one push; none where this trainer has none.

        Raises:
            GraphboxError: see :meth:`push`.
        """
        self._push(
            [
                KeyedGradients(each.keys, each.values, self._reader.counts_of(each.keys.shape), each.exchange)
                for each in gradients
            ]
        )

    def reference(self) -> dict[str, Any]:
        """Return what a ``state_dict`` holds of the table: name and shape, as rows have no one moment."""
        return {"table": self.name, "dim": self.dim, "dtype": self._settings.dtype}

    def check_reference(self, state: object) -> None:
        """Compare the table with that of a ``state_dict``.

        Raises:
            UsageError: it is another one.
        """
        if state != self.reference():
            raise UsageError(
                f"expected a reference to {self.reference()}, received {state!r}", where="state_dict"
            )

    # --------------------------------------------------------------------------------------------- details

    def _push(self, given: Sequence[KeyedGradients[DividedKeys]]) -> None:
        self._together = None
        whole = self._without_skipped(self._reader.joined(given))
        divided = whole.exchange or DividedKeys.of(whole.keys, self._client.size)
        sums = whole.summed(divided, self._trainers)
        self._refuse_infinite(sums, divided)
        gradients, counts = self._reader.split(sums)
        columns = [each.numpy() for each in counts.values()]
        change = KeyedChange(
            divided.different.numpy(),
            _bounds(divided),
            gradients.numpy(),
            np.stack(columns, axis=1) if columns else np.zeros((len(gradients), 0), np.float32),
            self.lr,
        )
        self._client.push(self.name, change)

    @property
    def _skips(self) -> bool:
        return self._settings._native.skip_nonfinite

    def _without_skipped(self, given: KeyedGradients[DividedKeys]) -> KeyedGradients[DividedKeys]:
        """Return gradients without those that hold NaN or infinity, where these are skipped."""
        if not self._skips:
            return given
        is_finite = torch.isfinite(given.values).all(dim=1)
        if bool(is_finite.all()):
            return given
        self._skipped += int((~is_finite).sum())
        return given.take(is_finite)

    def _refuse_infinite(self, sums: Tensor, divided: DividedKeys) -> None:
        """Refuse gradients that are not finite, or whose sum is not; trainers in step do it alike."""
        is_finite = torch.isfinite(sums).all(dim=1)
        first = divided.different[~is_finite][:1].tolist()
        state = np.array([int(bool(first) and not self._skips), *(first or [0])])
        states = state[None]
        if self._processes is not None:
            states = self._processes.gather(f"push of table {self.name}: what trainers have", state)
        refusing = np.flatnonzero(states[:, 0])
        if len(refusing):
            whose = f"of rank {refusing[0]} " if self._processes is not None else ""
            raise DataError(
                f"gradients must be finite; one {whose}holds NaN or infinity, and none was applied",
                where=f"{self.name}, key {int(states[refusing[0], 1])}",
                hint='lower the learning rate, or make the table with nonfinite="skip"',
            )

    def _operate(self, kind: Kind, divided: DividedKeys) -> None:
        """Change rows in another way than by gradients."""
        self._together = None
        keys = divided.different.numpy()
        nothing = np.zeros((len(keys), 0), np.float32)
        change = KeyedChange(keys, _bounds(divided), np.zeros((0, self.dim), np.float32), nothing)
        self._client.operate(kind, {self.name: change})

    @property
    def _is_first(self) -> bool:
        """True in the trainer that writes checkpoints."""
        return self._processes is None or self._processes.is_first

    def _meet(self, what: str) -> None:
        if self._processes is not None:
            self._processes.barrier(f"{what} of table {self.name}", timeout_seconds=FILES_TIMEOUT_SECONDS)


@dataclass(frozen=True)
class _Pulled:
    """Rows of a lookup to come.

    Attributes:
        keys: int64 [keys], as the lookup will have them.
        create: whether unknown keys got a row.
        divided: which shard has which.
        parts: rows of the different keys, of each shard that has some.
    """

    keys: Tensor
    create: bool
    divided: DividedKeys
    parts: Sequence[Float32Array]


def pull_together(keys: Mapping[RemoteTable, Any], *, create: bool = True) -> None:
    """Pull rows of several tables by one request to each shard; the next lookup of each finds them here.

    A lookup of other keys, or one after a push to its table, sends a request of its own.

    Args:
        keys: of the next lookup, by table; all tables of one client.
        create: give unknown keys a row.

    Raises:
        UsageError: tables of several clients, or keys that are no integers.
        GraphboxError: see :meth:`ShardClient.pull`.
    """
    clients = {id(table._client): table._client for table in keys}
    if len(clients) > 1:
        raise UsageError(f"expected tables of one client, received those of {len(clients)}", where="keys")
    flat = {table: table.lookup_keys(each, "keys").reshape(-1).clone() for table, each in keys.items()}
    for client in clients.values():
        divided = {table: DividedKeys.of(each, client.size) for table, each in flat.items()}
        wanted = [_rows_of(table.name, each) for table, each in divided.items()]
        for table, parts in zip(divided, client.pull(wanted, create=create), strict=True):
            table._together = _Pulled(flat[table], create, divided[table], parts)


def _rows_of(name: str, divided: DividedKeys) -> KeyedRows:
    return KeyedRows(name, divided.different.numpy(), _bounds(divided))


def _bounds(divided: DividedKeys) -> Int64Array:
    """Return where the keys of each shard begin: int64 [shards + 1]."""
    return np.cumsum([0, *divided.counts])


def _gathered(parts: Sequence[Float32Array], places: Tensor, dim: int) -> Tensor:
    """Return the row of each key of a batch: float32 [keys, dim], in memory of its own.

    Args:
        parts: rows of the different keys, of each shard that has some.
        places: int64 [keys], where each key is among the different ones.
        dim: values of a row.
    """
    if not parts:
        return torch.zeros(0, dim)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return torch.from_numpy(np.take(rows, places.numpy(), axis=0).astype(np.float32, copy=False))
