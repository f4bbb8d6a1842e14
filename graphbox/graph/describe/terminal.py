"""A description in a terminal: a tree of the types, pictures of the degrees, and what may be wrong."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphbox.graph.describe.description import (
    Degrees,
    Description,
    EdgeTypeDescription,
    FeatureDescription,
    Problem,
)
from graphbox.graph.describe.histogram import DegreeBin
from graphbox.graph.describe.words import degree_label, facts, feature_facts, headline, short_count
from graphbox.graph.schema import EdgeType
from graphbox.words import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_PICTURE_ROWS = 5
_PICTURES = 12
_FEATURES = 40
_PROBLEMS = 30
_AXIS_WIDTH = 6
_BAR_WIDTH = 3
_GAP = 4


@dataclass(frozen=True)
class _Glyphs:
    """Characters of diagrams; a terminal without Unicode gets plain ones."""

    levels: str
    axis: str
    origin: str
    branch: str
    last: str
    arrow: str
    both: str
    dot: str
    bullet: str


_UNICODE = _Glyphs(" ▁▂▃▄▅▆▇█", "│", "└", "├─ ", "└─ ", " → ", "⇄ ", " · ", "▪ ")
_ASCII = _Glyphs(" .:#", "|", "+", "|- ", "`- ", " -> ", "<-> ", ", ", "* ")


def as_text(description: Description, width: int = 100) -> str:
    """Return what :func:`render` prints, without colours."""
    from rich.console import Console

    text = io.StringIO()
    render(description, Console(file=text, width=width, color_system=None, highlight=False, emoji=False))
    return text.getvalue().rstrip("\n")


def render(description: Description, console: Console) -> None:
    """Print a description.

    Args:
        description: what to print.
        console: a ``rich.console.Console``; pictures take its width.
    """
    from rich.text import Text

    glyphs = _ASCII if console.options.ascii_only else _UNICODE
    title = Text(description.name, style="bold")
    title.append(glyphs.dot + headline(description, glyphs.dot), style="not bold")
    console.print(title)
    console.print()
    console.print(_schema(description, glyphs))
    features = [(entry.name, feature) for entry in description.node_types for feature in entry.features] + [
        (" ".join(entry.type), feature) for entry in description.edge_types for feature in entry.features
    ]
    if features:
        console.print()
        console.print(_features(features[:_FEATURES], glyphs))
        _print_rest(console, len(features) - _FEATURES, "features")
    _print_pictures(description, console, glyphs)
    _print_problems(description.problems, console, glyphs)


# Schema


def _schema(description: Description, glyphs: _Glyphs) -> Table:
    table = _plain_table(("Types", "left"), ("", "right"), ("", "left"))
    reverses = {entry.reverse_of: entry.type for entry in description.edge_types if entry.reverse_of}
    for nodes in description.node_types:
        table.add_row(
            _text(nodes.name, "bold cyan"),
            counted(nodes.nodes, "node"),
            _text(glyphs.dot.join(facts(nodes)), "dim"),
        )
        leaving = [
            entry
            for entry in description.edge_types
            if entry.type[0] == nodes.name and entry.reverse_of is None
        ]
        for entry in leaving:
            branch = glyphs.last if entry is leaving[-1] else glyphs.branch
            table.add_row(
                _edge_text(entry.type, branch, glyphs),
                counted(entry.edges, "edge"),
                _text(_edge_facts(entry, reverses, glyphs), "dim"),
            )
    return table


def _edge_text(edge_type: EdgeType, branch: str, glyphs: _Glyphs) -> Text:
    _, relation, target = edge_type
    text = _text(branch, "dim")
    text.append(relation)
    text.append(glyphs.arrow, style="dim")
    text.append(target, style="cyan")
    return text


def _edge_facts(entry: EdgeTypeDescription, reverses: dict[EdgeType, EdgeType], glyphs: _Glyphs) -> str:
    reverse = reverses.get(entry.type)
    return glyphs.dot.join([*([glyphs.both + reverse[1]] if reverse else []), *facts(entry)])


# Features


def _features(features: Iterable[tuple[str, FeatureDescription]], glyphs: _Glyphs) -> Table:
    table = _plain_table(("Features", "left"), ("of", "left"), ("kind", "left"), ("values", "left"))
    for owner, feature in features:
        table.add_row(
            _text(feature.name),
            _text(owner, "cyan"),
            feature.kind,
            _text(glyphs.dot.join(feature_facts(feature)), "dim"),
        )
    return table


# Degrees


def _print_pictures(description: Description, console: Console, glyphs: _Glyphs) -> None:
    from rich.table import Table

    drawn = [entry for entry in description.edge_types if entry.in_degree is not None and entry.edges]
    if not drawn:
        return
    largest = sorted(drawn, key=lambda entry: -entry.edges)[:_PICTURES]
    console.print()
    console.print(
        _text("Degrees", "bold").append(" (nodes by number of edges, both axes logarithmic)", "dim")
    )
    half = max(24, (console.width - _GAP) // 2)
    for entry in drawn:
        if entry not in largest or entry.in_degree is None or entry.out_degree is None:
            continue
        source, relation, target = entry.type
        console.print()
        console.print(_text(source, "cyan").append(f" {relation} ", "bold").append(target, "cyan"))
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(width=half, no_wrap=True)
        grid.add_column(width=half, no_wrap=True)
        grid.add_row(
            _picture(f"out of each {source}", entry.out_degree, half, glyphs),
            _picture(f"into each {target}", entry.in_degree, half, glyphs),
        )
        console.print(grid)
    _print_rest(console, len(drawn) - len(largest), "smaller edge types")


def _picture(title: str, degrees: Degrees, width: int, glyphs: _Glyphs) -> Text:
    bar = max(1, min(_BAR_WIDTH, (width - _AXIS_WIDTH - 1) // len(degrees.histogram)))
    most = max(each.nodes for each in degrees.histogram)
    picture = _text(title + "\n")
    picture.append(
        f"p50 {degrees.p50:,}  p90 {degrees.p90:,}  p99 {degrees.p99:,}  max {degrees.max:,}\n", style="dim"
    )
    for row, line in enumerate(_bars(degrees.histogram, most, bar, glyphs.levels)):
        label = short_count(most) if row == 0 else "1" if row == _PICTURE_ROWS - 1 else ""
        picture.append(f"{label:>{_AXIS_WIDTH - 1}} {glyphs.axis}", style="dim")
        picture.append(line + "\n", style="green")
    picture.append(" " * _AXIS_WIDTH + glyphs.origin + _labels(degrees.histogram, bar), style="dim")
    return picture


def _bars(bins: Sequence[DegreeBin], most: int, width: int, levels: str) -> list[str]:
    """Return the rows of a picture, the topmost first; one node is one level high, none is none."""
    steps = len(levels) - 1
    full = _PICTURE_ROWS * steps
    heights = [
        0
        if not each.nodes
        else 1 + round((full - 1) * (math.log(each.nodes) / math.log(most) if most > 1 else 1))
        for each in bins
    ]
    gap = " " if width > 1 else ""
    rows = []
    for row in range(_PICTURE_ROWS - 1, -1, -1):
        filled = (levels[min(steps, max(0, height - row * steps))] for height in heights)
        rows.append("".join(cell * (width - len(gap)) + gap for cell in filled).rstrip())
    return rows


def _labels(bins: Sequence[DegreeBin], width: int) -> str:
    """Return the smallest degree of the bins, wherever there is room for it."""
    line = ""
    for number, each in enumerate(bins):
        at = number * width
        if len(line) <= at:
            label = degree_label(each.low)
            last_position = len(bins) * width
            if at + len(label) <= last_position + 3:
                line = line.ljust(at) + label + " "
    return line.rstrip()


# Problems


def _print_problems(problems: Sequence[Problem], console: Console, glyphs: _Glyphs) -> None:
    from rich.table import Table

    console.print()
    if not problems:
        return
    console.print(_text(f"To look at ({len(problems)})", "bold"))
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column()
    for number, problem in enumerate(problems[:_PROBLEMS]):
        line = _text(problem.where, "cyan").append(f": {problem.message}", "default")
        if problem.examples:
            line.append("\nsuch as " + "; ".join(problem.examples), style="dim")
        if number + 1 == len(problems) or problems[number + 1].hint != problem.hint:
            line.append(f"\n{glyphs.arrow.strip()} {problem.hint}", style="dim")
        grid.add_row(_text(glyphs.bullet, "yellow"), line)
    console.print(grid)
    _print_rest(console, len(problems) - _PROBLEMS, "of these")


# Pieces


def _print_rest(console: Console, count: int, what: str) -> None:
    if count > 0:
        console.print(_text(f"and {count:,} {what} (as JSON: all of them)", "dim"))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    built = Text(overflow="fold")
    return built.append(text, style=style)


def _plain_table(*columns: tuple[str, str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", expand=False)
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table
