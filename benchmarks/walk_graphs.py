"""Graphs of two node types to walk there and back: a random one, a real one, the bundled one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import graphbox.demo
from benchmarks.rmat import Rmat
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph

Int64Array = npt.NDArray[np.int64]
EdgeType = tuple[str, str, str]

THERE_AND_BACK: tuple[EdgeType, EdgeType] = (("source", "to", "target"), ("target", "rev_to", "source"))
"""The metapath of all graphs of this module."""


@dataclass(frozen=True)
class ThereAndBack:
    """A metapath of two steps: an edge type, then the same against its edges. No walk meets a dead end.

    Attributes:
        name: for the case.
        there: the targets of each source.
        back: the sources of each target.
    """

    name: str
    there: Rmat
    back: Rmat

    @property
    def node_types(self) -> list[str]:
        """The types of sources and targets."""
        return ["source", "target"]

    @property
    def edge_types(self) -> list[EdgeType]:
        """Both edge types."""
        return list(THERE_AND_BACK)

    def num_nodes(self, node_type: str) -> int:
        """Return the number of nodes of a type."""
        return (self.there if node_type == "source" else self.back).num_nodes

    def csr(self, edge_type: EdgeType) -> Rmat:
        """Return the targets of each source of an edge type."""
        return self.there if edge_type == THERE_AND_BACK[0] else self.back

    def csc(self, edge_type: EdgeType) -> Rmat:
        """Return the sources of each target of an edge type."""
        return self.back if edge_type == THERE_AND_BACK[0] else self.there

    def start(self, walkers: int) -> Int64Array:
        """Return sources that have edges."""
        return np.random.default_rng(1).choice(self.there.connected(), walkers)

    def as_one_type(self) -> Rmat:
        """Return the graph with the targets numbered after the sources, each edge both ways."""
        there = self.there.indices.astype(np.int64) + self.there.num_nodes
        indptr = np.concatenate([self.there.indptr, self.there.indptr[-1] + self.back.indptr[1:]])
        return Rmat(indptr, np.concatenate([there, self.back.indices]).astype(np.int32))


def compressed(rows: Int64Array, columns: Int64Array, num_rows: int) -> Rmat:
    """Return the columns of each row, ascending."""
    order = np.lexsort((columns, rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=num_rows))])
    return Rmat(indptr.astype(np.int64), columns[order].astype(np.int32))


def there_and_back(name: str, sources: Int64Array, targets: Int64Array) -> ThereAndBack:
    """Return a metapath over edges."""
    num_sources, num_targets = int(sources.max()) + 1, int(targets.max()) + 1
    return ThereAndBack(
        name, compressed(sources, targets, num_sources), compressed(targets, sources, num_targets)
    )


def bipartite(users: int) -> ThereAndBack:
    """Return users, their degrees log-normal and 16 in the mean, and items, as popular as Zipf's law says."""
    rng = np.random.default_rng(7)
    items, edges = users // 5, users * 16
    wanted = rng.lognormal(0.0, 1.0, users)
    degree = np.maximum(1, (wanted * edges / wanted.sum()).astype(np.int64))
    popularity = np.cumsum(1.0 / np.arange(1, items + 1) ** 0.9)
    item = np.searchsorted(popularity / popularity[-1], rng.random(int(degree.sum())))
    keys = np.repeat(np.arange(users), degree) * items + rng.permutation(items)[np.minimum(item, items - 1)]
    keys = np.unique(keys)
    return there_and_back("bipartite", keys // items, keys % items)


def kernel(folder: Path) -> ThereAndBack:
    """Return the files and identifiers of the Linux kernel: a file has the identifiers that occur in it.

    Args:
        folder: with ``graph.npz``: ``indptr`` and, by file, the differences of ascending identifiers.
    """
    arrays = np.load(folder / "graph.npz", allow_pickle=False)
    indptr, deltas = arrays["indptr"].astype(np.int64), arrays["index_delta"].astype(np.int64)
    total = np.concatenate([[0], np.cumsum(deltas)])
    files = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return there_and_back("kernel", files, total[1:] - total[indptr[:-1]][files])


def debian() -> Iterator[ThereAndBack]:
    """Yield metapaths of the bundled graph: packages that need the same, and packages with the same tag."""
    folder = Path(next(iter(graphbox.demo.__path__)))
    edges = {"depends": "package", "tagged": "tag"}
    source = GraphSource(
        "debian",
        {name: NodeSource(folder / f"{name}.parquet") for name in ("package", "tag")},
        tuple(
            EdgeSource(("package", relation, target), folder / f"{relation}.parquet")
            for relation, target in edges.items()
        ),
    )
    with tempfile.TemporaryDirectory() as scratch:
        import_graph(source, Path(scratch) / "debian", strict=True)
        graph = Graph.open(Path(scratch) / "debian")
        for relation, target in edges.items():
            csr = graph.csr(("package", relation, target))
            sources = np.repeat(np.arange(csr.num_sources), csr.out_degree())
            yield there_and_back(f"debian-{relation}", sources, csr.indices.astype(np.int64))
