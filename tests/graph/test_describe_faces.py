"""Descriptions of graphs in terminals."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from graphbox.graph import Graph
from graphbox.graph.columns import Column
from graphbox.graph.describe.terminal import render
from graphbox.graph.tables import edge_table, numbered_nodes

NASTY = '<script>alert("1")</script> & [bold]'


@pytest.fixture
def graph() -> Graph:
    generator = np.random.default_rng(0)
    target = generator.zipf(1.6, 3000) % 400
    source = generator.integers(0, 400, 3000)
    number = generator.normal(size=400).astype(np.float32)
    nodes = {
        "person": numbered_nodes(400, {NASTY: Column("number", number)}),
        "thing": numbered_nodes(30),
    }
    edges = {
        ("person", "knows", "person"): edge_table(source, target, 400, 400),
        ("person", "has", "thing"): edge_table(source, target % 30, 400, 30),
        ("thing", "of", "person"): edge_table(target % 30, source, 30, 400),
    }
    return Graph(NASTY, nodes, edges).with_reverse_edges([("person", "has", "thing")])


def _shown(graph: Graph, width: int, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding)
    render(graph.describe(), Console(file=file, width=width, color_system=None, emoji=False))
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_text_keeps_within_the_terminal(graph: Graph, width: int) -> None:
    shown = _shown(graph, width)
    assert max(len(line) for line in shown.splitlines()) <= width
    if width < 80:
        return
    for part in ("430 nodes", "9,000 edges", "knows → person", "⇄ rev_has", "into each person", "To look at"):
        assert part in " ".join(shown.split()), part


def test_text_shows_names_as_they_are(graph: Graph) -> None:
    assert NASTY in _shown(graph, 120)
    assert str(graph.describe()).startswith(NASTY)


def test_what_to_do_is_said_once_for_each_kind(graph: Graph) -> None:
    kinds = [problem.kind for problem in graph.describe().problems]
    assert kinds.count("duplicate_edges") == 3
    assert " ".join(str(graph.describe()).split()).count("to keep the first of each") == 1


def test_a_terminal_without_unicode_is_drawn_with_plain_characters(graph: Graph) -> None:
    shown = _shown(graph, 100, "ascii")
    assert "knows -> person" in shown
    assert "##" in shown


def test_pictures_show_the_counts() -> None:
    graph = Graph.from_coo([0, 1, 2, 3, 4], [5, 5, 5, 5, 5], num_nodes=6)
    lines = str(graph.describe()).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("out of each node"))
    picture = [line.rstrip() for line in lines[start : start + 8]]
    assert picture[1].split("   ")[0] == "p50 1  p90 1  p99 1  max 1"
    assert picture[1].split("   ")[-1].strip() == "p50 0  p90 5  p99 5  max 5"
    assert picture[2].split() == ["5", "│", "██", "5", "│██"]
    assert picture[6].split() == ["1", "│▁▁", "██", "1", "│██", "▁▁"]
    assert picture[7].split() == ["└0", "1", "└0", "1", "2", "4"]


def test_smaller_edge_types_are_counted() -> None:
    names = [f"type{number}" for number in range(20)]
    nodes = {name: numbered_nodes(3) for name in names}
    edge = np.array([0])
    edges = {(names[number], "to", names[number - 1]): edge_table(edge, edge, 3, 3) for number in range(20)}
    graph = Graph("many", nodes, edges)
    assert "and 8 smaller edge types" in str(graph.describe())


def test_a_graph_without_edges_has_no_pictures() -> None:
    graph = Graph.from_coo([], [], num_nodes=3)
    assert "no edge of this type" in str(graph.describe())
    assert "Degrees" not in str(graph.describe())


def test_what_is_too_much_to_show_is_counted() -> None:
    features = {f"f{number}": Column("number", np.full(3, np.nan, np.float32)) for number in range(60)}
    edges = {("a", "to", "a"): edge_table(np.array([0, 1, 2]), np.array([1, 2, 0]), 3, 3)}
    description = Graph("wide", {"a": numbered_nodes(3, features)}, edges).describe()
    shown = str(description)
    assert "and 20 features" in shown
    assert "To look at (60)" in shown
    assert "and 30 of these" in shown
