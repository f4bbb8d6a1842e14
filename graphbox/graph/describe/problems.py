"""Suspected problems of a graph's data, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphbox.graph.describe.description import (
    Degrees,
    EdgeTypeDescription,
    FeatureDescription,
    NodeTypeDescription,
    Problem,
)
from graphbox.graph.describe.words import number
from graphbox.graph.source import STORED_AGAIN
from graphbox.words import counted

_HUB_EDGES = 1000
_HUB_TIMES_MEAN = 100


def find_problems(
    node_types: Sequence[NodeTypeDescription],
    edge_types: Sequence[EdgeTypeDescription],
    isolated: Mapping[str, Sequence[str | int]],
) -> tuple[Problem, ...]:
    """Return what may be wrong, those of one kind together: what the import skipped first, then the rest.

    Args:
        node_types: the node types.
        edge_types: the edge types.
        isolated: ids of the first isolated nodes by node type.
    """
    problems: list[Problem] = []
    forward = [entry for entry in edge_types if entry.reverse_of is None]
    for edges in forward:
        problems += _imported(edges)
    for nodes in node_types:
        problems += _malformed(nodes.name, nodes.imported)
        if edge_types:  # without any, no node can have one
            problems += _isolated(nodes, isolated.get(nodes.name, ()))
    for edges in forward:
        problems += _edges(edges)
    for nodes in node_types:
        for feature in nodes.features:
            problems += _feature(feature, nodes.name, "nodes")
    for edges in forward:
        for feature in edges.features:
            problems += _feature(feature, " ".join(edges.type), "edges")
    kinds = list(dict.fromkeys(problem.kind for problem in problems))
    return tuple(sorted(problems, key=lambda problem: kinds.index(problem.kind)))


def _imported(edges: EdgeTypeDescription) -> Iterator[Problem]:
    imported = edges.imported
    where, rows = " ".join(edges.type), imported.get("rows")
    source, _, target = edges.type
    ends = source if source == target else f"{source} or {target}"
    examples: Mapping[str, Sequence[str]] = imported.get("examples", {})
    dangling = int(imported.get("dangling_edges", 0))
    if dangling:
        yield Problem(
            "dangling_edges",
            where,
            dangling,
            rows,
            f"{_share(dangling, rows)} rows were skipped by the import: an end is missing or is no {ends}",
            f"add the missing nodes to the table of {ends}, "
            "or compare how ids are written in both tables; `--strict` refuses such rows",
            tuple(examples.get("dangling_edges", ())),
        )
    yield from _malformed(where, imported)
    dropped = int(imported.get("duplicate_edges", 0)) if not edges.duplicate_edges else 0
    if dropped:
        yield Problem(
            "dropped_duplicates",
            where,
            dropped,
            rows,
            f"{_share(dropped, rows)} rows repeat the source and target of a row before and were dropped",
            "if each repetition counts, set `keep_duplicates: true`, or sum them into a weight",
            tuple(examples.get("duplicate_edges", ())),
        )


def _malformed(where: str, imported: Mapping[str, Any]) -> Iterator[Problem]:
    """Return the rows that the import could not use, by what is wrong with them."""
    rows, examples = imported.get("rows"), imported.get("examples", {})
    for kind, count in imported.get("skipped", {}).items():
        if kind == STORED_AGAIN:
            continue
        yield Problem(
            "malformed_rows",
            where,
            count,
            rows,
            f"{_share(count, rows)} rows were skipped by the import: {kind}",
            "correct these rows and import again; `--strict` stops at the first",
            tuple(examples.get(kind, ())),
        )


def _isolated(nodes: NodeTypeDescription, examples: Sequence[str | int]) -> Iterator[Problem]:
    if nodes.isolated:
        yield Problem(
            "isolated_nodes",
            nodes.name,
            nodes.isolated,
            nodes.nodes,
            f"{_share(nodes.isolated, nodes.nodes)} nodes have no edge of any type",
            "their vectors can come from features only: leave them out of training and evaluation, or look "
            "for an edge table that was forgotten",
            tuple(map(str, examples)),
        )


def _edges(edges: EdgeTypeDescription) -> Iterator[Problem]:
    where = " ".join(edges.type)
    if not edges.edges:
        yield Problem(
            "no_edges",
            where,
            0,
            None,
            "there is no edge of this type",
            "look at how ids are written in the tables of the nodes and of the edges",
        )
    if edges.duplicate_edges:
        yield Problem(
            "duplicate_edges",
            where,
            edges.duplicate_edges,
            edges.edges,
            f"{_share(edges.duplicate_edges, edges.edges)} edges repeat the source and target of another",
            "samplers draw repeated edges as often as they stand there; import with `keep_duplicates: false` "
            "to keep the first of each",
        )
    if edges.self_loops:
        yield Problem(
            "self_loops",
            where,
            edges.self_loops,
            edges.edges,
            f"{_share(edges.self_loops, edges.edges)} edges lead from a node to itself",
            "many layers see the node itself anyway, and a walk may stay where it is: leave them out unless "
            "they mean something",
        )
    for side, degrees in (("into", edges.in_degree), ("out of", edges.out_degree)):
        if degrees is not None:
            yield from _hubs(edges, side, degrees)


def _hubs(edges: EdgeTypeDescription, side: str, degrees: Degrees) -> Iterator[Problem]:
    if degrees.max < max(_HUB_EDGES, _HUB_TIMES_MEAN * degrees.mean):
        return
    source, _, target = edges.type
    yield Problem(
        "hubs",
        " ".join(edges.type),
        degrees.max,
        edges.edges,
        f"{_share(degrees.max, edges.edges)} edges lead {side} one {target if side == 'into' else source}, "
        f"{degrees.max / degrees.mean:,.0f} times the mean",
        "bound `num_neighbors` at every hop, and draw negatives by popularity, else the model mostly learns "
        "who is popular; look whether the largest ones are real or a default value",
        tuple(f"{hub.id} ({counted(hub.degree, 'edge')})" for hub in degrees.hubs),
    )


def _feature(feature: FeatureDescription, where: str, what: str) -> Iterator[Problem]:
    place = f"{where}, feature {feature.name}"
    if not feature.rows:
        return
    if feature.missing:
        every = feature.missing == feature.rows
        yield Problem(
            "missing_values",
            place,
            feature.missing,
            feature.rows,
            f"{'all' if every else _share(feature.missing, feature.rows)} {what} have no value",
            "leave the feature out, or look at the column's name and how it is written"
            if every
            else "models take the mean for a missing number and an own code for a missing category: "
            "fill them in where you know better",
        )
    if feature.constant:
        yield Problem(
            "constant_feature",
            place,
            feature.rows - (feature.missing or 0),
            feature.rows,
            f"every value is the same{_value(feature)}",
            "leave it out: a model learns nothing from it",
        )
    elif feature.constant_dims:
        yield Problem(
            "constant_dimensions",
            place,
            feature.constant_dims,
            feature.dim,
            f"{feature.constant_dims:,} of {feature.dim:,} numbers of the vectors are the same everywhere",
            "leave them out: a model learns nothing from them",
        )


def _value(feature: FeatureDescription) -> str:
    if feature.kind == "boolean":
        return " (true)" if feature.true else " (false)"
    return "" if feature.min is None else f" ({number(feature.min)})"


def _share(count: int, total: Any) -> str:
    """Return ``1,234 of 5,678 (21.7 %)``."""
    if not total:
        return f"{count:,}"
    percent = 100 * count / total
    shown = f"{percent:.1f}" if percent >= 0.1 else "under 0.1"
    return f"{count:,} of {total:,} ({shown} %)"
