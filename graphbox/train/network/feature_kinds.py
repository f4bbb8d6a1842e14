"""Features of a graph beside those that a network was trained with: whether they are the same in kind."""

from __future__ import annotations

from collections.abc import Mapping

from graphbox.errors import UsageError
from graphbox.graph.schema import FeatureSpec
from graphbox.models.features import LearntFeature


def check_features(learnt: Mapping[str, LearntFeature], there: Mapping[str, FeatureSpec], where: str) -> None:
    """Raise where a graph lacks a feature that a network reads, or has it of another kind.

    Args:
        learnt: what is known of the features that are read, by name.
        there: those of the graph.
        where: the node type or edge type, for errors.

    Raises:
        UsageError: it does.
    """
    for name, each in learnt.items():
        received, expected = there.get(name), _in_words(each.kind, each.dim)
        if received is None or _in_words(received.kind, received.dim or 0) != expected:
            raise UsageError(
                f"expected the feature `{name}` ({expected}), which the network reads, received "
                f"{'none' if received is None else _in_words(received.kind, received.dim or 0)}",
                where=where,
                hint="import the graph with the features that it had in training",
            )


def _in_words(kind: str, dim: int) -> str:
    return f"{kind} of {dim} numbers" if kind == "vector" else kind
