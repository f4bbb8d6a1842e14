"""The report of an import: what was read, kept and skipped, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphbox.cli.text import byte_size, count, duration, table
from graphbox.words import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from graphbox.graph.ingest import DegreeReport, EdgeTypeReport, ImportReport, NodeTypeReport

_KINDS = {"dangling_edges": "dangling", "duplicate_edges": "repeated"}
_REPEATED = "    of these only the first is kept: `keep_duplicates: true` (--keep-duplicates) keeps all"


def print_report(report: ImportReport, console: Console) -> None:
    """Print what an import read, kept and skipped, and what it took."""
    console.print(_nodes(report.node_types))
    console.print()
    if report.edge_types:
        console.print(_edges(report.edge_types))
        console.print()
        console.print(_degree_table(report.edge_types))
        console.print()
    for each in report.node_types:
        print_node_losses(each.type, each.skipped, each.examples, each.empty_values, console)
    for edges in report.edge_types:
        print_edge_losses(edges, console)
    for rows, lost, what in _mostly_skipped(report):
        console.print(
            f"most of the rows of {what} were skipped ({lost:,} of {rows:,}): check the format, the columns "
            "and how ids are written",
            style="bold yellow",
            markup=False,
            soft_wrap=True,
        )
    nodes, kept = sum(report.nodes.values()), sum(each.edges for each in report.edge_types)
    size = byte_size(report.size_bytes)
    written = "" if report.written_bytes is None else f", {byte_size(report.written_bytes)} written"
    memory = f"{byte_size(report.peak_memory_bytes)} of {byte_size(report.memory_bytes)}"
    rate = f"{duration(report.seconds)}, {count(report.rows_per_second)} rows/s"
    lines = (
        f"graph `{report.name}`: {counted(nodes, 'node')}, {counted(kept, 'edge')}, {size} in {report.path}",
        f"{rate}, peak memory {memory}{written}",
        f"`graphbox describe {report.name}` shows more",
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def print_node_losses(
    node_type: str,
    skipped: Mapping[str, int],
    examples: Mapping[str, Sequence[str]],
    empty_values: Mapping[str, int],
    console: Console,
) -> None:
    """Print which rows of a node table were skipped, and how many values were left out of slot lists."""
    _print_examples(node_type, skipped, examples, console)
    for name, number in empty_values.items():
        left_out = counted(number, "empty value")
        console.print(f"{node_type}: {left_out} left out of `{name}`", markup=False, soft_wrap=True)


def print_edge_losses(edges: EdgeTypeReport, console: Console) -> None:
    """Print which rows of an edge table were skipped."""
    counts = {
        **edges.skipped,
        "dangling_edges": edges.dangling_edges,
        "duplicate_edges": edges.duplicate_edges,
    }
    _print_examples(" ".join(edges.type), counts, edges.examples, console)
    if edges.edges < edges.rows - edges.dangling_edges - sum(edges.skipped.values()):
        console.print(_REPEATED, soft_wrap=True)


def _mostly_skipped(report: ImportReport) -> Iterator[tuple[int, int, str]]:
    """Yield rows, unusable rows and name of each type that lost more than half of its rows as unusable."""
    for nodes in report.node_types:
        lost = _unusable(nodes.skipped)
        if 2 * lost > nodes.rows > 0:
            yield nodes.rows, lost, nodes.type
    for edges in report.edge_types:
        lost = _unusable(edges.skipped) + edges.dangling_edges
        if 2 * lost > edges.rows > 0:
            yield edges.rows, lost, " ".join(edges.type)


def _unusable(skipped: Mapping[str, int]) -> int:
    from graphbox.graph.source import STORED_AGAIN

    return sum(number for kind, number in skipped.items() if kind != STORED_AGAIN)


def _nodes(reports: Sequence[NodeTypeReport]) -> Table:
    rows = [
        (
            each.type,
            f"{each.nodes:,}",
            each.id_type,
            f"{each.isolated:,}",
            f"{sum(each.skipped.values()):,}" if each.rows else "no table",
        )
        for each in reports
    ]
    columns = ("node type", "nodes", "ids", "isolated", "rows skipped")
    return table("Nodes", columns, rows, ("nodes", "isolated", "rows skipped"))


def _edges(reports: Sequence[EdgeTypeReport]) -> Table:
    rows = [
        (
            " ".join(each.type),
            f"{each.edges:,}",
            f"{each.rows:,}",
            f"{each.duplicate_edges:,}",
            f"{each.dangling_edges:,}",
            f"{sum(each.skipped.values()):,}",
            f"{each.self_loops:,}",
        )
        for each in reports
    ]
    figures = ("edges", "rows", "repeated", "dangling", "malformed", "loops")
    return table("Edges", ("edge type", *figures), rows, figures)


def _degree_table(reports: Sequence[EdgeTypeReport]) -> Table:
    rows = [
        (" ".join(each.type), end, *_degrees(degrees))
        for each in reports
        for end, degrees in (("in", each.in_degree), ("out", each.out_degree))
        if degrees is not None
    ]
    figures = ("mean", "p50", "p90", "p99", "max")
    return table("Degrees", ("edge type", "", *figures), rows, figures)


def _degrees(degrees: DegreeReport) -> tuple[str, ...]:
    percentiles = (degrees.p50, degrees.p90, degrees.p99, degrees.max)
    return (f"{degrees.mean:,.1f}", *(f"{value:,}" for value in percentiles))


def _print_examples(
    what: str, counts: Mapping[str, int], examples: Mapping[str, Sequence[str]], console: Console
) -> None:
    for kind, number in counts.items():
        if not number:
            continue
        console.print(f"{what}: {number:,} {_KINDS.get(kind, kind)}", markup=False, soft_wrap=True)
        for example in examples.get(kind, ()):
            console.print(f"    {example}", markup=False, soft_wrap=True)
