"""Predicted time of an import: reading is timed on the sampled rows, building on a part that is built."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphbox.graph.build import EdgeBuilder, NodeIds
from graphbox.graph.format import FolderWriter
from graphbox.graph.schema import EdgeSource, GraphSource
from graphbox.graph.survey import EdgeSurvey, GraphSurvey, NodeSurvey

_PROBE_ROWS = 1_000_000


def working_seconds(
    source: GraphSource, survey: GraphSurvey, folder: Path | None, threads: int | None
) -> float:
    """Return the seconds of reading and building, the disk apart.

    Args:
        source: the graph.
        survey: what its tables are like.
        folder: where a part is built for a moment; None: count reading alone.
        threads: threads of the import.
    """
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
