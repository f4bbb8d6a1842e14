"""The rows of a table while a device trains them: those that are met most in its memory, others pinned.

What the device's memory has no room for is in pinned host memory, which kernels read and write by themselves.
Rows stay where they are as long as the training lasts: which keys are met most is told by the walks, before
any batch, and kernels that are replayed know the addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.sample.pinned import pinned_empty
from graphbox.skip_gram.arrays import RowArrays, TieredRows
from graphbox.skip_gram.row_bytes import position_bytes
from graphbox.table import EmbeddingTable
from graphbox.table.settings import table_settings

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK_BYTES = 4 << 20
"""Rows that are moved at once: a table with rows on SSD has all of them in memory."""
_ROW_OVERHEAD_BYTES = 40


class _Piece(NamedTuple):
    """Keys whose rows are in one memory, beside each other."""

    keys: NDArray[np.int64]
    rows: slice
    is_hot: bool


@dataclass(frozen=True, eq=False)
class RowTiers:
    """Division of rows between the device's memory (hot keys) and the other: the same keys of all tables.

    Positions number the rows: first those of hot keys, then the others, both in the order of the keys.

    Attributes:
        num_keys: number of keys.
        num_hot: number of hot keys.
        visits: float64 [keys], frequency of each key, in any unit; of equals the first ones are hot.
    """

    num_keys: int
    num_hot: int
    visits: NDArray[np.float64]
    _is_hot: NDArray[np.bool_] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        is_hot = _most(self.visits, self.num_hot) if 0 < self.num_hot < self.num_keys else None
        object.__setattr__(self, "_is_hot", is_hot)

    def positions(self, device: torch.device) -> Tensor | None:
        """Return the position of each key: int32 or int64 [keys] on a device; None: it is the key."""
        if self._is_hot is None:
            return None
        width = position_bytes(self.num_keys)
        positions = np.empty(self.num_keys, np.int32 if width == 4 else np.int64)
        positions[self._is_hot] = np.arange(self.num_hot)
        positions[~self._is_hot] = np.arange(self.num_hot, self.num_keys)
        return torch.from_numpy(positions).to(device)

    def chunks(self, rows_at_once: int) -> Iterator[tuple[NDArray[np.int64], list[_Piece]]]:
        """Yield all keys, ascending, some at a time, and where their rows are."""
        hot = 0
        for begin in range(0, self.num_keys, rows_at_once):
            keys = np.arange(begin, min(begin + rows_at_once, self.num_keys), dtype=np.int64)
            if self._is_hot is None:
                rows = slice(begin, begin + len(keys))
                yield keys, [_Piece(keys, rows, is_hot=self.num_hot > 0)]
                continue
            is_hot = self._is_hot[begin : begin + len(keys)]
            here, away = keys[is_hot], keys[~is_hot]
            cold = begin - hot
            pieces = [
                _Piece(here, slice(hot, hot + len(here)), is_hot=True),
                _Piece(away, slice(cold, cold + len(away)), is_hot=False),
            ]
            yield keys, [each for each in pieces if len(each.keys)]
            hot += len(here)


class DeviceRows:
    """Rows 0, 1, ... of a table as dense arrays; the table has them again after :meth:`store`.

    Args:
        table: the table, in memory or with rows on SSD; rows that are missing are made.
        tiers: which of them are in the memory of the device.
        device: what trains them.

    Raises:
        UsageError: the table keeps rows otherwise than kernels update them.
        DoesNotFitError: there is not so much host memory that can be pinned.
    """

    def __init__(self, table: EmbeddingTable, tiers: RowTiers, device: torch.device) -> None:
        _check(table)
        self._table, self._tiers, self._device = table, tiers, device
        self.dim = table.dim
        self._rows_at_once = _CHUNK_BYTES // (4 * table.dim + _ROW_OVERHEAD_BYTES)
        self.eps = float(table_settings(table)["eps"])
        num_cold = tiers.num_keys - tiers.num_hot
        self._hot = None if tiers.num_hot == 0 and num_cold else _on_device(tiers.num_hot, table.dim, device)
        self._cold = _pinned(num_cold, table.dim, device) if num_cold else None
        self._load()

    @property
    def arrays(self) -> TieredRows:
        """The rows as kernels take them."""
        if self._hot is not None:
            return TieredRows(self._hot, self._cold)
        assert self._cold is not None  # noqa: S101 - rows are somewhere
        return TieredRows(self._cold, None)

    def store(self) -> None:
        """Write the rows that changed back to the table."""
        self._settle()
        for _, pieces in self._tiers.chunks(self._rows_at_once):
            for keys, rows, is_hot in pieces:
                self._store(keys, self._of(is_hot), rows)

    def _store(self, keys: NDArray[np.int64], arrays: RowArrays, rows: slice) -> None:
        values, accumulator, changed = (each[rows] for each in arrays)
        part = torch.nonzero(changed).reshape(-1)
        if len(part) == 0:
            return
        records = torch.cat([values[part], accumulator[part, None]], dim=1).cpu().numpy()
        _core.table_write_records(
            self._table._native, keys[part.cpu().numpy()], records.view(np.uint8), self._table.threads
        )
        changed.zero_()

    def _load(self) -> None:
        native, threads = self._table._native, self._table.threads
        for all_keys, pieces in self._tiers.chunks(self._rows_at_once):
            _core.table_admit(native, all_keys, True, threads)
            for keys, rows, is_hot in pieces:
                arrays = self._of(is_hot)
                records = np.empty((len(keys), self._table.dim + 1), dtype=np.float32)
                _core.table_read_records(native, keys, records.view(np.uint8), threads)
                there = torch.from_numpy(records).to(arrays.values.device)
                arrays.values[rows] = there[:, :-1]
                arrays.accumulator[rows] = there[:, -1]

    def _of(self, is_hot: bool) -> RowArrays:
        arrays = self._hot if is_hot else self._cold
        assert arrays is not None  # noqa: S101 - pieces are of memories that have rows
        return arrays

    def _settle(self) -> None:
        """Wait for kernels: they write host memory by themselves."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _on_device(rows: int, dim: int, device: torch.device) -> RowArrays:
    return RowArrays(
        torch.empty(rows, dim, dtype=torch.float32, device=device),
        torch.empty(rows, dtype=torch.float32, device=device),
        torch.zeros(rows, dtype=torch.uint8, device=device),
    )


def _pinned(rows: int, dim: int, device: torch.device) -> RowArrays:
    return RowArrays(
        pinned_empty((rows, dim), torch.float32, device),
        pinned_empty((rows,), torch.float32, device),
        pinned_empty((rows,), torch.uint8, device).zero_(),
    )


def _most(visits: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Return which ``count`` keys are met most; of equals the first ones."""
    least = np.partition(visits, len(visits) - count)[len(visits) - count]
    is_hot: NDArray[np.bool_] = visits > least
    equals = np.flatnonzero(visits == least)
    is_hot[equals[: count - np.count_nonzero(is_hot)]] = True
    return is_hot


def _check(table: EmbeddingTable) -> None:
    """Refuse a table with rows other than values and one accumulator, updated as kernels do."""
    settings = table_settings(table)
    plain = EmbeddingTable(settings["dim"], "rowwise_adagrad")
    free = {"lr", "eps", "init_scale", "initial_accumulator", "seed", "nonfinite"}
    for name, value in table_settings(plain).items():
        if name not in free and settings[name] != value:
            raise UsageError(
                f"expected a table with the {name} {value!r} for training on a device, received "
                f"{settings[name]!r}",
                where=name,
                hint="train on the CPU with `device: cpu`, or make the table without it",
            )
