"""The parts of a run file that say what the graph is: node types, edge types and metapaths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from graphbox.config.source import describe_value
from graphbox.errors import UsageError, did_you_mean
from graphbox.pglbox.grammar import EdgeName, parse_edge, parse_files, parse_metapaths, parse_node_types
from graphbox.pglbox.settings import Settings

EdgeType = tuple[str, str, str]
Parsed = TypeVar("Parsed")


def graph_section(settings: Settings) -> dict[str, Any]:
    """Return ``nodes`` and ``edges`` of the section `graph`; what is wrong is noted in ``settings``."""
    edges = _edges(settings)
    return {"nodes": _nodes(settings, list(edges)), "edges": [_edge(settings, edges, edge) for edge in edges]}


def metapaths(settings: Settings) -> list[list[EdgeType]]:
    """Return the metapaths in edge types of the run file, closed; what is wrong is noted in ``settings``."""
    edges = _edges(settings)
    found = []
    for path in _parsed(settings, "meta_path", parse_metapaths) or []:
        if not all(_known(settings, edges, step, "meta_path") for step in path):
            continue
        back = [] if path[-1].target == path[0].source else [step.reversed for step in reversed(path)]
        lacking = [step for step in back if not _exists(settings, edges, step)]
        if lacking:
            settings.wrong(
                "meta_path",
                f"the metapath `{'-'.join(map(str, path))}` does not return to "
                f"`{path[0].source}`, and there is no edge "
                f"type `{lacking[0]}` to go back by",
                "add it to `etype2files`, set `symmetry: True`, or take the metapath out",
            )
            continue
        found += _directed(settings, edges, path, back)
    return found


def _directed(
    settings: Settings, edges: dict[EdgeName, str], path: list[EdgeName], back: list[EdgeName]
) -> list[list[EdgeType]]:
    """Return a path as edge types: twice when it has steps that PGLBox takes in both directions."""
    forward = [_edge_type(settings, edges, step, backwards=False) for step in path]
    forward += [_edge_type(settings, edges, step, backwards=True) for step in back]
    backward = [_edge_type(settings, edges, step, backwards=True) for step in path]
    backward += [_edge_type(settings, edges, step, backwards=False) for step in back]
    return [forward] if forward == backward else [forward, backward]


def _edge_type(
    settings: Settings, edges: dict[EdgeName, str], step: EdgeName, *, backwards: bool
) -> EdgeType:
    if step not in edges:
        return step.reversed.reverse_edge_type
    two_ways = step == step.reversed and settings.flag("symmetry")
    return step.reverse_edge_type if backwards and two_ways else step.edge_type


def _nodes(settings: Settings, edges: list[EdgeName]) -> dict[str, Any]:
    features = {f"slot_{slot}": "slots" for slot in _slots(settings, "slots")}
    features |= {f"float_slot_{slot}_{length}": "vector" for slot, length in _float_slots(settings)}
    nodes: dict[str, Any] = {}
    for name, path in (_parsed(settings, "ntype2files", parse_node_types) or {}).items():
        nodes[name] = {"path": path, "format": "pglbox", **({"features": dict(features)} if features else {})}
    # A type without a file has the nodes that its edges name.
    for edge in edges:
        for end in (edge.source, edge.target):
            nodes.setdefault(end, {})
    return nodes


def _slots(settings: Settings, name: str) -> list[str]:
    slots = settings.texts(name)
    for slot in slots:
        if not slot.isdecimal():
            settings.wrong(
                name, f"expected the numbers of slots, received `{slot}`", 'for example `slots: ["11", "21"]`'
            )
    return list(dict.fromkeys(slots))


def _float_slots(settings: Settings) -> list[tuple[str, int]]:
    """Return the float slots with the lengths of their vectors."""
    slots = _slots(settings, "float_slots")
    lengths = settings.value("float_slots_len") or {}
    found = []
    for slot in slots:
        length = lengths.get(slot) if isinstance(lengths, dict) else None
        if isinstance(length, int) and not isinstance(length, bool) and 0 < length < 100_000:
            found.append((slot, length))
        else:
            settings.wrong(
                "float_slots_len",
                f"expected how many numbers the slot {slot} has, received {describe_value(length)}",
                f'for example `float_slots_len: {{"{slot}": 64}}`',
            )
    return found


def _edge(settings: Settings, edges: dict[EdgeName, str], edge: EdgeName) -> dict[str, Any]:
    section: dict[str, Any] = {"type": list(edge.edge_type), "path": edges[edge], "format": "pglbox"}
    if settings.flag("symmetry") and (edge.reversed not in edges or edge.reversed == edge):
        section["reverse"] = edge.reverse_relation
    if settings.flag("weighted_sample"):
        section["weight"] = "weight"
    return section


def _edges(settings: Settings) -> dict[EdgeName, str]:
    edges = {}
    for name, path in (_parsed(settings, "etype2files", parse_files) or {}).items():
        edge = _attempt(settings, "etype2files", parse_edge, name)
        if edge is not None:
            edges[edge] = path
    return edges


def _exists(settings: Settings, edges: dict[EdgeName, str], step: EdgeName) -> bool:
    return step in edges or (settings.flag("symmetry") and step.reversed in edges)


def _known(settings: Settings, edges: dict[EdgeName, str], step: EdgeName, key: str) -> bool:
    if _exists(settings, edges, step):
        return True
    names = [str(edge) for edge in edges]
    if settings.flag("symmetry"):
        names += [str(edge.reversed) for edge in edges]
    hint = did_you_mean(str(step), names) or f"edge types: {', '.join(dict.fromkeys(names)) or 'none'}"
    if step.reversed in edges:
        hint = "`symmetry: True` adds the reverse of each edge type"
    settings.wrong(key, f"there is no edge type `{step}` in `etype2files`", hint)
    return False


def _parsed(settings: Settings, name: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    """Return a parsed text; what is wrong with it, or that it is missing, is noted."""
    text = settings.text(name)
    if not text:
        settings.wrong(name, f"the key `{name}` is missing or empty", "PGLBox cannot run without it either")
        return None
    return _attempt(settings, name, parse, text)


def _attempt(settings: Settings, name: str, parse: Callable[[str], Parsed], text: str) -> Parsed | None:
    try:
        return parse(text)
    except UsageError as error:
        settings.wrong(name, error.message, error.hint)
        return None
