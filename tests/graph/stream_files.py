"""Writes the graph under tests/formats/graph-1-stream: chunks before and after a compaction, one expired.

python -m tests.graph.stream_files
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from graphbox.graph import EdgeSource, GraphSource, NodeSource
from graphbox.graph.chunks import ChunkLabel, begin_stream, expire_chunks
from graphbox.graph.compact import compact
from graphbox.graph.delta import append

FOLDER = Path(__file__).parents[1] / "formats" / "graph-1-stream"
BUYS = ("user", "buys", "item")
DAYS = [
    [("ann", "ball", 1), ("bob", "cup", 2)],
    [("ann", "cup", 3), ("ann", "ball", 4)],
    [("eve", "dice", 5)],
    [("bob", "dice", 6), ("bob", "ball", 7)],
]


def purchases(rows: list[tuple[str, str, int]], **logs: list[str]) -> GraphSource:
    """Return purchases as the tables of a chunk, with the rows of logs by their ids."""
    users, items, times = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    nodes = {"user": NodeSource(None, id_type="string"), "item": NodeSource(None, id_type="string")}
    nodes |= {name: NodeSource({"id": ids}) for name, ids in logs.items()}
    table = {"source": np.array(users, object), "target": np.array(items, object), "time": np.array(times)}
    edges = EdgeSource(BUYS, table, timestamp="time", keep_duplicates=True)
    return GraphSource("shop", nodes, (edges,) if rows else ())


def write(folder: Path) -> None:
    """Write the graph."""
    begin_stream(folder, "shop", "shop-1")
    for number, day in enumerate(DAYS):
        expire_chunks(folder, number - 2, ["log"])
        source = purchases(day, log=[f"row-{number}-{row}" for row in range(2)])
        label = ChunkLabel(number, f"2026110{number + 1}", f"digest {number}", f"stamp {number}")
        append(folder, source, chunk=label, compact="never")
        if number == 1:
            compact(folder)


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory() as beside:  # the locks of the graph stay there
        write(Path(beside) / "graph")
        shutil.copytree(Path(beside) / "graph", FOLDER)
