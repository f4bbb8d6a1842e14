"""A small shop: users who buy items at times, in tastes, made anew from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph

USERS, ITEMS, TASTES = 120, 80, 4


def purchases(seed: int = 0) -> NDArray[np.int64]:
    """Return user, item and time of each purchase, int64 [n, 3]; some pairs come twice, at other times."""
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(USERS):
        liked = np.arange(user % TASTES, ITEMS, TASTES)
        for _ in range(int(generator.integers(2, 12))):
            item = generator.choice(liked) if generator.random() < 0.9 else generator.integers(0, ITEMS)
            rows.append((user, int(item), int(generator.integers(0, 1000))))
    return np.array(rows)


def build_shop(folder: Path, seed: int = 0, *, shuffled: bool = False) -> Graph:
    """Return the graph: ``bought`` with times and a column ``part``, and ``bought_later`` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    bought = purchases(seed)
    part = np.random.default_rng(seed + 1).choice(
        ["train", "valid", "test", "unused"], len(bought), p=[0.6, 0.15, 0.2, 0.05]
    )
    order = np.random.default_rng(5).permutation(len(bought)) if shuffled else np.arange(len(bought))
    table = {
        "source": [f"u{user}" for user in bought[order, 0]],
        "target": [f"i{item}" for item in bought[order, 1]],
        "time": bought[order, 2],
        "part": part[order],
    }
    pq.write_table(pa.table(table), folder / "bought.parquet")
    later = purchases(seed + 7)[:200]
    pq.write_table(
        pa.table(
            {"source": [f"u{user}" for user in later[:, 0]], "target": [f"i{item}" for item in later[:, 1]]}
        ),
        folder / "bought_later.parquet",
    )
    pq.write_table(
        pa.table(
            {
                "id": [f"u{user}" for user in range(USERS)],
                "taste": [f"taste-{user % TASTES}" for user in range(USERS)],
                "part": [
                    "test" if user % 5 == 0 else "none" if user % 7 == 0 else "train" for user in range(USERS)
                ],
            }
        ),
        folder / "user.parquet",
    )
    pq.write_table(pa.table({"id": [f"i{item}" for item in range(ITEMS)]}), folder / "item.parquet")
    source = GraphSource(
        "shop",
        {
            "user": NodeSource(
                folder / "user.parquet", features={"taste": "categorical", "part": "categorical"}
            ),
            "item": NodeSource(folder / "item.parquet"),
        },
        (
            EdgeSource(
                ("user", "bought", "item"),
                folder / "bought.parquet",
                timestamp="time",
                features={"part": "categorical"},
                reverse="bought_by",
                keep_duplicates=True,
            ),
            EdgeSource(("user", "bought_later", "item"), folder / "bought_later.parquet", reverse="later_by"),
        ),
    )
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")
