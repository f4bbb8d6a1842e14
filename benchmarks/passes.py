"""Batches of a graph whose topology and features lie on disk, a fifth of their bytes in memory.

python benchmarks/passes.py [--quick] [--json] [--folder FOLDER] [--gib SIZE]

NeighborLoader over ``Graph.tiered``: in passes, whose reads are known before they are made, and batch by
batch, when memory can only keep what was used often. The bound (``limit``) is the disk's: for each hop of
each pass, and for each window of features, the different 4 KiB blocks that memory does not have, each read
by itself as fast as fio does at the same depth, or the whole file as fast as fio reads it from front to back,
whichever is shorter. Disks are shared: systems run in turns. The page cache is passed by (O_DIRECT).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show_in_turns
from benchmarks.store import BLOCK_BYTES, DEPTH, HAS_FIO, LARGE_READ_BYTES, Int64Array, fio
from graphbox.graph import CSC, EdgeType, Graph
from graphbox.graph.arrays import feature_columns
from graphbox.graph.tables import EdgeTable, numbered_nodes
from graphbox.graph.tier import TierOptions
from graphbox.graph.tiered_edges import TieredEdges
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.native import thread_count
from graphbox.sample import NeighborLoader

TO: EdgeType = ("node", "to", "node")
DIM = 128
ROW_BYTES = DIM * 4
MEAN_DEGREE = 30
BATCH_SIZE = 1024
NUM_NEIGHBORS = [10, 5]
IN_MEMORY = 0.2


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
        compare(graph, batches, as_json=options.json)


def make_graph(path: Path, size_bytes: int) -> Graph:
    """Write a graph whose degrees, and how often a node is a neighbour, are skewed."""
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
    rows = np.empty((num_nodes, DIM), np.float32)
    rows[...] = np.arange(num_nodes, dtype=np.float32)[:, None]
    nodes = numbered_nodes(num_nodes, feature_columns({"x": rows}, num_nodes, "nodes"))
    Graph("passes", {"node": nodes}, {TO: EdgeTable(CSC(indptr, indices, num_nodes))}).save(path)
    return Graph.open(path)


@dataclass
class Reads:
    """What the disk had to give: for each group of reads the blocks wanted of a file, and all it has."""

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

    def edges(self, edge_type: EdgeType | str) -> TieredEdges:
        """Return edges that count what is read."""
        edges = super().edges(edge_type)
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


def compare(graph: Graph, batches: int, *, as_json: bool) -> None:
    """Compare passes with batches that come one by one, and with the disk."""
    budgets = budgets_of(graph)
    options = TierOptions(depth=DEPTH)
    seeds = np.random.default_rng(1).permutation(graph.num_nodes("node"))[: batches * BATCH_SIZE]

    def run(tiered: TieredGraph, pass_batches: int | None) -> float:
        loader = NeighborLoader(
            tiered, NUM_NEIGHBORS, seeds, BATCH_SIZE, output="numpy", pass_batches=pass_batches
        )
        started = time.perf_counter()
        count = sum(1 for _ in loader)
        return count / (time.perf_counter() - started)

    # Memory is filled as it is in the long run: the runs that count come after one that does not.
    recorded = RecordedGraph(graph, options=options, **budgets)
    for _ in range(2):
        recorded.reads = Reads()
        run(recorded, None)
    reads = recorded.reads
    del recorded
    passes, one_by_one = graph.tiered(options=options, **budgets), graph.tiered(options=options, **budgets)
    systems = {
        "graphbox": lambda: run(passes, None),
        "graphbox, batch by batch": lambda: run(one_by_one, 1),
    }
    path = graph.feature_file("node", "x").path
    if HAS_FIO:

        def limit() -> float:
            reads_per_s = fio(path, "randread", BLOCK_BYTES)[0]
            bytes_per_s = fio(path, "read", LARGE_READ_BYTES)[1]
            return batches / reads.seconds(reads_per_s, bytes_per_s)

        systems["limit"] = limit
    name = f"{NUM_NEIGHBORS}-{BATCH_SIZE}-{(graph.size_bytes or 0) >> 20}MiB-{IN_MEMORY:.0%}-in-memory"
    show_in_turns(name, "batches/s", systems, as_json=as_json, threads=thread_count(None))


if __name__ == "__main__":
    main()
