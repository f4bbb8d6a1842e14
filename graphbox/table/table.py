"""The embedding table in memory."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array, is_torch, like, seed_number, thread_count

if TYPE_CHECKING:
    import torch

__all__ = ["EmbeddingTable", "Optimizer", "Slots"]

Optimizer: TypeAlias = Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"]
Float32Array: TypeAlias = npt.NDArray[np.float32]

_NO_BUDGET: Final = 2**64 - 1
_MOST_VALUES = 65536


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the rows are that :meth:`EmbeddingTable.pull_slots` gave, for :meth:`EmbeddingTable.push_slots`.

    Attributes:
        table: whose rows they are.
        shape: that of the keys.
    """

    table: EmbeddingTable
    shape: tuple[int, ...]
    _rows: _core.PulledRows

    def __len__(self) -> int:
        return len(self._rows)


class EmbeddingTable:
    """Rows of float32 for any int64 keys, with their optimizer state; it grows as keys come.

    A row starts with values that are a function of ``seed`` and its key alone. ``push`` sums the gradients of
    equal keys in the order of the batch and applies them once. So results are the same, bit by bit, for any
    number of threads and after ``save`` and ``load``. Safe to use from several threads.

    Optimizers:
        ``sgd``.
        ``adagrad`` (Duchi et al., JMLR 2011, diagonal form).
        ``rowwise_adagrad``: one state for a row, which gains the mean of the squared gradient.
        ``adam`` (Kingma and Ba, ICLR 2015). Each row counts its own steps, so a key that comes late starts as
        an early one did; ``torch.optim.SparseAdam`` counts those of the whole table.
        ``rowwise_adam``: one second moment for a row, of the mean of the squared gradient.
        ``ftrl``: FTRL-Proximal (McMahan et al., KDD 2013, algorithm 1); values become exactly 0 with ``l1``.

    Args:
        dim: values of a row, 1 to 65,536.
        optimizer: its name.
        lr: learning rate, can be changed later.
        eps: added to the root that Adagrad and Adam divide by.
        init_scale: new values are uniform in [-init_scale, init_scale). None: 1 / sqrt(dim).
        initial_accumulator: state of a new row in both Adagrads and FTRL.
        betas: how much the moments of Adam keep of themselves.
        beta: smoothing of the learning rate in FTRL.
        l1: strength of FTRL's lasso penalty.
        l2: strength of FTRL's ridge penalty.
        weight_decay: this times the value is added to its gradient, whenever the row is pushed.
        decoupled_weight_decay: values shrink by ``lr * weight_decay`` instead (AdamW; Loshchilov and Hutter,
            ICLR 2019); not with FTRL.
        bounds: least and largest value, kept after each update. None: any.
        mean_gradient: average the gradients of equal keys instead of summing them.
        seed: of the initial values.
        memory_bytes: the most memory the table may take; None: no limit. An operation that would exceed it
            changes nothing.
        threads: None: see :func:`graphbox.native.thread_count`.

    Raises:
        UsageError: a wrong argument.
        DoesNotFitError: ``memory_bytes`` has no room even for an empty table.
    """

    def __init__(
        self,
        dim: int,
        optimizer: Optimizer = "rowwise_adagrad",
        lr: float = 0.05,
        *,
        eps: float = 1e-8,
        init_scale: float | None = None,
        initial_accumulator: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        bounds: tuple[float, float] | None = None,
        mean_gradient: bool = False,
        seed: int = 0,
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> None:
        if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or not 1 <= dim <= _MOST_VALUES:
            raise UsageError(f"expected an integer from 1 to {_MOST_VALUES}, received {dim!r}", where="dim")
        self._threads = thread_count(threads)
        settings = _core.OptimizerConfig(
            optimizer,
            lr=_number(lr, "lr"),
            eps=_number(eps, "eps"),
            initial_accumulator=_number(initial_accumulator, "initial_accumulator"),
            betas=_pair(betas, "betas"),
            beta=_number(beta, "beta"),
            l1=_number(l1, "l1"),
            l2=_number(l2, "l2"),
            weight_decay=_number(weight_decay, "weight_decay"),
            decoupled_weight_decay=bool(decoupled_weight_decay),
            bounds=(-math.inf, math.inf) if bounds is None else _pair(bounds, "bounds"),
            mean_gradient=bool(mean_gradient),
        )
        self._table = _core.Table(
            int(dim),
            settings,
            1 / math.sqrt(dim) if init_scale is None else _number(init_scale, "init_scale"),
            seed_number(seed),
            _budget(memory_bytes),
        )

    def __repr__(self) -> str:
        return f"EmbeddingTable(rows={len(self)}, dim={self.dim}, optimizer={self.optimizer!r}, lr={self.lr})"

    def __len__(self) -> int:
        return len(self._table)

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self._table.dim

    @property
    def optimizer(self) -> str:
        """Name of the optimizer."""
        return self._table.optimizer

    @property
    def lr(self) -> float:
        """Learning rate, as float32 holds it."""
        return self._table.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._table.lr = _number(value, "lr")

    @property
    def threads(self) -> int:
        """Threads of pull and push; changes no result."""
        return self._threads

    @threads.setter
    def threads(self, value: int | None) -> None:
        self._threads = thread_count(value)

    @property
    def seed(self) -> int:
        """Seed of the initial values."""
        return self._table.seed

    @property
    def nbytes(self) -> int:
        """Memory of rows and index in bytes."""
        return self._table.nbytes

    @property
    def memory_bytes(self) -> int | None:
        """The most memory the table may take, or None."""
        budget = self._table.memory_bytes
        return None if budget == _NO_BUDGET else budget

    @overload
    def pull(
        self, keys: torch.Tensor, out: torch.Tensor | None = ..., create: bool = ...
    ) -> torch.Tensor: ...

    @overload
    def pull(
        self,
        keys: npt.ArrayLike,
        out: Float32Array | None = ...,
        create: bool = ...,
    ) -> Float32Array: ...

    def pull(self, keys: Any, out: Any = None, create: bool = True) -> Any:
        """Return the rows of ``keys``.

        Args:
            keys: integers of any shape; every int64 is a legal key.
            out: float32 [*keys.shape, dim], contiguous, to write into instead of new memory.
            create: give unknown keys a row. Otherwise they get their initial values, and the table stays as
                it is.

        Returns:
            float32 [*keys.shape, dim]: ``out`` when given; a torch tensor when ``keys`` is one.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
            DoesNotFitError: new rows would exceed ``memory_bytes``; none was created.
        """
        array = integer_array(keys, "keys", dimensions=None)
        shape = (*array.shape, self.dim)
        if out is None:
            return like(self._table.pull(array.reshape(-1), create, self._threads).reshape(shape), keys)
        rows = _float32_view(out, "out", shape, writable=True)
        self._table.pull_into(array.reshape(-1), rows, create, self._threads)
        return out

    @overload
    def pull_slots(
        self, keys: torch.Tensor, out: torch.Tensor | None = ...
    ) -> tuple[torch.Tensor, Slots]: ...

    @overload
    def pull_slots(
        self, keys: npt.ArrayLike, out: Float32Array | None = ...
    ) -> tuple[Float32Array, Slots]: ...

    def pull_slots(self, keys: Any, out: Any = None) -> tuple[Any, Slots]:
        """Return the rows of ``keys`` as :meth:`pull` does, and where they are.

        A training step that pushes to these looks every key up once instead of twice.

        Raises:
            UsageError: keys that are no integers, or ``out`` of another shape or dtype.
            DoesNotFitError: new rows would exceed ``memory_bytes``; none was created.
        """
        array = integer_array(keys, "keys", dimensions=None)
        shape = (*array.shape, self.dim)
        if out is None:
            rows = _core.pooled_bytes(4 * array.size * self.dim).view(np.float32).reshape(-1, self.dim)
            result = like(rows.reshape(shape), keys)
        else:
            rows, result = _float32_view(out, "out", shape, writable=True), out
        pulled = self._table.pull_rows(array.reshape(-1), rows, self._threads)
        return result, Slots(self, array.shape, pulled)

    def push_slots(self, slots: Slots, grads: Any) -> None:
        """Apply gradients as :meth:`push` does to the rows that :meth:`pull_slots` gave.

        Args:
            slots: of this table. They stay right whatever happens to the table; after an :meth:`erase` their
                keys are looked up again.
            grads: float32 [*slots.shape, dim], NumPy or torch.

        Raises:
            UsageError: slots of another table, wrong shapes or dtypes.
            DataError: a gradient that holds NaN or infinity; none was applied.
        """
        if not isinstance(slots, Slots) or slots.table is not self:
            raise UsageError("expected slots that this table's pull_slots gave", where="slots")
        gradients = _float32_view(grads, "grads", (*slots.shape, self.dim), writable=False)
        self._table.push_rows(slots._rows, gradients, self._threads)

    def push(self, keys: Any, grads: Any) -> None:
        """Apply gradients; those of equal keys are summed (or averaged) first, in their order.

        A key without a row gets one first, as :meth:`pull` would have given it.

        Args:
            keys: integers of any shape.
            grads: float32 [*keys.shape, dim], NumPy or torch.

        Raises:
            UsageError: wrong shapes or dtypes.
            DataError: a gradient that holds NaN or infinity; none was applied.
            DoesNotFitError: new rows would exceed ``memory_bytes``; nothing was applied.
        """
        array = integer_array(keys, "keys", dimensions=None)
        gradients = _float32_view(grads, "grads", (*array.shape, self.dim), writable=False)
        self._table.push(array.reshape(-1), gradients, self._threads)

    def contains(self, keys: Any) -> npt.NDArray[np.bool_]:
        """Return whether each key has a row: bool [*keys.shape]."""
        array = integer_array(keys, "keys", dimensions=None)
        return self._table.contains(array.reshape(-1), self._threads).reshape(array.shape)

    def erase(self, keys: Any) -> int:
        """Forget keys, their rows and their state; return how many had a row.

        A key that comes back starts anew. Later keys get the memory of those that were erased.
        """
        return self._table.erase(integer_array(keys, "keys", dimensions=None).reshape(-1))

    def keys(self) -> Int64Array:
        """Return all keys, int64 [len], in the order they came unless some were erased."""
        return self._table.keys()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write rows, state and settings to a file; a reader sees the old file or the new one.

        Pulls of known keys go on meanwhile, changes wait. The format: docs/formats/table.md.

        Raises:
            NotFoundError: the folder does not exist.
            DoesNotFitError: the disk is full.
            GraphboxError: the system refuses to write.
        """
        self._table.save(str(Path(path)))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, memory_bytes: int | None = None, threads: int | None = None
    ) -> EmbeddingTable:
        """Return the table that :meth:`save` wrote; it goes on as the saved one would have.

        Raises:
            NotFoundError: no such file.
            FormatError: the file is damaged, cut off, no table, or of another version.
            DoesNotFitError: the table exceeds ``memory_bytes``.
        """
        table = cls.__new__(cls)
        table._threads = thread_count(threads)
        table._table = _core.Table.load(str(Path(path)), _budget(memory_bytes))
        return table


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise UsageError(f"expected a number, received {value!r}", where=name)
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"expected a finite number, 0 or more, received {value!r}", where=name)
    return number


def _pair(values: object, name: str) -> tuple[float, float]:
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise UsageError(f"expected two numbers, received {values!r}", where=name)
    numbers = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
            raise UsageError(f"expected a number, received {value!r}", where=name)
        numbers.append(float(value))
    return numbers[0], numbers[1]


def _budget(memory_bytes: int | None) -> int:
    if memory_bytes is None:
        return _NO_BUDGET
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int | np.integer) or memory_bytes < 0:
        raise UsageError(f"expected a number of bytes, received {memory_bytes!r}", where="memory_bytes")
    return min(int(memory_bytes), _NO_BUDGET)


def _float32_view(rows: Any, name: str, shape: tuple[int, ...], *, writable: bool) -> Float32Array:
    """Return ``rows`` as float32 [n, dim]; a view of the same memory when ``writable``."""
    array = rows
    if is_torch(rows):
        if writable and rows.device.type != "cpu":
            raise UsageError(f"expected a tensor in host memory, received one on {rows.device}", where=name)
        array = rows.detach().cpu().numpy()
    array = np.asarray(array) if not writable else array
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float32:
        received = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise UsageError(f"expected float32 {shape}, received {received}", where=name)
    if writable and not (array.flags.c_contiguous and array.flags.writeable):
        raise UsageError("expected contiguous, writable memory", where=name)
    return np.ascontiguousarray(array).reshape(-1, shape[-1])
