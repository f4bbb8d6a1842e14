"""Division of an epoch's walkers into batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox import _core


@dataclass(frozen=True, eq=False)
class WalkBatches:
    """The walkers of an epoch, batch by batch.

    Attributes:
        start: int64 [walkers], the node each starts at.
        offsets: int64 [batches + 1]: batch ``i`` has walkers ``offsets[i]`` to ``offsets[i + 1] - 1``.
        second: int64 [walkers], the node each goes to first, or None: it chooses.
        path_of: int64 [walkers], the number of its metapath, or None where there is one.
    """

    start: NDArray[np.int64]
    offsets: NDArray[np.int64]
    second: NDArray[np.int64] | None = None
    path_of: NDArray[np.int64] | None = None

    def walkers(self, first: int, last: int) -> _core.Walkers:
        """Return those of batches ``first`` to ``last - 1`` as the native core takes them."""
        part = slice(self.offsets[first], self.offsets[last])
        second, path_of = (None if each is None else each[part] for each in (self.second, self.path_of))
        return _core.Walkers(self.start[part], second, path_of)


def even_offsets(count: int, size: int) -> NDArray[np.int64]:
    """Return where batches of ``size`` of ``count`` walkers start, and where the last ends."""
    return np.minimum(np.arange(math.ceil(count / size) + 1, dtype=np.int64) * size, count)
