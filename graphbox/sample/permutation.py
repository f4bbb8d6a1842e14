"""Random orders, the same on every machine."""

from __future__ import annotations

from graphbox import _core
from graphbox.errors import UsageError
from graphbox.native import Int64Array, epoch_number, seed_number


def permutation(size: int, seed: int = 0, epoch: int = 0) -> Int64Array:
    """Return 0 ... ``size`` - 1 in a random order (Fisher and Yates), int64 [size].

    Raises:
        UsageError: ``size`` is negative.
    """
    if size < 0:
        raise UsageError(f"expected 0 or more, received {size}", where="size")
    return _core.permutation(size, seed_number(seed), epoch_number(epoch))
