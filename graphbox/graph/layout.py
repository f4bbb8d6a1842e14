"""What a graph's manifest says of nodes and edges: written from tables, and read back into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from graphbox.graph.adjacency import index_dtype
from graphbox.graph.columns import Column
from graphbox.graph.format import FolderWriter, Snapshot
from graphbox.graph.ids import Ids, IntegerIds, StringIds, string_array, string_buffers
from graphbox.graph.schema import CSC, EdgeType, check_type_name, edge_type_text
from graphbox.graph.tables import EdgeTable, NodeTable

__all__ = ["array_names", "read_tables", "write_edges", "write_nodes"]


_OPTIONAL_EDGE_ARRAYS = ("edge-ids", "csr-indptr", "csr-indices", "csr-edge-ids")
"""Arrays that only some edge types have; absent from the others' entries."""


def write_nodes(writer: FolderWriter, node_type: str, table: NodeTable) -> dict[str, Any]:
    """Write the nodes of one type and return their entry in the manifest."""
    folder = f"nodes/{check_type_name(node_type, 'node type')}"
    order = table.ids.order.astype(index_dtype(table.num_nodes))
    ids: dict[str, str] = {"kind": table.ids.kind, "order": writer.add(f"{folder}/ids-order", order)}
    if table.ids.kind == "int64":
        ids["values"] = writer.add(f"{folder}/ids", table.ids.values.to_numpy())
    else:
        ids |= _add_strings(writer, f"{folder}/ids", table.ids.values)
    return {
        "name": node_type,
        "num_nodes": table.num_nodes,
        "ids": ids,
        "features": _add_features(writer, folder, table.features),
    }


def write_edges(writer: FolderWriter, edge_type: EdgeType, table: EdgeTable) -> dict[str, Any]:
    """Write the edges of one type and return their entry in the manifest."""
    for part in (*edge_type, *(table.reverse or ())):
        check_type_name(part, f"edge type {edge_type_text(edge_type)}")
    folder = f"edges/{edge_type_text(edge_type)}"
    csc = table.csc
    entry: dict[str, Any] = {
        "type": list(edge_type),
        "reverse": None if table.reverse is None else table.reverse[1],
        "num_edges": csc.num_edges,
        "imported": table.imported,
        "indptr": writer.add(f"{folder}/indptr", csc.indptr),
        "indices": writer.add(f"{folder}/indices", csc.indices),
        "features": _add_features(writer, folder, table.features),
    }
    for name, array in (("weight", csc.weight), ("timestamp", csc.timestamp)):
        entry[name] = None if array is None else writer.add(f"{folder}/{name}", array)
    return entry


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
        if column.categories is not None:
            entry["categories"] = _add_strings(
                writer, f"{folder}/feature-{number}-categories", column.categories
            )
        entries.append(entry)
    return entries


def _add_strings(writer: FolderWriter, name: str, strings: pa.Array) -> dict[str, str]:
    offsets, text = string_buffers(strings)
    return {"offsets": writer.add(f"{name}-offsets", offsets), "text": writer.add(f"{name}-text", text)}


def read_tables(snapshot: Snapshot) -> tuple[dict[str, NodeTable], dict[EdgeType, EdgeTable]]:
    """Return the node and edge tables of an opened graph folder.

    Raises:
        KeyError, TypeError, ValueError: the manifest is none of this version.
    """
    arrays, manifest = snapshot.arrays, snapshot.manifest
    nodes = {}
    for entry in manifest["node_types"]:
        ids = entry["ids"]
        order = arrays[ids["order"]]
        opened: Ids
        if ids["kind"] == "int64":
            opened = IntegerIds(arrays[ids["values"]], order)
        else:
            opened = StringIds.mapped(arrays[ids["offsets"]], arrays[ids["text"]], order)
        if not entry["num_nodes"] == len(opened) == len(order):
            raise ValueError(f"number of nodes of {entry['name']}")
        nodes[entry["name"]] = NodeTable(opened, _features_of(entry, arrays))
    edges = {}
    for entry in manifest["edge_types"]:
        source, relation, target = entry["type"]
        csc = CSC(
            indptr=arrays[entry["indptr"]],
            indices=arrays[entry["indices"]],
            num_sources=nodes[source].num_nodes,
            weight=None if entry["weight"] is None else arrays[entry["weight"]],
            timestamp=None if entry["timestamp"] is None else arrays[entry["timestamp"]],
        )
        if csc.num_targets != nodes[target].num_nodes or csc.num_edges != entry["num_edges"]:
            raise ValueError(f"number of edges of {relation}")
        edges[source, relation, target] = EdgeTable(
            csc,
            _features_of(entry, arrays),
            imported=entry["imported"],
            reverse=None if entry["reverse"] is None else (target, entry["reverse"], source),
        )
    return nodes, edges


def array_names(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of a type's arrays, its features' aside, by the names of docs/formats/graph.md."""
    if "ids" in entry:
        ids = {name: path for name, path in entry["ids"].items() if name != "kind"}
        return {"ids" if name == "values" else f"ids-{name}": path for name, path in ids.items()}
    optional = ("weight", "timestamp", *_OPTIONAL_EDGE_ARRAYS)
    return {name: entry[name] for name in ("indptr", "indices", *optional) if entry.get(name) is not None}


def _features_of(entry: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Column]:
    return {
        feature["name"]: Column(
            kind=feature["kind"],
            values=arrays[feature["values"]],
            categories=string_array(
                arrays[feature["categories"]["offsets"]], arrays[feature["categories"]["text"]]
            )
            if "categories" in feature
            else None,
            offsets=arrays[feature["offsets"]] if "offsets" in feature else None,
        )
        for feature in entry["features"]
    }
