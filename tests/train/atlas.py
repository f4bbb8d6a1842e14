"""A small knowledge graph of places on a grid, with what follows from the grid, made anew from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import FeatureKind

SIDE = 7
PLACES = SIDE * SIDE
Triple = tuple[str, str, str]


def place(column: int, row: int) -> str:
    """Return the id of a place."""
    return f"p{column}-{row}"


def facts(seed: int = 0) -> dict[str, list[Triple]]:
    """Return triples by part.

    ``east`` and ``north`` are steps on the grid, ``northeast`` is one of each (a composition), ``opposite``
    joins a place with its mirror image both ways (a symmetric relation), ``west`` is ``east`` backwards.
    Some of ``northeast`` and one direction of some of ``opposite`` and ``west`` are held out.
    """
    generator = np.random.default_rng(seed)
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}

    def add(triple: Triple, held_out: float) -> None:
        chance = generator.random()
        part = "test" if chance < held_out / 2 else "valid" if chance < held_out else "train"
        parts[part].append(triple)

    for column in range(SIDE):
        for row in range(SIDE):
            here = place(column, row)
            if column + 1 < SIDE:
                add((here, "east", place(column + 1, row)), 0.0)
                add((place(column + 1, row), "west", here), 0.3)
            if row + 1 < SIDE:
                add((here, "north", place(column, row + 1)), 0.0)
            if column + 1 < SIDE and row + 1 < SIDE:
                add((here, "northeast", place(column + 1, row + 1)), 0.4)
            mirror = SIDE - 1 - column
            if column < mirror:
                add((here, "opposite", place(mirror, row)), 0.0)
                add((place(mirror, row), "opposite", here), 0.4)
    return parts


def write_triples(path: Path, triples: list[Triple], **columns: list[str]) -> Path:
    """Write a table of triples."""
    source, relation, target = zip(*triples, strict=True)
    pq.write_table(pa.table({"source": source, "relation": relation, "target": target, **columns}), path)
    return path


def build_atlas(folder: Path, seed: int = 0) -> Graph:
    """Return the graph.

    ``links`` has all triples with a column ``part``; ``known``, ``later`` and ``last`` are the parts in
    tables of their own; ``lies_in`` joins places with countries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = facts(seed)
    everything = [triple for triples in parts.values() for triple in triples]
    write_triples(
        folder / "links.parquet", everything, part=[part for part, triples in parts.items() for _ in triples]
    )
    for name, part in (("known", "train"), ("later", "valid"), ("last", "test")):
        write_triples(folder / f"{name}.parquet", parts[part])
    places = [place(column, row) for column in range(SIDE) for row in range(SIDE)]
    pq.write_table(pa.table({"id": places}), folder / "place.parquet")
    pq.write_table(
        pa.table({"source": places, "target": [f"c{int(name[1]) // 3}" for name in places]}),
        folder / "lies_in.parquet",
    )
    relation: dict[str, FeatureKind] = {"relation": "categorical"}
    edges = [
        EdgeSource(
            ("place", "links", "place"),
            folder / "links.parquet",
            features={**relation, "part": "categorical"},
            keep_duplicates=True,
            reverse="linked_from",
        )
    ]
    edges += [
        EdgeSource(
            ("place", name, "place"),
            folder / f"{name}.parquet",
            features=relation,
            keep_duplicates=True,
        )
        for name in ("known", "later", "last")
    ]
    edges.append(EdgeSource(("place", "lies_in", "country"), folder / "lies_in.parquet"))
    source = GraphSource(
        "atlas", {"place": NodeSource(folder / "place.parquet"), "country": NodeSource(None)}, tuple(edges)
    )
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")
