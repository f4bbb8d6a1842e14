"""Changes of graphs per second: appends and removals of several sizes, and what changes cost those who read.

python benchmarks/changes.py [--quick] [--json] [--folder FOLDER]

Every change is on disk when it returns. The peer is SQLite with the edges in one table, a commit for each
change, as durable (WAL, synchronous=FULL). The bound of a change is a file with the bytes of its edges,
written, fsynced and renamed. Of opening and sampling it is the same graph after compaction. What is compared
runs in turns.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.measure import Measurement, show
from graphbox.graph import EdgeSource, Graph, GraphSource
from graphbox.graph.compact import compact, in_background
from graphbox.graph.delta import append, remove
from graphbox.native import thread_count
from graphbox.sample import sample_neighbors

TO = ("node", "to", "node")
PEER = f"sqlite {sqlite3.sqlite_version}"
MEAN_DEGREE = 10
CHANGES = 100
SEEDS, FANOUT = 1024, (10, 5)
REPEATS = 7

Int64Array = npt.NDArray[np.int64]
Work = Callable[[], int]
"""Does some units of work and returns how many."""


class Edges:
    """Random edges, none of them twice.

    Args:
        num_nodes: number of nodes.
    """

    def __init__(self, num_nodes: int) -> None:
        self._rng = np.random.default_rng(0)
        self._num_nodes = num_nodes

    def draw(self, count: int) -> tuple[Int64Array, Int64Array]:
        """Return sources and targets."""
        source, target = self._rng.integers(0, self._num_nodes, (2, count))
        return source, target


# Systems


class GraphboxGraph:
    """A graph on disk."""

    def __init__(self, path: Path, num_nodes: int, edges: tuple[Int64Array, Int64Array]) -> None:
        self.path = path
        Graph.from_coo(*edges, num_nodes=num_nodes).save(path)

    def append(self, source: Int64Array, target: Int64Array) -> None:
        """Add edges."""
        table = pa.table({"source": source, "target": target})
        append(self.path, GraphSource("", {}, (EdgeSource(TO, table),)), compact="never")

    def remove(self, source: Int64Array, target: Int64Array) -> None:
        """Remove the edges between pairs."""
        remove(self.path, edges={TO: (source, target)})

    def remove_node(self, node: int) -> None:
        """Remove a node and all its edges."""
        remove(self.path, nodes={"node": np.array([node])})


class SqliteGraph:
    """The same edges as one table of SQLite, clustered by target and indexed by source."""

    def __init__(self, path: Path, edges: tuple[Int64Array, Int64Array]) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE edges (target INTEGER, source INTEGER, PRIMARY KEY (target, source)) WITHOUT ROWID"
        )
        order = np.lexsort(edges)
        self.append(edges[0][order], edges[1][order])
        self._database.execute("CREATE INDEX by_source ON edges (source)")

    def append(self, source: Int64Array, target: Int64Array) -> None:
        """Add edges."""
        self._commit("INSERT OR IGNORE INTO edges VALUES (?, ?)", source, target)

    def remove(self, source: Int64Array, target: Int64Array) -> None:
        """Remove the edges between pairs."""
        self._commit("DELETE FROM edges WHERE target = ? AND source = ?", source, target)

    def remove_node(self, node: int) -> None:
        """Remove all edges of a node."""
        self._database.execute("DELETE FROM edges WHERE target = ? OR source = ?", (node, node))

    def _commit(self, statement: str, source: Int64Array, target: Int64Array) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, zip(target.tolist(), source.tolist(), strict=True))
        self._database.execute("COMMIT")


def durable_file(folder: Path, size_bytes: int) -> None:
    """Put a file of some bytes in place so that it is on disk."""
    beside = folder / "bound.tmp"
    with beside.open("wb") as file:
        file.write(bytes(size_bytes))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(folder / "bound")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


# Measuring


def in_turns(
    case: str, unit: str, systems: Mapping[str, Work], *, as_json: bool, repeats: int = REPEATS
) -> None:
    """Measure all systems in turns, after one round that does not count, and print a line for each."""
    rates: dict[str, list[float]] = {system: [] for system in systems}
    per_cpu: dict[str, list[float]] = {system: [] for system in systems}
    for repeat in range(repeats + 1):
        for system, work in systems.items():
            wall, cpu = time.perf_counter(), time.process_time()
            units = work()
            took_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
            if repeat:
                rates[system].append(units / took_s)
                per_cpu[system].append(units / max(cpu_s, 1e-9))
    for system, each in rates.items():
        show(
            Measurement(
                case,
                system,
                thread_count(None),
                statistics.median(each),
                unit,
                min(each),
                max(each),
                repeats,
                statistics.median(per_cpu[system]),
            ),
            as_json=as_json,
        )


def changes(folder: Path, num_edges: int, *, as_json: bool) -> None:
    """Appends and removals of a graph of some size."""
    num_nodes = num_edges // MEAN_DEGREE
    edges = Edges(num_nodes)
    base = edges.draw(num_edges)
    graph = GraphboxGraph(folder / f"graph-{num_edges}", num_nodes, base)
    sqlite = SqliteGraph(folder / f"sqlite-{num_edges}.db", base)

    def case(name: str, size_bytes: int, change: Callable[[GraphboxGraph | SqliteGraph], None]) -> None:
        def once(system: GraphboxGraph | SqliteGraph) -> int:
            change(system)
            return 1

        def bound() -> int:
            durable_file(folder, size_bytes)
            return 1

        systems = {"graphbox": lambda: once(graph), PEER: lambda: once(sqlite), "limit": bound}
        in_turns(f"{name}-of-{num_edges}", "changes/s", systems, as_json=as_json)
        compact(graph.path)

    for count in (1, 1000, 100_000):

        def append_some(each: GraphboxGraph | SqliteGraph, count: int = count) -> None:
            each.append(*edges.draw(count))

        if count <= num_edges:
            case(f"append-{count}-edges", 16 * count, append_some)
    for count in (1, 1000):

        def remove_some(each: GraphboxGraph | SqliteGraph, count: int = count) -> None:
            at = np.random.default_rng().integers(0, num_edges, count)
            each.remove(base[0][at], base[1][at])

        case(f"remove-{count}-edges", 8 * count, remove_some)
    rng = np.random.default_rng(1)
    case("remove-1-node", 8, lambda each: each.remove_node(int(rng.integers(0, num_nodes))))


def reading(folder: Path, num_edges: int, *, as_json: bool) -> None:
    """Opening and sampling a graph with many changes, beside the same graph after compaction."""
    num_nodes = num_edges // MEAN_DEGREE
    edges = Edges(num_nodes)
    path, merged = folder / f"changed-{num_edges}", folder / f"compacted-{num_edges}"
    for each in (path, merged):
        edges = Edges(num_nodes)
        graph = GraphboxGraph(each, num_nodes, edges.draw(num_edges))
        for _ in range(CHANGES):
            graph.append(*edges.draw(10))
    compact(merged)

    def opening(which: Path) -> Work:
        def work() -> int:
            Graph.open(which)
            return 1

        return work

    case = f"with-{CHANGES}-changes-of-{num_edges}"
    systems = {"graphbox": opening(path), "limit": opening(merged)}
    in_turns(f"open-{case}", "opens/s", systems, as_json=as_json, repeats=5 * REPEATS)

    def sampling(which: Path) -> Work:
        graph, rng = Graph.open(which), np.random.default_rng(2)

        def work() -> int:
            for _ in range(20):
                sample_neighbors(graph, rng.integers(0, num_nodes, SEEDS), FANOUT)
            return 20 * SEEDS

        return work

    systems = {"graphbox": sampling(path), "limit": sampling(merged)}
    in_turns(f"sample-{case}", "seeds/s", systems, as_json=as_json)


def appending_meanwhile(folder: Path, num_edges: int, *, as_json: bool) -> None:
    """Appends of ten edges while the graph is compacted, beside appends when it is not."""
    num_nodes = num_edges // MEAN_DEGREE
    edges = Edges(num_nodes)
    graph = GraphboxGraph(folder / f"busy-{num_edges}", num_nodes, edges.draw(num_edges))

    def append_some() -> int:
        graph.append(*edges.draw(10))
        return 1

    def append_while_compacting() -> int:
        append_some()
        compaction = in_background(lambda: compact(graph.path))
        count = 1
        while not compaction.done():
            append_some()
            count += 1
        compaction.result()
        return count

    systems = {"graphbox": append_while_compacting, "limit": append_some}
    in_turns(f"append-10-edges-while-compacting-{num_edges}", "changes/s", systems, as_json=as_json)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small graphs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    given = parser.parse_args()
    sizes = (10_000, 100_000) if given.quick else (10_000, 10_000_000)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for num_edges in sizes:
            changes(Path(folder), num_edges, as_json=given.json)
            reading(Path(folder), num_edges, as_json=given.json)
            appending_meanwhile(Path(folder), num_edges, as_json=given.json)


if __name__ == "__main__":
    main()
