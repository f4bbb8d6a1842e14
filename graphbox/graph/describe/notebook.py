"""Graphs and their descriptions in notebooks: HTML and SVG that need nothing else, on light and dark pages.

Colours are the page's own (``currentColor`` at some opacity) and two accents that read on both; names and ids
are escaped wherever they stand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from graphbox.graph.describe import outline
from graphbox.graph.describe.description import (
    Degrees,
    Description,
    EdgeTypeDescription,
    FeatureDescription,
    Problem,
)
from graphbox.graph.describe.diagram import schema_svg
from graphbox.graph.describe.words import degree_label, facts, feature_facts, headline, short_count
from graphbox.words import counted

if TYPE_CHECKING:
    from graphbox.graph.store import Graph

__all__ = ["description_html", "graph_html"]

_STYLE = """
.graphbox{font:13px/1.45 system-ui,sans-serif;color:inherit;max-width:880px}
.graphbox h3{font-size:15px;margin:0 0 8px;font-weight:600}
.graphbox h3 span,.graphbox .quiet{font-weight:400;opacity:.68}
.graphbox h4{font-size:13px;margin:16px 0 4px;font-weight:600}
.graphbox table.plain{border-collapse:collapse;margin:0;border:0;font-size:13px;background:none;color:inherit}
.graphbox table.plain tr{background:none!important}
.graphbox table.plain th,.graphbox table.plain td{text-align:left;padding:3px 16px 3px 0;border:0;
 border-bottom:1px solid rgba(128,128,128,.28);vertical-align:top;max-width:420px;overflow-wrap:anywhere}
.graphbox table.plain th{font-weight:600}
.graphbox table.plain .number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.graphbox ul{margin:4px 0 0;padding-left:18px}
.graphbox li{margin:0 0 6px;overflow-wrap:anywhere}
.graphbox .degrees{display:flex;flex-wrap:wrap;gap:4px 32px}
.graphbox figure{margin:0 0 8px}
.graphbox figcaption{font-size:12px}
.graphbox svg{display:block;max-width:100%;height:auto}
.graphbox svg text{fill:currentColor;font:11px system-ui,sans-serif}
"""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 400, 112, 40, 18, 6
_PICTURES = 12
_FEATURES = 40
_PROBLEMS = 30
_WIDEST_BAR = 40
_QUOTED = re.compile("`([^`]*)`")
_BAR = "#2f9e7a"


def graph_html(graph: Graph) -> str:
    """Return what a notebook shows for a graph: types and counts, which cost nothing."""
    description = outline(graph)
    return _page(
        _title(description),
        schema_svg(description),
        _types(description),
        '<p class="quiet"><code>describe()</code> looks at degrees, features and problems of the data.</p>',
    )


def description_html(description: Description) -> str:
    """Return what a notebook shows for a description."""
    return _page(
        _title(description),
        schema_svg(description),
        _types(description),
        _features(description),
        _pictures(description),
        _problems(description.problems),
    )


def _page(*parts: str) -> str:
    return f'<div class="graphbox"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _title(description: Description) -> str:
    return f"<h3>{escape(description.name)} <span>{escape(headline(description, ' · '))}</span></h3>"


# Tables


def _types(description: Description) -> str:
    reverses = {entry.reverse_of: entry.type for entry in description.edge_types if entry.reverse_of}
    nodes = _table(
        ("Node type", "nodes", ""),
        (
            (escape(entry.name), f"{entry.nodes:,}", _quiet(_node_facts(facts(entry), entry.features)))
            for entry in description.node_types
        ),
    )
    edges = _table(
        ("Edge type", "edges", ""),
        (
            (_edge_type(entry), f"{entry.edges:,}", _quiet(_edge_facts(entry, reverses.get(entry.type))))
            for entry in description.edge_types
            if entry.reverse_of is None
        ),
    )
    return f"{nodes}<div style='height:10px'></div>{edges}"


def _node_facts(found: Sequence[str], features: Sequence[FeatureDescription]) -> list[str]:
    names = ", ".join(f"{feature.name} ({feature.kind})" for feature in features)
    return [*found, *([names] if names else [])]


def _edge_facts(entry: EdgeTypeDescription, reverse: tuple[str, str, str] | None) -> list[str]:
    return [*([f"⇄ {reverse[1]}"] if reverse else []), *facts(entry)]


def _edge_type(entry: EdgeTypeDescription) -> str:
    source, relation, target = (escape(part) for part in entry.type)
    return f"{source} <b>{relation}</b> {target}"


def _features(description: Description) -> str:
    owned = [(escape(entry.name), each) for entry in description.node_types for each in entry.features]
    owned += [(_edge_type(entry), each) for entry in description.edge_types for each in entry.features]
    if not owned:
        return ""
    rows = (
        (escape(feature.name), owner, feature.kind, _quiet(feature_facts(feature)))
        for owner, feature in owned[:_FEATURES]
    )
    table = _table(("feature", "of", "kind", "values"), rows)
    return "<h4>Features</h4>" + table + _rest(len(owned) - _FEATURES, "features")


def _rest(count: int, what: str) -> str:
    return f'<p class="quiet">and {count:,} {what}, see <code>as_dict()</code></p>' if count > 0 else ""


def _quiet(parts: Sequence[str]) -> str:
    return f'<span class="quiet">{escape(" · ".join(parts))}</span>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of HTML cells; columns called nodes or edges are numbers."""
    kinds = [' class="number"' if name in ("nodes", "edges") else "" for name in columns]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


# Degrees


def _pictures(description: Description) -> str:
    drawn = [entry for entry in description.edge_types if entry.in_degree is not None and entry.edges]
    largest = sorted(drawn, key=lambda entry: -entry.edges)[:_PICTURES]
    parts = []
    for entry in drawn:
        if entry not in largest or entry.in_degree is None or entry.out_degree is None:
            continue
        source, _, target = entry.type
        pictures = _picture(f"out of each {source}", entry.out_degree) + _picture(
            f"into each {target}", entry.in_degree
        )
        parts.append(f'<h4>{_edge_type(entry)}</h4><div class="degrees">{pictures}</div>')
    if not parts:
        return ""
    more = _rest(len(drawn) - len(largest), "smaller edge types")
    note = '<span class="quiet"> nodes by number of edges, both axes logarithmic</span>'
    return f"<h4>Degrees{note}</h4>" + "".join(parts) + more


def _picture(title: str, degrees: Degrees) -> str:
    most = max(each.nodes for each in degrees.bins)
    step = min((_WIDTH - _LEFT) / len(degrees.bins), _WIDEST_BAR)
    floor = _HEIGHT - _BOTTOM
    shapes = []
    free_from = 0.0
    for number, each in enumerate(degrees.bins):
        left = _LEFT + number * step
        label = degree_label(each.low)
        if left >= free_from and left + 7 * len(label) <= _WIDTH + 8:
            shapes.append(f'<text x="{left + 1:.1f}" y="{_HEIGHT - 5}" opacity=".7">{label}</text>')
            free_from = left + 7 * len(label) + 6
        if each.nodes:
            share = math.log(each.nodes) / math.log(most) if most > 1 else 1.0
            height = 2 + (floor - _TOP - 2) * share
            degree = f"{each.low:,}" if each.low == each.high else f"{each.low:,} to {each.high:,}"
            shapes.append(
                f'<rect x="{left + 1:.1f}" y="{floor - height:.1f}" width="{max(step - 2, 1):.1f}" '
                f'height="{height:.1f}" fill="{_BAR}">'
                f"<title>degree {degree}: {counted(each.nodes, 'node')}</title></rect>"
            )
    axis = (
        f'<path d="M{_LEFT} {_TOP}V{floor}H{_LEFT + step * len(degrees.bins):.1f}" '
        f'fill="none" stroke="currentColor" opacity=".4"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 9}" text-anchor="end" opacity=".7">{short_count(most)}</text>'
        f'<text x="{_LEFT - 4}" y="{floor}" text-anchor="end" opacity=".7">1</text>'
    )
    caption = f"p50 {degrees.p50:,} · p90 {degrees.p90:,} · p99 {degrees.p99:,} · max {degrees.max:,}"
    return (
        f'<figure><figcaption>{escape(title)} <span class="quiet">{caption}</span></figcaption>'
        f'<svg role="img" aria-label="Degrees {escape(title)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">{axis}{"".join(shapes)}</svg></figure>'
    )


# Problems


def _problems(problems: Sequence[Problem]) -> str:
    if not problems:
        return ""
    following = [problem.hint for problem in problems[1:]]
    items = (
        _problem(problem, with_hint=problem.hint != next_hint)
        for problem, next_hint in list(zip(problems, [*following, None], strict=True))[:_PROBLEMS]
    )
    rest = _rest(len(problems) - _PROBLEMS, "of these")
    return f"<h4>To look at ({len(problems)})</h4><ul>{''.join(items)}</ul>{rest}"


def _problem(problem: Problem, *, with_hint: bool) -> str:
    examples = f"<br>such as {escape('; '.join(problem.examples))}" if problem.examples else ""
    hint = "<br>→ " + _QUOTED.sub(r"<code>\1</code>", escape(problem.hint)) if with_hint else ""
    return (
        f"<li><b>{escape(problem.where)}</b>: {escape(problem.message)}"
        f'<span class="quiet">{examples}{hint}</span></li>'
    )
