"""Errors of imports in every mode: each mistake is named with its place and a remedy."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from graphbox.errors import DataError, GraphboxError, NotFoundError, UsageError
from graphbox.graph import GraphSource
from graphbox.graph.ingest import import_graph
from tests.graph.papers import (
    Change,
    content,
    edge_parquet,
    edges,
    node_parquet,
    nodes,
    parquet,
    with_edges,
    with_nodes,
)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


MISTAKES: dict[str, tuple[Change, type[GraphboxError], str, str, str]] = {
    "missing file": (
        lambda source, folder: with_edges(source, data=folder / "cite.csv"),
        NotFoundError,
        "cite.csv",
        "there is no such file",
        "did you mean `cites.csv`?",
    ),
    "missing folder": (
        lambda source, folder: with_edges(source, data=folder / "no" / "cite.csv"),
        NotFoundError,
        "cite.csv",
        "there is no such file",
        "there is no folder",
    ),
    "unknown suffix": (
        lambda source, folder: with_edges(source, data=written(folder / "e.xls", b"")),
        UsageError,
        "e.xls",
        "received `e.xls`",
        "",
    ),
    "missing column": (
        edges(weight="weigth"),
        DataError,
        "cites.csv",
        "expected a column `weigth`, received `source`, `target`, `w`, `t`",
        "",
    ),
    "misspelt column": (
        content("cites.csv", "sorce,target,w,t\na,b,1,1\n"),
        DataError,
        "cites.csv",
        "expected a column `source`",
        "did you mean `sorce`?",
    ),
    "column twice": (
        content("cites.csv", "source,source,target,w,t\na,a,b,1,1\n"),
        DataError,
        "cites.csv",
        "expected one column `source`, received 2",
        "",
    ),
    "empty file": (content("paper.csv", ""), DataError, "paper.csv", "expected a header line", ""),
    "no node": (
        content("paper.csv", "id,year,venue,open\n"),
        DataError,
        "paper.csv, column `id`",
        "expected at least one node, received none",
        "",
    ),
    "no edge": (
        content("cites.csv", "source,target,w,t\n"),
        DataError,
        "graph `papers`",
        "expected at least one edge, received none",
        "",
    ),
    "truncated gzip": (
        lambda source, folder: with_edges(
            source,
            data=written(
                folder / "e.csv.gz", gzip.compress(b"source,target,w,t\n" + bytes(range(256)) * 99)[:-20]
            ),
        ),
        DataError,
        "e.csv.gz",
        "expected a whole file, received a damaged file or something else",
        "",
    ),
    "no Parquet": (
        lambda source, folder: with_edges(source, data=written(folder / "e.parquet", b"PAR1 not really")),
        DataError,
        "e.parquet",
        "expected a Parquet file, received a damaged file or something else",
        "",
    ),
    "duplicate node": (
        content("paper.csv", "id,year,venue,open\na,1,X,1\nb,1,X,1\na,1,X,1\n"),
        DataError,
        "paper.csv:4, column `id`",
        "expected each node id once, received 1 again: `a`",
        "one row per node",
    ),
    "ids that are floats": (
        node_parquet("number", id=[1.0, 2.0]),
        DataError,
        "n.parquet, column `id`",
        "expected ids (strings or integers), received values of type double",
        "",
    ),
    "ids asked to be integers": (
        nodes(id_type="int64"),
        DataError,
        "paper.csv:2, column `id`",
        "expected a plain decimal integer of 64 bits, received 'a' (none of the 4 nodes can be used)",
        "",
    ),
    "integer ends for string nodes": (
        edge_parquet(source=[1], target=[2]),
        DataError,
        "e.parquet, column `source`",
        "expected strings, received values of type int64",
        "",
    ),
    "string ends for integer nodes": (
        lambda source, folder: with_edges(
            with_nodes(source, data=parquet(folder / "n.parquet", id=[1, 2]), features={}),
            weight=None,
            timestamp=None,
        ),
        DataError,
        "cites.csv:2, column `source`",
        "expected a plain decimal integer of 64 bits, received 'a' (none of the 3 edges can be used)",
        "",
    ),
    "all edges dangling": (
        content("cites.csv", "source,target,w,t\nA,b,1,1\nB,c,1,1\n"),
        DataError,
        "cites.csv:2, column `source`",
        "expected the id of a node of type `paper`, received `A` (none of the 2 edges can be used)",
        "the right way round",
    ),
    "number column of strings": (
        node_parquet("number", id=["a", "b", "c"], year=["1", "2", "3"]),
        DataError,
        "n.parquet, column `year`",
        "expected numbers, received values of type large_string",
        "",
    ),
    "boolean that is none": (
        content("paper.csv", "id,year,venue,open\na,1,X,yes\n"),
        DataError,
        "paper.csv:2, column `open`",
        "expected true or false, received 'yes'",
        "",
    ),
    "boolean column of numbers": (
        node_parquet("boolean", id=["a"], open=[2.5]),
        DataError,
        "n.parquet, column `open`",
        "expected booleans, received values of type double",
        "",
    ),
    "category of floats": (
        node_parquet("categorical", id=["a"], venue=[2.5]),
        DataError,
        "n.parquet, column `venue`",
        "expected strings, integers or booleans, received values of type double",
        "",
    ),
    "integer column of floats": (
        node_parquet("integer", id=["a"], year=[0.5]),
        DataError,
        "n.parquet, column `year`",
        "expected integers, received values of type double",
        "",
    ),
    "vector column of numbers": (
        node_parquet("vector", id=["a"], x=[0.5]),
        DataError,
        "n.parquet, column `x`",
        "expected lists of numbers, received values of type double",
        "",
    ),
    "vector of strings": (
        node_parquet("vector", id=["a"], x=[["b"]]),
        DataError,
        "n.parquet, column `x`",
        "expected lists of numbers",
        "",
    ),
    "unknown kind": (
        nodes(features={"year": "numbre"}),
        UsageError,
        "node type `paper`, feature `year`",
        "expected one of number, integer, categorical, boolean, vector, slots, received `numbre`",
        "did you mean `number`?",
    ),
    "unknown node type": (
        edges(type=("paper", "cites", "papre")),
        UsageError,
        "edge type paper__cites__papre",
        "expected one of the node types paper, received `papre`",
        "did you mean `paper`?",
    ),
    "edge type twice": (
        lambda source, _: replace(source, edges=source.edges * 2),
        UsageError,
        "paper__cites__paper",
        "expected each edge type once",
        "",
    ),
    "reverse that is there": (
        edges(reverse="cites"),
        UsageError,
        "paper__cites__paper",
        "expected each edge type once",
        "",
    ),
    "name with a dot": (
        edges(type=("paper", "cites.more", "paper")),
        UsageError,
        "edge type paper__cites.more__paper",
        "expected letters, digits",
        "",
    ),
    "no node types": (
        lambda source, _: replace(source, nodes={}, edges=()),
        UsageError,
        "graph `papers`",
        "expected at least one node type, received none",
        "",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named_with_its_place(name: str, papers: GraphSource, tmp_path: Path) -> None:
    change, error, where, message, hint = MISTAKES[name]
    with pytest.raises(GraphboxError) as caught:
        import_graph(change(papers, tmp_path), tmp_path / "graph")
    assert type(caught.value) is error
    assert (caught.value.where or "").endswith(where)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert not (tmp_path / "graph").exists()
