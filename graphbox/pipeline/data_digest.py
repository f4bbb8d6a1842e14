"""Digests of graphs and tables in memory: the same data gives the same digest, without writing anything."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
    from graphbox.graph.columns import Column


def digest_of_graph(graph: Graph) -> str:
    """Return a SHA-256 (hex) of all that a graph holds: types, ids, features, edges."""
    digest = _Digest()
    for node_type in graph.node_types:
        digest.say("nodes", node_type, graph.id_type(node_type))
        digest.strings_or_numbers(graph.arrow_ids(node_type))
        digest.array(graph.removed_nodes(node_type))
        digest.columns(graph.node_columns(node_type))
    for edge_type in graph.edge_types:
        if graph.is_reverse(edge_type):
            continue
        csc = graph.csc(edge_type)
        digest.say("edges", *edge_type, str(graph.reverse_type(edge_type)))
        for array in (csc.indptr, csc.indices, csc.weight, csc.timestamp, csc.edge_ids):
            digest.array(array)
        digest.columns(graph.edge_columns(edge_type))
    return digest.hex()


def digest_of_source(source: GraphSource) -> str:
    """Return a SHA-256 (hex) of tables and of how they are read.

    Of a file it is its name, size and time of change that count, of a URL the text. A stream that can be read
    once is taken for new data each time.
    """
    digest = _Digest()
    for name, node in source.nodes.items():
        digest.say("nodes", name, _settings(node))
        digest.table(node.data)
    for edge in source.edges:
        digest.say("edges", _settings(edge))
        digest.table(edge.data)
    return digest.hex()


def identity_of_file(location: str | Path) -> list[Any]:
    """Return the name, size and time of change (ns) of a file; of a URL its text."""
    if isinstance(location, str):
        return [location]
    try:
        status = location.stat()
    except OSError:
        # The import itself says what is missing; here only sameness counts.
        return [str(location), None, None]
    return [str(location), status.st_size, status.st_mtime_ns]


def _settings(source: NodeSource | EdgeSource) -> str:
    values = {each.name: getattr(source, each.name) for each in fields(source) if each.name != "data"}
    return json.dumps(values, sort_keys=True, default=dict)


class _Digest:
    """A SHA-256 of values, each with what tells where it ends."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def hex(self) -> str:
        return self._hash.hexdigest()

    def say(self, *texts: str) -> None:
        self._hash.update((json.dumps(texts) + "\n").encode())

    def array(self, array: npt.NDArray[Any] | None) -> None:
        if array is None:
            self.say("none")
            return
        self.say("array", array.dtype.str, str(array.shape))
        self._hash.update(np.ascontiguousarray(array).data)

    def strings_or_numbers(self, values: pa.Array) -> None:
        self._batches(
            pa.RecordBatchReader.from_batches(
                schema := pa.schema([("values", values.type)]), [pa.record_batch([values], schema=schema)]
            )
        )

    def columns(self, columns: Mapping[str, Column]) -> None:
        for name, column in columns.items():
            self.say("feature", name, column.kind)
            self.array(column.values)
            self.array(column.offsets)
            if column.categories is not None:
                self.strings_or_numbers(column.categories)

    def table(self, data: Any) -> None:
        from graphbox.graph.source.location import find_files, is_url
        from graphbox.graph.source.memory import arrow_table

        if data is None:
            self.say("none")
        elif isinstance(data, str) and is_url(data):
            self.say("url", data)
        elif isinstance(data, str | Path):
            for file in find_files(data, ()):
                self.say("file", json.dumps(identity_of_file(Path(file.name))))
        elif isinstance(data, Mapping):
            self.table(arrow_table(data, "arrays"))
        elif isinstance(data, pa.RecordBatchReader) or not hasattr(data, "__len__"):
            self.say("stream", secrets.token_hex(16))
        else:
            self._batches(pa.RecordBatchReader.from_stream(data))

    def _batches(self, reader: pa.RecordBatchReader) -> None:
        sink = _Sink(self._hash)
        with pa.ipc.new_stream(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)


class _Sink(io.RawIOBase):
    """A file that only hashes what is written."""

    def __init__(self, digest: hashlib._Hash) -> None:
        self._digest = digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
        return view.nbytes
