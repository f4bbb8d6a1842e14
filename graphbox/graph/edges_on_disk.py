"""A graph with edges written anew to a folder: some of them, in both directions, or several types as one.

Readers of edges under budgets (:class:`graphbox.graph.tiered_graph.TieredGraph`) want them in files, by
target and by source. What a training sees is often not what the graph's folder has: a task holds edges out,
the import kept one direction alone, or a model takes several edge types as one.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.graph.array_file import ArrayFile, release_pages
from graphbox.graph.edge_blocks import EdgeBlock
from graphbox.graph.schema import CSC, CSR, EdgeType
from graphbox.graph.store import Graph
from graphbox.graph.tables import EdgeTable
from graphbox.graph.tier import ListFiles
from graphbox.graph.written_lists import WEIGHT, Entries, WrittenLists, block_edges, write_lists

Blocks: TypeAlias = Callable[[EdgeType, int], Iterator[EdgeBlock]]
"""Gives the edges of a type that are to be written, at most so many at a time, the same each time; those of a
reverse type lead from its sources to its targets."""

_TIMESTAMP, _EDGE_IDS = "timestamp", "edge_ids"
_DTYPES: Mapping[str, npt.DTypeLike] = {WEIGHT: np.float32, _TIMESTAMP: np.int64}


def with_edges_on_disk(
    graph: Graph, edge_types: Collection[EdgeType], blocks: Blocks, folder: Path, memory_bytes: int
) -> Graph:
    """Return a graph with the edges of some types in files of a folder, by target and by source.

    Nodes and their features stay where they are. Edges get new ids, keep weights and timestamps, and lose
    other features. The folder is removed when no graph uses it any more.

    Args:
        graph: the graph.
        edge_types: the types that it shall have; reverse ones follow the others.
        blocks: gives the edges of each type; reverse types are not asked for.
        folder: where to.
        memory_bytes: memory for sorting, beside 40 bytes for each node at an end of an edge type.
    """
    tables, files = {}, {}
    for number, edge_type in enumerate(each for each in edge_types if not graph.is_reverse(each)):
        columns = graph.own_edges(edge_type).columns
        writer = _Writer(folder / str(number), blocks, columns, memory_bytes)
        counts = graph.num_nodes(edge_type[0]), graph.num_nodes(edge_type[2])
        incoming = writer.by_target([edge_type], counts[1], merge=False)
        outgoing = writer.by_source(incoming, counts[0])
        tables[edge_type] = _table(incoming, outgoing, counts, graph.reverse_type(edge_type))
        files[edge_type] = {**_array_files(incoming, ""), **_array_files(outgoing, "csr-")}
    return graph.with_edges(tables, _EdgeFiles(files, folder))


def with_merged_edges_on_disk(
    graph: Graph,
    members: Mapping[EdgeType, Sequence[EdgeType]],
    blocks: Blocks,
    folder: Path,
    memory_bytes: int,
    *,
    weighted: bool,
) -> Graph:
    """Return a graph whose edge types are some of another graph's taken together, in files of a folder.

    All edges of a pair of nodes are one edge. It has the sum of their weights; those without one weigh 1.
    The folder is removed when no graph uses it any more.

    Args:
        graph: the graph.
        members: for each edge type of the new graph those it consists of, of the same ends; reverse types
            may be among them.
        blocks: gives the edges of each type.
        folder: where to.
        memory_bytes: memory for sorting, beside 40 bytes for each node at an end of an edge type.
        weighted: the new edges have weights.
    """
    tables, files = {}, {}
    for number, (edge_type, parts) in enumerate(members.items()):
        writer = _Writer(folder / str(number), blocks, (WEIGHT,) if weighted else (), memory_bytes)
        counts = graph.num_nodes(edge_type[0]), graph.num_nodes(edge_type[2])
        incoming = writer.by_target(parts, counts[1], merge=True)
        tables[edge_type] = _table(incoming, None, counts, None)
        files[edge_type] = _array_files(incoming, "")
    return graph.with_edges(tables, _EdgeFiles(files, folder))


class _EdgeFiles(dict[EdgeType, Mapping[str, ArrayFile]]):
    """Files of edges by the names of :meth:`Graph.array_file`; their folder is removed with this."""

    def __init__(self, files: Mapping[EdgeType, Mapping[str, ArrayFile]], folder: Path) -> None:
        super().__init__(files)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)


class _Writer:
    """Writes the lists of one edge type."""

    def __init__(self, folder: Path, blocks: Blocks, columns: Sequence[str], memory_bytes: int) -> None:
        self._folder = folder
        self._blocks = blocks
        self._columns = {name: _DTYPES[name] for name in columns}
        self._memory_bytes = memory_bytes

    def by_target(self, parts: Sequence[EdgeType], targets: int, *, merge: bool) -> WrittenLists:
        """Write the edges of some types in lists of their targets."""

        def entries() -> Iterator[Entries]:
            for edge_type in parts:
                for block in self._blocks(edge_type, block_edges(self._memory_bytes)):
                    yield Entries(block.target, block.source, self._columns_of(block))

        return write_lists(
            self._folder / "in",
            entries,
            targets,
            self._columns,
            merge=merge,
            memory_bytes=self._memory_bytes,
        )

    def by_source(self, incoming: WrittenLists, sources: int) -> WrittenLists:
        """Write the edges of lists of targets in lists of their sources, with their ids in the others."""
        arrays = {name: _mapped(file) for name, file in incoming.files.items.items()}
        ends = np.cumsum(incoming.lengths)

        def entries() -> Iterator[Entries]:
            step = block_edges(self._memory_bytes)
            for first in range(0, len(arrays["indices"]), step):
                part = slice(first, min(first + step, len(arrays["indices"])))
                ids = np.arange(part.start, part.stop)
                columns = {name: np.array(arrays[name][part]) for name in self._columns}
                target = np.searchsorted(ends, ids, side="right")
                source = arrays["indices"][part].astype(np.int64)
                for array in arrays.values():
                    release_pages(array)
                yield Entries(source, target, {**columns, _EDGE_IDS: ids})

        return write_lists(
            self._folder / "out",
            entries,
            sources,
            {**self._columns, _EDGE_IDS: np.int64},
            merge=False,
            memory_bytes=self._memory_bytes,
        )

    def _columns_of(self, block: EdgeBlock) -> dict[str, npt.NDArray[Any]]:
        found = {}
        for name in self._columns:
            values: npt.NDArray[Any] | None = getattr(block, name)
            found[name] = np.ones(len(block.source), np.float32) if values is None else values
        return found


def _table(
    incoming: WrittenLists, outgoing: WrittenLists | None, counts: tuple[int, int], reverse: EdgeType | None
) -> EdgeTable:
    arrays = _arrays(incoming)
    csc = CSC(arrays["indptr"], arrays["indices"], counts[0], arrays.get(WEIGHT), arrays.get(_TIMESTAMP))
    csr = None
    if outgoing is not None:
        lists = _arrays(outgoing)
        columns = lists.get(WEIGHT), lists.get(_TIMESTAMP)
        csr = CSR(lists["indptr"], lists["indices"], lists[_EDGE_IDS], counts[1], *columns)
    return EdgeTable(csc, reverse=reverse, csr=csr)


def _arrays(lists: WrittenLists) -> dict[str, npt.NDArray[Any]]:
    return {"indptr": _mapped(lists.files.offsets)} | {
        name: _mapped(file) for name, file in lists.files.items.items()
    }


def _mapped(file: ArrayFile) -> npt.NDArray[Any]:
    if not file.data_bytes:
        return np.zeros(file.shape, file.dtype)
    return np.memmap(file.path, file.dtype, "r", file.offset, file.shape)


def _array_files(lists: WrittenLists, prefix: str) -> dict[str, ArrayFile]:
    """Return files by the names of :meth:`Graph.array_file`."""
    files: ListFiles = lists.files
    named = {name.replace("_", "-"): file for name, file in files.items.items()}
    return {f"{prefix}{name}": file for name, file in {"indptr": files.offsets, **named}.items()}
