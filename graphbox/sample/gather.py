"""Rows of a table in memory, by a list of row numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array, is_torch, thread_count

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]


@overload
def gather_rows(
    table: torch.Tensor, index: Any, out: torch.Tensor | None = ..., *, num_threads: int | None = ...
) -> torch.Tensor: ...


@overload
def gather_rows(
    table: npt.ArrayLike, index: Any, out: Array | None = ..., *, num_threads: int | None = ...
) -> Array: ...


def gather_rows(table: Any, index: Any, out: Any | None = None, *, num_threads: int | None = None) -> Any:
    """Return ``table[index]``, copied: each row is asked for ahead of its turn.

    The result is memory in huge pages that is used again once the result is dropped, which costs far less
    than fresh memory; ``out`` is filled instead where it is given. The GIL is released.

    Args:
        table: rows [rows, ...] of any dtype but Python objects, C-contiguous: an array, a memory-mapped one
            too, or a torch tensor in the processor's memory.
        index: integers [n], row numbers from 0, repeated ones too.
        out: where to put the rows: C-contiguous [n, ...] of the table's dtype and kind.
        num_threads: None: see :func:`graphbox.native.thread_count`. The result never depends on it.

    Returns:
        The rows [n, ...]: a torch tensor when the table is one, else an array.

    Raises:
        UsageError: a row number is out of range (the first is named), or ``table`` or ``out`` does not fit.
    """
    if is_torch(table):
        return _gather_tensor(table, index, out, num_threads)
    rows = _checked_table(np.asarray(table))
    numbers = integer_array(index, "index")
    shape = (len(numbers), *rows.shape[1:])
    if out is None:
        out = pooled_array(shape, rows.dtype)
    elif not isinstance(out, np.ndarray) or out.dtype != rows.dtype or out.shape != shape:
        raise _unfit_output(f"an array {rows.dtype} {list(shape)}", out)
    elif not out.flags.c_contiguous or not out.flags.writeable:
        raise UsageError("expected an array that is C-contiguous and may be written to", where="out")
    _copy_rows(
        _bytes(rows), rows.dtype.itemsize * math.prod(shape[1:]), len(rows), numbers, _bytes(out), num_threads
    )
    return out


def pooled_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array that is not initialised, of memory that is used again once it is dropped."""
    return _core.pooled_bytes(dtype.itemsize * math.prod(shape)).view(dtype).reshape(shape)


def _gather_tensor(
    table: torch.Tensor, index: Any, out: torch.Tensor | None, num_threads: int | None
) -> torch.Tensor:
    import torch

    table = table.detach()
    if table.device.type != "cpu" or table.ndim == 0 or not table.is_contiguous():
        raise UsageError(
            "expected contiguous rows [rows, ...] in the processor's memory, received a tensor "
            f"{list(table.shape)} on {table.device}",
            where="table",
        )
    numbers = integer_array(index, "index")
    shape = (len(numbers), *table.shape[1:])
    if out is None:
        memory = _core.pooled_bytes(table.dtype.itemsize * math.prod(shape))
        out = torch.from_numpy(memory).view(table.dtype).reshape(shape)
    elif not is_torch(out) or out.dtype != table.dtype or tuple(out.shape) != shape:
        raise _unfit_output(f"a tensor {table.dtype} {list(shape)}", out)
    elif out.device.type != "cpu" or not out.is_contiguous():
        raise UsageError("expected a contiguous tensor in the processor's memory", where="out")
    source, target = _tensor_bytes(table), _tensor_bytes(out.detach())
    row_bytes = table.dtype.itemsize * math.prod(shape[1:])
    _copy_rows(source, row_bytes, len(table), numbers, target, num_threads)
    return out


def _copy_rows(
    table: Array, row_bytes: int, rows: int, index: Int64Array, out: Array, num_threads: int | None
) -> None:
    _core.gather_rows(table, row_bytes, rows, index, out, thread_count(num_threads, "num_threads"))


def _checked_table(table: Array) -> Array:
    if table.ndim == 0 or table.dtype.hasobject or not table.flags.c_contiguous:
        raise UsageError(
            "expected C-contiguous rows [rows, ...] of any dtype but Python objects, received "
            f"{table.dtype} {list(table.shape)}",
            where="table",
            hint="numpy.ascontiguousarray makes them so",
        )
    return table


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)


def _tensor_bytes(tensor: torch.Tensor) -> Array:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy()


def _unfit_output(expected: str, received: Any) -> UsageError:
    kind = f"{getattr(received, 'dtype', type(received).__name__)}"
    return UsageError(
        f"expected {expected}, received {kind} {list(getattr(received, 'shape', ()))}", where="out"
    )
