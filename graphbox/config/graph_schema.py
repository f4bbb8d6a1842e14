"""The types of a graph that a run file may name, whether its tables are in the run file or it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graphbox.config.graph import GraphConfig
from graphbox.config.source import KeyPath

Edge: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class EdgeTypeSchema:
    """One edge type with edges of its own.

    Attributes:
        type: the edge type.
        reverse: relation of the edge type that holds every edge backwards, or None.
        features: kind of each feature, by name.
        has_timestamp: whether its edges have timestamps.
        has_weight: whether they have weights.
        keeps_duplicates: whether it may have several edges of one pair of nodes.
        key: where the run file has it; None where the run file does not list it.
    """

    type: Edge
    reverse: str | None = None
    features: Mapping[str, str] = field(default_factory=dict)
    has_timestamp: bool = False
    has_weight: bool = False
    keeps_duplicates: bool = True
    key: KeyPath | None = None


@dataclass(frozen=True)
class GraphSchema:
    """Node types, edge types and features of a graph.

    Attributes:
        nodes: kind of each feature, by name, of each node type.
        edges: edge types with edges of their own.
        origin: what has these types, for messages, such as ``the stored graph `shop```; None: the tables that
            the run file lists.
    """

    nodes: Mapping[str, Mapping[str, str]]
    edges: tuple[EdgeTypeSchema, ...]
    origin: str | None = None

    @property
    def edge_types(self) -> set[Edge]:
        """All edge types, reverse ones among them."""
        return {edge for _, edge in self.named_edge_types()}

    def named_edge_types(self) -> Iterator[tuple[KeyPath, Edge]]:
        """Yield each edge type, reverse ones too, with the key that names it in the run file."""
        for each in self.edges:
            key = each.key or ()
            yield (*key, "type"), each.type
            if each.reverse is not None:
                yield (*key, "reverse"), (each.type[2], each.reverse, each.type[0])


SchemaOf: TypeAlias = Callable[[str], GraphSchema]
"""Returns the schema of the stored graph of a name; raises NotFoundError where there is no such graph."""


def names_stored_graph(data: Any) -> bool:
    """Return whether the section ``graph`` of a run file, as plain values, only names a stored graph."""
    graph = data.get("graph") if isinstance(data, dict) else None
    if not isinstance(graph, dict) or "name" not in graph or not set(graph) <= set(GraphConfig.model_fields):
        return False
    return not graph.get("nodes") and not graph.get("edges")


def schema_of_tables(data: Any) -> GraphSchema:
    """Return the types that the tables of a run file make, as plain values; what has a wrong type is skipped.

    Args:
        data: the run file.
    """
    graph = data.get("graph") if isinstance(data, dict) else None
    graph = graph if isinstance(graph, dict) else {}
    nodes, edges = graph.get("nodes"), graph.get("edges")
    return GraphSchema(
        {name: _features(entry) for name, entry in (nodes if isinstance(nodes, dict) else {}).items()},
        tuple(_edge_type_schemas(edges if isinstance(edges, list) else [])),
    )


def _edge_type_schemas(entries: list[Any]) -> Iterator[EdgeTypeSchema]:
    for index, entry in enumerate(entries):
        names = entry.get("type") if isinstance(entry, dict) else None
        if not (isinstance(names, list) and len(names) == 3 and all(isinstance(name, str) for name in names)):
            continue
        reverse = entry.get("reverse")
        yield EdgeTypeSchema(
            type=(names[0], names[1], names[2]),
            reverse=reverse if isinstance(reverse, str) else None,
            features=_features(entry),
            has_timestamp=entry.get("timestamp") is not None,
            has_weight=entry.get("weight") is not None,
            keeps_duplicates=bool(entry.get("keep_duplicates")),
            key=("graph", "edges", index),
        )


def _features(entry: Any) -> Mapping[str, str]:
    features = entry.get("features") if isinstance(entry, dict) else None
    return features if isinstance(features, dict) else {}
