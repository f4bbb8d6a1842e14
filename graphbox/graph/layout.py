"""Manifest entries of nodes and edges: written from tables, and read back into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.graph.columns import Column
from graphbox.graph.format import FolderWriter, Snapshot
from graphbox.graph.ids import Ids, IntegerIds, StringIds, string_array, string_buffers
from graphbox.graph.live_nodes import LiveIds, LiveNodeTable, NodeChange
from graphbox.graph.schema import (
    CSC,
    CSR,
    EdgeType,
    FeatureKind,
    Int64Array,
    check_type_name,
    edge_type_text,
)
from graphbox.graph.snapshot import EdgeChange, LiveEdgeTable, as_live
from graphbox.graph.tables import EdgeTable, LazyMapping, NodeTable, OwnEdges

if TYPE_CHECKING:
    from graphbox.graph.typed_tables import TypedTables

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

_OPTIONAL_EDGE_ARRAYS = ("edge-ids", "csr-indptr", "csr-indices", "csr-edge-ids")
"""Arrays that only some edge types have; absent from the others' entries."""


def write_ids(writer: FolderWriter, folder: str, ids: Ids) -> dict[str, str]:
    """Write the ids of the nodes of one type and return their entry in the manifest."""
    entry: dict[str, str] = {"kind": ids.kind, "index": writer.add(f"{folder}/ids-index", ids.hash_index)}
    if ids.kind == "int64":
        return {**entry, "values": writer.add(f"{folder}/ids", ids.values.to_numpy())}
    return entry | add_strings(writer, f"{folder}/ids", ids.values)


def check_edge_type(edge_type: EdgeType, reverse: EdgeType | None) -> None:
    """Raise when a name in an edge type, or in its reverse, may not be one.

    Raises:
        UsageError: naming it.
    """
    for part in (*edge_type, *(reverse or ())):
        check_type_name(part, f"edge type {edge_type_text(edge_type)}")


def _add_features(writer: FolderWriter, folder: str, features: Mapping[str, Column]) -> list[dict[str, Any]]:
    # Files are numbered: a feature's name may hold anything.
    entries = []
    for number, (name, column) in enumerate(features.items()):
        entry: dict[str, Any] = {
            "name": name,
            "kind": column.kind,
            "values": writer.add(f"{folder}/feature-{number}", column.values),
        }
        if column.offsets is not None:
            entry["offsets"] = writer.add(f"{folder}/feature-{number}-offsets", column.offsets)
        entries.append(entry)
    return entries


def add_strings(writer: FolderWriter, name: str, strings: pa.Array) -> dict[str, str]:
    """Write strings as two arrays and return their paths."""
    offsets, text = string_buffers(strings)
    return {"offsets": writer.add(f"{name}-offsets", offsets), "text": writer.add(f"{name}-text", text)}


# Changes


def write_node_change(writer: FolderWriter, node_type: str, change: NodeChange) -> dict[str, Any]:
    """Write what a change does to the nodes of one type and return its entry in the manifest."""
    folder = f"nodes/{check_type_name(node_type, 'node type')}"
    entry: dict[str, Any] = {
        "name": node_type,
        "first": change.first,
        "num_nodes": change.num_added,
        "ids": None if change.ids is None else write_ids(writer, folder, change.ids),
        "features": _add_features(writer, folder, change.features),
        "categories": _add_categories(writer, folder, change.categories),
        "discovered": change.discovered,
    }
    if len(change.updated):
        entry["updated"] = writer.add(f"{folder}/updated", change.updated)
        entry["updates"] = _add_features(writer, f"{folder}/updates", change.updates)
    if len(change.removed):
        entry["removed"] = writer.add(f"{folder}/removed", change.removed)
    return entry


def write_edge_change(
    writer: FolderWriter, edge_type: EdgeType, change: EdgeChange, reverse: EdgeType | None
) -> dict[str, Any]:
    """Write what a change does to the edges of one type and return its entry in the manifest."""
    check_edge_type(edge_type, reverse)
    folder = f"edges/{edge_type_text(edge_type)}"
    entry: dict[str, Any] = {
        "type": list(edge_type),
        "reverse": None if reverse is None else reverse[1],
        "first": change.first,
        "num_edges": change.num_added,
        "imported": dict(change.imported),
        "source": writer.add(f"{folder}/source", change.source),
        "target": writer.add(f"{folder}/target", change.target),
        "features": _add_features(writer, folder, change.features),
        "categories": _add_categories(writer, folder, change.categories),
    }
    for name, array in (("weight", change.weight), ("timestamp", change.timestamp)):
        entry[name] = None if array is None else writer.add(f"{folder}/{name}", array)
    if len(change.removed):
        entry["removed"] = writer.add(f"{folder}/removed", change.removed)
    return entry


def write_removal(
    writer: FolderWriter,
    graph: TypedTables,
    nodes: Mapping[str, Int64Array],
    edges: Mapping[EdgeType, Int64Array],
) -> dict[str, list[dict[str, Any]]]:
    """Write what a removal takes out of a graph and return its entries in the manifest.

    Args:
        writer: where to.
        graph: the graph.
        nodes: indices of nodes by node type, int64, ascending.
        edges: ids of edges by edge type, int64, ascending.
    """
    node_entries = [
        write_node_change(writer, name, NodeChange(first=graph.num_nodes(name), removed=removed))
        for name, removed in nodes.items()
        if len(removed)
    ]
    edge_entries = [
        write_edge_change(
            writer,
            edge_type,
            as_live(graph.own_edges(edge_type)).removal(removed),
            graph.reverse_type(edge_type),
        )
        for edge_type, removed in edges.items()
        if len(removed)
    ]
    return {"node_types": node_entries, "edge_types": edge_entries}


def _add_categories(
    writer: FolderWriter, folder: str, categories: Mapping[str, pa.Array]
) -> list[dict[str, str]]:
    return [
        {"name": name, **add_strings(writer, f"{folder}/categories-{number}", added)}
        for number, (name, added) in enumerate(categories.items())
    ]


# Reading


def read_tables(snapshot: Snapshot) -> tuple[dict[str, NodeTable], dict[EdgeType, OwnEdges]]:
    """Return the node and edge tables of an opened graph folder: its base with the changes after it.

    Raises:
        KeyError, TypeError, ValueError: the manifest is none of this version.
    """
    arrays, manifest = snapshot.arrays, snapshot.manifest
    nodes: dict[str, NodeTable] = {
        entry["name"]: _base_nodes(entry, arrays) for entry in manifest["node_types"]
    }
    num_base_nodes = {name: table.num_nodes for name, table in nodes.items()}
    for name, entries in _entries_by(manifest["deltas"], "node_types", lambda entry: str(entry["name"])):
        nodes[name] = _live_nodes(nodes.get(name), entries, arrays)
    edges: dict[EdgeType, OwnEdges] = {}
    for entry in manifest["edge_types"]:
        source, _, target = edge_type = _edge_type_of(entry)
        base = _base_edges(entry, arrays, num_base_nodes[source], num_base_nodes[target])
        edges[edge_type] = base
    changed = dict(_entries_by(manifest["deltas"], "edge_types", _edge_type_of))
    for edge_type in [*edges, *(each for each in changed if each not in edges)]:
        counts = nodes[edge_type[0]].num_nodes, nodes[edge_type[2]].num_nodes
        known = edges.get(edge_type)
        before = num_base_nodes.get(edge_type[0]), num_base_nodes.get(edge_type[2])
        if edge_type in changed or counts != before:
            if known is not None and not isinstance(known, EdgeTable):
                raise TypeError(edge_type)
            edges[edge_type] = _live_edges(known, changed.get(edge_type, []), arrays, counts)
    return nodes, edges


Key = TypeVar("Key")


def _entries_by(
    deltas: Sequence[Mapping[str, Any]], what: str, key: Callable[[Mapping[str, Any]], Key]
) -> Iterable[tuple[Key, list[Mapping[str, Any]]]]:
    """Return the entries of all changes, in order, by the type that they are about."""
    found: dict[Key, list[Mapping[str, Any]]] = {}
    for delta in deltas:
        for entry in delta[what]:
            found.setdefault(key(entry), []).append(entry)
    return found.items()


def _edge_type_of(entry: Mapping[str, Any]) -> EdgeType:
    source, relation, target = (check_type_name(part, "edge type") for part in entry["type"])
    return (source, relation, target)


def _reverse_of(entry: Mapping[str, Any]) -> EdgeType | None:
    source, _, target = entry["type"]
    if entry["reverse"] is None:
        return None
    return (target, check_type_name(entry["reverse"], "reverse edge type"), source)


def _base_nodes(entry: Mapping[str, Any], arrays: Arrays) -> NodeTable:
    ids = _opened_ids(entry["ids"], arrays)
    if entry["num_nodes"] != len(ids):
        raise ValueError(f"number of nodes of {entry['name']}")
    removed = _optional(entry, "removed", arrays)
    return NodeTable(
        LiveIds(ids.kind, [(0, ids)], removed) if len(removed) else ids,
        _features_of(entry["features"], arrays, len(ids)),
        removed,
        entry.get("discovered", False),
        entry.get("imported", {}),
    )


def _live_nodes(
    base: NodeTable | None, entries: Sequence[Mapping[str, Any]], arrays: Arrays
) -> LiveNodeTable:
    count = 0 if base is None else base.num_nodes
    changes = []
    for entry in entries:
        if entry["first"] != count:
            raise ValueError(f"number of nodes of {entry['name']}")
        count += entry["num_nodes"]
        updated = _optional(entry, "updated", arrays)
        change = NodeChange(
            first=entry["first"],
            ids=None if entry["ids"] is None else _opened_ids(entry["ids"], arrays),
            features=_features_of(entry["features"], arrays, entry["num_nodes"]),
            updated=updated,
            updates=_features_of(entry.get("updates", []), arrays, len(updated)),
            categories=_categories_of(entry, arrays),
            removed=_optional(entry, "removed", arrays),
            discovered=entry["discovered"],
        )
        if change.num_added != entry["num_nodes"]:
            raise ValueError(f"number of nodes of {entry['name']}")
        changes.append(change)
    added = [change for change in changes if change.ids is not None]
    known = set((added[0] if base is None else base).features)
    if any(set(each.features) != known for each in added) or any(
        not known.issuperset((*each.updates, *each.categories)) for each in changes
    ):
        raise ValueError(f"features of {entries[0]['name']}")
    return LiveNodeTable(base, changes)


def _base_edges(entry: Mapping[str, Any], arrays: Arrays, num_sources: int, num_targets: int) -> EdgeTable:
    csc = CSC(
        indptr=arrays[entry["indptr"]],
        indices=arrays[entry["indices"]],
        num_sources=num_sources,
        weight=None if entry["weight"] is None else arrays[entry["weight"]],
        timestamp=None if entry["timestamp"] is None else arrays[entry["timestamp"]],
    )
    if csc.num_targets != num_targets or csc.num_edges != entry["num_edges"]:
        raise ValueError(f"number of edges of {entry['type']}")
    csr = None
    if "csr-indptr" in entry:
        indptr, indices, edge_ids = (
            arrays[entry[name]] for name in ("csr-indptr", "csr-indices", "csr-edge-ids")
        )
        csr = CSR(indptr, indices, edge_ids, num_targets)
    if any(len(each) != csc.num_edges for each in (csc.weight, csc.timestamp) if each is not None):
        raise ValueError(f"weights or timestamps of {entry['type']}")
    return EdgeTable(
        csc,
        _features_of(entry["features"], arrays, csc.num_edges),
        imported=entry["imported"],
        reverse=_reverse_of(entry),
        csr=csr,
        stable=arrays[entry["edge-ids"]] if "edge-ids" in entry else None,
        num_stable=entry.get("num_stable"),
    )


def _live_edges(
    base: EdgeTable | None,
    entries: Sequence[Mapping[str, Any]],
    arrays: Arrays,
    num_nodes: tuple[int, int],
) -> LiveEdgeTable:
    count = 0 if base is None else base.num_edges
    changes = []
    for entry in entries:
        if entry["first"] != count:
            raise ValueError(f"number of edges of {entry['type']}")
        count += entry["num_edges"]
        change = EdgeChange(
            first=entry["first"],
            source=arrays[entry["source"]],
            target=arrays[entry["target"]],
            weight=None if entry["weight"] is None else arrays[entry["weight"]],
            timestamp=None if entry["timestamp"] is None else arrays[entry["timestamp"]],
            features=_features_of(entry["features"], arrays, entry["num_edges"]),
            categories=_categories_of(entry, arrays),
            removed=_optional(entry, "removed", arrays),
            imported=entry["imported"],
        )
        columns = (change.source, change.target, change.weight, change.timestamp)
        if any(len(each) != entry["num_edges"] for each in columns if each is not None):
            raise ValueError(f"number of edges of {entry['type']}")
        changes.append(change)
    parts: list[EdgeTable | EdgeChange] = [*([] if base is None else [base]), *changes]
    known = set(parts[0].features)
    if any(set(each.features) != known for each in parts if isinstance(each, EdgeTable) or each.num_added):
        raise ValueError(f"features of {entries[0]['type']}")
    reverse = base.reverse if base is not None else _reverse_of(entries[0])
    return LiveEdgeTable(base, changes, *num_nodes, reverse=reverse)


def _opened_ids(entry: Mapping[str, str], arrays: Arrays) -> Ids:
    index, where = arrays[entry["index"]], entry["index"]
    if entry["kind"] == "int64":
        return IntegerIds(arrays[entry["values"]], index, where=where)
    return StringIds(arrays[entry["offsets"]], arrays[entry["text"]], index, where=where)


def _optional(entry: Mapping[str, Any], name: str, arrays: Arrays) -> npt.NDArray[np.int64]:
    return arrays[entry[name]] if name in entry else np.zeros(0, np.int64)


def _features_of(entries: Sequence[Mapping[str, Any]], arrays: Arrays, num_rows: int) -> LazyMapping[Column]:
    """Return features that are put together when they are first used: their categories are read then."""
    by_name = {feature["name"]: feature for feature in entries}
    for feature in entries:
        # What is used later must be there: an error then would come from somewhere else.
        rows = len(arrays[feature["offsets"]]) - 1 if "offsets" in feature else len(arrays[feature["values"]])
        if (
            rows != num_rows
            or feature["kind"] not in get_args(FeatureKind)
            or feature["values"] not in arrays
        ):
            raise ValueError(f"feature {feature['name']}")
        for path in feature.get("categories", {}).values():
            arrays[path]

    def load(name: str) -> Column:
        feature = by_name[name]
        return Column(
            kind=feature["kind"],
            values=arrays[feature["values"]],
            categories=_strings_of(feature["categories"], arrays) if "categories" in feature else None,
            offsets=arrays[feature["offsets"]] if "offsets" in feature else None,
        )

    return LazyMapping(by_name, load)


def _categories_of(entry: Mapping[str, Any], arrays: Arrays) -> LazyMapping[pa.Array]:
    by_name = {added["name"]: added for added in entry["categories"]}
    return LazyMapping(by_name, lambda name: _strings_of(by_name[name], arrays))


def _strings_of(entry: Mapping[str, str], arrays: Arrays) -> pa.Array:
    return string_array(arrays[entry["offsets"]], arrays[entry["text"]])


def array_names(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of a type's arrays, its features' aside, by the names of docs/formats/graph.md."""
    if "ids" in entry:
        ids = {name: path for name, path in entry["ids"].items() if name != "kind"}
        return {"ids" if name == "values" else f"ids-{name}": path for name, path in ids.items()}
    optional = ("weight", "timestamp", *_OPTIONAL_EDGE_ARRAYS)
    return {name: entry[name] for name in ("indptr", "indices", *optional) if entry.get(name) is not None}
