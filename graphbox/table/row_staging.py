"""Memory through which rows pass between the host and a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from graphbox import _core

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.native import Int64Array
    from graphbox.table.resident_rows import RowForm


class RowStaging:
    """Rows in pinned host memory and as many on the device, for copies in one piece between the two.

    Used by one thread at a time, on one stream.

    Args:
        form: of the rows.
        rows: at a time.
        device: which one; where it is the CPU both are the same memory.
    """

    def __init__(self, form: RowForm, rows: int, device: torch.device) -> None:
        self.rows = rows
        self._is_cuda = device.type == "cuda"
        self._in_host = torch.empty(rows, form.record_bytes, dtype=torch.uint8, pin_memory=self._is_cuda)
        self.on_device = torch.empty_like(self._in_host, device=device) if self._is_cuda else self._in_host
        self._copied = torch.cuda.Event() if self._is_cuda else None  # type: ignore[no-untyped-call]

    def read(
        self, table: _core.Table, keys: Int64Array, threads: int
    ) -> tuple[Tensor, npt.NDArray[np.bool_]]:
        """Bring rows of a table to the device.

        Args:
            table: has them, or would make them.
            keys: different ones, at most :attr:`rows`.
            threads: of the table.

        Returns:
            uint8 [keys, record_bytes] on the device, which the current stream may read; and which have a row.
        """
        if self._copied is not None:
            self._copied.synchronize()  # what was read before is on its way no more
        part = self._in_host[: len(keys)]
        has_row = _core.table_read_records(table, keys, part.numpy(), threads)
        on_device = self.on_device[: len(keys)]
        if self._copied is not None:
            on_device.copy_(part, non_blocking=True)
            self._copied.record()
        return on_device, has_row

    def write(self, table: _core.Table, keys: Tensor, threads: int) -> Int64Array:
        """Give a table the rows in :attr:`on_device`, those of different keys; return these."""
        part = self._in_host[: len(keys)]
        if self._copied is not None:
            self._copied.synchronize()
            part.copy_(self.on_device[: len(keys)], non_blocking=True)
        in_host: Int64Array = keys.cpu().numpy()  # waits for both
        _core.table_write_records(table, in_host, part.numpy(), threads)
        return in_host
