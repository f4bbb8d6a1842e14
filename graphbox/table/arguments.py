"""What users pass to a table, checked and as the native core takes it."""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.native import host_array

__all__ = [
    "NO_BUDGET",
    "DType",
    "Float32Array",
    "Nonfinite",
    "Optimizer",
    "budget_bytes",
    "chosen",
    "float32_rows",
    "integer",
    "nonnegative",
    "number_pair",
    "positive_or_infinite",
    "shard_numbers",
    "writable_rows",
]

Optimizer: TypeAlias = Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"]
DType: TypeAlias = Literal["float32", "float16"]
Nonfinite: TypeAlias = Literal["refuse", "skip"]
Float32Array: TypeAlias = npt.NDArray[np.float32]

NO_BUDGET: Final = 2**64 - 1


def integer(value: object, name: str, least: int, most: int) -> int:
    """Return an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise UsageError(f"expected an integer from {least} to {most}, received {value!r}", where=name)
    return int(value)


def nonnegative(value: object, name: str) -> float:
    """Return a finite number, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise UsageError(f"expected a number, received {value!r}", where=name)
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"expected a finite number, 0 or more, received {value!r}", where=name)
    return number


def positive_or_infinite(value: object, name: str) -> float:
    """Return a number above 0; infinity for None."""
    return math.inf if value is None else nonnegative(value, name)


def number_pair(values: object, name: str) -> tuple[float, float]:
    """Return two numbers."""
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise UsageError(f"expected two numbers, received {values!r}", where=name)
    numbers = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
            raise UsageError(f"expected a number, received {value!r}", where=name)
        numbers.append(float(value))
    return numbers[0], numbers[1]


def chosen(value: object, name: str, choices: Any) -> str:
    """Return ``value`` if it is one of a literal type's."""
    names = get_args(choices)
    if value not in names:
        raise UsageError(f"expected {' or '.join(map(repr, names))}, received {value!r}", where=name)
    return str(value)


def budget_bytes(memory_bytes: int | None) -> int:
    """Return the most bytes a table may take; NO_BUDGET for None."""
    if memory_bytes is None:
        return NO_BUDGET
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int | np.integer) or memory_bytes < 0:
        raise UsageError(f"expected a number of bytes, received {memory_bytes!r}", where="memory_bytes")
    return min(int(memory_bytes), NO_BUDGET)


def float32_rows(rows: object, name: str, shape: tuple[int, ...]) -> Float32Array:
    """Return rows of ``shape``, [..., dim], as contiguous float32 [n, dim], copied only where needed."""
    array = _checked(np.asarray(host_array(rows, name)), name, shape)
    return np.ascontiguousarray(array).reshape(-1, shape[-1])


def writable_rows(rows: object, name: str, shape: tuple[int, ...]) -> Float32Array:
    """Return a view, [n, dim], of the memory of rows of ``shape`` that are to be overwritten."""
    array = _checked(host_array(rows, name, shared=True), name, shape)
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise UsageError("expected contiguous, writable memory", where=name)
    return array.reshape(-1, shape[-1])


def _checked(array: object, name: str, shape: tuple[int, ...]) -> Float32Array:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float32:
        received = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise UsageError(f"expected float32 {shape}, received {received}", where=name)
    return array


def shard_numbers(shard: object) -> tuple[int, int]:
    """Return the number of a shard and how many there are."""
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise UsageError(
            f"expected two integers, a shard's number and how many there are, received {shard!r}",
            where="shard",
        )
    shards = integer(shard[1], "shard", 1, 2**31)
    return integer(shard[0], "shard", 0, shards - 1), shards
