"""A small graph of papers that cite each other, its tables, and ways to change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import ImportReport, import_graph

CITES = ("paper", "cites", "paper")

Change: TypeAlias = Callable[[GraphSource, Path], GraphSource]
"""Changes the source or the files in the folder."""


def write_papers(folder: Path) -> GraphSource:
    """Four papers, CSV, and the edges a-b, b-c, c-a."""
    (folder / "paper.csv").write_text(
        "id,year,venue,open\na,2001,X,true\nb,,Y,false\nc,1999,,1\nd,2020,X,0\n"
    )
    (folder / "cites.csv").write_text("source,target,w,t\na,b,1,10\nb,c,.25,20\nc,a,2,-30\n")
    nodes = NodeSource(
        folder / "paper.csv", features={"year": "number", "venue": "categorical", "open": "boolean"}
    )
    return GraphSource(
        "papers", {"paper": nodes}, (EdgeSource(CITES, folder / "cites.csv", weight="w", timestamp="t"),)
    )


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def imported(source: GraphSource, folder: Path, **options: Any) -> tuple[Graph, ImportReport]:
    report = import_graph(source, folder / "graph", **options)
    return Graph.open(folder / "graph", verify_digests=True), report


def with_edges(source: GraphSource, **changes: Any) -> GraphSource:
    return replace(source, edges=(replace(source.edges[0], **changes),))


def with_nodes(source: GraphSource, **changes: Any) -> GraphSource:
    return replace(source, nodes={"paper": replace(source.nodes["paper"], **changes)})


def edges_of(graph: Graph) -> list[tuple[Any, Any]]:
    source, target = graph.csc(CITES).coo()
    return list(zip(graph.ids("paper", source).tolist(), graph.ids("paper", target).tolist(), strict=True))


# Changes


def content(name: str, text: str | bytes) -> Change:
    def change(source: GraphSource, folder: Path) -> GraphSource:
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return source

    return change


def edges(**changes: Any) -> Change:
    return lambda source, _: with_edges(source, **changes)


def nodes(**changes: Any) -> Change:
    return lambda source, _: with_nodes(source, **changes)


def edge_parquet(**columns: Any) -> Change:
    return lambda source, folder: with_edges(
        source, data=parquet(folder / "e.parquet", **columns), weight=None, timestamp=None
    )


def node_parquet(kind: str, **columns: Any) -> Change:
    features: dict[str, Any] = {name: kind for name in columns if name != "id"}
    return lambda source, folder: with_nodes(
        source, data=parquet(folder / "n.parquet", **columns), features=features
    )
