"""Opens a model version and verifies it; tables and arrays are read when first used."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.artifact import neighbor_files
from graphbox.artifact.array_bundle import Arrays
from graphbox.artifact.copies import DAMAGED_HINT, Copies, PrivateCopies, copies_in_use
from graphbox.artifact.ids import Id, Ids
from graphbox.artifact.links import COLUMNS as LINK_COLUMNS
from graphbox.artifact.links import NO_LINKS, Links
from graphbox.artifact.manifest import MANIFEST_FILE, Manifest, TableSpec, read_manifest
from graphbox.artifact.onnx_inspection import inspect_onnx
from graphbox.artifact.parquet_files import ROWS_OF_ANY_FILE
from graphbox.artifact.preprocess import (
    FieldsForm,
    LookupForm,
    PaddedBlockForm,
    Preprocess,
    RelationGroup,
    TensorsForm,
    TriplesForm,
    read_preprocess,
)
from graphbox.artifact.rows import RowTable
from graphbox.artifact.served_tensors import served_tensors
from graphbox.errors import FormatError, NotFoundError, did_you_mean
from graphbox.row_codecs import TableShape, open_rows, row_codec

_MAX_JSON_BYTES = 64 << 20
_MAX_ONNX_BYTES = (1 << 31) - 1  # a protobuf message is never larger
_ROWS_PER_BYTE = 16  # of Parquet, beyond those of any file


@dataclass(frozen=True, eq=False)
class NeighborLists:
    """The neighbours of every node in each of R relations.

    Attributes:
        start: int64 [nodes, R], where each list begins.
        counts: uint16 [nodes, R], how long it is.
        neighbors: int32 [sum of counts], source node indices.
        weights: float32 [sum of counts], or None where they follow from the counts.
        edges: float32 [sum of counts, columns], features of the edges; None: the model reads none.
    """

    start: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint16]
    neighbors: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32] | None
    edges: npt.NDArray[np.float32] | None = None


class Artifact:
    """One version of one model, read-only. Use `Artifact.open`.

    Attributes:
        path: the folder.
        manifest: what the model is.
        preprocess: how original ids become feeds.
    """

    def __init__(self, path: Path, manifest: Manifest, copies: Copies | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self._copies = copies or copies_in_use()
        self._verified: list[object] = []
        self._tables: dict[str, RowTable] = {}
        self._ids: dict[str, Ids] = {}
        self._ids_of: dict[str, Ids] = {}
        self.preprocess: Preprocess = read_preprocess(
            self._file(manifest.preprocess).read_bytes(), path / manifest.preprocess
        )
        _check_references(self)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], verify: bool = True, copies: Copies | None = None
    ) -> Artifact:
        """Open the model version in the folder ``path``.

        Args:
            path: the folder that holds ``manifest.json``.
            verify: compare the sha256 of every file; without it only their presence and sizes.
            copies: makes the copies that are read; None: `copies_in_use`.

        Raises:
            NotFoundError: when there is no such folder, or no model in it.
            FormatError: when a file is missing, truncated, damaged, a link, or of another version.
            DoesNotFitError: there is no room for the copies.
        """
        copies = copies or copies_in_use()
        verified: list[object] = []
        folder = Path(path)
        try:
            manifest_bytes = regular_file(folder, MANIFEST_FILE, _MAX_JSON_BYTES).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(
                f"expected a model version (a folder with {MANIFEST_FILE}), found none", where=str(folder)
            ) from error
        manifest = read_manifest(manifest_bytes, folder / MANIFEST_FILE)
        limits = _size_limits(manifest)
        for name, record in manifest.files.items():
            try:
                file = regular_file(folder, name, limits.get(name))
            except FileNotFoundError as error:
                raise FormatError(
                    "expected a file of the model here, found none",
                    where=str(folder / name),
                    hint=DAMAGED_HINT,
                ) from error
            if file.stat().st_size != record.bytes:
                raise FormatError(
                    f"expected {record.bytes} bytes, received {file.stat().st_size}",
                    where=str(file),
                    hint=DAMAGED_HINT,
                )
            if verify:
                # Serving reads nothing of the network: a copy that others share would be memory for nothing.
                of_network = manifest.network is not None and name.startswith(f"{manifest.network}/")
                verified.append((PrivateCopies() if of_network else copies).verify(file, record))
        artifact = cls(folder, manifest, copies)
        artifact._verified = verified
        return artifact

    @property
    def node_types(self) -> tuple[str, ...]:
        """The node types that have ids here."""
        return tuple(dict.fromkeys(table.node_type for table in self.manifest.tables.values()))

    def table(self, name: str) -> RowTable:
        """Return one table of rows.

        Raises:
            NotFoundError: when there is no such table.
            FormatError: when its files are not what the manifest says.
        """
        if name not in self._tables:
            if name not in self.manifest.tables:
                raise NotFoundError(
                    f"expected one of the tables {sorted(self.manifest.tables)}, received `{name}`",
                    where=str(self.path),
                    hint=did_you_mean(name, self.manifest.tables),
                )
            self._tables[name] = self._open_table(name, self.manifest.tables[name])
        return self._tables[name]

    def ids(self, node_type: str) -> Ids:
        """Return the original ids of one node type.

        Raises:
            NotFoundError: when the model knows no such node type.
        """
        found = self._ids_of.get(node_type)
        if found is not None:
            return found
        for spec in self.manifest.tables.values():
            if spec.node_type == node_type:
                return self._ids_of.setdefault(node_type, self._read_ids(spec))
        raise NotFoundError(
            f"expected one of the node types {list(self.node_types)}, received `{node_type}`",
            where=str(self.path),
            hint=did_you_mean(node_type, self.node_types),
        )

    def neighbor_lists(self, group: RelationGroup) -> NeighborLists:
        """Return the neighbours of a group of relations.

        Raises:
            FormatError: when the arrays do not fit together, or a neighbour is out of range.
        """
        counts = self._list_array(group.counts, "<u2", (len(self.ids(group.target)), len(group.edge_types)))
        start = self._derived(group.counts, "starts", lambda: _list_starts(counts))["starts"]
        neighbors = self._list_array(group.neighbors, "<i4", (int(start[-1]),))
        sources = len(self.ids(group.source))
        if len(neighbors) and not 0 <= int(neighbors.min()) <= int(neighbors.max()) < sources:
            raise FormatError(
                f"expected neighbours in [0, {sources}), received {neighbors.min()} to {neighbors.max()}",
                where=str(self.path / group.neighbors),
            )
        weights = None if group.weights is None else self._array(group.weights, "<f4", neighbors.shape)
        edges = None
        if group.edges is not None:
            edges = self._array(group.edges.values, "<f4", (len(neighbors), group.edges.columns))
            self._check_finite(edges, group.edges.values)
        return NeighborLists(start[:-1].reshape(counts.shape), counts, neighbors, weights, edges)

    def _check_finite(self, values: npt.NDArray[np.float32], path: str) -> None:
        if not np.isfinite(values).all():
            raise FormatError("expected finite numbers, received others", where=str(self.path / path))

    def _list_array(self, name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return an array of neighbour lists, from a ``.npy`` file or the columns of a Parquet file."""
        if not name.endswith(neighbor_files.SUFFIX):
            return self._array(name, dtype, shape)
        file = self._file(name)

        def build() -> Arrays:
            content = self._copies.content(file, self.manifest.files[name])
            columns = [str(number) for number in range(shape[1] if len(shape) > 1 else 1)]
            table = read_parquet(file, columns, content=content)
            return {"values": neighbor_files.array_of_columns(table, dtype, file)}

        found = self._derived(name, "values", build)["values"]
        if found.shape != (*shape, 1)[:2]:
            raise FormatError(
                f"expected {shape[0]} rows of {(*shape, 1)[1]} columns, received {found.shape[0]} of "
                f"{found.shape[1]}",
                where=str(file),
            )
        return found.reshape(shape)

    def array(self, name: str, dtype: str) -> npt.NDArray[Any]:
        """Return an array that ``preprocess.json`` names, of a type like ``<f4`` and any shape.

        Raises:
            FormatError: it is not listed, or of another type.
        """
        file = self._file(name)
        found = self._copies.array(file, self.manifest.files[name])
        if found.dtype.str != dtype:
            raise FormatError(
                f"expected an array of type {dtype}, received {found.dtype.str}", where=str(file)
            )
        return found

    def default_row(self, node_type: str) -> npt.NDArray[np.float32] | None:
        """Return the embedding of unknown ids of a node type, float32 [dim]; None: they are refused.

        Raises:
            FormatError: its file is damaged, or of another type or length.
        """
        form = self.preprocess
        if not isinstance(form, LookupForm) or node_type not in form.defaults:
            return None
        return self._array(
            form.defaults[node_type], "<f4", (self.manifest.tables[form.tables[node_type]].dim,)
        )

    def onnx_bytes(self) -> bytes:
        """Return the content of the ONNX file.

        Raises:
            NotFoundError: when the model has none.
            FormatError: when it refers to other files.
        """
        if self.manifest.onnx is None:
            raise NotFoundError(
                "expected a model with an ONNX part, this one is tables only", where=str(self.path)
            )
        file = self._file(self.manifest.onnx.path)
        model = file.read_bytes()
        inspect_onnx(model, str(file))
        return model

    @cached_property
    def links(self) -> Links:
        """The known links of the training graph; empty when none were kept."""
        if self.manifest.links is None:
            return Links.of_arrays(NO_LINKS)
        file = self._file(self.manifest.links)
        name = self.manifest.links

        def build() -> Arrays:
            content = self._copies.content(file, self.manifest.files[name])
            return Links(read_parquet(file, LINK_COLUMNS, content=content), str(file)).to_arrays()

        links = Links.of_arrays(self._derived(name, "links", build))
        links.check_nodes({spec.node_type: spec.rows for spec in self.manifest.tables.values()})
        return links

    def example_inputs(self) -> list[dict[str, Any]]:
        """Return the inputs of the example request; [] without one.

        Raises:
            FormatError: the file is no request.
        """
        if self.manifest.example_request is None:
            return []
        file = self._file(self.manifest.example_request)
        try:
            inputs: list[dict[str, Any]] = json.loads(file.read_bytes())["inputs"]
            is_sound = bool(inputs) and all(
                isinstance(tensor["name"], str) and "data" in tensor for tensor in inputs
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_sound = False
        if not is_sound:
            raise FormatError("expected a request with inputs, each with a name and data", where=str(file))
        return inputs

    def example_ids(self) -> list[Id]:
        """Return the ids of the example request, of the node type that `preprocess` encodes; [] without one.

        Raises:
            FormatError: the file is no request for ids.
        """
        inputs = self.example_inputs()
        if not inputs or isinstance(self.preprocess, FieldsForm | TensorsForm):
            return []
        file = self.manifest.example_request
        ids = inputs[0]["data"]
        if not isinstance(ids, list) or not all(type(identifier) in (str, int) for identifier in ids):
            raise FormatError(f"expected a list of ids, received {ids!r:.120}", where=str(file))
        return ids

    def _file(self, name: str) -> Path:
        if name not in self.manifest.files:
            raise FormatError(f"the file {name} is used but not listed", where=str(self.path / MANIFEST_FILE))
        return regular_file(self.path, name)

    def _open_table(self, name: str, spec: TableSpec) -> RowTable:
        folder = f"tables/{name}"
        ids = self._read_ids(spec)
        codec = row_codec(spec.codec)
        arrays = {
            file: self._array(f"{folder}/{file}", wanted.dtype, wanted.shape)
            for file, wanted in codec.files(spec.rows, spec.dim).items()
        }
        try:
            return RowTable(open_rows(codec, arrays, TableShape(spec.rows, spec.dim, spec.node_type)), ids)
        except FormatError as error:
            where = str(self.path / folder / error.where) if error.where else str(self.path / folder)
            raise FormatError(error.message, where=where, hint=DAMAGED_HINT) from error

    def _read_ids(self, spec: TableSpec) -> Ids:
        if spec.ids not in self._ids:
            file = self._file(spec.ids)

            def build() -> Arrays:
                content = self._copies.content(file, self.manifest.files[spec.ids])
                table = read_parquet(file, ["id"], spec.rows, content)
                return Ids(table.column("id"), spec.node_type, str(file)).to_arrays()

            self._ids[spec.ids] = Ids.of_arrays(self._derived(spec.ids, "ids", build), spec.node_type)
        ids = self._ids[spec.ids]
        if len(ids) != spec.rows:
            raise _wrong_count(self.path / spec.ids, spec.rows, len(ids))
        return ids

    def _derived(self, name: str, kind: str, build: Callable[[], Arrays]) -> Arrays:
        return self._copies.derived(self._file(name), self.manifest.files[name], kind, build)

    def _array(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
        file = self._file(name)
        array = self._copies.array(file, self.manifest.files[name])
        fits = len(array.shape) == len(shape) and all(
            want in {None, got} for want, got in zip(shape, array.shape, strict=True)
        )
        if array.dtype.str != dtype or not fits or not array.flags.c_contiguous:
            expected = ["any" if size is None else size for size in shape]
            raise FormatError(
                f"expected a row-major array of type {dtype} and shape {expected}, "
                f"received {array.dtype.str} {list(array.shape)}",
                where=str(file),
            )
        return array


def _list_starts(counts: npt.NDArray[np.uint16]) -> Arrays:
    """Return where lists of these lengths begin, one after the other, and the end of the last."""
    starts = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts.reshape(-1), out=starts[1:])
    return {"starts": starts}


def _size_limits(manifest: Manifest) -> dict[str, int]:
    """Return the largest sizes of files that are read as a whole."""
    limits = dict.fromkeys((manifest.preprocess, manifest.example_request or ""), _MAX_JSON_BYTES)
    return limits if manifest.onnx is None else {**limits, manifest.onnx.path: _MAX_ONNX_BYTES}


def regular_file(folder: Path, name: str, max_bytes: int | None = None) -> Path:
    """Return the path of a file inside ``folder`` after checking that no link leads to it."""
    path = folder
    for part in name.split("/"):
        path = path / part
        try:
            status = path.lstat()
        except NotADirectoryError as error:
            raise FileNotFoundError(str(path)) from error
        if stat.S_ISLNK(status.st_mode):
            raise FormatError("expected a plain file or folder, found a symbolic link", where=str(path))
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("expected a plain file, found something else", where=str(path))
    if max_bytes is not None and status.st_size > max_bytes:
        raise FormatError(f"expected at most {max_bytes} bytes, received {status.st_size}", where=str(path))
    return path


def read_parquet(
    file: Path, columns: Sequence[str], rows: int | None = None, content: bytes | None = None
) -> pa.Table:
    """Read a table of columns that are not nested; names of types stay dictionaries, as they repeat.

    Args:
        file: its path.
        columns: that it has to have.
        rows: that it has to have; None: any number that its size allows.
        content: of the file; None: it is read.
    """
    most = _ROWS_PER_BYTE * (file.stat().st_size if content is None else len(content)) + ROWS_OF_ANY_FILE
    source = file if content is None else pa.BufferReader(content)
    try:
        found = pq.read_metadata(source)
        names = [found.schema.column(number).path for number in range(found.num_columns)]
        if names != list(columns):
            raise FormatError(f"expected the columns {list(columns)}, received {names}", where=str(file))
        if rows not in {None, found.num_rows}:
            raise _wrong_count(file, rows, found.num_rows)
        if found.num_rows > most:
            raise FormatError(
                f"expected at most {most} rows in a file of this size, received {found.num_rows}",
                where=str(file),
            )
        repeated = [name for name in columns if name in LINK_COLUMNS[:3]]
        # `read_table` would load the module of data sets, which loads pandas where it is installed.
        with pq.ParquetFile(source, read_dictionary=repeated) as parquet:
            table = parquet.read()
        table.validate(full=True)  # text that is no UTF-8, among others
        return table
    except (pa.ArrowException, OSError) as error:
        raise FormatError(
            f"expected a Parquet file, could not read one ({error})", where=str(file)
        ) from error


def _wrong_count(file: Path, expected: int | None, received: int) -> FormatError:
    return FormatError(f"expected {expected} ids, received {received}", where=str(file))


_FORMS: dict[str, type[Preprocess]] = {
    "encoder": PaddedBlockForm,
    "embedding": LookupForm,
    "click": FieldsForm,
    "knowledge_graph": TriplesForm,
    "tensors": TensorsForm,
}


def _check_references(artifact: Artifact) -> None:
    """Check that what the manifest and ``preprocess.json`` name is there and fits together."""
    manifest, preprocess = artifact.manifest, artifact.preprocess
    where = str(artifact.path / manifest.preprocess)
    has_onnx = manifest.onnx is not None
    if not isinstance(preprocess, _FORMS[manifest.kind]) or has_onnx == (manifest.kind == "embedding"):
        raise FormatError(
            f"expected the parts of a model of kind {manifest.kind}, received others", where=where
        )
    if isinstance(preprocess, TensorsForm):
        _check_bare(artifact)
        return
    integer_ids = bool(manifest.inputs) and manifest.inputs[0].datatype == "INT64"
    expected = served_tensors(preprocess, manifest.onnx, manifest.dim, integer_ids=integer_ids)
    if (manifest.inputs, manifest.outputs) != expected:
        raise FormatError(
            f"expected the inputs and outputs of a model of kind {manifest.kind}, received "
            f"{', '.join(each.name for each in (*manifest.inputs, *manifest.outputs))}",
            where=str(artifact.path / MANIFEST_FILE),
        )
    if not isinstance(preprocess, LookupForm):
        _check_inputs(manifest, preprocess.onnx_inputs, where)
    for name in [*_tables_of(preprocess), *(target.table for target in manifest.targets.values())]:
        if name not in manifest.tables:
            raise FormatError(
                f"expected one of the tables {sorted(manifest.tables)}, received `{name}`", where=where
            )
    if isinstance(preprocess, TriplesForm):
        _check_relations(artifact, preprocess, where)
    if isinstance(preprocess, FieldsForm | TriplesForm):
        return
    for query_type in preprocess.query_types:
        target = manifest.targets.get(query_type)
        if target is None:
            continue
        length, vectors = manifest.tables[target.table].dim, manifest.vectors(query_type)
        if length * vectors != manifest.dim:
            several = "a length that divides " if target.score == "max_inner_product" else ""
            raise FormatError(
                f"expected target rows of {several or 'length '}{manifest.dim}, received {length}",
                where=where,
            )


def _check_bare(artifact: Artifact) -> None:
    """Check that a model of bare tensors has the inputs and outputs of its ONNX file, and nothing else."""
    manifest = artifact.manifest
    onnx = manifest.onnx
    served = (manifest.inputs, manifest.outputs)
    if onnx is None or served != (onnx.inputs, onnx.outputs) or manifest.tables or manifest.targets:
        raise FormatError(
            "expected the inputs and outputs of the ONNX file and no tables, received others",
            where=str(artifact.path / MANIFEST_FILE),
        )


def _tables_of(form: LookupForm | PaddedBlockForm | FieldsForm | TriplesForm) -> list[str]:
    match form:
        case PaddedBlockForm():
            return [name for rows in form.rows.values() for name in rows.tables]
        case TriplesForm():
            return [*form.entities.values(), form.to_tails, form.to_heads]
        case FieldsForm():
            return list(form.tables)
        case _:
            return list(form.tables.values())


def _check_inputs(manifest: Manifest, fed: set[str], where: str) -> None:
    declared = {tensor.name for tensor in manifest.onnx.inputs} if manifest.onnx else set()
    if fed != declared:
        raise FormatError(
            f"expected feeds for the ONNX inputs {sorted(declared)}, received feeds for {sorted(fed)}",
            where=where,
        )


def _check_relations(artifact: Artifact, form: TriplesForm, where: str) -> None:
    names = list(artifact.ids(form.relation_type))
    if names != list(form.ends):
        raise FormatError(
            f"expected the node types at the ends of {len(names)} relations, received {len(form.ends)}",
            where=where,
        )
