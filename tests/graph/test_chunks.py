"""Streams in a graph: chunks with their records in one commit, their contents, and what expires."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import ConflictError, UsageError
from graphbox.graph import Graph, GraphSource
from graphbox.graph.chunks import (
    ChunkLabel,
    begin_stream,
    chunk_contents,
    expire_chunks,
    stream_of,
)
from graphbox.graph.compact import compact
from graphbox.graph.delta import append, remove
from graphbox.graph.snapshot import as_live
from tests.graph import stream_files
from tests.graph.stream_files import BUYS, DAYS, purchases
from tests.graph.test_format import files_of


def add(path: Path, number: int, source: GraphSource, **options: object) -> None:
    append(path, source, chunk=ChunkLabel(number, f"day-{number}", f"digest {number}"), **options)  # type: ignore[arg-type]


def pairs(graph: Graph, edge_ids: np.ndarray) -> list[tuple[str, str]]:
    source, target = as_live(graph.own_edges(BUYS)).ends(edge_ids)
    return sorted(zip(graph.ids("user", source).tolist(), graph.ids("item", target).tolist(), strict=True))


@pytest.mark.parametrize("compaction", ["never", "between", "auto"])
def test_each_chunk_is_found_again_by_its_record(tmp_path: Path, compaction: str) -> None:
    path = tmp_path / "graph"
    begin_stream(path, "shop", "here")
    for number, day in enumerate(DAYS):
        add(path, number, purchases(day), compact="auto" if compaction == "auto" else "never")
        if compaction == "between":
            compact(path)
        stream, graph = stream_of(path), Graph.open(path)
        assert stream is not None
        assert stream.last is not None
        assert (stream.last.number, stream.last.name) == (number, f"day-{number}")
        for earlier in range(number + 1):
            _, edges = chunk_contents(graph, stream, earlier)
            assert pairs(graph, edges[BUYS]) == sorted((user, item) for user, item, _ in DAYS[earlier])


@pytest.mark.parametrize("compaction", ["never", "between"])
def test_what_expires_are_the_edges_and_loose_nodes_of_the_oldest_chunks(
    tmp_path: Path, compaction: str
) -> None:
    path = tmp_path / "graph"
    begin_stream(path, "shop", "here")
    for number, day in enumerate(DAYS):
        add(path, number, purchases(day, log=[f"row-{number}-{row}" for row in range(3)]), compact="never")
        expire_chunks(path, number - 1, ["log"])
        if compaction == "between":
            compact(path)
    again = expire_chunks(path, len(DAYS) - 2, ["log"])
    assert (again.nodes, again.edges) == ({}, {})
    graph, stream = Graph.open(path), stream_of(path)
    assert stream is not None
    assert stream.expired == len(DAYS) - 2
    assert graph.num_edges(BUYS) == len(DAYS[2]) + len(DAYS[3])
    assert sorted(filter(None, graph.ids("log").tolist())) == [
        f"row-{number}-{row}" for number in (2, 3) for row in range(3)
    ]
    assert chunk_contents(graph, stream, 1) == ({}, {})
    nodes, edges = chunk_contents(graph, stream, 3)
    assert pairs(graph, edges[BUYS]) == [("bob", "ball"), ("bob", "dice")]
    assert list(nodes) == ["log"]


def test_what_the_graph_held_before_is_chunk_0_and_does_not_expire(tmp_path: Path) -> None:
    from graphbox.graph.ingest import import_graph

    path = tmp_path / "graph"
    import_graph(purchases(DAYS[0]), path)
    begin_stream(path, "shop", "here")
    for number, day in enumerate(DAYS[1:], start=1):
        add(path, number, purchases(day))
    expire_chunks(path, 3)
    graph, stream = Graph.open(path), stream_of(path)
    assert stream is not None
    assert [chunk.name for chunk in stream.chunks] == ["start", "day-1", "day-2", "day-3"]
    assert graph.num_edges(BUYS) == len(DAYS[0]) + len(DAYS[3])
    assert pairs(graph, chunk_contents(graph, stream, 0)[1][BUYS]) == [("ann", "ball"), ("bob", "cup")]


def test_an_empty_chunk_is_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    begin_stream(path, "shop", "here")
    add(path, 0, purchases(DAYS[0]))
    add(path, 1, purchases([]))
    add(path, 2, purchases(DAYS[2]))
    stream = stream_of(path)
    assert stream is not None
    assert [chunk.number for chunk in stream.chunks] == [0, 1, 2]
    assert chunk_contents(Graph.open(path), stream, 1) == ({}, {})


def test_removing_keeps_the_record_and_only_what_is_left_is_of_the_chunk(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    begin_stream(path, "shop", "here")
    for number, day in enumerate(DAYS):
        add(path, number, purchases(day))
    remove(path, {"user": ["bob"]})
    graph, stream = Graph.open(path), stream_of(path)
    assert stream is not None
    assert chunk_contents(graph, stream, 3)[1] == {}
    assert pairs(graph, chunk_contents(graph, stream, 0)[1][BUYS]) == [("ann", "ball")]


def test_old_records_are_forgotten_and_their_chunks_stay(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    begin_stream(path, "shop", "here", remembered=2)
    for number, day in enumerate(DAYS):
        add(path, number, purchases(day))
    stream = stream_of(path)
    assert stream is not None
    assert [chunk.number for chunk in stream.chunks] == [2, 3]
    with pytest.raises(UsageError, match="remembered"):
        chunk_contents(Graph.open(path), stream, 2)
    expire_chunks(path, 4)
    graph = Graph.open(path)
    assert graph.num_edges(BUYS) == sum(map(len, DAYS[:3]))


def test_a_chunk_out_of_turn_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    begin_stream(path, "shop", "here")
    add(path, 0, purchases(DAYS[0]))
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(ConflictError, match="expected chunk 1, received chunk 2"):
        add(path, 2, purchases(DAYS[1]))
    assert (path / "manifest.json").read_bytes() == before


def test_a_graph_without_a_stream_takes_no_chunk_and_nodes_with_edges_do_not_expire(tmp_path: Path) -> None:
    from graphbox.graph.ingest import import_graph

    path = tmp_path / "graph"
    import_graph(purchases(DAYS[0]), path)
    assert stream_of(path) is None
    with pytest.raises(UsageError, match="holds a stream"):
        add(path, 0, purchases(DAYS[1]))
    begin_stream(path, "shop", "here")
    add(path, 1, purchases(DAYS[1]))
    with pytest.raises(UsageError, match="without edges to expire, received `user`"):
        expire_chunks(path, 2, ["user"])


def test_this_version_writes_and_reads_the_fixture(tmp_path: Path) -> None:
    stream_files.write(tmp_path / "graph")
    written, kept = (
        {path.relative_to(folder): path.read_bytes() for path in files_of(folder)}
        for folder in (tmp_path / "graph", stream_files.FOLDER)
    )
    assert written == kept
    stream = stream_of(stream_files.FOLDER)
    assert stream is not None
    assert (stream.source, stream.remembered, stream.expired) == ("shop-1", 1000, 1)
    assert [(chunk.number, chunk.name, chunk.digest, chunk.stamp) for chunk in stream.chunks] == [
        (number, f"2026110{number + 1}", f"digest {number}", f"stamp {number}") for number in range(4)
    ]


def test_as_the_page_says() -> None:
    """Read chunks by docs/formats/graph.md and NumPy alone: expired nodes and edges are not there."""
    folder = stream_files.FOLDER
    manifest = json.loads((folder / "manifest.json").read_bytes())
    chunks = manifest["stream"]["chunks"]
    assert [chunk["edges"]["user__buys__item"] for chunk in chunks] == [2, 4, 5, 7]
    assert [chunk["nodes"]["log"] for chunk in chunks] == [2, 4, 6, 8]
    [base] = manifest["edge_types"]
    stable = np.load(folder / base["edge-ids"])
    assert sorted(stable.tolist()) == [0, 1, 2, 3]
    removed = np.concatenate(
        [
            np.load(folder / entry["removed"])
            for delta in manifest["deltas"]
            for entry in delta["edge_types"]
            if "removed" in entry
        ]
    )
    assert sorted(stable[removed].tolist()) == [0, 1]  # those of chunk 0, which has expired
    assert manifest["stream"]["expired"] == 1
