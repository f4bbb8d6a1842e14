"""The order of seeds: each once, in blocks that stay together, another one each epoch."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.graph import Graph
from graphbox.sample import NeighborLoader, permutation
from graphbox.sample.loader.order import seed_order


@pytest.mark.parametrize("block", [1, 2, 7, 64, 5000])
@pytest.mark.parametrize("seeds", [0, 1, 6, 100, 1001])
def test_each_seed_comes_once_in_its_block(seeds: int, block: int) -> None:
    orders = [seed_order(seeds, shuffle=True, block=block, seed=3, epoch=epoch) for epoch in range(4)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(seeds))
        breaks = int((np.diff(order) != 1).sum())
        assert breaks <= seeds // block + 1
    if seeds > 4 * block:
        assert len({tuple(order.tolist()) for order in orders}) == 4
    assert seed_order(seeds, shuffle=False, block=block, seed=0, epoch=0).tolist() == list(range(seeds))
    if block == 1:
        assert orders[2].tolist() == permutation(seeds, 3, 2).tolist()


def test_blocks_begin_anywhere() -> None:
    """Over the epochs no two neighbours are parted more often than others."""
    parted = np.zeros(200)
    for epoch in range(400):
        order = seed_order(200, shuffle=True, block=10, seed=0, epoch=epoch)
        after = np.empty(200, np.int64)
        after[order[:-1]], after[order[-1]] = order[1:], -1
        parted += after != np.arange(200) + 1
    inner = parted[10:189] / 400
    assert abs(inner.mean() - 0.1) < 0.02
    assert inner.max() < 0.2


def test_batches_in_blocks_read_fewer_nodes() -> None:
    """On a graph whose neighbours have near indices."""
    nodes = np.arange(4000)
    near = [(nodes + step) % 4000 for step in (1, 2, 3, 4)]
    graph = Graph.from_coo(np.concatenate(near), np.tile(nodes, 4), num_nodes=4000)

    def nodes_read(block: int) -> int:
        loader = NeighborLoader(
            graph, [4, 4], batch_size=256, shuffle=True, shuffle_block=block, output="numpy"
        )
        return sum(len(batch.sample.nodes["node"]) for batch in loader)

    assert nodes_read(32) < 0.4 * nodes_read(1)


@pytest.mark.parametrize("seeds", [0, 1, 7])
def test_blocks_may_be_longer_than_all_seeds(seeds: int) -> None:
    order = seed_order(seeds, shuffle=True, block=10**15, seed=0, epoch=0)
    assert sorted(order.tolist()) == list(range(seeds))
