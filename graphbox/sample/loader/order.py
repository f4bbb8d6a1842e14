"""In which order seeds come."""

from __future__ import annotations

import numpy as np

from graphbox.native import Int64Array
from graphbox.sample.permutation import permutation

_OFFSET_SEED = 0x9E3779B97F4A7C15  # the offset of the blocks is drawn by another seed than their order


def seed_order(seeds: int, *, shuffle: bool, block: int, seed: int, epoch: int) -> Int64Array:
    """Return the positions of seeds in the order of an epoch: int64 [seeds], each once.

    Blocks are shuffled as wholes, as in BGL (Liu et al., "BGL: GPU-efficient GNN training by optimizing graph
    data I/O and preprocessing", NSDI 2023): their order and where the first one ends are random.

    Args:
        seeds: how many there are.
        shuffle: False: as they are.
        block: seeds that stay together.
        seed: of the draws.
        epoch: of the draws.
    """
    if not shuffle:
        return np.arange(seeds, dtype=np.int64)
    if block == 1:
        return permutation(seeds, seed, epoch)
    block = min(block, max(seeds, 1))
    offset = int(permutation(block, (seed + _OFFSET_SEED) % 2**64, epoch)[0])
    bounds = np.unique(np.concatenate([[0], np.arange(offset, seeds, block), [seeds]]))
    chosen = permutation(len(bounds) - 1, seed, epoch)
    begin, size = bounds[chosen], np.diff(bounds)[chosen]
    # Counting on from the start of each block.
    order: Int64Array = np.arange(seeds) + np.repeat(begin - (np.cumsum(size) - size), size)
    return order
