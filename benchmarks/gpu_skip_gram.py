"""DeepWalk on a GPU, from the graph to updated rows, beside the fused path on two cores of the same machine.

python -m benchmarks.gpu_skip_gram [--device cuda:1] [--scale 22] [--json]

Both train the first batches of one epoch: 10 walks of 80 steps from each node, dynamic windows of 10, 64
negatives for a batch of 32 walks, dim 128; they learn from the same pairs. The process is pinned to two cores
while the native core trains. The second limit counts the rows of a batch, each read and written once with its
state, at the rate of random rows of that size. With a quarter of the rows in the memory of the GPU, others
are in pinned host memory: the limit is what it does with all of them. On a planted graph, whose communities
nodes mostly have edges within, quality is the area under the ROC curve of held-out edges against pairs of
random nodes, by cosine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.gpu_measure import GpuBench, GpuMeasurement, Limit, run
from benchmarks.rmat import Rmat, rmat
from graphbox import _core
from graphbox.sample import DeviceGraph, NegativeSampler
from graphbox.sample.pairs_gpu import DeviceWindows
from graphbox.sample.walk_plan import WalkOptions, plan_walk
from graphbox.skip_gram.device import DeviceSkipGram, SkipGramSettings
from graphbox.skip_gram.row_bytes import device_row_bytes
from graphbox.skip_gram.walkers import WalkBatches, even_offsets
from graphbox.skip_gram.walks import OneTypeLists, WalksOnDevice
from graphbox.table import EmbeddingTable

CORES = 2
GOAL = 20.0
QUALITY_GOAL = 0.99
REPEATS = 5
SEED = 1
TABLES = ("center", "context")


class Shape(NamedTuple):
    """Sizes of the training; by default as the run file has them, for one pass."""

    walks_per_node: int = 10
    length: int = 80
    window: int = 10
    dim: int = 128
    negatives: int = 64
    batch_size: int = 32
    group: int = 256


QUICK = Shape(walks_per_node=1, length=6, window=2, dim=8, negatives=4, batch_size=4, group=1)


@dataclass(frozen=True, eq=False)
class DeepWalk:
    """A graph, the walkers of an epoch and the tables that learn from them."""

    graph: Rmat
    shape: Shape
    walkers: WalkBatches
    center: EmbeddingTable
    context: EmbeddingTable
    negatives: NegativeSampler

    @classmethod
    def on(cls, graph: Rmat, shape: Shape) -> DeepWalk:
        """Return one that has learned nothing yet."""
        nodes = graph.connected()
        start = np.random.default_rng(SEED).permutation(np.repeat(nodes, shape.walks_per_node))
        return cls(
            graph,
            shape,
            WalkBatches(start, even_offsets(len(start), shape.batch_size)),
            EmbeddingTable(shape.dim, "rowwise_adagrad", seed=1, threads=CORES),
            EmbeddingTable(shape.dim, "rowwise_adagrad", seed=2, init_scale=0.0, threads=CORES),
            NegativeSampler(np.diff(graph.indptr), 0.5, SEED),
        )

    @property
    def groups(self) -> int:
        """Groups of batches in the epoch."""
        return -(-(len(self.walkers.offsets) - 1) // self.shape.group)

    def native(self) -> _core.SkipGramTrainer:
        """Return the native core's trainer of the tables."""
        plan = plan_walk(self.graph, np.zeros(0, np.int64), self.shape.length, WalkOptions(), CORES)
        return _core.SkipGramTrainer(
            plan.native,
            (self.shape.window, None, True, None),
            self.negatives.native,
            self.center._current,
            self.context._current,
            self.graph.num_nodes,
            self.shape.negatives,
            5.0,
        )

    def train_natively(self, trainer: _core.SkipGramTrainer, group: int, lock_free: bool) -> int:
        """Train on a group of batches; return the number of pairs."""
        first = group * self.shape.group
        offsets = self.walkers.offsets[first : first + self.shape.group + 1]
        walkers = self.walkers.walkers(first, first + len(offsets) - 1)
        key = (SEED, 0, first)
        _, pairs = trainer.train(walkers, offsets - offsets[0], key, SEED, 0.1, lock_free, CORES)
        return pairs

    def on_device(
        self, device: torch.device, lock_free: bool, row_bytes: int | None = None
    ) -> DeviceSkipGram:
        """Return what trains the tables on a device, at the begin of the epoch; of it rows have so much."""
        lists = OneTypeLists(self.graph, self.graph.num_nodes)
        trainer = DeviceSkipGram(
            dict(zip(TABLES, (self.center, self.context), strict=True)),
            lambda: WalksOnDevice(DeviceGraph(lists, device), self.shape.length),
            DeviceWindows(self.shape.window, None, True),
            self.negatives.on_device(device),
            SkipGramSettings(self.graph.num_nodes, self.shape.negatives, 5.0, 0.1, lock_free, SEED),
            device,
            visits=np.diff(self.graph.indptr).astype(np.float64),
            row_bytes=row_bytes,
        )
        trainer.begin_epoch(self.walkers, self.shape.group)
        return trainer

    def embeddings(self) -> npt.NDArray[np.float32]:
        """Return what was learned: float32 [nodes, dim]."""
        keys = np.arange(self.graph.num_nodes)
        rows: npt.NDArray[np.float32] = self.center.pull(keys) + self.context.pull(keys)
        return rows


def main() -> None:
    """Run all cases."""
    run(__doc__, show_skip_gram, add_options)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give the parser what graphs need."""
    parser.add_argument("--scale", type=int, default=22, help="of the R-MAT graph: 2^SCALE nodes")


def show_skip_gram(bench: GpuBench) -> None:
    """Measure speed on an R-MAT graph and quality on a planted one."""
    scale = 5 if bench.quick else bench.options.scale
    shape = QUICK if bench.quick else Shape()
    graph = rmat(scale)
    for lock_free in (False, True):
        show_speed(bench, f"rmat{scale}", graph, shape, lock_free)
    show_quality(bench, QUICK if bench.quick else Shape(walks_per_node=4))


def show_speed(bench: GpuBench, name: str, graph: Rmat, shape: Shape, lock_free: bool) -> None:
    """Measure both on groups of the same epoch."""
    work = DeepWalk.on(graph, shape)
    case = f"{name} DeepWalk, dim {shape.dim}" + (", lock-free" if lock_free else "")
    with two_cores():
        native = work.native()
        work.train_natively(native, 0, lock_free)  # makes the rows
        rates = [native_rate(work, native, lock_free) for _ in range(REPEATS)]
    on_cpu = bench.show_seconds(
        case, [1 / rate for rate in rates], units=1, unit="pairs/s", limit=None, system=f"{CORES} cores"
    )
    del native
    groups = 1 if bench.quick else 16  # of which a run is made
    measured, pairs = show_device(bench, case, work, lock_free, groups, Limit(f"{CORES} cores", on_cpu.rate))
    rows = 2 * 2 * distinct_rows(work) * shape.group * groups / pairs  # two tables; read and written
    limit = bench.row_limit("device", 4 * shape.dim, rows)
    bench.show_seconds(
        f"{case}, rows moved",
        [pairs / measured.rate],
        units=pairs,
        unit="pairs/s",
        limit=limit,
    )
    if not lock_free:
        quarter = len(TABLES) * graph.num_nodes * device_row_bytes(shape.dim) // 4
        whole = Limit("all rows in its memory", measured.rate)
        show_device(bench, f"{case}, a quarter of the rows there", work, lock_free, groups, whole, quarter)


def show_device(
    bench: GpuBench,
    case: str,
    work: DeepWalk,
    lock_free: bool,
    groups: int,
    limit: Limit,
    row_bytes: int | None = None,
) -> tuple[GpuMeasurement, int]:
    """Measure the device, whose memory has so much for rows; return it with the pairs of a run."""
    trainer = work.on_device(bench.device, lock_free, row_bytes)
    following = cycle(range(work.groups))
    pairs = 0

    def train() -> None:
        nonlocal pairs
        pairs = sum(trainer.train(0, next(following))[1] for _ in range(groups))

    # Runs have different walkers, but so many that they have nearly as many pairs.
    train()
    goal = GOAL if row_bytes is None else None
    return bench.show(case, train, units=pairs, unit="pairs/s", limit=limit, goal=goal), pairs


def native_rate(work: DeepWalk, native: _core.SkipGramTrainer, lock_free: bool) -> float:
    """Return how many pairs per second the native core learns from in the second group."""
    begin = time.perf_counter()
    pairs = work.train_natively(native, min(1, work.groups - 1), lock_free)
    return pairs / (time.perf_counter() - begin)


def distinct_rows(work: DeepWalk) -> float:
    """Return how many rows of a table a batch has in the mean, from visits in proportion to degrees."""
    degree = np.diff(work.graph.indptr).astype(np.float64)
    visits = work.shape.batch_size * (work.shape.length + 1)
    return float(-np.expm1(visits * np.log1p(-degree / degree.sum())).sum())


@contextmanager
def two_cores() -> Iterator[None]:
    """Pin the process to as many cores as the native core is to have."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def show_quality(bench: GpuBench, shape: Shape) -> None:
    """Compare what both have learned after an epoch."""
    communities, size = (2, 10) if bench.quick else (100, 200)
    train, held_out, random_pairs = planted(communities, size)
    shape = shape._replace(group=min(shape.group, 64))
    areas = {}
    for system in (f"{CORES} cores", "graphbox"):
        work = DeepWalk.on(train, shape)
        if system == "graphbox":
            trainer = work.on_device(bench.device, lock_free=False)
            for group in range(work.groups):
                trainer.train(0, group)
            trainer.store()
        else:
            with two_cores():
                native = work.native()
                for group in range(work.groups):
                    work.train_natively(native, group, lock_free=False)
        rows = work.embeddings()
        areas[system] = area_under_curve(cosines(rows, held_out), cosines(rows, random_pairs))
    for system, area in areas.items():
        is_gpu = system == "graphbox"
        bench.show_seconds(
            f"planted graph of {communities} x {size} nodes, held-out edges",
            [1.0],
            units=area,
            unit="AUC",
            limit=Limit(f"{CORES} cores", areas[f"{CORES} cores"]) if is_gpu else None,
            goal=QUALITY_GOAL if is_gpu else None,
            system=system,
        )


def planted(communities: int, size: int) -> tuple[Rmat, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a graph with 6 edges of a node within its community and 2 to anywhere, edges, and random pairs.

    The edges are held out of the graph; edges and pairs are int64 [2, n].
    """
    nodes = communities * size
    rng = np.random.default_rng(0)
    source = np.repeat(np.arange(nodes), 8)
    within = np.tile(np.arange(8) < 6, nodes)
    near = source // size * size + rng.integers(0, size, len(source))
    target = np.where(within, near, rng.integers(0, nodes, len(source)))
    is_held_out = within & (rng.random(len(source)) < 0.1)
    held_out = np.stack([source, target])[:, is_held_out & (source != target)]
    kept = np.stack([source, target])[:, ~is_held_out & (source != target)]
    keys = np.unique(np.concatenate([kept[0] * nodes + kept[1], kept[1] * nodes + kept[0]]))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // nodes, minlength=nodes))]).astype(np.int64)
    graph = Rmat(indptr, (keys % nodes).astype(np.int32))
    return graph, held_out, rng.integers(0, nodes, held_out.shape)


def cosines(rows: npt.NDArray[np.float32], pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how near the nodes of each pair are."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    products: npt.NDArray[np.float64] = (unit[pairs[0]] * unit[pairs[1]]).sum(axis=1, dtype=np.float64)
    return products


def area_under_curve(positives: npt.NDArray[np.float64], negatives: npt.NDArray[np.float64]) -> float:
    """Return how often a positive is above a negative, equal ones half."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, "left") + np.searchsorted(ordered, positives, "right")
    return float(below.mean() / 2 / len(negatives))


if __name__ == "__main__":
    main()
