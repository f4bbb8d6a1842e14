"""Writing nodes and edges as a base, changes merged into it, in blocks: out of core, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.adjacency import index_dtype
from graphbox.graph.array_file import ArrayWriter
from graphbox.graph.build import NodeIds
from graphbox.graph.columns import SegmentedColumn
from graphbox.graph.format import FolderWriter
from graphbox.graph.layout import add_strings, check_edge_type, write_ids
from graphbox.graph.live_nodes import LiveIds
from graphbox.graph.overlay import MergedLists, merged_lists
from graphbox.graph.schema import EdgeType, Int64Array, check_type_name, edge_type_text
from graphbox.graph.snapshot import LiveEdgeTable, as_live
from graphbox.graph.tables import NodeTable, OwnEdges

Array = npt.NDArray[Any]

DEFAULT_MEMORY_BYTES = 1 << 28
_SMALLEST_BLOCK = 1 << 12
_IDS_BLOCK = 1 << 18
_SMALLEST_IDS_BYTES = 1 << 26

_BYTES_PER_EDGE = 96
"""Of a block: indices, edge ids, their order, and a gathered copy of each, beside the payload."""


# Edges


@dataclass(frozen=True, eq=False)
class _Payload:
    """A column of the edges, by the ids that they have had, and where it is written."""

    column: SegmentedColumn
    writer: ArrayWriter

    def append(self, block: MergedLists) -> Array:
        """Write the values of a block's edges and return them."""
        if block.is_base and len(block.edge_ids):
            first = int(block.edge_ids[0])
            values = self.column.read(first, first + len(block.edge_ids)).values
        else:
            values = self.column.take(block.edge_ids).values
        self.writer.append(values)
        self.column.release()
        return values


def write_edges(
    writer: FolderWriter, edge_type: EdgeType, table: OwnEdges, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> dict[str, Any]:
    """Write the edges of one type, changes merged, and return their entry in the manifest.

    Args:
        writer: where to.
        edge_type: their type.
        table: the edges.
        memory_bytes: about the most memory to take beside what the changes need; a list of one node may take
            more.
    """
    check_edge_type(edge_type, table.reverse)
    live = as_live(table)
    folder = f"edges/{edge_type_text(edge_type)}"
    payloads = _payloads(writer, folder, live)
    row_bytes = sum(
        each.itemsize * int(np.prod(each.shape[1:]))
        for each in (payload.column.read(0, 0).values for payload in payloads.values())
    )
    block_edges = max(memory_bytes // (_BYTES_PER_EDGE + 3 * row_bytes), _SMALLEST_BLOCK)
    entry = {
        "type": list(edge_type),
        "reverse": None if table.reverse is None else table.reverse[1],
        "num_edges": table.num_edges,
        "imported": dict(table.imported),
        "weight": None,
        "timestamp": None,
    }
    merged = _write_lists(writer, folder, live, payloads, block_edges)
    used = merged.pop("used")
    features = []
    for number, name in enumerate(live.features):
        template = live.template(name)
        feature = {"name": name, "kind": template.kind, "values": merged.pop(f"feature-{number}")}
        if template.categories is not None:
            kept = _kept_categories(
                template.categories, used[f"feature-{number}"], erase=len(live.removed) > 0
            )
            feature["categories"] = add_strings(writer, f"{folder}/feature-{number}-categories", kept)
        features.append(feature)
    return {**entry, **merged, "features": features}


def _payloads(writer: FolderWriter, folder: str, table: LiveEdgeTable) -> dict[str, _Payload]:
    """Return the columns of the edges by the names of their arrays."""
    columns: dict[str, SegmentedColumn] = {}
    for name in table.columns:
        if (payload := table.payload(name)) is not None:
            columns[name] = payload
    columns |= {f"feature-{number}": table.column(name) for number, name in enumerate(table.features)}
    payloads = {}
    for array, column in columns.items():
        none = column.read(0, 0).values
        target = writer.open_array(f"{folder}/{array}", none.dtype, none.shape[1:])
        payloads[array] = _Payload(column, target)
    return payloads


def _write_lists(
    writer: FolderWriter,
    folder: str,
    table: LiveEdgeTable,
    payloads: Mapping[str, _Payload],
    block_edges: int,
) -> dict[str, Any]:
    """Write adjacency and columns; return the paths by name, and which categories are used as ``used``."""
    is_renumbered = table.is_changed or table.base.stable is not None
    indptr = _IndptrWriter(writer, f"{folder}/indptr")
    indices = writer.open_array(f"{folder}/indices", index_dtype(table.num_sources))
    stable = writer.open_array(f"{folder}/edge-ids", np.int64) if is_renumbered else None
    keeps_csr = table.base.stored_csr is not None
    new_ids = _NewIds(writer.scratch / "new-edge-ids", table) if keeps_csr else None
    used: dict[str, npt.NDArray[np.bool_]] = {}
    for block in merged_lists(table, "in", block_edges):
        indptr.append(block.lengths)
        if new_ids is not None:
            new_ids.note(block.edge_ids, indices.num_rows)
        indices.append(block.indices.astype(indices.dtype, copy=False))
        if stable is not None:
            stable.append(table.stable_ids(block.edge_ids))
        for name, payload in payloads.items():
            values = payload.append(block)
            if values.dtype == np.int32:
                used[name] = _with_codes(used.get(name), values)
    paths: dict[str, Any] = {"indptr": indptr.close(), "indices": indices.close()}
    if stable is not None:
        paths |= {"edge-ids": stable.close(), "num_stable": table.num_stable}
    paths |= {name: payload.writer.close() for name, payload in payloads.items()}
    if new_ids is not None:
        paths |= _write_csr(writer, folder, table, new_ids, block_edges)
    return {**paths, "used": used}


def _write_csr(
    writer: FolderWriter, folder: str, table: LiveEdgeTable, new_ids: _NewIds, block_edges: int
) -> dict[str, str]:
    indptr = _IndptrWriter(writer, f"{folder}/csr-indptr")
    indices = writer.open_array(f"{folder}/csr-indices", index_dtype(table.num_targets))
    edge_ids = writer.open_array(f"{folder}/csr-edge-ids", np.int64)
    for block in merged_lists(table, "out", block_edges):
        indptr.append(block.lengths)
        indices.append(block.indices.astype(indices.dtype, copy=False))
        edge_ids.append(new_ids.of(block.edge_ids))
    new_ids.close()
    return {"csr-indptr": indptr.close(), "csr-indices": indices.close(), "csr-edge-ids": edge_ids.close()}


class _NewIds:
    """The new id of every edge by its old one: a temporary file, written nearly in order."""

    def __init__(self, path: Path, table: LiveEdgeTable) -> None:
        self._path = path
        self._ids = np.memmap(path, np.int64, "w+", shape=(max(table.num_edge_ids, 1),))

    def note(self, edge_ids: Int64Array, first: int) -> None:
        """Say that these edges are numbered from ``first`` on."""
        self._ids[edge_ids] = np.arange(first, first + len(edge_ids))

    def of(self, edge_ids: Int64Array) -> Int64Array:
        """Return the new ids of edges."""
        ids: Int64Array = np.asarray(self._ids[edge_ids])
        return ids

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink()


class _IndptrWriter:
    """Writes where lists start, given their lengths."""

    def __init__(self, writer: FolderWriter, name: str) -> None:
        self._array = writer.open_array(name, np.int64)
        self._array.append(np.zeros(1, np.int64))
        self._total = 0

    def append(self, lengths: Int64Array) -> None:
        """Write where the lists after some of these lengths start."""
        self._array.append(self._total + np.cumsum(lengths))
        self._total += int(lengths.sum())

    def close(self) -> str:
        """Finish the array and return its path."""
        return self._array.close()


# Nodes


def write_nodes(
    writer: FolderWriter, node_type: str, table: NodeTable, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> dict[str, Any]:
    """Write the nodes of one type, changes merged, and return their entry in the manifest.

    The indices of removed nodes stay; nothing of these nodes is written: in the place of the id stands text
    or a number that is no id (docs/formats/graph.md).

    Args:
        writer: where to.
        node_type: their type.
        table: the nodes.
        memory_bytes: about the most memory to take, at least 64 MiB for ids.
    """
    folder = f"nodes/{check_type_name(node_type, 'node type')}"
    entry: dict[str, Any] = {
        "name": node_type,
        "num_nodes": table.num_nodes,
        "ids": _write_ids(writer, folder, table, memory_bytes),
        "discovered": table.discovered,
        "features": [
            _write_feature(writer, f"{folder}/feature-{number}", name, table, memory_bytes)
            for number, name in enumerate(table.features)
        ],
    }
    if len(table.removed):
        entry["removed"] = writer.add(f"{folder}/removed", table.removed)
    if table.imported:
        entry["imported"] = dict(table.imported)
    return entry


def _write_ids(writer: FolderWriter, folder: str, table: NodeTable, memory_bytes: int) -> dict[str, Any]:
    """Write the ids of changed nodes; in the place of those of removed nodes stands what can be no id."""
    live = table.ids
    if not isinstance(live, LiveIds):
        return write_ids(writer, folder, live)
    ids = NodeIds(live.kind, scratch=writer.scratch, memory_bytes=max(memory_bytes, _SMALLEST_IDS_BYTES))
    no_ids = _no_ids(live, table.removed)
    for start in range(0, len(live), _IDS_BLOCK):
        block = live.read(start, min(start + _IDS_BLOCK, len(live)))
        low, high = np.searchsorted(table.removed, [start, start + len(block)])
        if low < high:
            block = pc.replace_with_mask(block, block.is_null(), no_ids.slice(low, high - low))
        ids.add(block)
    ids.close()
    return ids.write(writer, folder)


def _no_ids(ids: LiveIds, removed: Int64Array) -> pa.Array:
    """Return what to write for removed nodes: nothing that any node has as its id."""
    if ids.kind == "string":
        # An id has no line breaks.
        return pa.array([f"\n{index}" for index in removed.tolist()], pa.large_string())
    smallest = np.iinfo(np.int64).min
    free = np.zeros(0, np.int64)
    first = 0
    while len(free) < len(removed):
        candidates = smallest + np.arange(first, first + len(removed) - len(free))
        first += len(candidates)
        free = np.concatenate([free, candidates[ids.find(pa.array(candidates)) < 0]])
    return pa.array(free)


def _write_feature(
    writer: FolderWriter, array: str, name: str, table: NodeTable, memory_bytes: int
) -> dict[str, Any]:
    template = table.template(name)
    column = table.column(name)
    width = template.values.dtype.itemsize * int(np.prod(template.values.shape[1:]))
    block_rows = max(memory_bytes // (4 * width + 32), _SMALLEST_BLOCK)
    values = writer.open_array(array, template.values.dtype, template.values.shape[1:])
    offsets = _IndptrWriter(writer, f"{array}-offsets") if template.offsets is not None else None
    used: npt.NDArray[np.bool_] | None = None
    for start in range(0, len(column), block_rows):
        rows = column.read(start, min(start + block_rows, len(column)))
        values.append(rows.values)
        if offsets is not None and rows.offsets is not None:
            offsets.append(np.diff(rows.offsets))
        if template.categories is not None:
            used = _with_codes(used, rows.values)
        column.release()
    entry: dict[str, Any] = {"name": name, "kind": template.kind, "values": values.close()}
    if offsets is not None:
        entry["offsets"] = offsets.close()
    if template.categories is not None:
        kept = _kept_categories(template.categories, used, erase=len(table.removed) > 0)
        entry["categories"] = add_strings(writer, f"{array}-categories", kept)
    return entry


# Categories


def _with_codes(used: npt.NDArray[np.bool_] | None, codes: Array) -> npt.NDArray[np.bool_]:
    """Return which codes have occurred, with those of one more block."""
    counts = np.bincount(codes[codes >= 0]) > 0
    if used is None or len(used) < len(counts):
        counts[: 0 if used is None else len(used)] |= False if used is None else used
        return counts
    used[: len(counts)] |= counts
    return used


def _kept_categories(categories: pa.Array, used: npt.NDArray[np.bool_] | None, *, erase: bool) -> pa.Array:
    """Return the categories, those that only removed rows had as "": codes stay, their text goes."""
    if not erase:
        return categories
    is_used = np.zeros(len(categories), bool)
    if used is not None:
        is_used[: len(used)] = used
    return pc.if_else(pa.array(is_used), categories, pa.scalar("", categories.type))
