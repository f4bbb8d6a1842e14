"""What `describe` counts, against plain loops over the edges."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.describe import describe, render
from graphbox.graph.ingest import import_graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    (tmp_path / "a.csv").write_text("id,n,c,b,[i]\n1,2,x,true,7\n2,,y,false,8\n3,4,,true,9\n4,9,x,true,7\n")
    (tmp_path / "b.csv").write_text("id\np\nq\n")
    (tmp_path / "aa.csv").write_text("source,target\n1,1\n1,2\n1,2\n2,2\n9,1\n")
    (tmp_path / "ab.csv").write_text("source,target\n1,p\n3,p\n3,p\n")
    kinds = {"n": "number", "c": "categorical", "b": "boolean", "[i]": "integer"}
    source = GraphSource(
        "[bold]tiny",
        {"a": NodeSource(tmp_path / "a.csv", features=kinds), "b": NodeSource(tmp_path / "b.csv")},  # type: ignore[arg-type]
        (
            EdgeSource(("a", "to", "a"), tmp_path / "aa.csv"),
            EdgeSource(("a", "of", "b"), tmp_path / "ab.csv", reverse="has", keep_duplicates=True),
        ),
    )
    import_graph(source, tmp_path / "graph")
    return Graph.open(tmp_path / "graph")


def test_everything_is_counted(graph: Graph) -> None:
    description = describe(graph)
    assert description == graph.describe()
    assert (description["nodes"], description["edges"]) == (6, 6)
    assert description["size_bytes"] == sum(
        path.stat().st_size for path in (graph.path or Path()).rglob("*.npy")
    )
    a, b = description["node_types"]
    assert (a["name"], a["nodes"], a["isolated"], a["id_type"]) == ("a", 4, 1, "int64")
    assert (b["name"], b["nodes"], b["isolated"], b["id_type"]) == ("b", 2, 1, "string")
    assert a["features"] == [
        {"name": "n", "kind": "number", "missing": 1, "min": 2, "p50": 4, "max": 9},
        {"name": "c", "kind": "categorical", "missing": 1, "categories": 2},
        {"name": "b", "kind": "boolean", "true": 3},
        {"name": "[i]", "kind": "integer", "min": 7, "max": 9},
    ]
    to, of, has = description["edge_types"]
    assert (to["edges"], to["self_loops"], to["duplicate_edges"], to["reverse_of"]) == (3, 2, 0, None)
    assert to["imported"]["duplicate_edges"] == 1
    assert to["imported"]["dangling_edges"] == 1
    assert to["in_degree"] == {"mean": 0.75, "p50": 0, "p90": 2, "p99": 2, "max": 2}
    assert to["out_degree"] == {"mean": 0.75, "p50": 0, "p90": 2, "p99": 2, "max": 2}
    assert (of["edges"], of["duplicate_edges"], of["self_loops"]) == (3, 1, 0)
    assert of["in_degree"] == {"mean": 1.5, "p50": 0, "p90": 3, "p99": 3, "max": 3}
    assert has == {"source": "b", "relation": "has", "target": "a", "edges": 3, "reverse_of": "a__of__b"}


def test_random_graphs_agree_with_loops() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        size = int(generator.integers(1, 12))
        edges = generator.integers(0, size, (int(generator.integers(0, 40)), 2))
        description = describe(Graph.from_coo(edges[:, 0], edges[:, 1], num_nodes=size))
        pairs = [tuple(edge) for edge in edges.tolist()]
        entry = description["edge_types"][0]
        assert entry["self_loops"] == sum(source == target for source, target in pairs)
        assert entry["duplicate_edges"] == len(pairs) - len(set(pairs))
        out_degree = sorted(sum(source == node for source, _ in pairs) for node in range(size))
        assert entry["out_degree"]["max"] == out_degree[-1]
        assert entry["out_degree"]["p50"] == out_degree[(size + 1) // 2 - 1]
        touched = {node for pair in pairs for node in pair}
        assert description["node_types"][0]["isolated"] == size - len(touched)


def test_rendering_shows_names_as_they_are(graph: Graph) -> None:
    text = io.StringIO()
    render(describe(graph), Console(file=text, width=140))
    shown = text.getvalue()
    for part in ("[bold]tiny: 6 nodes, 6 edges", "[i] (integer)", "a of b", "has", "0/3/3"):
        assert part in shown, part
