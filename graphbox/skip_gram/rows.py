"""The rows of a table, all of them, in the memory of a device while they are trained there."""

from __future__ import annotations

import numpy as np
import torch

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.skip_gram.learn_gpu import RowArrays
from graphbox.table import EmbeddingTable
from graphbox.table.settings import table_settings

__all__ = ["DeviceRows", "device_row_bytes"]

_CHUNK_ROWS = 1 << 16


def device_row_bytes(dim: int) -> int:
    """Return what a row takes on a device, with its state and whether it changed."""
    return 4 * dim + 4 + 1


class DeviceRows:
    """Rows 0, 1, ... of a table as dense arrays; the table has them again after :meth:`store`.

    Args:
        table: the table, in memory or with rows on SSD; rows that are missing are made.
        num_keys: number of rows.
        device: where they go.

    Raises:
        UsageError: the table keeps rows otherwise than kernels update them.
    """

    def __init__(self, table: EmbeddingTable, num_keys: int, device: torch.device) -> None:
        _check(table)
        self._table = table
        self.eps = float(table_settings(table)["eps"])
        self.arrays = RowArrays(
            torch.empty(num_keys, table.dim, dtype=torch.float32, device=device),
            torch.empty(num_keys, dtype=torch.float32, device=device),
            torch.zeros(num_keys, dtype=torch.uint8, device=device),
        )
        self._load()

    def store(self) -> None:
        """Write the rows that changed back to the table."""
        values, accumulator, changed = self.arrays
        for part in torch.split(torch.nonzero(changed).reshape(-1), _CHUNK_ROWS):
            records = torch.cat([values[part], accumulator[part, None]], dim=1).cpu().numpy()
            _core.table_write_records(
                self._table._native, part.cpu().numpy(), records.view(np.uint8), self._table.threads
            )
        changed.zero_()

    def _load(self) -> None:
        values, accumulator, _ = self.arrays
        native, threads = self._table._native, self._table.threads
        for begin in range(0, len(values), _CHUNK_ROWS):
            end = min(begin + _CHUNK_ROWS, len(values))
            keys = np.arange(begin, end, dtype=np.int64)
            records = np.empty((end - begin, self._table.dim + 1), dtype=np.float32)
            _core.table_admit(native, keys, True, threads)
            _core.table_read_records(native, keys, records.view(np.uint8), threads)
            on_device = torch.from_numpy(records).to(values.device)
            values[begin:end] = on_device[:, :-1]
            accumulator[begin:end] = on_device[:, -1]


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
