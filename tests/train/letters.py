"""People who write to each other at times, made anew from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphbox.config import PredictLinksTaskConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from tests.train.conftest import write


def stream_graph(folder: Path, messages: int = 400) -> Graph:
    """Return people who write to each other at times, mostly to those they know, and whom they did not.

    Args:
        folder: where files go.
        messages: how many; the later half has a person beside each who did not get it.
    """
    generator = np.random.default_rng(2)
    rows = []
    for time in range(messages):
        writer = int(generator.integers(0, 30))
        reader = (writer + int(generator.integers(1, 4))) % 30 if generator.random() < 0.8 else None
        if reader is None:
            reader = (writer + int(generator.integers(1, 30))) % 30
        rows.append((writer, reader, time // 2))
    wrote = np.array(rows)
    write(folder / "wrote.parquet", source=wrote[:, 0], target=wrote[:, 1], time=wrote[:, 2])
    other = (wrote[:, 0] + generator.integers(1, 30, len(wrote))) % 30
    write(
        folder / "not_wrote.parquet",
        source=wrote[messages // 2 :, 0],
        target=other[messages // 2 :],
        time=wrote[messages // 2 :, 2],
    )
    edges = [
        EdgeSource(
            ("person", name, "person"),
            folder / f"{name}.parquet",
            timestamp="time",
            reverse=reverse,
            keep_duplicates=True,
        )
        for name, reverse in (("wrote", "written_by"), ("not_wrote", None))
    ]
    import_graph(GraphSource("letters", {"person": NodeSource()}, tuple(edges)), folder / "graph")
    return Graph.open(folder / "graph")


def stream_task() -> PredictLinksTaskConfig:
    return PredictLinksTaskConfig.model_validate(
        {
            "kind": "predict_links",
            "node_type": "person",
            "relations": ("wrote",),
            "split": {"kind": "time"},
            "negative_relations": ("not_wrote",),
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
        }
    )
