"""Batches of a graph whose topology and features lie on disk, a fifth of their bytes in memory.

python benchmarks/passes.py [--quick] [--json] [--folder FOLDER] [--gib SIZE]

NeighborLoader and LinkNeighborLoader over ``Graph.tiered``: in passes, whose reads are known before they are
made, and batch by batch, when memory can only keep what was used often. The bound (``limit``) is the disk's:
for each hop of each pass, and for each window of features, the different 4 KiB blocks that memory does not
have, each read by itself as fast as fio does at the same depth, or the whole file as fast as fio reads it
from front to back, whichever is shorter. Seeds that are near each other, shuffled one by one and in blocks
(``shuffle_block``), show what their order brings where neighbours are near each other, too. Disks are shared:
systems run in turns. The page cache is passed by (O_DIRECT).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.measure import show_in_turns
from benchmarks.store import BLOCK_BYTES, DEPTH, HAS_FIO, LARGE_READ_BYTES, Int64Array, fio
from graphbox.graph import CSC, EdgeType, Graph
from graphbox.graph.arrays import feature_columns
from graphbox.graph.snapshot import Direction
from graphbox.graph.tables import EdgeTable, numbered_nodes
from graphbox.graph.tier import TierOptions
from graphbox.graph.tiered_edges import Payload, TieredEdges
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.native import thread_count
from graphbox.sample import LinkNeighborLoader, NeighborLoader
from graphbox.sample.loader.base import Loader

TO: EdgeType = ("node", "to", "node")
DIM = 128
ROW_BYTES = DIM * 4
MEAN_DEGREE = 30
BATCH_SIZE = 1024
NUM_NEIGHBORS = [10, 5]
IN_MEMORY = 0.2
LINK_BATCH_SIZE = BATCH_SIZE // 4  # with a negative for each, both with two ends: as many seeds
SHUFFLE_BLOCKS = (1, 64)
NEAR_SHARE = 0.8
NEAR = 500


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="passes over graphs on disk")
    parser.add_argument("--quick", action="store_true", help="a small input: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--folder", type=Path, default=Path(), help="where to write the graph")
    parser.add_argument("--gib", type=float, default=4.0, help="size of the graph")
    parser.add_argument("--batches", type=int, default=96, help="batches of a run")
    options = parser.parse_args()
    size = 48 << 20 if options.quick else int(options.gib * (1 << 30))
    batches = 12 if options.quick else options.batches
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="benchmark-passes-") as name:
        graph = make_graph(Path(name) / "graph", size)
        seeds = np.random.default_rng(1).permutation(graph.num_nodes("node"))[: batches * BATCH_SIZE]
        nodes = f"{NUM_NEIGHBORS}-{BATCH_SIZE}"
        compare(graph, nodes, node_loads(seeds), as_json=options.json)
        links = link_loads(graph, batches * LINK_BATCH_SIZE)
        compare(graph, f"links {NUM_NEIGHBORS}-{LINK_BATCH_SIZE}", links, as_json=options.json)
        shutil.rmtree(Path(name) / "graph")
        near = make_graph(Path(name) / "near", size // 4, near_share=NEAR_SHARE)
        compare_orders(near, batches, as_json=options.json)


def make_graph(path: Path, size_bytes: int, near_share: float = 0.0) -> Graph:
    """Write a graph whose degrees, and how often a node is a neighbour, are skewed.

    Args:
        path: where to.
        size_bytes: of its files, about.
        near_share: of edges that join nodes whose indices are near each other, as in graphs whose nodes are
            numbered by a search or by community.
    """
    rng = np.random.default_rng(0)
    num_nodes = size_bytes // (ROW_BYTES + 4 * MEAN_DEGREE + 8)
    degrees = np.minimum(rng.lognormal(np.log(MEAN_DEGREE) - 0.5, 1.0, num_nodes), 10_000).astype(np.int64)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees)])
    label = rng.permutation(num_nodes).astype(np.int32)
    indices = np.empty(indptr[-1], np.int32)
    step = 1 << 22
    for first in range(0, len(indices), step):
        popular = rng.random(min(step, len(indices) - first)) ** 3 * num_nodes
        indices[first : first + step] = label[popular.astype(np.int64)]
    if near_share:
        near = np.flatnonzero(rng.random(len(indices)) < near_share)
        targets = np.searchsorted(indptr, near, side="right") - 1
        indices[near] = (targets + rng.integers(-NEAR, NEAR, len(near))) % num_nodes
    rows = np.empty((num_nodes, DIM), np.float32)
    rows[...] = np.arange(num_nodes, dtype=np.float32)[:, None]
    nodes = numbered_nodes(num_nodes, feature_columns({"x": rows}, num_nodes, "nodes"))
    Graph("passes", {"node": nodes}, {TO: EdgeTable(CSC(indptr, indices, num_nodes))}).save(path)
    return Graph.open(path)


@dataclass
class Reads:
    """Reads from disk: for each group of reads the blocks wanted of a file, and all it has."""

    groups: list[tuple[float, float]] = field(default_factory=list)

    def add(self, file_bytes: int, wanted_bytes: Int64Array, missing_share: float) -> None:
        """Count the different blocks in which some bytes lie, of which memory did not have a share."""
        blocks = np.zeros(file_bytes // BLOCK_BYTES + 2, bool)
        blocks[wanted_bytes // BLOCK_BYTES] = True
        self.groups.append((float(blocks.sum()) * missing_share, len(blocks)))

    def seconds(self, reads_per_s: float, bytes_per_s: float) -> float:
        """Return how long the disk takes for them."""
        return sum(
            min(wanted / reads_per_s, blocks * BLOCK_BYTES / bytes_per_s) for wanted, blocks in self.groups
        )

    @property
    def wanted_bytes(self) -> float:
        """Bytes of the blocks wanted."""
        return sum(wanted for wanted, _ in self.groups) * BLOCK_BYTES


class RecordedEdges(TieredEdges):
    """Edges that count what is read."""

    reads: Reads
    graph: TieredGraph

    def bounds(self, nodes: Int64Array) -> Int64Array:
        """Return where lists are, counting the blocks of the offsets."""
        with self._missing() as share:
            found = super().bounds(nodes)
        self.reads.add(self.graph.graph.num_nodes("node") * 8 + 16, nodes * 8, share())
        return found

    def neighbors(self, positions: Int64Array) -> Any:
        """Return neighbours, counting the blocks they are in."""
        with self._missing() as share:
            found = super().neighbors(positions)
        self.reads.add(self.num_base_edges * 4, positions * 4, share())
        return found

    def lists_between(
        self, nodes: Int64Array, bounds: Int64Array, payload: Sequence[Payload]
    ) -> tuple[Int64Array, dict[str, Any]]:
        """Return lists, counting the blocks they are in."""
        with self._missing() as share:
            positions, columns = super().lists_between(nodes, bounds, payload)
        self.reads.add(self.num_base_edges * 4, positions * 4, share())
        return positions, columns

    @contextmanager
    def _missing(self) -> Iterator[Any]:
        before = self.graph.stats["topology"]

        def share() -> float:
            after = self.graph.stats["topology"]
            hits, misses = after.hits - before.hits, after.misses - before.misses
            return misses / max(hits + misses, 1)

        yield share


class RecordedGraph(TieredGraph):
    """A graph that counts what is read."""

    reads: Reads

    def edges(self, edge_type: EdgeType | str, direction: Direction = "in") -> TieredEdges:
        """Return edges that count what is read."""
        edges = super().edges(edge_type, direction)
        recorded = RecordedEdges(edges.lists, edges.by_id, edges.overlay, edges.backwards)
        object.__setattr__(recorded, "reads", self.reads)
        object.__setattr__(recorded, "graph", self)
        return recorded

    def read_feature_rows(
        self, node_type: str, name: str, nodes: Int64Array, out: Any, places: Int64Array | None = None
    ) -> Any:
        """Read rows, counting the blocks they are in."""
        begins = nodes * ROW_BYTES
        ends = begins + ROW_BYTES - 1
        self.reads.add(self.graph.num_nodes(node_type) * ROW_BYTES, np.concatenate([begins, ends]), 1.0)
        return super().read_feature_rows(node_type, name, nodes, out, places)


def budgets_of(graph: Graph) -> dict[str, int]:
    """Return budgets that are together :data:`IN_MEMORY` of the bytes of topology and features."""
    topology = (graph.num_nodes("node") + 1) * 8 + graph.num_edges(TO) * 4
    features = graph.num_nodes("node") * ROW_BYTES
    in_memory = int((topology + features) * IN_MEMORY)
    topology_bytes = int(topology * IN_MEMORY)
    pass_bytes = in_memory // 6
    return {
        "topology_bytes": topology_bytes,
        "pass_bytes": pass_bytes,
        "feature_bytes": in_memory - topology_bytes - pass_bytes,
    }


Load: TypeAlias = Callable[[TieredGraph, "int | None"], Loader]
"""Makes a loader over a graph on disk with so many batches in a pass."""


def node_loads(seeds: Int64Array, **options: Any) -> Load:
    """Return what loads batches around nodes."""
    return lambda tiered, pass_batches: NeighborLoader(
        tiered, NUM_NEIGHBORS, seeds, BATCH_SIZE, output="numpy", pass_batches=pass_batches, **options
    )


def link_loads(graph: Graph, num_links: int) -> Load:
    """Return what loads batches around edges of the graph and as many negatives, leakage controlled."""
    rng = np.random.default_rng(2)
    csc = graph.csc(TO)
    edges = rng.choice(len(csc.indices), num_links, replace=False)
    links = np.stack(
        [csc.indices[edges].astype(np.int64), np.searchsorted(csc.indptr, edges, side="right") - 1]
    )
    return lambda tiered, pass_batches: LinkNeighborLoader(
        tiered,
        NUM_NEIGHBORS,
        links,
        batch_size=LINK_BATCH_SIZE,
        neg_sampling="binary",
        output="numpy",
        pass_batches=pass_batches,
    )


def batches_per_s(loader: Loader) -> float:
    """Return the rate of a whole loop."""
    started = time.perf_counter()
    count = sum(1 for _ in loader)
    return count / (time.perf_counter() - started)


def reads_of(graph: Graph, load: Load) -> Reads:
    """Return what a loop reads in passes, when memory is filled as it is in the long run."""
    recorded = RecordedGraph(graph, options=TierOptions(depth=DEPTH), **budgets_of(graph))
    for _ in range(2):
        recorded.reads = Reads()
        batches_per_s(load(recorded, None))
    return recorded.reads


def compare(graph: Graph, case: str, load: Load, *, as_json: bool) -> None:
    """Compare passes with batches that come one by one, and with the disk."""
    budgets, options = budgets_of(graph), TierOptions(depth=DEPTH)
    reads = reads_of(graph, load)
    passes, one_by_one = graph.tiered(options=options, **budgets), graph.tiered(options=options, **budgets)
    batches = len(load(passes, None))
    systems = {
        "graphbox": lambda: batches_per_s(load(passes, None)),
        "graphbox, batch by batch": lambda: batches_per_s(load(one_by_one, 1)),
    }
    path = graph.feature_file("node", "x").path
    if HAS_FIO:

        def limit() -> float:
            reads_per_s = fio(path, "randread", BLOCK_BYTES)[0]
            bytes_per_s = fio(path, "read", LARGE_READ_BYTES)[1]
            return batches / reads.seconds(reads_per_s, bytes_per_s)

        systems["limit"] = limit
    show_in_turns(case_name(graph, case), "batches/s", systems, as_json=as_json, threads=thread_count(None))


def compare_orders(graph: Graph, batches: int, *, as_json: bool) -> None:
    """Compare seeds that are shuffled one by one with seeds that stay together in blocks."""
    seeds = np.arange(min(batches * BATCH_SIZE, graph.num_nodes("node")))
    tiered = {
        block: graph.tiered(options=TierOptions(depth=DEPTH), **budgets_of(graph)) for block in SHUFFLE_BLOCKS
    }

    def run(block: int) -> float:
        return batches_per_s(node_loads(seeds, shuffle=True, shuffle_block=block)(tiered[block], None))

    systems = {
        "graphbox" if block == 1 else f"graphbox, shuffle_block={block}": partial(run, block)
        for block in SHUFFLE_BLOCKS
    }
    name = case_name(graph, f"{NUM_NEIGHBORS}-{BATCH_SIZE} seeds in order, {NEAR_SHARE:.0%} of edges near")
    show_in_turns(name, "batches/s", systems, as_json=as_json, threads=thread_count(None))


def case_name(graph: Graph, case: str) -> str:
    """Return the name of a case with its sizes."""
    return f"{case}-{(graph.size_bytes or 0) >> 20}MiB-{IN_MEMORY:.0%}-in-memory"


if __name__ == "__main__":
    main()
