"""Number of rows that fit in a budget of a device's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from graphbox import _core
from graphbox.errors import DoesNotFitError, UsageError
from graphbox.table.resident_rows import ResidentRows, RowForm

if TYPE_CHECKING:
    from graphbox.table.optimizer_gpu import DeviceOptimizer
    from graphbox.table.table import EmbeddingTable

_SHARE_OF_FREE: Final = 0.75
_BYTES_WITHOUT_GPU: Final = 64 << 20
_STAGED_BYTES: Final = 32 << 20
_STAGED_SHARE: Final = 8


def form_of(table: EmbeddingTable, optimizer: DeviceOptimizer) -> RowForm:
    """Return what the rows of a table hold on a device."""
    dtype, state = optimizer.dtype, optimizer.state_columns(table.dim)
    rest_bytes = _core.table_record_bytes(table._native) - dtype.itemsize * table.dim
    return RowForm(table.dim, dtype, state, rest_bytes // 4 - state)


def staged_rows(slots: int, form: RowForm) -> int:
    """Return how many rows are copied at a time."""
    return max(1, min(slots // _STAGED_SHARE, _STAGED_BYTES // form.record_bytes))


def bytes_for(form: RowForm, slots: int) -> int:
    """Return the bytes on the device of so many slots, with staging for pulls and for prefetches."""
    return ResidentRows.bytes_for(form, slots) + 2 * staged_rows(slots, form) * form.record_bytes


def checked_budget(hbm_bytes: int | None, device: torch.device) -> int:
    """Return how many bytes to take of a device; None: three quarters of what is free.

    Raises:
        UsageError: no number of bytes.
    """
    if hbm_bytes is None:
        if device.type != "cuda":
            return _BYTES_WITHOUT_GPU
        free, _ = torch.cuda.mem_get_info(device)
        return int(_SHARE_OF_FREE * free)
    if isinstance(hbm_bytes, bool) or not isinstance(hbm_bytes, int | np.integer) or hbm_bytes < 0:
        raise UsageError(f"expected a number of bytes, received {hbm_bytes!r}", where="hbm_bytes")
    return int(hbm_bytes)


def slots_within(hbm_bytes: int, form: RowForm) -> int:
    """Return the most slots that take no more than this.

    Raises:
        DoesNotFitError: there is no room for one.
    """
    fitting, too_many = 0, hbm_bytes // form.record_bytes + 1
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if bytes_for(form, middle) <= hbm_bytes:
            fitting = middle
        else:
            too_many = middle
    if fitting == 0:
        raise DoesNotFitError(
            f"expected {bytes_for(form, 1):,} bytes at least, for one row of {form.record_bytes:,}, received "
            f"{hbm_bytes:,}",
            where="hbm_bytes",
            hint="give more",
        )
    return fitting


def does_not_fit(device: torch.device, what: str, hint: str | None = None) -> DoesNotFitError:
    """Return the error that says a GPU has no more memory, and what it was wanted for.

    Args:
        device: the GPU.
        what: was wanted.
        hint: what to do; None: give an ``hbm_bytes`` that fits.
    """
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return DoesNotFitError(
        f"the device is out of memory: {what}; {free:,} of its {total:,} bytes are free",
        where=str(device),
        hint=hint or f"hbm_bytes={int(_SHARE_OF_FREE * free)} fits now, and leaves room for batches",
    )
