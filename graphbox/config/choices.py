"""Settings that are chosen by the data: what is known of it, candidates, and spaces to search."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

__all__ = ["Candidate", "Choices", "DataFacts", "Duration", "Interval"]

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-z]*)\s*")


@dataclass(frozen=True)
class DataFacts:
    """Facts about a graph and the training part of a task, by which settings are chosen.

    Attributes:
        nodes: number of nodes.
        edges: number of edges, reverse edge types left out.
        pairs: number of pairs of nodes that an edge joins, in either direction.
        node_types: number of node types that edges join.
        features: whether the nodes of the task have features to read; of links, whether any node has that
            edges join.
        labels: nodes of the training part with a known class; 0: the task has no classes.
        links: links of the training part; 0: the task is about none.
        validation: nodes of the validation part with a known class, its links, or the events to predict.
        classes: number of classes.
        homophily: share of the edges between two labelled nodes of the training part that have a class in
            common; None: too few edges.
        histories: nodes with two events or more in the training part, each but the first an event to predict.
    """

    nodes: int
    edges: int
    pairs: int
    node_types: int = 1
    features: bool = False
    labels: int = 0
    links: int = 0
    validation: int = 0
    classes: int = 0
    homophily: float | None = None
    histories: int = 0


@dataclass(frozen=True)
class Candidate:
    """Settings that may suit the data.

    Attributes:
        settings: values by key of the model's section.
        why: the reason to try them, in a few words.
        trial: settings that a comparison has instead, such as fewer epochs; with any the best candidate is
            trained anew. A search takes the settings as they are.
    """

    settings: Mapping[str, Any]
    why: str
    trial: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Interval:
    """Numbers that a search may choose from.

    Attributes:
        low: smallest.
        high: largest.
        logarithmic: search equal ratios alike, instead of equal differences.
    """

    low: float
    high: float
    logarithmic: bool = False


Choices: TypeAlias = "tuple[str | int | float | bool, ...] | Interval"
"""Values of a setting that a search may choose from."""


def parse_duration(given: Any) -> float:
    """Return seconds from ``10min``, ``90s``, ``2h`` or a number of seconds.

    Raises:
        ValueError: `given` has another form, or is 0.
    """
    match = None if isinstance(given, bool) else _DURATION.fullmatch(str(given))
    unit = None if match is None else match["unit"] or "s"
    if match is None or unit not in _UNITS or not float(match["number"]):
        raise ValueError(f"expected a time like `10min`, `90s` or `2h`, received {given!r}")
    return float(match["number"]) * _UNITS[unit]


def _validate(given: Any) -> float:
    try:
        return parse_duration(given)
    except ValueError:
        raise PydanticCustomError(
            "duration",
            "expected a time like `10min`, `90s` or `2h`",
            {"hint": "units: s, min, h; a number without one counts seconds"},
        ) from None


Duration = Annotated[
    float,
    BeforeValidator(_validate, json_schema_input_type=float | str),
    Field(examples=["10min", "90s", "2h"]),
]
"""Seconds; in the run file also text with a unit."""
