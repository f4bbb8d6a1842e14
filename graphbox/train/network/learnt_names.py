"""Names of what a network over node features reads, by which weights of an earlier one are matched."""

from __future__ import annotations

from collections.abc import Mapping

from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.features import MISSING_CATEGORY, LearntFeature


def feature_inputs(learnt: Mapping[str, Mapping[str, LearntFeature]]) -> dict[str, list[str]]:
    """Return the features of each node type with their kinds, in the order in which they are read.

    Args:
        learnt: what is known of features by node type and name.
    """
    return {
        f"features of {node_type}": [
            f"{name} ({each.kind}{f' of length {each.dim}' if each.kind == 'vector' else ''})"
            for name, each in features.items()
        ]
        for node_type, features in learnt.items()
    }


def feature_categories(
    learnt: Mapping[str, Mapping[str, LearntFeature]], prefix: str = "inputs"
) -> dict[str, list[str]]:
    """Return the categories and slots that rows of weights belong to, by name of the weight.

    Args:
        learnt: what is known of features by node type and name.
        prefix: name of the :func:`graphbox.models.graph_inputs.input_modules` of the network.
    """
    found = {}
    for node_type, features in learnt.items():
        categories = [each for each in features.values() if each.kind == "categorical"]
        slots = [each.slots for each in features.values() if each.kind == "slots"]
        for number, each in enumerate(categories):
            name = f"{prefix}.{node_type}.features.categories.{number}.weight"
            found[name] = [MISSING_CATEGORY, *each.categories]
        for number, values in enumerate(slots):
            texts = [] if values is None else [str(value) for value in values.tolist()]
            found[f"{prefix}.{node_type}.slots.{number}"] = texts
    return found


def edge_categories(
    learnt: Mapping[EdgeType, Mapping[str, LearntFeature]], layers: int
) -> dict[str, list[str]]:
    """Return the categories that rows of the vectors of edges' categories belong to, by name of the weight.

    Args:
        learnt: what is known of features by relation and name.
        layers: number of layers.
    """
    found = {}
    for relation, features in learnt.items():
        categories = [each for each in features.values() if each.kind == "categorical"]
        for number, each in enumerate(categories):
            for layer in range(layers):
                name = f"layers.{layer}.edge_inputs.{edge_type_text(relation)}.categories.{number}"
                found[name] = [MISSING_CATEGORY, *each.categories]
    return found
