"""Users who rated items: a user's class is in the features of the ratings, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import EdgeType, FeatureKind
from tests.train.conftest import write

USERS, ITEMS, RATINGS = 240, 40, 6
RATED: EdgeType = ("user", "rated", "item")
FOLLOWS: EdgeType = ("user", "follows", "user")
TEXT = "user__rated__item"
START = 1_700_000_000_000_000
DAY = 86_400_000_000

KINDS: dict[str, FeatureKind] = {
    "stars": "number",
    "place": "categorical",
    "look": "vector",
    "paid": "boolean",
    "seconds": "integer",
}
SIGNALS = (*KINDS, "weight", "timestamp")
"""Features of edges that the class can be in."""


def write_tables(folder: Path, signal: str) -> None:
    """Write users of the classes ``a`` and ``b``, which one feature of their ratings tells.

    Every user rates one item twice. A tenth of the stars and places is missing.

    Args:
        folder: where files go.
        signal: the feature; the others are noise. ``side``: a user of class 1 gives the most stars to items
            of side 1, of class 0 to those of side 0, and rates as many of either.
    """
    generator = np.random.default_rng(4)
    label = generator.integers(0, 2, USERS)
    user = np.repeat(np.arange(USERS), RATINGS)
    item = generator.integers(0, ITEMS, len(user))
    if signal == "side":
        item = 2 * (item // 2) + np.arange(len(user)) % 2
    item[2::RATINGS] = item[::RATINGS]  # parallel edges
    told = label[user]

    def says(feature: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return 0 or 1 for each rating: the class where this is the feature that tells it."""
        return told if signal == feature else generator.integers(0, 2, len(user))

    missing = generator.random(len(user)) < 0.1
    high = (item % 2 == told) if signal == "side" else says("stars")
    stars = 1.0 + 3.0 * high + generator.random(len(user))
    places = np.array(["home", "shop", "web", "train"])[
        2 * says("place") + generator.integers(0, 2, len(user))
    ]
    days = np.where(says("timestamp") == 1, generator.integers(0, 30, len(user)), 200)
    write(
        folder / "rated.parquet",
        source=[f"u{number}" for number in user],
        target=item,
        stars=pa.array(stars, mask=missing),
        place=pa.array(places.tolist(), mask=missing[::-1]),
        look=[[float(value), 0.5] for value in says("look")],
        paid=says("paid").astype(bool),
        seconds=10 + 900 * says("seconds"),
        weight=1.0 + 4.0 * says("weight"),
        at=START - DAY * days,
    )
    write(
        folder / "follows.parquet",
        source=[f"u{number}" for number in range(USERS)],
        target=[f"u{(7 * number + 3) % USERS}" for number in range(USERS)],
    )
    write(
        folder / "user.parquet",
        id=[f"u{number}" for number in range(USERS)],
        label=np.array(["a", "b"])[label],
        one=np.ones(USERS),
    )
    write(folder / "item.parquet", id=np.arange(ITEMS), side=np.arange(ITEMS) % 2)


def build(folder: Path, signal: str) -> Graph:
    """Return the graph of the tables of :func:`write_tables`, which are written into a new folder."""
    folder.mkdir(parents=True)
    write_tables(folder, signal)
    users = NodeSource(folder / "user.parquet", features={"label": "categorical", "one": "number"})
    items = NodeSource(folder / "item.parquet", features={"side": "number"})
    edges = (ratings_of(folder / "rated.parquet"), EdgeSource(FOLLOWS, folder / "follows.parquet"))
    import_graph(GraphSource("ratings", {"user": users, "item": items}, edges), folder / "graph")
    return Graph.open(folder / "graph")


def ratings_of(path: Path) -> EdgeSource:
    """Return a table of ratings with all that is known of each."""
    return EdgeSource(RATED, path, weight="weight", timestamp="at", features=KINDS, keep_duplicates=True)
