"""Features of edges that a model names: they must be in the graph, under edge types that the model reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphbox.config.earlier_models import Mistake
from graphbox.config.graph_schema import Edge, EdgeTypeSchema
from graphbox.config.section import is_edge_type_text
from graphbox.errors import did_you_mean

OWN_COLUMNS = ("weight", "timestamp")
"""Names, among features of edges, of what an edge has beside its features."""

OWN_COLUMN_HINT = "rename the feature, or import the column as the `weight` or `timestamp` of the edges"


def own_column_refusal(name: str, edge_type: str) -> str:
    """Return why a feature of edges that is called like their weight or timestamp is not read."""
    return f"expected `{name}` to be that of the edges, received a feature of that name of `{edge_type}`"


def mistakes_of_edge_features(
    name: str, model: Mapping[str, Any], edges: Sequence[EdgeTypeSchema]
) -> Iterator[Mistake]:
    """Yield what is wrong with the names in a model's `edge_features`; wrong types are passed over.

    Args:
        name: of the model.
        model: its section, as plain values.
        edges: edge types with edges of their own.
    """
    given = model.get("edge_features")
    known = {"__".join(each.type): each for each in edges}
    for text, names in given.items() if isinstance(given, Mapping) else ():
        key = ("models", name, "edge_features", text)
        edge_type = known.get(str(text))
        if edge_type is None:
            if is_edge_type_text(text):
                yield key, f"there is no edge type `{text}`", _hint(str(text), known)
            continue
        relations = _edge_types(model.get("relations"))
        if relations and not {edge_type.type, _backwards(edge_type)} & relations:
            message = f"expected an edge type among the model's `relations`, received `{text}`"
            yield key, message, "add it to `relations`, or leave it out here"
        features = readable_features(edge_type)
        for index, feature in enumerate(names if isinstance(names, list | tuple) else ()):
            if feature in OWN_COLUMNS and feature in edge_type.features:
                yield (*key, index), own_column_refusal(feature, text), OWN_COLUMN_HINT
            elif feature in names[:index]:
                yield (*key, index), f"expected each feature once, received `{feature}` again", "leave it out"
            elif isinstance(feature, str) and feature not in features:
                there = f"there are: {', '.join(sorted(features)) or 'none'}"
                message = f"there is no feature `{feature}` of edges of type `{text}`"
                yield (*key, index), message, did_you_mean(feature, features) or there


def readable_features(edge_type: EdgeTypeSchema) -> dict[str, str]:
    """Return the kinds of the features that layers can read of an edge type's edges, by name.

    The edges' own weight and timestamp are among them.
    """
    found = {name: kind for name, kind in edge_type.features.items() if kind != "slots"}
    own = {"weight": edge_type.has_weight, "timestamp": edge_type.has_timestamp}
    kinds = {"weight": "number", "timestamp": "integer"}
    return found | {name: kinds[name] for name, is_there in own.items() if is_there}


def _hint(text: str, known: Mapping[str, EdgeTypeSchema]) -> str:
    for name, each in known.items():
        if text == "__".join(_backwards(each)):
            return f"it has the edges of `{name}` backwards: name that one, whose features count both ways"
    return did_you_mean(text, known) or f"there are: {', '.join(sorted(known)) or 'none'}"


def _backwards(edge_type: EdgeTypeSchema) -> Edge:
    source, relation, target = edge_type.type
    return target, edge_type.reverse or f"rev_{relation}", source


def _edge_types(relations: Any) -> set[Edge]:
    every = relations if isinstance(relations, list | tuple) else ()
    return {tuple(each) for each in every if isinstance(each, list | tuple) and len(each) == 3}
