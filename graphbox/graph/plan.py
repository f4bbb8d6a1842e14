"""What an import takes before it is run: memory, disk and time, from a look at the tables and short probes.

The formulas follow what the import does. Held in memory are: what the process has before it begins, batches
that are read ahead, the ids of every node type with their hash index, and the edges of one edge type with
what sorting them needs. What does not fit the memory given is spilled to the disk in sorted runs and read
once more when they are merged, and so are edges at whose ends nodes are found while other edges are read.

The most is held either while edges are read, when the index of ids has room for more of them and, where
edges are spilled, those that fit are sorted; or when they are finished, when the index has its final size and
all edges that are not spilled are sorted. The memory of batches counts then too: allocators keep it.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphbox.graph.build import EdgeBuilder, NodeIds, edges_bytes, ids_bytes
from graphbox.graph.disk_probe import DiskRates, existing_folder, measure_disk
from graphbox.graph.distinct import Estimate
from graphbox.graph.format import FolderWriter
from graphbox.graph.ingest.budget import Budget, Shares
from graphbox.graph.schema import EdgeSource, EdgeType, GraphSource, NodeSource, edge_type_text
from graphbox.graph.source import open_table
from graphbox.graph.survey import EdgeSurvey, GraphSurvey, NodeSurvey, survey_graph
from graphbox.graph.survey_ends import Looked
from graphbox.memory import available_bytes

__all__ = ["ImportPlan", "TypePlan", "plan_import"]

_HEADER_BYTES = 128
_MANIFEST_BYTES = 4096
_NODES_PER_PARTITION = 1 << 16
_EDGES_WORKING_BYTES = 8 << 20
"""What is held beside edges."""
_SLACK_BYTES = 28 << 20
"""Stacks of threads, what allocators hold beside what is asked of them, and what the command that imports
loads before it begins and a plan does not: the database of runs takes 3 MiB, making one 15."""
_BATCHES_AHEAD = 13
"""Batches that stand at once, of the size they have: twelve as in `graphbox.graph.ingest.budget`, and the one
that is being decoded. So much was measured to stay with the allocators until the end, too."""
_KEY_BYTES, _ROW_BYTES, _PLACE_BYTES = 8, 4, 8
"""Of an edge that is sorted: both its ends, its row in the columns, its place among the edges."""
_PROBE_ROWS = 1_000_000
_STARTING_SECONDS = 0.2
"""What any import takes, however small: its threads, files and the manifest."""
_TIME_RANGE = (0.6, 2.0)
"""The time is between these shares of what the probes say: the whole misses the caches more often."""


@dataclass(frozen=True)
class TypePlan:
    """What one node type or edge type takes.

    Attributes:
        kind: ``nodes`` or ``edges``.
        name: the node type, or the edge type as ``source__relation__target``.
        rows: rows of its table; None of a node type without one.
        count: nodes or edges.
        size_bytes: its arrays on disk.
        held_bytes: what it holds in memory while it is imported.
        scratch_bytes: what it spills to the disk.
    """

    kind: str
    name: str
    rows: Estimate | None
    count: Estimate
    size_bytes: int
    held_bytes: int
    scratch_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "kind": self.kind,
            "name": self.name,
            "rows": None if self.rows is None else vars(self.rows),
            "count": vars(self.count),
            "size_bytes": self.size_bytes,
            "held_bytes": self.held_bytes,
            "scratch_bytes": self.scratch_bytes,
        }


@dataclass(frozen=True)
class ImportPlan:
    """What an import takes.

    Attributes:
        name: name of the graph.
        types: its node types and edge types.
        memory_bytes: what the import may hold.
        peak_memory_bytes: the most it will hold.
        in_memory_bytes: the most it would hold if nothing were spilled.
        available_memory_bytes: what the machine has to give now.
        size_bytes: the graph on disk.
        scratch_bytes: the most there is of temporary files.
        written_bytes: all that is written to the disk.
        free_bytes: what the disk has free.
        topology_bytes: of the graph: what a memory tier that holds all neighbour lists takes.
        feature_bytes: the same of features.
        ids_bytes: ids and their index, which are read through the page cache.
        seconds: time, about: low, likely, high.
        disk: measured rates of the disk.
        uncertain: what was estimated from a part, in words.
    """

    name: str
    types: tuple[TypePlan, ...]
    memory_bytes: int
    peak_memory_bytes: int
    in_memory_bytes: int
    available_memory_bytes: int
    size_bytes: int
    scratch_bytes: int
    written_bytes: int
    free_bytes: int
    topology_bytes: int
    feature_bytes: int
    ids_bytes: int
    seconds: tuple[float, float, float]
    disk: DiskRates
    uncertain: tuple[str, ...]

    @property
    def peak_disk_bytes(self) -> int:
        """The most that the import has on disk at one time: the graph and the temporary files."""
        return self.size_bytes + self.scratch_bytes

    @property
    def problems(self) -> tuple[tuple[str, str], ...]:
        """What does not fit, each with what would make it fit."""
        found = []
        if self.peak_memory_bytes > self.available_memory_bytes:
            available = self.available_memory_bytes
            message = (
                f"expected {self.peak_memory_bytes:,} bytes of memory to be available, received {available:,}"
            )
            found.append((message, f"give it less: {_mebibytes(available)} are available now (--memory)"))
        if self.peak_disk_bytes > self.free_bytes:
            more = self.peak_disk_bytes - self.free_bytes
            hint = f"free {_mebibytes(more, up=True)}, or put the workspace on another disk with -C"
            if self.scratch_bytes and self.size_bytes <= self.free_bytes:
                hint += (
                    f"; with --memory {_mebibytes(self.in_memory_bytes, up=True)} no scratch space is needed"
                )
            message = f"expected {self.peak_disk_bytes:,} bytes of free disk, received {self.free_bytes:,}"
            found.append((message, hint))
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "name": self.name,
            "types": [each.as_dict() for each in self.types],
            "tiers": {
                "MEM": {
                    "budget_bytes": self.memory_bytes,
                    "peak_bytes": self.peak_memory_bytes,
                    "available_bytes": self.available_memory_bytes,
                    "without_spilling_bytes": self.in_memory_bytes,
                    "all_topology_bytes": self.topology_bytes,
                    "all_features_bytes": self.feature_bytes,
                },
                "SSD": {
                    "peak_bytes": self.peak_disk_bytes,
                    "size_bytes": self.size_bytes,
                    "scratch_bytes": self.scratch_bytes,
                    "written_bytes": self.written_bytes,
                    "free_bytes": self.free_bytes,
                    "read_bytes_per_s": self.disk.read_bytes_per_s,
                    "write_bytes_per_s": self.disk.write_bytes_per_s,
                },
            },
            "ids_bytes": self.ids_bytes,
            "seconds": dict(zip(("low", "likely", "high"), self.seconds, strict=True)),
            "uncertain": list(self.uncertain),
            "fits": not self.problems,
            "problems": [{"message": message, "hint": hint} for message, hint in self.problems],
        }


def plan_import(
    source: GraphSource,
    destination: Path,
    *,
    memory_bytes: int | None = None,
    threads: int | None = None,
    probe: bool = True,
) -> ImportPlan:
    """Predict what importing ``source`` into ``destination`` takes.

    Args:
        source: the graph.
        destination: its folder; only its disk counts, nothing is left there.
        memory_bytes: what the import may hold; by default as `graphbox.graph.ingest.import_graph`.
        threads: threads of the import.
        probe: measure the disk and the building of a part; else the time is that of reading alone.

    Raises:
        NotFoundError: a file is missing.
        DataError: a table is damaged, or lacks a column.
        DoesNotFitError: the memory is less than any import needs.
    """
    _load_readers(source)
    budget = Budget.divide(memory_bytes, node_types=len(source.nodes), categories=_has_categories(source))
    survey = survey_graph(source, batch_bytes=budget.batch_bytes)
    sizes = _Sizes(source, survey, budget)
    folder = existing_folder(destination)
    disk = measure_disk(folder) if probe else DiskRates(math.inf, math.inf)
    types = sizes.types()
    size_bytes = sum(each.size_bytes for each in types) + _MANIFEST_BYTES
    scratch_bytes = sum(each.scratch_bytes for each in types)
    seconds = _seconds(source, survey, folder if probe else None, threads)
    seconds += (
        _STARTING_SECONDS
        + (size_bytes + scratch_bytes) / disk.write_bytes_per_s
        + scratch_bytes / disk.read_bytes_per_s
    )
    return ImportPlan(
        name=source.name,
        types=types,
        memory_bytes=budget.total_bytes,
        peak_memory_bytes=sizes.peak_bytes(),
        in_memory_bytes=sizes.in_memory_bytes(),
        available_memory_bytes=available_bytes() + budget.baseline_bytes,
        size_bytes=size_bytes,
        scratch_bytes=sizes.peak_scratch_bytes(),
        written_bytes=size_bytes + scratch_bytes,
        free_bytes=shutil.disk_usage(folder).free,
        topology_bytes=sizes.topology_bytes(),
        feature_bytes=sizes.feature_bytes(),
        ids_bytes=sum(_ids_size(node) for node in survey.nodes.values()),
        seconds=(seconds * _TIME_RANGE[0], seconds, seconds * _TIME_RANGE[1]),
        disk=disk,
        uncertain=_uncertain(survey),
    )


def _load_readers(source: GraphSource) -> None:
    """Load what reads the tables: an import has loaded it too before it divides its memory."""
    tables: list[tuple[NodeSource | EdgeSource, str | None]] = [
        (nodes, name) for name, nodes in source.nodes.items() if nodes.data is not None
    ]
    for each, node_type in [*tables, *((edges, None) for edges in source.edges)]:
        data = {} if each.data is None else each.data
        open_table(
            data, format=each.format, has_header=each.has_header, names=each.names, node_type=node_type
        ).column_names()


def _has_categories(source: GraphSource) -> bool:
    features = [*(each.features for each in source.nodes.values()), *(each.features for each in source.edges)]
    return any("categorical" in kinds.values() for kinds in features)


@dataclass(frozen=True)
class _EdgesHeld:
    """What the edges of one type hold at most, and what they leave on the disk until all edges are read.

    Attributes:
        read_bytes: held while they are read.
        held_bytes: held at most, which is when all are sorted.
        wanted_bytes: what they would hold if none were spilled.
        spilled_bytes: what is spilled.
        waits: whether they wait on the disk until all nodes are found.
    """

    read_bytes: int
    held_bytes: int
    wanted_bytes: int
    spilled_bytes: int
    waits: bool


class _Sizes:
    """Bytes in memory and on disk, by type."""

    def __init__(self, source: GraphSource, survey: GraphSurvey, budget: Budget) -> None:
        self._source = source
        self._survey = survey
        self._budget = budget
        self._ids: dict[str, int] = {}
        self._edges: dict[EdgeType, _EdgesHeld] = {}
        self._divide()

    def _divide(self) -> None:
        """Go through the types as the import does, and note what each may hold and holds."""
        shares = Shares(self._budget, {name: self._input_bytes(name) for name in self._source.nodes})
        for name, nodes in self._source.nodes.items():
            if nodes.data is not None:
                self._ids[name] = min(self._ids_wanted(name), shares.of_ids(name))
                shares.settle(name, self._ids[name])
        kept = 0
        for number, edges in enumerate(self._source.edges, 1):
            ends = (edges.type[0], edges.type[2])
            for name in ends:
                if name not in self._ids:
                    self._ids[name] = min(self._ids_wanted(name), shares.of_ids(name))
            edge = self._survey.edges[edges.type]
            wanted, allowed = self._edges_wanted(edges), shares.of_edges()
            # Edges that find nodes wait until all are found, on the disk where they are too many to be kept.
            waits = any(self._source.nodes[name].data is None for name in ends)
            is_kept = waits and wanted <= min(allowed, shares.most_kept_edges())
            spills = wanted > allowed or (waits and not is_kept and number < len(self._source.edges))
            spilled = round(edge.table.rows.likely * (8 + edge.payload_bytes)) if spills else 0
            held = kept + min(wanted, allowed)
            # A spilling sorter fills its memory while reading; else records are there once, and sorted later.
            read = held if wanted > allowed else min(held, kept + self._edges_read(edges))
            self._edges[edges.type] = _EdgesHeld(read, held, wanted, spilled, waits)
            if is_kept and number < len(self._source.edges):
                shares.keep_edges(wanted)
                kept += wanted

    def _input_bytes(self, name: str) -> int | None:
        """Return the bytes of input that the ids of a node type come from."""
        node = self._survey.nodes[name]
        if node.table is not None:
            return node.table.input_bytes
        sizes = [
            self._survey.edges[edges.type].table.input_bytes
            for edges in self._source.edges
            if name in (edges.type[0], edges.type[2])
        ]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def types(self) -> tuple[TypePlan, ...]:
        """Return what each type takes."""
        nodes = [
            TypePlan(
                kind="nodes",
                name=name,
                rows=None if node.table is None else node.table.rows,
                count=node.nodes,
                size_bytes=_ids_size(node)
                + round(node.nodes.likely * node.feature_bytes)
                + node.fixed_bytes
                + _HEADER_BYTES * len(self._source.nodes[name].features),
                held_bytes=self._ids[name],
                scratch_bytes=self._ids_spilled(name),
            )
            for name, node in self._survey.nodes.items()
        ]
        edges = [
            TypePlan(
                kind="edges",
                name=edge_type_text(edges.type),
                rows=self._survey.edges[edges.type].table.rows,
                count=self._survey.edges[edges.type].edges,
                size_bytes=self._edges_size(edges),
                held_bytes=self._edges[edges.type].held_bytes,
                scratch_bytes=self._edges[edges.type].spilled_bytes,
            )
            for edges in self._source.edges
        ]
        return (*nodes, *edges)

    def _ids_spilled(self, name: str) -> int:
        """Ids that do not fit are joined on the disk: ends are written with their rows, then numbers."""
        if self._ids_least(name) <= self._ids[name]:
            return 0
        node = self._survey.nodes[name]
        ends = node.table.rows.likely if node.table is not None else 0
        for edges in self._source.edges:
            ends += self._survey.edges[edges.type].table.rows.likely * edges.type[::2].count(name)
        id_bytes = 8 + (node.id_bytes if node.id_kind == "string" else 0)
        return round(2 * ends * (id_bytes + 8))

    def peak_bytes(self) -> int:
        """The most that the process holds within its budget."""
        reading = sum(self._ids.values()) + self._most_edges("read_bytes")
        finishing = sum(self._ids.values()) + self._most_edges("held_bytes")
        return min(self._budget.total_bytes, self._beside() + max(reading, finishing))

    def in_memory_bytes(self) -> int:
        """The most that the process would hold if it spilled nothing for want of memory."""
        wanted = sum(self._ids_wanted(name) for name in self._survey.nodes)
        read = max((self._edges_read(edges) for edges in self._source.edges), default=0)
        return self._beside() + wanted + max(read, self._most_edges("wanted_bytes"))

    def _most_edges(self, attribute: str) -> int:
        return max((getattr(each, attribute) for each in self._edges.values()), default=0)

    def peak_scratch_bytes(self) -> int:
        """The most there is of temporary files at one time: of all edges that wait, or of others."""
        waiting = sum(each.spilled_bytes for each in self._edges.values() if each.waits)
        waiting += sum(self._ids_spilled(name) for name in self._survey.nodes)
        others = [each.spilled_bytes for each in self._edges.values() if not each.waits]
        return max([waiting, *others])

    def _beside(self) -> int:
        return self._budget.baseline_bytes + _SLACK_BYTES + self._reading()

    def _reading(self) -> int:
        """Batches of the largest table, read and converted ahead of those that are built in."""
        tables = [node.table for node in self._survey.nodes.values() if node.table is not None]
        tables += [edge.table for edge in self._survey.edges.values()]
        held = (
            min(table.rows.likely * table.row_bytes, _BATCHES_AHEAD * table.batch_bytes) for table in tables
        )
        return int(max(held, default=0.0))

    def _ids_wanted(self, name: str) -> int:
        """Ids with the buckets they have where there is memory for them."""
        node = self._survey.nodes[name]
        return ids_bytes(node.nodes.likely, round(node.nodes.likely * node.id_bytes))

    def _ids_least(self, name: str) -> int:
        """Ids with the fewest buckets that take more."""
        node = self._survey.nodes[name]
        count = node.nodes.likely
        room = min(max(self._ids_at_once(name), count // 16), count)
        tight = ids_bytes(count + room, round(count * node.id_bytes), tight=True)
        return min(self._ids_wanted(name), tight)

    def _ids_at_once(self, name: str) -> int:
        """Ids that one batch may bring: all the ends in it of this type."""
        table = self._survey.nodes[name].table
        if table is not None:
            return min(table.rows.likely, int(table.batch_bytes / max(table.row_bytes, 1)))
        ends = []
        for edges in self._source.edges:
            table = self._survey.edges[edges.type].table
            rows = min(table.rows.likely, int(table.batch_bytes / max(table.row_bytes, 1)))
            ends.append(rows * edges.type[::2].count(name))
        return max(ends, default=0)

    # Edges

    def _edges_wanted(self, edges: EdgeSource) -> int:
        edge = self._survey.edges[edges.type]
        wanted = edges_bytes(edge.table.rows.likely, round(edge.payload_bytes))
        # Sorted once more by source, each with its place among the others.
        return max(wanted, edges_bytes(edge.edges.likely, _PLACE_BYTES)) if edges.csr else wanted

    def _edges_read(self, edges: EdgeSource) -> int:
        """What edges hold until they are sorted, if none is spilled."""
        edge = self._survey.edges[edges.type]
        row_bytes = _KEY_BYTES + (_ROW_BYTES if edge.payload_bytes else 0) + edge.payload_bytes
        return _EDGES_WORKING_BYTES + round(edge.table.rows.likely * row_bytes)

    def _edges_size(self, edges: EdgeSource) -> int:
        edge = self._survey.edges[edges.type]
        count = edge.edges.likely
        sources, targets = (self._survey.nodes[end].nodes.likely for end in (edges.type[0], edges.type[2]))
        size = 8 * (targets + 1) + count * (_index_width(sources) + edge.payload_bytes)
        arrays = 2 + (edges.weight is not None) + (edges.timestamp is not None) + len(edges.features)
        if edges.csr:
            size += 8 * (sources + 1) + count * (_index_width(targets) + 8)
            arrays += 3
        return round(size) + arrays * _HEADER_BYTES

    def topology_bytes(self) -> int:
        """Neighbour lists of all edge types, with weights and timestamps."""
        return sum(self._edges_size(edges) for edges in self._source.edges)

    def feature_bytes(self) -> int:
        """Features of all nodes."""
        return sum(round(node.nodes.likely * node.feature_bytes) for node in self._survey.nodes.values())


def _index_slots(count: int) -> int:
    """Return the slots of the hash index of ids: see docs/formats/graph.md, Ids."""
    bits = 0
    while count >> bits > _NODES_PER_PARTITION:
        bits += 1
    partitions = 1 << bits
    return 2 * max(1, -(-count // partitions)) * partitions


def _index_width(count: int) -> int:
    return 8 if count > 2**31 else 4


def _ids_size(node: NodeSurvey) -> int:
    count = node.nodes.likely
    size = 8 * count + _index_slots(count) * _index_width(count) + 2 * _HEADER_BYTES
    if node.id_kind == "string":
        size += 8 + round(count * node.id_bytes) + _HEADER_BYTES
    return size


def _uncertain(survey: GraphSurvey) -> tuple[str, ...]:
    found = []
    for edge_type, edge in survey.edges.items():
        if not edge.table.rows.exact:
            found.append(f"rows of {edge_type_text(edge_type)} {_range(edge.table.rows)}")
        if not edge.edges.exact and edge.edges.likely < edge.table.rows.likely:
            name = f"edges of {edge_type_text(edge_type)} without repeated ones"
            found.append(f"{name} {_range(edge.edges)}{_where_looked(edge.looked)}")
    for name, node in survey.nodes.items():
        if not node.nodes.exact:
            found.append(f"nodes of {name} {_range(node.nodes)}{_where_looked(node.looked)}")
    return tuple(found)


def _where_looked(looked: Looked) -> str:
    return " (only the beginning was read)" if looked == "at the beginning" else ""


def _range(estimate: Estimate) -> str:
    return f"{estimate.low:,} to {estimate.high:,}"


def _mebibytes(size: int, *, up: bool = False) -> str:
    return f"{math.ceil(size / 2**20) if up else size // 2**20}MiB"


# Time


def _seconds(source: GraphSource, survey: GraphSurvey, folder: Path | None, threads: int | None) -> float:
    seconds = sum(
        node.table.rows.likely * node.table.seconds_per_row
        for node in survey.nodes.values()
        if node.table is not None
    )
    for edges in source.edges:
        edge = survey.edges[edges.type]
        adding, finishing = (0.0, 0.0)
        if folder is not None and edge.table.sample.num_rows:
            adding, finishing = _building_seconds(edges, edge, survey.nodes, folder, threads)
        # Reading runs beside building, in threads of its own.
        seconds += edge.table.rows.likely * (max(edge.table.seconds_per_row, adding) + finishing)
    return seconds


def _building_seconds(
    edges: EdgeSource,
    edge: EdgeSurvey,
    nodes: Mapping[str, NodeSurvey],
    folder: Path,
    threads: int | None,
) -> tuple[float, float]:
    """Build the part of an edge type that was read, and return the seconds of a row: adding, finishing."""
    sample = edge.table.sample.slice(0, _PROBE_ROWS)
    ends = [
        _as_kind(sample.column(column), nodes[end].id_kind)
        for column, end in ((edges.source, edges.type[0]), (edges.target, edges.type[2]))
    ]
    rows = len(ends[0])
    payload = {"payload": np.zeros((rows, max(1, round(edge.payload_bytes))), np.uint8)}
    columns: Mapping[str, Any] = {}
    if edge.payload_bytes:
        columns = {"payload": (np.dtype(np.uint8), payload["payload"].shape[1:])}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".graphbox-plan-") as temporary:
        scratch = Path(temporary)
        settings: Mapping[str, Any] = {"scratch": scratch, "memory_bytes": 1 << 30, "threads": threads}
        sources = NodeIds(nodes[edges.type[0]].id_kind, **settings)
        targets = (
            sources if edges.type[0] == edges.type[2] else NodeIds(nodes[edges.type[2]].id_kind, **settings)
        )
        builder = EdgeBuilder(
            sources, targets, discover=(True, True), columns=columns, keep_duplicates=False, **settings
        )
        started = time.perf_counter()
        builder.add(ends[0], ends[1], {name: payload[name] for name in columns})
        added = time.perf_counter()
        for each in {id(sources): sources, id(targets): targets}.values():
            each.close()
        with FolderWriter(scratch / "probe") as writer:
            builder.finish(writer, "edges")
            finished = time.perf_counter()
    return (added - started) / max(rows, 1), (finished - added) / max(rows, 1)


def _as_kind(ids: pa.ChunkedArray, kind: str) -> pa.Array:
    wanted = pa.int64() if kind == "int64" else pa.large_string()
    chunks: Sequence[pa.Array] = ids.chunks
    return pa.concat_arrays([chunk.cast(wanted) for chunk in chunks])
