"""Visitors who mostly go from a place to the one after it, at times, made from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import NextTaskConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from tests.train.conftest import write

PLACES = 30

Visits = list[tuple[str, str, int]]
"""Visitor, place and time of each visit."""


def some_visits(visitors: int = 60, seed: int = 5) -> Visits:
    """Return visits in a random order: one to forty of each visitor, two in five at an equal time."""
    generator = np.random.default_rng(seed)
    found: Visits = []
    for visitor in range(visitors):
        place, time = int(generator.integers(0, PLACES)), 0
        for _ in range(1 if visitor % 10 == 0 else int(generator.integers(2, 41))):
            found.append((f"v{visitor}", f"p{place}", time))
            place = (place + 1) % PLACES if generator.random() < 0.8 else int(generator.integers(0, PLACES))
            time += int(generator.random() < 0.6)
    order: NDArray[np.int64] = generator.permutation(len(found))
    return [found[each] for each in order]


def graph_of(folder: Path, visits: Visits, *, relations: int = 1) -> Graph:
    """Return the graph of visits, dealt in turn to relations ``visited_0``, ``visited_1``, ..."""
    sources = []
    for number in range(relations):
        visitor, place, time = zip(*visits[number::relations], strict=True)
        path = folder / f"visited_{number}.parquet"
        write(path, source=list(visitor), target=list(place), time=np.array(time))
        sources.append(
            EdgeSource(
                ("visitor", f"visited_{number}", "place"), path, timestamp="time", keep_duplicates=True
            )
        )
    nodes = {"visitor": NodeSource(), "place": NodeSource()}
    import_graph(GraphSource("visits", nodes, tuple(sources)), folder / "graph")
    return Graph.open(folder / "graph")


def task_of(relations: int = 1, **settings: object) -> NextTaskConfig:
    return NextTaskConfig.model_validate(
        {
            "kind": "next",
            "node_type": "visitor",
            "target_type": "place",
            "relations": tuple(f"visited_{number}" for number in range(relations)),
            "k": 5,
            **settings,
        }
    )
