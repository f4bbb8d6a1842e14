"""The border to the native core: what users pass becomes arrays it takes, results become what they passed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError

if TYPE_CHECKING:
    import torch

Int64Array: TypeAlias = npt.NDArray[np.int64]

_MOST_THREADS = 256
_default_threads: ContextVar[int | None] = ContextVar("default_threads", default=None)


def is_torch(value: object) -> bool:
    """Return whether ``value`` is a torch tensor, without loading torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def like(result: npt.NDArray[Any], example: object) -> Any:
    """Return ``result`` as a torch tensor on the device of ``example`` if that is one, else as it is."""
    return converter(example)(result)


def converter(example: object) -> Callable[[npt.NDArray[Any]], Any]:
    """Return what makes arrays :func:`like` ``example``."""
    if not is_torch(example):
        return lambda result: result
    import torch

    device = cast("torch.Tensor", example).device
    return lambda result: torch.from_numpy(result).to(device)


def host_array(values: object, name: str, *, shared: bool = False) -> object:
    """Return what NumPy can read: tensors of torch and of other libraries as arrays of their memory.

    Args:
        values: anything. What is no tensor comes back as it is.
        name: the argument's name, for messages.
        shared: the memory is to be written to, so that a copy would not do.

    Raises:
        UsageError: a tensor that is not in this machine's memory, and is not to be copied or cannot be.
    """
    if is_torch(values):
        tensor = cast("torch.Tensor", values)
        if tensor.requires_grad:
            tensor = tensor.detach()
        if shared and tensor.device.type != "cpu":
            raise UsageError(f"expected a tensor in host memory, received one on {tensor.device}", where=name)
        try:
            return tensor.numpy() if tensor.device.type == "cpu" else tensor.cpu().numpy()
        except TypeError as error:  # bfloat16 and other dtypes that NumPy lacks
            raise UsageError(f"NumPy has no {tensor.dtype}: {error}", where=name) from None
    if isinstance(values, np.ndarray | np.generic) or not hasattr(values, "__dlpack__"):
        return values
    try:
        return np.from_dlpack(cast("Any", values))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected a tensor in host memory that NumPy can share (DLPack): {error}", where=name
        ) from None


def integer_array(values: object, name: str, *, dimensions: int | None = 1) -> Int64Array:
    """Return ``values`` as a contiguous int64 array, copied only where needed.

    Args:
        values: NumPy array, torch tensor, anything with ``__dlpack__``, or sequence of integers.
        name: the argument's name, for messages.
        dimensions: how many dimensions it must have; None: any number.

    Raises:
        UsageError: other dimensions, or values that are no 64-bit integers.
    """
    values = host_array(values, name)
    if (
        isinstance(values, np.ndarray)
        and values.dtype == np.int64
        and values.flags.c_contiguous
        and (dimensions is None or values.ndim == dimensions)
    ):
        return values  # nearly always; small batches would feel the rest
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UsageError(f"expected an array of integers: {error}", where=name) from None
    if array.size == 0 and array.dtype == np.float64:  # what NumPy makes of an empty list
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and array.size and int(array.max()) >> 63):
        raise UsageError(
            f"expected integers that fit int64, received {array.dtype}",
            where=name,
            hint=_integer_hint(array.dtype),
        )
    if dimensions is not None and array.ndim != dimensions:
        raise UsageError(f"expected {dimensions} dimension(s), received shape {array.shape}", where=name)
    return np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)  # which it makes 1-d of 0-d


def _integer_hint(dtype: np.dtype[Any]) -> str:
    if dtype == np.uint64:
        return "values.view(numpy.int64) keeps all 64 bits; unsigned ones above 2^63 - 1 become negative"
    if dtype.kind in "fb":
        return "make them integers, say by values.astype(numpy.int64)"
    return "ids of nodes: graph.index(node_type, ids); of rows of a table: graphbox.table.hashed_keys(ids)"


def _number(value: object, name: str, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= int(value) < 1 << bits:
        raise UsageError(f"expected an integer from 0 to 2^{bits} - 1, received {value!r}", where=name)
    return int(value)


def seed_number(value: object) -> int:
    """Return a seed: 0 to 2^64 - 1."""
    return _number(value, "seed", 64)


def epoch_number(value: object) -> int:
    """Return an epoch: 0 to 2^32 - 1."""
    return _number(value, "epoch", 32)


def batch_number(value: object) -> int:
    """Return a batch number: 0 to 2^64 - 1."""
    return _number(value, "batch", 64)


@contextmanager
def default_threads(threads: int | None) -> Iterator[None]:
    """Let everything that is not told how many threads to use take so many; None changes nothing."""
    before = _default_threads.get()
    token = _default_threads.set(before if threads is None else _threads(threads, "threads"))
    try:
        yield
    finally:
        _default_threads.reset(token)


def thread_count(threads: int | None, where: str = "threads") -> int:
    """Return how many threads to use.

    As asked, else as :func:`default_threads` says, else ``GRAPHBOX_THREADS``, else the cores we may use.

    Results never depend on it.

    Args:
        threads: as asked, or None.
        where: the argument, for messages.

    Raises:
        UsageError: not 1 to 256.
    """
    threads = _default_threads.get() if threads is None else threads
    if threads is not None:
        return _threads(threads, where)
    variable = os.environ.get("GRAPHBOX_THREADS")
    if variable is not None:
        return _threads(int(variable) if variable.isdecimal() else variable, "GRAPHBOX_THREADS")
    return min(len(os.sched_getaffinity(0)), _MOST_THREADS)


def _threads(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= _MOST_THREADS:
        raise UsageError(f"expected 1 to {_MOST_THREADS} threads, received {value!r}", where=where)
    return int(value)


def held_bytes() -> int:
    """Return the bytes of native buffers that wait to be used again, at most 800 MiB in all."""
    from graphbox import _core

    return _core.held_bytes()


def release_buffers() -> None:
    """Give the native buffers that wait to be used again back to the system."""
    from graphbox import _core

    _core.release_buffers()
