"""Checks of the arguments of a table, and their conversion for the native core."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import host_array

Optimizer: TypeAlias = Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"]
DType: TypeAlias = Literal["float32", "float16"]
Nonfinite: TypeAlias = Literal["refuse", "skip"]
Float32Array: TypeAlias = npt.NDArray[np.float32]

NO_BUDGET: Final = 2**64 - 1

_POOLED_BYTES: Final = 1 << 16
"""Arrays from this size on are of the pool, with its huge pages; NumPy is quicker with smaller ones."""


_OPTIMIZERS_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "eps": ("adagrad", "rowwise_adagrad", "adam", "rowwise_adam"),
    "initial_accumulator": ("adagrad", "rowwise_adagrad", "ftrl"),
    "betas": ("adam", "rowwise_adam"),
    "beta": ("ftrl",),
    "l1": ("ftrl",),
    "l2": ("ftrl",),
}
"""The optimizers that use an argument, where not all do."""

DEFAULT_BETAS: Final = (0.9, 0.999)
_DEFAULTS: Final[Mapping[str, object]] = {
    "eps": 1e-8,
    "initial_accumulator": 0.0,
    "betas": DEFAULT_BETAS,
    "beta": 1.0,
    "l1": 0.0,
    "l2": 0.0,
}


def is_used(name: str, optimizer: str) -> bool:
    """Return whether an optimizer uses an argument."""
    return optimizer in _OPTIMIZERS_WITH.get(name, (optimizer,))


def refuse_unused(optimizer: str, **arguments: object) -> None:
    """Check that arguments which the optimizer does not use are left as they are.

    Raises:
        UsageError: one was given, and would have no effect.
    """
    for name, value in arguments.items():
        if not is_used(name, optimizer) and value != _DEFAULTS[name]:
            raise UsageError(
                f"expected no {name}, which {optimizer} does not use, received {value!r}",
                where=name,
                hint=f"leave it out; it is for {', '.join(_OPTIMIZERS_WITH[name])}",
            )


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
    array = np.ascontiguousarray(_checked(np.asarray(host_array(rows, name)), name, shape))
    return array if len(shape) == 2 else array.reshape(-1, shape[-1])


def writable_rows(rows: object, name: str, shape: tuple[int, ...]) -> Float32Array:
    """Return a view, [n, dim], of the memory of rows of ``shape`` that are to be overwritten."""
    array = _checked(host_array(rows, name, shared=True), name, shape)
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise UsageError("expected contiguous, writable memory", where=name)
    return array if len(shape) == 2 else array.reshape(-1, shape[-1])


def new_rows(count: int, dim: int) -> Float32Array:
    """Return memory for rows, float32 [count, dim], that are to be overwritten."""
    size_bytes = 4 * count * dim
    if size_bytes < _POOLED_BYTES:
        return np.empty((count, dim), np.float32)
    return _core.pooled_bytes(size_bytes).view(np.float32).reshape(-1, dim)


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
