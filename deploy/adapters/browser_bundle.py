"""Files that a browser bundle has of a model version: its ONNX file, rows, ids and ``bundle.json``.

``web/bundle/description.ts`` is the content of ``bundle.json`` for the page that reads it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import (
    Artifact,
    FieldsForm,
    LookupForm,
    PaddedBlockForm,
    TableSpec,
    TensorsForm,
    TriplesForm,
    neighbor_files,
)
from graphbox.artifact.arrays import write_array
from graphbox.deploy.click import ascending_keys
from graphbox.deploy.tensors import example_arrays
from graphbox.errors import FormatError, UnsupportedError
from graphbox.row_codecs import row_codec

__all__ = ["write_bundle"]

_FORMAT, _FORMAT_VERSION = "graphbox-browser-bundle", 1
_DESCRIPTION_FILE = "bundle.json"
_READ_CODECS = ("float32", "float16", "int8_rowwise")
_FALLBACK_CODEC = "int8_rowwise"  # of tables in codecs that the page does not read
_COPIED_SUFFIXES = (".npy", ".onnx")
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as JavaScript writes them
# A browser keeps a file in one array, of which the smallest limit is that of 32-bit systems.
_MOST_FILE_BYTES = (1 << 31) - 1
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_NOT_READ = {
    *("unseen", "unknown_ids", "defaults", "positive_rate", "list_separator", "compares_numbers"),
    "join_calls",
}
"""Keys of forms that the page does not read."""


def write_bundle(artifact: Artifact, folder: Path) -> None:
    """Write what the page reads of a model version.

    Args:
        artifact: the model version.
        folder: of the bundle; it exists.

    Raises:
        UnsupportedError: a file is too large for a browser.
        FormatError: the model names files of other kinds than arrays and ONNX.
    """
    bundle = _Bundle(artifact, folder)
    form = artifact.preprocess
    match form:
        case LookupForm():
            bundle.add_targets(form.query_types, form.tables.values())
        case PaddedBlockForm():
            bundle.add_targets(form.query_types, (n for rows in form.rows.values() for n in rows.tables))
            bundle.add_lists(form)
        case FieldsForm():
            bundle.add_fields(form)
        case TriplesForm():
            bundle.add_triples(form)
        case TensorsForm():
            bundle.example = [_written(name, array) for name, array in example_arrays(artifact).items()]
    bundle.finish()


class _Bundle:
    """A bundle that is being written."""

    def __init__(self, artifact: Artifact, folder: Path) -> None:
        self.example: list[dict[str, Any]] = []
        self._artifact = artifact
        self._folder = folder
        self._files: dict[str, int] = {}
        self._tables: dict[str, dict[str, Any]] = {}
        self._ids: dict[str, dict[str, str]] = {}
        self._keys: dict[str, str] = {}
        self._links: dict[str, str] = {}
        self._targets: dict[str, dict[str, Any]] = {}
        self._form = artifact.preprocess

    def add_targets(self, query_types: Iterable[str], tables: Iterable[str]) -> None:
        """Add the tables that a model reads or ranks, and the ids that are asked for or shown."""
        manifest = self._artifact.manifest
        query_types = tuple(query_types)
        targets = {name: manifest.targets[name] for name in query_types if name in manifest.targets}
        self._targets = {name: target.model_dump() for name, target in targets.items()}
        self._add_tables({*tables, *(target.table for target in targets.values())})
        shown = [manifest.tables[target.table].node_type for target in targets.values()]
        self._add_ids((*query_types, *shown))

    def add_fields(self, form: FieldsForm) -> None:
        """Add the rows of values with their keys, and the first row of the example."""
        self._add_tables(form.tables)
        for number, name in enumerate(form.tables):
            keys = ascending_keys(self._artifact, name)
            self._keys[name] = self._write_array(f"keys/{number}.npy", keys.astype("<i8"))
        self._add_first({field.name: field.dim or 1 for field in form.fields})

    def add_triples(self, form: TriplesForm) -> None:
        """Add the rows of entities and relations, their ids, and the known links of each relation."""
        artifact = self._artifact
        self._add_tables({*form.entities.values(), form.to_tails, form.to_heads})
        self._add_ids((*form.entities, form.relation_type))
        for number, (relation, (head_type, tail_type)) in enumerate(form.ends.items()):
            pairs = artifact.links.pairs((head_type, relation, tail_type))
            if len(pairs):
                self._links[relation] = self._write_array(f"links/{number}.npy", pairs.astype("<i4"))
        self._add_first({tensor.name: 1 for tensor in artifact.manifest.inputs})

    def add_lists(self, form: PaddedBlockForm) -> None:
        """Add neighbour lists as arrays; the page reads no Parquet.

        Raises:
            UnsupportedError: the model reads features of edges.
        """
        groups = [group for layer in form.layers for group in layer.groups]
        if any(group.edges is not None for group in groups):
            raise UnsupportedError(
                "expected a model that runs in a page, this one reads features of edges",
                where=str(self._artifact.path),
                hint="serve it with `graphbox serve`, or export stored vectors (`form: vectors`)",
            )
        paths = neighbor_files.array_paths(form)
        for group in {group.neighbors: group for group in groups if group.neighbors in paths}.values():
            lists = self._artifact.neighbor_lists(group)
            for path, array in ((group.counts, lists.counts), (group.neighbors, lists.neighbors)):
                self._write_array(paths[path], array)
        every = [path for group in groups for path in (group.counts, group.neighbors, group.weights)]
        self.copy(path for path in every if path not in paths)
        self._form = neighbor_files.renamed(form, paths)

    def copy(self, paths: Iterable[str | None]) -> None:
        """Copy files of the model version; None is passed over."""
        artifact = self._artifact
        for path in dict.fromkeys(paths):
            if path is None:
                continue
            _refuse_too_large(path, artifact.manifest.files[path].bytes)
            if not path.endswith(_COPIED_SUFFIXES):
                # A server would send a model's .html as a page of its own.
                raise FormatError(
                    f"expected files named {' or '.join(_COPIED_SUFFIXES)} to copy, received {path}",
                    where=str(artifact.path),
                )
            shutil.copyfile(artifact.path / path, self._place(path))
            self._record(path)

    def finish(self) -> None:
        """Copy the ONNX file and write ``bundle.json``."""
        manifest = self._artifact.manifest
        onnx = None
        if manifest.onnx is not None:
            self.copy([manifest.onnx.path])
            onnx = {
                "path": manifest.onnx.path,
                "inputs": [tensor.model_dump() for tensor in manifest.onnx.inputs],
                "outputs": [tensor.model_dump() for tensor in manifest.onnx.outputs],
            }
        form = self._form.model_dump(mode="json")
        content = {
            "format": _FORMAT,
            "format_version": _FORMAT_VERSION,
            "name": manifest.name,
            "version": manifest.version,
            "digest": manifest.digest,
            "form": {key: value for key, value in form.items() if key not in _NOT_READ},
            "ids": self._ids,
            "tables": self._tables,
            "keys": self._keys,
            "links": self._links,
            "targets": self._targets,
            "onnx": onnx,
            "example": self.example,
            "files": self._files,
        }
        (self._folder / _DESCRIPTION_FILE).write_text(json.dumps(content, indent=2), encoding="utf-8")

    def _add_tables(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            spec = self._artifact.manifest.tables[name]
            if spec.codec in _READ_CODECS:
                self.copy(
                    f"tables/{name}/{file}" for file in row_codec(spec.codec).files(spec.rows, spec.dim)
                )
            else:
                spec = self._write_encoded(name, spec)
            self._tables[name] = _described(name, spec)

    def _write_encoded(self, name: str, spec: TableSpec) -> TableSpec:
        """Write a table in a codec that the page reads; return its description in a manifest."""
        codec = row_codec(_FALLBACK_CODEC)
        for file, array in codec.encode(self._artifact.table(name)).items():
            self._write_array(f"tables/{name}/{file}", array)
        return spec.model_copy(update={"codec": codec.name})

    def _add_ids(self, node_types: Sequence[str]) -> None:
        """Write the original ids of node types as JSON lists of strings."""
        for number, node_type in enumerate(dict.fromkeys(node_types)):
            ids = self._artifact.ids(node_type)
            path = f"ids/{number}.json"
            text = json.dumps(list(map(str, ids)), ensure_ascii=False, separators=(",", ":"))
            self._place(path).write_text(text, encoding="utf-8")
            self._record(path)
            self._ids[node_type] = {"path": path, "kind": ids.kind}

    def _add_first(self, counts: Mapping[str, int]) -> None:
        """Add the first values of inputs of the example request: by name, how many."""
        for tensor in self._artifact.example_inputs():
            name, values = tensor["name"], tensor["data"]
            if not isinstance(values, list):
                raise FormatError(
                    f"expected an example request with a list of values for `{name}`, received "
                    f"{type(values).__name__}",
                    where=str(self._artifact.path),
                )
            first = [_readable(value) for value in values[: counts.get(name, 0)]]
            self.example.append({"name": name, "shape": [len(first)], "data": first})

    def _write_array(self, path: str, array: npt.NDArray[Any]) -> str:
        _refuse_too_large(path, array.nbytes)
        with self._place(path).open("wb") as stream:
            write_array(stream, array)
        self._record(path)
        return path

    def _place(self, path: str) -> Path:
        """Return where to write a file of the bundle; its folder is made."""
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def _record(self, path: str) -> None:
        """Take the size of a written file into ``bundle.json``."""
        self._files[path] = (self._folder / path).stat().st_size
        _refuse_too_large(path, self._files[path])


def _described(name: str, spec: TableSpec) -> dict[str, Any]:
    """Return what the page reads of a table: its sizes, and the paths of its arrays."""
    values, *factors = (f"tables/{name}/{file}" for file in row_codec(spec.codec).files(spec.rows, spec.dim))
    return {
        **spec.model_dump(mode="json", exclude={"ids"}),
        "values": values,
        "factors": factors[0] if factors else None,
    }


def _refuse_too_large(name: str, size_bytes: int) -> None:
    if size_bytes > _MOST_FILE_BYTES:
        raise UnsupportedError(
            f"expected files of at most {_MOST_FILE_BYTES} bytes, which a browser can hold, received "
            f"{size_bytes}",
            where=name,
            hint="compress the model first: int8 rows take a quarter",
        )


def _written(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an input as JSON; what JavaScript's JSON cannot hold is text: 64-bit integers, NaN, infinity."""
    data = array.reshape(-1).tolist()
    if array.dtype.kind in "iu" and array.itemsize == 8:
        data = list(map(str, data))
    elif array.dtype.kind == "f":
        data = [value if math.isfinite(value) else _NOT_FINITE[str(value)] for value in data]
    return {"name": name, "shape": list(array.shape), "data": data}


def _readable(value: object) -> str:
    """Return a value as a visitor would write it: a float32 with as few digits as it needs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and abs(value) <= _LARGEST_FLOAT32:
        return str(np.float32(value))
    return "" if value is None else str(value)
