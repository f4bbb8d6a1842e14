"""Graphs with several types for benchmarks, each also as a graph of one type with the same edges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.rmat import Rmat
from graphbox.sample.adjacency import EdgeType

__all__ = ["TypedGraph", "bipartite", "debian", "kernel"]

_DEMO = Path(__file__).parents[1] / "graphbox" / "demo"
_DEBIAN_EDGES = {
    "depends": "package",
    "pre_depends": "package",
    "recommends": "package",
    "suggests": "package",
    "enhances": "package",
    "built_from": "source",
    "tagged": "tag",
}


@dataclass(frozen=True)
class TypedGraph:
    """In-neighbours by edge type, and those of all types together.

    Attributes:
        nodes: number of nodes of each type.
        lists: the CSC of each edge type.
        merged: one CSC of all edges; nodes are numbered type after type.
        seed_type: the node type to draw seeds of: the first, so that its nodes have the same numbers in both.
        seeds: nodes of it that have edges.
    """

    nodes: dict[str, int]
    lists: dict[EdgeType, Rmat]
    merged: Rmat
    seed_type: str
    seeds: npt.NDArray[np.int64]


def bipartite(users: int, items: int, edges: int) -> TypedGraph:
    """Return users and items: log-normal many edges of a user, items by Zipf's law (exponent 0.9)."""
    rng = np.random.default_rng(7)
    wanted = rng.lognormal(size=users)
    degree = np.maximum(1, (wanted * (edges / wanted.sum())).astype(np.int64))
    share = np.cumsum(1.0 / np.arange(1, items + 1) ** 0.9)
    drawn = np.searchsorted(share, rng.random(int(degree.sum())) * share[-1])
    item = rng.permutation(items)[np.minimum(drawn, items - 1)]
    user = np.repeat(np.arange(users, dtype=np.int64), degree)
    return _both_ways({"user": users, "item": items}, {("user", "buys", "item"): (user, item)})


def kernel(path: Path) -> TypedGraph:
    """Return files and the identifiers in them, of ``graph.npz``."""
    with np.load(path) as arrays:
        files, identifiers = (int(count) for count in arrays["num_nodes"])
        indptr = arrays["indptr"].astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(arrays["index_delta"], dtype=np.int64)])
    degree = np.diff(indptr)
    identifier = sums[1:] - np.repeat(sums[indptr[:-1]], degree)
    file = np.repeat(np.arange(files, dtype=np.int64), degree)
    return _both_ways(
        {"file": files, "identifier": identifiers}, {("file", "contains", "identifier"): (file, identifier)}
    )


def debian() -> TypedGraph:
    """Return the bundled graph: packages, their sources and tags, seven relations and their reverses."""
    ids = {
        name: {value: number for number, value in enumerate(_column(name, "id"))}
        for name in ("package", "source", "tag")
    }
    pairs = {
        ("package", relation, target): (
            np.array([ids["package"][value] for value in _column(relation, "source")], np.int64),
            np.array([ids[target][value] for value in _column(relation, "target")], np.int64),
        )
        for relation, target in _DEBIAN_EDGES.items()
    }
    return _both_ways({name: len(numbers) for name, numbers in ids.items()}, pairs)


def _column(table: str, name: str) -> list[str]:
    import pyarrow.parquet as pq  # which benchmarks of a GPU do without

    values: list[str] = pq.read_table(_DEMO / f"{table}.parquet", columns=[name])[name].to_pylist()
    return values


def _both_ways(
    nodes: dict[str, int], pairs: dict[EdgeType, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
) -> TypedGraph:
    first = dict(zip(nodes, np.cumsum([0, *nodes.values()])[:-1].tolist(), strict=True))
    lists: dict[EdgeType, Rmat] = {}
    rows, neighbors = [], []
    for (source, relation, target), (left, right) in pairs.items():
        lists[source, relation, target] = _csc(right, left, nodes[target])
        lists[target, f"rev_{relation}", source] = _csc(left, right, nodes[source])
        rows += [right + first[target], left + first[source]]
        neighbors += [left + first[source], right + first[target]]
    merged = _csc(np.concatenate(rows), np.concatenate(neighbors), sum(nodes.values()))
    seed_type = next(iter(nodes))
    return TypedGraph(
        nodes, lists, merged, seed_type, np.flatnonzero(np.diff(merged.indptr)[: nodes[seed_type]])
    )


def _csc(rows: npt.NDArray[np.int64], neighbors: npt.NDArray[np.int64], num_rows: int) -> Rmat:
    keys = rows << 32 | neighbors
    keys.sort()
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=num_rows))]).astype(np.int64)
    return Rmat(indptr, (keys & 0xFFFFFFFF).astype(np.int32))
