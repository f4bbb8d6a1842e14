"""Prediction of an import's memory, disk space and time, from samples of the tables and short probes.

The formulas follow the import. It holds in memory: the program as it starts, batches that are read ahead,
the ids of every node type with their hash index, and the edges of one edge type with the buffers that
sorting needs. Data beyond the memory is spilled to disk in sorted runs and read once more when they are
merged; so are edges at whose ends nodes are found while other edges are read.

Memory peaks while as many edges as fit are sorted. The memory of batches counts then too: allocators keep
it.

Spilling is predicted from the numbers that the import itself compares. Where these are known only about, it
may turn out either way: then the bytes written are given as a range.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphbox.graph.disk_probe import DiskRates, existing_folder, measure_disk
from graphbox.graph.distinct import Estimate
from graphbox.graph.ingest.budget import Budget, held_before_bytes
from graphbox.graph.ingest.checks import check_source
from graphbox.graph.ingest.demand import Demand
from graphbox.graph.ingest.rows import open_source
from graphbox.graph.plan.seconds import working_seconds
from graphbox.graph.plan.sizes import ImportSizes, Scenario, ids_size_bytes
from graphbox.graph.schema import GraphSource, edge_type_text
from graphbox.graph.source import Table
from graphbox.graph.survey import GraphSurvey, survey_graph
from graphbox.graph.survey_ends import Looked
from graphbox.memory import available_bytes, resident_bytes

_STARTING_SECONDS = 0.2
"""Time that any import takes, however small: its threads, files and the manifest."""
_TIME_RANGE = (0.6, 2.0)
"""The time is between these shares of what the probes say: the whole misses the caches more often."""
_UNKNOWN = 1 << 60
"""An upper bound from here on says that there is none."""
_MEMORY_STEP_BYTES = 1 << 20


@dataclass(frozen=True)
class TypePlan:
    """Predicted rows, bytes and memory of one node type or edge type.

    Attributes:
        kind: ``nodes`` or ``edges``.
        name: the node type, or the edge type as ``source__relation__target``.
        rows: rows of its table; None of a node type without one.
        count: nodes or edges.
        size_bytes: its arrays on disk.
        held_bytes: its memory while it is imported.
        scratch_bytes: its bytes spilled to disk.
        feature_bytes: its features on disk.
        values: number of different categories or slots, about, by feature of nodes.
        vector_dims: length of the vectors of each feature of edges that has them.
    """

    kind: str
    name: str
    rows: Estimate | None
    count: Estimate
    size_bytes: int
    held_bytes: int
    scratch_bytes: int
    feature_bytes: int = 0
    values: Mapping[str, int] = field(default_factory=dict)
    vector_dims: Mapping[str, int] = field(default_factory=dict)

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
    """Predicted memory, disk space and time of an import.

    Attributes:
        name: name of the graph.
        types: its node types and edge types.
        memory_bytes: memory budget of the import.
        peak_memory_bytes: the most it will hold.
        in_memory_bytes: the least budget that avoids spilling.
        available_memory_bytes: memory that the machine has available now.
        size_bytes: the graph on disk.
        scratch_bytes: the most there is of temporary files.
        written_bytes: all that is written to the disk, most likely.
        written_range_bytes: the least and the most that may be; where they are far apart, the samples of the
            tables leave open whether something must be spilled.
        free_bytes: free space of the disk.
        topology_bytes: size of a memory tier that holds all neighbour lists.
        feature_bytes: size of one that holds all features.
        ids_bytes: ids and their index, which are read through the page cache.
        seconds: time, about: low, likely, high.
        disk: measured rates of the disk.
        uncertain: quantities that were estimated from a part, in words.
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
    written_range_bytes: tuple[int, int]
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
        """Resources that do not suffice, each with a remedy."""
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
                    "written_range_bytes": list(self.written_range_bytes),
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
    destination: str | Path,
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
        UsageError: the source names an unknown node type, kind or format.
        DataError: a table is damaged, or lacks a column.
        DoesNotFitError: the memory is less than any import needs.
    """
    check_source(source)
    edge_tables = _opened_tables(source)
    demand = Demand.of(source, edge_tables)
    budget = Budget.divide(memory_bytes, demand)
    held_before = held_before_bytes()
    resident = resident_bytes() - held_before
    survey = survey_graph(source, batch_bytes=budget.batch_bytes)
    likely = ImportSizes(source, survey, budget)
    folder = existing_folder(Path(destination))
    disk = measure_disk(folder) if probe else DiskRates(math.inf, math.inf)
    written = likely.size_bytes + likely.scratch_bytes
    seconds = working_seconds(source, survey, folder if probe else None, threads)
    seconds += _STARTING_SECONDS + written / disk.write_bytes_per_s
    seconds += likely.scratch_bytes / disk.read_bytes_per_s
    return ImportPlan(
        name=source.name,
        types=_type_plans(source, survey, likely),
        memory_bytes=budget.total_bytes,
        peak_memory_bytes=likely.peak_bytes(resident),
        in_memory_bytes=_without_spilling(source, survey, budget, demand),
        available_memory_bytes=available_bytes() + resident,
        size_bytes=likely.size_bytes,
        scratch_bytes=likely.peak_scratch_bytes,
        written_bytes=written,
        written_range_bytes=_written_range(source, survey, budget, written),
        free_bytes=shutil.disk_usage(folder).free,
        topology_bytes=sum(map(likely.edges_size_bytes, source.edges)),
        feature_bytes=sum(round(each.nodes.likely * each.feature_bytes) for each in survey.nodes.values()),
        ids_bytes=sum(ids_size_bytes(each, each.nodes.likely) for each in survey.nodes.values()),
        seconds=(seconds * _TIME_RANGE[0], seconds, seconds * _TIME_RANGE[1]),
        disk=disk,
        uncertain=_uncertain(survey),
    )


def _opened_tables(source: GraphSource) -> list[Table]:
    """Open all tables, which loads what reads them, as an import does before it divides its memory.

    Returns:
        Those of the edges.
    """
    nodes = [
        open_source(each, f"nodes `{name}`", node_type=name)
        for name, each in source.nodes.items()
        if each.data is not None
    ]
    edges = [open_source(each, f"edges {edge_type_text(each.type)}") for each in source.edges]
    for table in (*nodes, *edges):
        table.column_names()
    return edges


def _type_plans(source: GraphSource, survey: GraphSurvey, sizes: ImportSizes) -> tuple[TypePlan, ...]:
    nodes = [
        TypePlan(
            kind="nodes",
            name=name,
            rows=None if node.table is None else node.table.rows,
            count=node.nodes,
            size_bytes=sizes.nodes_size_bytes(name),
            held_bytes=sizes.ids[name].held_bytes,
            scratch_bytes=sizes.ids_scratch_bytes(name),
            feature_bytes=round(node.nodes.likely * node.feature_bytes),
            values=node.values,
        )
        for name, node in survey.nodes.items()
    ]
    edges = [
        TypePlan(
            kind="edges",
            name=edge_type_text(each.type),
            rows=survey.edges[each.type].table.rows,
            count=survey.edges[each.type].edges,
            size_bytes=sizes.edges_size_bytes(each),
            held_bytes=sizes.edges[each.type].held_bytes,
            scratch_bytes=sizes.edges[each.type].scratch_bytes,
            vector_dims=survey.edges[each.type].vector_dims,
        )
        for each in source.edges
    ]
    return (*nodes, *edges)


def _written_range(
    source: GraphSource, survey: GraphSurvey, budget: Budget, likely_bytes: int
) -> tuple[int, int]:
    """Return what is written at least and at most, as far as it can be told."""
    tables = [edge.table.rows for edge in survey.edges.values()]
    tables += [node.table.rows for node in survey.nodes.values() if node.table is not None]
    scenarios: list[Scenario] = ["low"]
    if all(rows.high < _UNKNOWN for rows in tables):
        scenarios.append("high")
    found = [likely_bytes]
    for scenario in scenarios:
        sizes = ImportSizes(source, survey, budget, scenario)
        found.append(sizes.size_bytes + sizes.scratch_bytes)
    return min(found), max(found)


def _without_spilling(source: GraphSource, survey: GraphSurvey, budget: Budget, demand: Demand) -> int:
    """Return the memory with which nothing is spilled for want of it, in whole mebibytes."""

    def scratch(memory_bytes: int) -> int | None:
        divided = Budget.of(memory_bytes, demand)
        return None if divided is None else ImportSizes(source, survey, divided).scratch_bytes

    enough = budget.total_bytes
    whole = 1 << 50
    unavoidable = scratch(whole)
    while scratch(enough) != unavoidable and enough < whole:
        enough *= 2
    too_little = 0
    while enough - too_little > _MEMORY_STEP_BYTES:
        middle = (enough + too_little) // 2
        if scratch(middle) == unavoidable:
            enough = middle
        else:
            too_little = middle
    return -(-enough // _MEMORY_STEP_BYTES) * _MEMORY_STEP_BYTES


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
