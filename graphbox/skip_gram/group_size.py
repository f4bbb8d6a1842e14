"""Sizes of groups of skip-gram's batches, and their memory on a device; no Triton."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.skip_gram.tile_shapes import TileShape

_WALKS_OF_GROUP = 8192
"""Groups of batches have about so many walks: then the loop looks at the time. The same on all devices: a
training that goes on elsewhere counts the same groups."""
_SIDE_BY_SIDE = 8
"""Batches that are computed at once without locks: enough for all multiprocessors of a large GPU."""
_PLACE_BYTES = 8 * 16
"""Bytes of a place while its group is made: arrays that stay, its walk, room to sort."""


@dataclass(frozen=True)
class GroupSize:
    """The most that a group of batches holds, of an epoch.

    Attributes:
        group: batches of a group.
        width: nodes of a walk.
        negatives: of a batch.
        walkers: of a group.
        batch_walkers: of a batch.
    """

    group: int
    width: int
    negatives: int
    walkers: int
    batch_walkers: int

    @classmethod
    def of(cls, offsets: NDArray[np.int64], group: int, width: int, negatives: int) -> GroupSize:
        """Return that of an epoch.

        Args:
            offsets: int64 [batches + 1], where the walkers of each batch begin.
            group: batches of a group.
            width: nodes of a walk.
            negatives: of a batch.
        """
        last = len(offsets) - 1
        ends = offsets[np.minimum(np.arange(0, last, group) + group, last)]
        walkers = int(np.max(ends - offsets[:-1:group], initial=0))
        return cls(group, width, negatives, walkers, int(np.max(np.diff(offsets), initial=0)))

    @property
    def places(self) -> int:
        """Places of a group."""
        return self.walkers * self.width

    @property
    def batch_places(self) -> int:
        """Places of a batch."""
        return self.batch_walkers * self.width

    @property
    def items(self) -> int:
        """Places and negatives of a group."""
        return self.places + self.group * self.negatives

    def tiles(self, places: int) -> int:
        """Return in how many parts of so many places a batch is divided."""
        return max(1, -(-self.batch_places // places))


def batches_of_group(walkers: int, batches: int) -> int:
    """Return how many batches are trained at once in an epoch of so many walkers in so many batches."""
    of_batch = max(1, walkers // max(batches, 1))
    return max(1, min(_WALKS_OF_GROUP // of_batch, batches))


def batches_side_by_side(size: GroupSize, *, lock_free: bool) -> int:
    """Return how many batches are computed at once."""
    return min(_SIDE_BY_SIDE, size.group) if lock_free else 1


def group_bytes(size: GroupSize, dim: int, shape: TileShape, side: int) -> int:
    """Return about how much memory of the device a group takes while it is made and trained.

    Args:
        size: of the group.
        dim: of rows.
        shape: of the parts that programs compute with.
        side: batches that are computed at once.
    """
    gradients = 3 * size.batch_places + size.tiles(shape.centers) * size.negatives
    losses = size.group * (size.tiles(shape.places) + size.tiles(shape.centers))
    return _PLACE_BYTES * size.items + 4 * side * dim * gradients + 8 * losses
