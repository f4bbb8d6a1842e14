"""The types of a graph as an SVG diagram: node types as boxes, edge types as labelled arrows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from graphbox.graph.describe.description import Description, EdgeTypeDescription, NodeTypeDescription
from graphbox.graph.describe.words import short_count

__all__ = ["schema_svg"]

_MOST_TYPES = 14
_MOST_RELATIONS = 5
_BOX_HEIGHT = 40
_CHARACTER_WIDTH = 6.9
_LINE_HEIGHT = 14
_BEND = 36.0
_WIDE_BEND = 220.0
_BOX = "#4c7fd0"


@dataclass(frozen=True)
class _Box:
    """A node type at its place; ``x`` and ``y`` are its middle."""

    entry: NodeTypeDescription
    x: float
    y: float
    width: float

    def border(self, x: float, y: float) -> tuple[float, float]:
        """Return where the line from the middle towards a point leaves the box."""
        dx, dy = x - self.x, y - self.y
        reach = min(
            (self.width / 2 + 3) / abs(dx) if dx else math.inf,
            (_BOX_HEIGHT / 2 + 3) / abs(dy) if dy else math.inf,
        )
        return self.x + dx * reach, self.y + dy * reach


def schema_svg(description: Description) -> str:
    """Return the diagram, or nothing where there are more types than one can be read of."""
    forward = [entry for entry in description.edge_types if entry.reverse_of is None]
    if not forward or len(description.node_types) > _MOST_TYPES:
        return ""
    boxes = _placed(description.node_types, forward)
    shapes = _Shapes()
    between: dict[tuple[str, str], list[EdgeTypeDescription]] = {}
    for entry in forward:
        between.setdefault((entry.type[0], entry.type[2]), []).append(entry)
    middle = (
        sum(box.x for box in boxes.values()) / len(boxes),
        sum(box.y for box in boxes.values()) / len(boxes),
    )
    for (source, target), entries in between.items():
        if source == target:
            _draw_loop(shapes, boxes[source], entries, middle)
        else:
            both_ways = (target, source) in between
            _draw_arrow(shapes, boxes[source], boxes[target], entries, bent=both_ways)
    for box in boxes.values():
        _draw_box(shapes, box)
    return shapes.svg()


def _placed(
    node_types: Sequence[NodeTypeDescription], edge_types: Sequence[EdgeTypeDescription]
) -> dict[str, _Box]:
    """Return the boxes: the type that most edge types join in the middle, the others around it."""
    joined = {entry.name: 0 for entry in node_types}
    for edges in edge_types:
        source, _, target = edges.type
        joined[source] += 1
        joined[target] += source != target
    first, *others = sorted(node_types, key=lambda entry: -joined[entry.name])
    longest = max(len(line) for edges in edge_types for line in _lines([edges]))
    widest = max(_width_of(entry) for entry in node_types)
    across = widest + longest * _CHARACTER_WIDTH + 44
    boxes = {first.name: _Box(first, 0, 0, _width_of(first))}
    ring = _neighbors_together(others, edge_types)
    spread = max(1.0, len(ring) / 6)
    for entry, turn in zip(ring, _turns(len(ring)), strict=True):
        x, y = across * spread * math.cos(turn), 140 * spread * math.sin(turn)
        boxes[entry.name] = _Box(entry, x, y, _width_of(entry))
    return boxes


def _turns(count: int) -> list[float]:
    """Return the directions of the types around the first one, with room above it for its own edges."""
    if count <= 3:
        return [0.0, math.pi, math.pi / 2][:count]
    first, last = math.radians(-40), math.radians(220)
    return [first + (last - first) * number / (count - 1) for number in range(count)]


def _neighbors_together(
    node_types: Sequence[NodeTypeDescription], edge_types: Sequence[EdgeTypeDescription]
) -> list[NodeTypeDescription]:
    """Return node types in an order in which those that edges join follow each other where they can."""
    joined = {frozenset((edges.type[0], edges.type[2])) for edges in edge_types}
    waiting, ring = list(node_types), list[NodeTypeDescription]()
    while waiting:
        following = [each for each in waiting if ring and {ring[-1].name, each.name} in joined]
        ring.append((following or waiting)[0])
        waiting.remove(ring[-1])
    return ring


def _width_of(entry: NodeTypeDescription) -> float:
    return max(len(entry.name), len(f"{entry.nodes:,}"), 6) * _CHARACTER_WIDTH + 24


def _lines(entries: Sequence[EdgeTypeDescription]) -> list[str]:
    shown = entries if len(entries) <= _MOST_RELATIONS else entries[: _MOST_RELATIONS - 1]
    lines = [f"{entry.type[1]} {short_count(entry.edges)}" for entry in shown]
    return lines if len(shown) == len(entries) else [*lines, f"and {len(entries) - len(shown)} more"]


def _draw_box(shapes: _Shapes, box: _Box) -> None:
    left, top = box.x - box.width / 2, box.y - _BOX_HEIGHT / 2
    shapes.reach(left, top)
    shapes.reach(left + box.width, top + _BOX_HEIGHT)
    shapes.add(
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{_BOX_HEIGHT}" rx="7" '
        f'fill="{_BOX}" fill-opacity=".16" stroke="{_BOX}"/>'
        f'<text x="{box.x:.1f}" y="{box.y - 3:.1f}" text-anchor="middle" font-weight="600" '
        f'style="font-weight:600;font-size:12px">{escape(box.entry.name)}</text>'
        f'<text x="{box.x:.1f}" y="{box.y + 12:.1f}" text-anchor="middle" opacity=".7">'
        f"{box.entry.nodes:,}</text>"
    )


def _draw_arrow(
    shapes: _Shapes, source: _Box, target: _Box, entries: Sequence[EdgeTypeDescription], *, bent: bool
) -> None:
    control = _control_point(source, target, bent=bent)
    start, end = source.border(*control), target.border(*control)
    shapes.add(
        f'<path d="M{start[0]:.1f} {start[1]:.1f}'
        f'Q{control[0]:.1f} {control[1]:.1f} {end[0]:.1f} {end[1]:.1f}" '
        f'fill="none" stroke="currentColor" opacity=".55"/>'
    )
    shapes.arrow_head(end, math.atan2(end[1] - control[1], end[0] - control[0]))

    dx, dy = target.x - source.x, target.y - source.y
    over_x, over_y = control[0] - (source.x + target.x) / 2, control[1] - (source.y + target.y) / 2
    x, y = ((start[axis] + 2 * control[axis] + end[axis]) / 4 for axis in (0, 1))
    lines = _lines(entries)
    height = _LINE_HEIGHT * (len(lines) - 1)
    if abs(dy) < abs(dx) / 4:
        # Beside a level arrow: above it, or below where it bends down.
        shapes.label(lines, x, y + 14 if over_y > 1 else y - 6 - height, "middle")
        return
    to_the_right = over_x > 0 if over_x or over_y else (dx > 0) == (dy > 0)
    # A label right beside a flat arrow that bends would lie on it.
    drop = math.copysign(8, over_y) if over_y and abs(dy) < abs(dx) else 0.0
    shapes.label(
        lines, x + (8 if to_the_right else -8), y + drop - height / 2, "start" if to_the_right else "end"
    )


def _control_point(source: _Box, target: _Box, *, bent: bool) -> tuple[float, float]:
    """Return the point that an arrow bends towards; of a straight one it is the middle.

    Where arrows go both ways each keeps to its right; those between outer types keep off the first type,
    which stands at 0, 0.
    """
    x, y = (source.x + target.x) / 2, (source.y + target.y) / 2
    dx, dy = target.x - source.x, target.y - source.y
    aside = _BEND / math.hypot(dx, dy) if bent else 0.0
    control = (x - dy * aside, y + dx * aside)
    if not all(box.x or box.y for box in (source, target)):
        return control
    away = math.hypot(x, y)
    if away < _BEND:
        return control[0], control[1] + _WIDE_BEND
    if bent:
        return control
    return control[0] + x / away * _BEND, control[1] + y / away * _BEND


def _draw_loop(
    shapes: _Shapes, box: _Box, entries: Sequence[EdgeTypeDescription], middle: tuple[float, float]
) -> None:
    """Draw edges from a type to itself, on the side of the box that looks away from the others."""
    up = -1 if box.y <= middle[1] + 1 else 1
    edge = box.y + up * (_BOX_HEIGHT / 2 + 2)
    left, right, top = box.x - 16, box.x + 16, edge + up * 34
    shapes.add(
        f'<path d="M{left:.1f} {edge:.1f}C{left - 14:.1f} {top:.1f} {right + 14:.1f} {top:.1f} '
        f'{right:.1f} {edge:.1f}" fill="none" stroke="currentColor" opacity=".55"/>'
    )
    shapes.arrow_head((right, edge), math.atan2(edge - top, right - (right + 14)))
    lines = _lines(entries)
    first = top - _LINE_HEIGHT * (len(lines) - 1) + 2 if up < 0 else top + 4
    shapes.label(lines, box.x, first, "middle")


class _Shapes:
    """Shapes, and how far they reach."""

    def __init__(self) -> None:
        self._shapes: list[str] = []
        self._low = [math.inf, math.inf]
        self._high = [-math.inf, -math.inf]

    def add(self, shape: str) -> None:
        self._shapes.append(shape)

    def reach(self, x: float, y: float) -> None:
        for axis, value in enumerate((x, y)):
            self._low[axis] = min(self._low[axis], value)
            self._high[axis] = max(self._high[axis], value)

    def arrow_head(self, at: tuple[float, float], angle: float) -> None:
        points = [at] + [
            (at[0] - 8 * math.cos(angle + side), at[1] - 8 * math.sin(angle + side)) for side in (0.42, -0.42)
        ]
        shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(f'<polygon points="{shown}" fill="currentColor" opacity=".7"/>')

    def label(self, lines: Sequence[str], x: float, y: float, anchor: str) -> None:
        """Write lines of text, the first one's baseline at ``y``."""
        width = max(map(len, lines)) * _CHARACTER_WIDTH
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        self.reach(left, y - _LINE_HEIGHT)
        self.reach(left + width, y + _LINE_HEIGHT * (len(lines) - 1) + 4)
        spans = "".join(
            f'<tspan x="{x:.1f}" y="{y + number * _LINE_HEIGHT:.1f}">{escape(line)}</tspan>'
            for number, line in enumerate(lines)
        )
        self.add(f'<text text-anchor="{anchor}">{spans}</text>')

    def svg(self) -> str:
        low, high = [value - 6 for value in self._low], [value + 6 for value in self._high]
        width, height = high[0] - low[0], high[1] - low[1]
        return (
            f'<svg role="img" aria-label="Node types and edge types" width="{width:.0f}" '
            f'height="{height:.0f}" '
            f'viewBox="{low[0]:.1f} {low[1]:.1f} {width:.1f} {height:.1f}" style="margin:4px 0 12px">'
            f"{''.join(self._shapes)}</svg>"
        )
