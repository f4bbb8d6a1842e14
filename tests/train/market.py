"""A market that changes from day to day: users, items, posts and places, the same facts in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import FeatureKind

TASTES = 3


def build_market(
    folder: Path,
    users: Sequence[int],
    items: Sequence[int],
    *,
    cities: int = 4,
    relations: Sequence[str] = ("likes", "near"),
) -> Graph:
    """Return the graph of some users and items in their order; edges depend on their two ends alone.

    Args:
        folder: where the graph goes.
        users: their numbers; ids are text.
        items: their numbers; ids are integers.
        cities: number of different cities of users.
        relations: values of the column of relations.
    """
    generator = np.random.default_rng(3)
    draws = generator.random((1000, 1000))
    bought = _pairs(users, items, lambda u, i: draws[u, i] < (0.45 if u % TASTES == i % TASTES else 0.05))
    fits = _pairs(items, items, lambda a, b: a != b and draws[a + 300, b] < (0.5 if a % 3 == b % 3 else 0.03))
    follows = _pairs(users, users, lambda a, b: a != b and draws[a + 500, b] < 0.12)
    user = {
        "id": [f"u{number}" for number in users],
        "taste": [f"taste-{number % TASTES}" for number in users],
        "city": [f"city-{number % cities}" for number in users],
        "age": [float(20 + number % 17) for number in users],
        "visited": [[f"city-{(number + step) % cities}" for step in range(number % 3)] for number in users],
        "clicked": [draws[number, 999] < 0.3 for number in users],
    }
    kinds: dict[str, FeatureKind] = {
        "taste": "categorical",
        "city": "categorical",
        "age": "number",
        "visited": "slots",
        "clicked": "boolean",
    }
    source = GraphSource(
        "market",
        {
            "user": NodeSource(pa.table(user), features=kinds),
            "item": NodeSource(
                pa.table({"id": list(items), "size": [float(n % 7) for n in items]}),
                features={"size": "number"},
            ),
        },
        (
            EdgeSource(
                ("user", "bought", "item"), _edges(bought, "u", ""), timestamp="time", reverse="bought_by"
            ),
            EdgeSource(("item", "fits", "item"), _edges(fits, "", ""), reverse="fits_back"),
            EdgeSource(("user", "follows", "user"), _edges(follows, "u", "u"), timestamp="time"),
            EdgeSource(
                ("user", "knows", "item"),
                _edges(bought, "u", "", relations),
                features={"relation": "categorical"},
                keep_duplicates=True,
            ),
        ),
    )
    import_graph(source, folder)
    return Graph.open(folder)


def _pairs(
    first: Sequence[int], second: Sequence[int], joined: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    return [(a, b) for a in first for b in second if joined(a, b)]


def _edges(pairs: list[tuple[int, int]], first: str, second: str, relations: Sequence[str] = ()) -> pa.Table:
    """Return a table of edges; ids of nodes without a prefix are integers."""

    def ids(numbers: list[int], prefix: str) -> list[Any]:
        return [f"{prefix}{number}" for number in numbers] if prefix else list(numbers)

    columns: dict[str, list[Any]] = {
        "source": ids([a for a, _ in pairs], first),
        "target": ids([b for _, b in pairs], second),
        "time": [(7 * a + 13 * b) % 500 for a, b in pairs],
    }
    if relations:
        columns["relation"] = [relations[(a + b) % len(relations)] for a, b in pairs]
    return pa.table(columns)
