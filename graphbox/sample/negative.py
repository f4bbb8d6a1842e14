"""Negative sampling: items drawn by popularity, for losses that contrast true pairs with random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, batch_number, epoch_number, seed_number, thread_count

if TYPE_CHECKING:
    import torch

__all__ = ["NegativeSampler"]


class NegativeSampler:
    """Draws items with probability proportional to weight\\ :sup:`alpha`, each draw in constant time.

    ``NegativeSampler(degree, alpha=0.75)`` is word2vec's choice (Mikolov et al., NeurIPS 2013, section 2.2);
    ``alpha=0`` draws uniformly, items of weight 0 included.

    Args:
        weights: numbers [n], finite and not negative, for instance degrees.
        alpha: exponent, 0 or more.
        seed: of the draws.

    Raises:
        UsageError: a wrong argument.
        DataError: a weight that is negative, NaN or infinite, or none above 0.
    """

    def __init__(self, weights: npt.ArrayLike, alpha: float = 0.75, seed: int = 0) -> None:
        values = np.asarray(weights)
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            raise UsageError(
                f"expected numbers with one dimension, received {values.dtype} {values.shape}",
                where="weights",
            )
        if not (np.isfinite(alpha) and alpha >= 0):
            raise UsageError(f"expected a finite number, 0 or more, received {alpha!r}", where="alpha")
        powers = values.astype(np.float64)
        if alpha != 1:
            with np.errstate(
                invalid="ignore"
            ):  # negative weights become NaN, which the table refuses by position
                powers = np.power(powers, alpha)
        self._table = _core.AliasTable(np.ascontiguousarray(powers))
        self._seed = seed_number(seed)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._table.nbytes

    @overload
    def sample(
        self,
        shape: int | tuple[int, ...],
        epoch: int = ...,
        batch: int = ...,
        threads: int | None = ...,
        kind: Literal["numpy"] = ...,
    ) -> Int64Array: ...

    @overload
    def sample(
        self,
        shape: int | tuple[int, ...],
        epoch: int = ...,
        batch: int = ...,
        threads: int | None = ...,
        *,
        kind: Literal["torch"],
    ) -> torch.Tensor: ...

    def sample(
        self,
        shape: int | tuple[int, ...],
        epoch: int = 0,
        batch: int = 0,
        threads: int | None = None,
        kind: Literal["numpy", "torch"] = "numpy",
    ) -> Int64Array | torch.Tensor:
        """Return int64 ``shape``, drawn items.

        The same for equal seed, epoch and batch, whatever the number of threads.

        Args:
            shape: of the result.
            epoch: part of the key of the draws, as the seed.
            batch: part of the key of the draws, as the seed.
            threads: None: see :func:`graphbox.native.thread_count`.
            kind: what to return.
        """
        out = np.empty(shape, dtype=np.int64)
        self._table.sample(
            out.reshape(-1), self._seed, epoch_number(epoch), batch_number(batch), thread_count(threads)
        )
        if kind == "numpy":
            return out
        import torch

        return torch.from_numpy(out)
