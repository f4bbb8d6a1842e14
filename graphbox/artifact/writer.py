"""Writes a model version: beside its place, to the disk, and then into place in one step."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ValidationError

from graphbox.artifact import neighbor_files
from graphbox.artifact.arrays import write_array, write_row_blocks
from graphbox.artifact.copies import sha256_of
from graphbox.artifact.ids import Id, Ids
from graphbox.artifact.links import COLUMNS as LINK_COLUMNS
from graphbox.artifact.links import Links
from graphbox.artifact.lookup_form import LookupForm, UnknownIds
from graphbox.artifact.manifest import (
    MANIFEST_FILE,
    FileRecord,
    Kind,
    Lineage,
    Manifest,
    OnnxSpec,
    TableSpec,
    TargetSpec,
    TensorSpec,
    check_name,
    first_problem,
    is_plain_name,
)
from graphbox.artifact.onnx_inspection import inspect_onnx
from graphbox.artifact.parquet_files import write_columns, write_ids, write_links
from graphbox.artifact.partial_folders import make_partial, remove_abandoned
from graphbox.artifact.preprocess import (
    FieldsForm,
    PaddedBlockForm,
    Preprocess,
    RelationGroup,
    TensorsForm,
    TriplesForm,
)
from graphbox.artifact.reader import Artifact, NeighborLists, read_parquet
from graphbox.artifact.rows import mean_row
from graphbox.artifact.served_tensors import served_tensors
from graphbox.durable import NO_ROOM, flush_to_disk
from graphbox.errors import ConflictError, DataError, DoesNotFitError, UsageError
from graphbox.row_codecs import ArrayRows, Arrays, RowCodec, RowSource, TableShape, open_rows, row_codec
from graphbox.rows import StoredRows

Metrics = Mapping[str, Mapping[str, float]]

ONNX_FILE = "model.onnx"
PREPROCESS_FILE = "preprocess.json"
NETWORK_FOLDER = "network"
LINKS_FILE = "links.parquet"
EXAMPLE_REQUEST_FILE = "example_request.json"
_STREAMED_FILE = "rows.npy"
_EXAMPLE_IDS = 2
_LONGEST_INDENTED = 10_000


class ArtifactWriter:
    """Builds a model version in a hidden folder beside ``path``; `commit` moves it into place.

    Use it as a context manager: what was not committed is removed at its end, and what a killed
    process left behind is removed by the next writer in the same folder.

    Args:
        path: the folder to make; it must not exist.

    Raises:
        ConflictError: when ``path`` exists already.
        DoesNotFitError: when the disk is full; nothing is left behind.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_name(self.path.name, "folder name of a model version")
        self._tables: dict[str, TableSpec] = {}
        self._ids: dict[str, tuple[str, Ids]] = {}
        self._onnx: OnnxSpec | None = None
        self._preprocess: Preprocess | None = None
        self._links: str | None = None
        self._network: str | None = None
        self._example: list[dict[str, Any]] | None = None
        self._partial = Path()
        self._lock = -1

    def __enter__(self) -> Self:
        self._refuse_existing()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.path.parent)
        self._partial, self._lock = make_partial(self.path)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._partial.exists():
            shutil.rmtree(self._partial)
        os.close(self._lock)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise DoesNotFitError(
                f"there is no room to write the model: {error.strerror}",
                where=str(self.path),
                hint="free some space, or remove old versions with `graphbox models rm`",
            ) from error

    def add_ids(self, node_type: str, ids: Iterable[Id] | pa.Array) -> Ids:
        """Write the original ids of a node type; every table of that type shares them.

        Raises:
            FormatError: on duplicates, nulls, or ids that are neither all strings nor all int64.
        """
        if node_type in self._ids:
            raise UsageError(f"expected the ids of `{node_type}` once, received them again")
        values = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else _id_array(ids, node_type)
        checked = Ids(values, node_type)
        path = f"ids/{node_type if is_plain_name(node_type) else len(self._ids)}.parquet"
        write_ids(self._place(path), checked.to_arrow())
        self._ids[node_type] = (path, checked)
        return checked

    def add_table(
        self,
        name: str,
        node_type: str,
        rows: npt.NDArray[np.float32] | npt.NDArray[np.float16] | RowSource,
        codec: RowCodec | None = None,
    ) -> None:
        """Write a table for a node type whose ids were added.

        Args:
            name: of the table.
            node_type: whose rows they are.
            rows: one for each id: float32 or float16 [n, dim], or rows to read in blocks.
            codec: how they are stored; None: as the array has them, other rows as float32.

        Raises:
            DataError: the rows are of another type or shape, or the codec cannot hold an element.
        """
        try:
            source = ArrayRows(rows) if isinstance(rows, np.ndarray) else rows
            own = rows.dtype.name if isinstance(rows, np.ndarray) else "float32"
            codec = codec or row_codec(own)
            self._add_table_spec(name, node_type, codec.name, (len(source), source.dim))
            self._add_table_arrays(name, codec.encode(source))
        except DataError as error:
            raise DataError(error.message, where=f"table `{name}`", hint=error.hint) from error

    def add_encoded_table(
        self, name: str, node_type: str, codec: RowCodec, arrays: Arrays, shape: tuple[int, int]
    ) -> None:
        """Write a table that was encoded before, for a node type whose ids were added.

        Args:
            name: of the table.
            node_type: whose rows they are.
            codec: of the table.
            arrays: what the codec made of it.
            shape: rows and length of a row.

        Raises:
            DataError: there is another number of rows than of ids.
        """
        self._add_table_spec(name, node_type, codec.name, shape)
        self._add_table_arrays(name, arrays)

    def _add_table_arrays(self, name: str, arrays: Arrays) -> None:
        for file, array in arrays.items():
            self.add_array(f"tables/{name}/{file}", array)

    def add_streamed_table(
        self,
        name: str,
        node_type: str,
        blocks: Iterable[npt.NDArray[Any]],
        ids: Callable[[], pa.Array],
    ) -> tuple[int, int]:
        """Write a table and its ids as they are read: a block of rows at a time is in memory.

        Args:
            name: of the table.
            node_type: whose ids were not added yet.
            blocks: float32 or float16 [n, dim] each, finite.
            ids: called after the last block; the ids of all rows.

        Returns:
            Rows and length of a row.

        Raises:
            DataError: there is no row, or another number of rows than of ids.
            FormatError: on duplicates or nulls among the ids.
        """
        with self._place(f"tables/{name}/{_STREAMED_FILE}").open("wb") as stream:
            shape, dtype = write_row_blocks(stream, blocks)
        self.add_ids(node_type, ids())
        self._add_table_spec(name, node_type, row_codec(dtype.name).name, shape)
        return shape

    def copy_table(self, artifact: Artifact, name: str, rows: npt.NDArray[np.int64] | None = None) -> None:
        """Take over a table of another model version: all of it, or the given rows in their order."""
        spec = artifact.manifest.tables[name]
        count = spec.rows if rows is None else len(rows)
        self._add_table_spec(name, spec.node_type, spec.codec, (count, spec.dim))
        codec = row_codec(spec.codec)
        files = {file: f"tables/{name}/{file}" for file in codec.files(spec.rows, spec.dim)}
        if rows is None:
            for path in files.values():
                shutil.copyfile(artifact.path / path, self._place(path))
            return
        arrays = _mapped({file: artifact.path / path for file, path in files.items()})
        for file, part in codec.select(arrays, rows).items():
            with self._place(files[file]).open("wb") as stream:
                write_array(stream, part.array, part.rows)

    def copy_onnx(self, artifact: Artifact) -> None:
        """Take over the dense part of another model version."""
        spec = artifact.manifest.onnx
        if spec is None:
            raise UsageError("expected a model version with an ONNX part, received one of tables alone")
        self.set_onnx(
            artifact.onnx_bytes(),
            opset=spec.opset,
            precision=spec.precision,
            inputs=spec.inputs,
            outputs=spec.outputs,
        )

    def copy_rest(
        self, artifact: Artifact, lists: Callable[[RelationGroup], NeighborLists] | None = None
    ) -> None:
        """Take over what is neither ids nor tables nor ONNX: how ids become feeds, neighbours, links.

        Neighbour lists and links are written in their smallest encodings.

        Args:
            artifact: the other model version.
            lists: returns the neighbour lists to write in place of a group's own; None: its own.
        """
        manifest, form = artifact.manifest, artifact.preprocess
        own = {
            manifest.preprocess,
            manifest.example_request,
            *(spec.ids for spec in manifest.tables.values()),
        }
        if manifest.onnx is not None:
            own.add(manifest.onnx.path)
        if isinstance(form, PaddedBlockForm):
            form, written = self._write_lists(form, lists or artifact.neighbor_lists)
            own |= written
        if manifest.links is not None:
            self.set_links(read_parquet(artifact.path / manifest.links, LINK_COLUMNS))
            own.add(manifest.links)
        for path in manifest.files:
            if path not in own and not path.startswith("tables/"):
                shutil.copyfile(artifact.path / path, self._place(path))
        self.set_preprocess(form)
        self._network = manifest.network
        if isinstance(artifact.preprocess, FieldsForm | TriplesForm | TensorsForm):
            self._example = artifact.example_inputs()

    def _write_lists(
        self, form: PaddedBlockForm, lists: Callable[[RelationGroup], NeighborLists]
    ) -> tuple[PaddedBlockForm, set[str]]:
        """Write neighbour lists, as Parquet files where they fit.

        Returns:
            The form with the paths of these files, and the paths that they replace.
        """
        arrays: dict[str, npt.NDArray[Any]] = {}
        for group in form.groups:
            if group.neighbors in arrays:
                continue
            found = lists(group)
            arrays |= {group.counts: found.counts, group.neighbors: found.neighbors}
            if group.weights is not None and found.weights is not None:
                arrays[group.weights] = found.weights
            if group.edges is not None and found.edges is not None:
                arrays[group.edges.values] = found.edges
        paths = neighbor_files.packed_paths(form, {path: len(array) for path, array in arrays.items()})
        for path, array in arrays.items():
            self.add_list_array(paths.get(path, path), array)
        return neighbor_files.renamed(form, paths), set(arrays)

    def add_list_array(self, path: str, array: npt.NDArray[Any]) -> None:
        """Write an array of neighbour lists, [n] or [n, k], in the format that the path's suffix names."""
        if path.endswith(neighbor_files.SUFFIX):
            write_columns(self._place(path), array.reshape(len(array), -1))
        else:
            self.add_array(path, array)

    def add_array(self, path: str, array: npt.NDArray[Any]) -> None:
        """Write one array, row-major and little-endian, as ``.npy`` at a relative path."""
        with self._place(path).open("wb") as stream:
            write_array(stream, array)

    def set_onnx(
        self,
        model: bytes,
        *,
        opset: int,
        precision: str,
        inputs: Iterable[TensorSpec],
        outputs: Iterable[TensorSpec],
    ) -> None:
        """Write the dense part.

        Raises:
            FormatError: when it refers to data in other files.
        """
        inspect_onnx(model, ONNX_FILE)
        self._place(ONNX_FILE).write_bytes(model)
        self._onnx = OnnxSpec(
            path=ONNX_FILE, opset=opset, precision=precision, inputs=tuple(inputs), outputs=tuple(outputs)
        )

    def set_preprocess(self, preprocess: Preprocess) -> None:
        """Write how ids become feeds."""
        self._place(PREPROCESS_FILE).write_text(preprocess.model_dump_json(indent=2) + "\n")
        self._preprocess = preprocess

    def set_lookup(self, node_type: str, tables: Mapping[str, str], unknown_ids: UnknownIds) -> None:
        """Serve rows of tables by id: write the preprocess, and the default rows that it declares.

        Args:
            node_type: of queries that name none.
            tables: the table to read, written before, by node type of the query.
            unknown_ids: answer for ids that a table lacks; see `LookupForm`.
        """
        defaults: dict[str, str] = {}
        if unknown_ids != "refuse":
            defaults = {query_type: f"defaults/{name}.npy" for query_type, name in tables.items()}
            for name in dict.fromkeys(tables.values()):
                zeros = np.zeros(self._tables[name].dim, np.float32)
                row = zeros if unknown_ids == "zero" else mean_row(self.stored_rows(name))
                self.add_array(f"defaults/{name}.npy", row)
        self.set_preprocess(
            LookupForm(node_type=node_type, tables=dict(tables), unknown_ids=unknown_ids, defaults=defaults)
        )

    def set_links(self, links: pa.Table) -> None:
        """Write known links; see `graphbox.artifact.links.links_table`."""
        write_links(self._place(LINKS_FILE), links)
        self._links = LINKS_FILE

    def set_network(self, write: Callable[[Path], None]) -> None:
        """Let ``write`` put the graph network that made the embeddings into a folder."""
        folder = self._place(NETWORK_FOLDER)
        folder.mkdir()
        write(folder)
        self._network = NETWORK_FOLDER

    def set_example(self, inputs: list[dict[str, Any]]) -> None:
        """Say what the example request asks, where that is more than two ids.

        Args:
            inputs: of a KServe v2 request, as JSON: ``name``, ``datatype``, ``shape`` and ``data`` of each.
        """
        self._example = inputs

    def commit(
        self,
        *,
        name: str,
        version: int,
        kind: Kind,
        task: str | None,
        dim: int,
        targets: Mapping[str, TargetSpec],
        metrics: Metrics | None = None,
        lineage: Lineage | None = None,
        check: Callable[[Artifact], Metrics | None] | None = None,
    ) -> Artifact:
        """Write the manifest, flush everything to the disk and move the folder into place.

        Args:
            name: of the model.
            version: of the model.
            kind: ``embedding`` when there is no ONNX part; else ``encoder``, ``click``,
                ``knowledge_graph`` or ``tensors``, as the preprocess is.
            task: that it was trained for, or None.
            dim: length of an embedding; of clicks and bare tensors 1.
            targets: what to rank against, by the node type of the query.
            metrics: ``{task: {metric: value}}``.
            lineage: where it comes from.
            check: called with the complete model version before it is moved; what it raises refuses
                the version, what it returns replaces ``metrics``.

        Returns:
            The model version, opened and verified from its final place.

        Raises:
            UsageError: when a part is missing.
            ConflictError: when another writer was faster.
            FormatError: when the parts do not fit together.
        """
        if self._preprocess is None or (not self._ids and not isinstance(self._preprocess, TensorsForm)):
            raise UsageError("expected ids and a preprocess before commit, received none")
        inputs, outputs = self._tensors(self._preprocess, dim)
        example = self._example or [self._ids_example(inputs[0])]
        text = _request_text(example)
        self._place(EXAMPLE_REQUEST_FILE).write_text(text)
        check_name(name, "model name")
        manifest = _checked_manifest(
            name=name,
            version=version,
            created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            kind=kind,
            task=task,
            inputs=inputs,
            outputs=outputs,
            dim=dim,
            onnx=self._onnx,
            tables=self._tables,
            targets=dict(targets),
            metrics={task_name: dict(values) for task_name, values in (metrics or {}).items()},
            lineage=lineage or Lineage(),
            preprocess=PREPROCESS_FILE,
            links=self._links,
            network=self._network,
            example_request=EXAMPLE_REQUEST_FILE,
            files=self._flush_files(),
        )
        self._write_manifest(manifest)
        measured = check(Artifact.open(self._partial, verify=False)) if check else None
        if measured is not None:
            changed = {task_name: dict(values) for task_name, values in measured.items()}
            self._write_manifest(_checked_manifest(**{**dict(manifest), "metrics": changed}))
        Artifact.open(self._partial, verify=False)
        self._move_into_place()
        return Artifact.open(self.path)

    def _tensors(self, form: Preprocess, dim: int) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Return the inputs and outputs as served."""
        if isinstance(form, TensorsForm):
            if self._onnx is None or self._example is None:
                raise UsageError("expected an ONNX file and an example request before commit, received none")
            node_types: Iterable[str] = ()
        else:
            node_types = form.entities if isinstance(form, TriplesForm) else (form.node_type,)
        integer_ids = not isinstance(form, FieldsForm) and all(
            self._ids[name][1].kind == "int64" for name in node_types
        )
        return served_tensors(form, self._onnx, dim, integer_ids=integer_ids)

    def _ids_example(self, tensor: TensorSpec) -> dict[str, Any]:
        """Return the input of an example request for ids."""
        form = self._preprocess
        if form is None or isinstance(form, TensorsForm) or form.node_type not in self._ids:
            raise UsageError("expected an example request before commit, received none")
        data = self._example_ids(self._ids[form.node_type][1])
        return {"name": tensor.name, "datatype": tensor.datatype, "shape": [len(data)], "data": data}

    def _example_ids(self, ids: Ids) -> list[Id]:
        """Return two ids worth asking about: of linked nodes, or the first there are."""
        order = np.arange(min(_EXAMPLE_IDS, len(ids)))
        if self._links is not None:
            links = Links(read_parquet(self._partial / self._links, LINK_COLUMNS))
            order = np.concatenate([links.most_linked(ids.node_type, len(ids)), order])
        return ids.take(list(dict.fromkeys(order.tolist()))[:_EXAMPLE_IDS])

    def _add_table_spec(self, name: str, node_type: str, codec: str, shape: tuple[int, ...]) -> None:
        check_name(name, "table name")
        if name in self._tables:
            raise UsageError(f"expected a new table, received `{name}` again")
        if node_type not in self._ids:
            raise UsageError(f"expected the ids of `{node_type}` before its table `{name}`")
        path, ids = self._ids[node_type]
        if len(shape) != 2 or shape[0] != len(ids):
            raise DataError(
                f"expected rows [{len(ids)}, dim], received {list(shape)}", where=f"table `{name}`"
            )
        self._tables[name] = TableSpec(
            node_type=node_type, codec=codec, rows=shape[0], dim=shape[1], ids=path
        )

    def stored_rows(self, name: str) -> StoredRows:
        """Return a table that was written, its files mapped."""
        spec = self._tables[name]
        codec = row_codec(spec.codec)
        folder = self._partial / "tables" / name
        arrays = _mapped({file: folder / file for file in codec.files(spec.rows, spec.dim)})
        return open_rows(codec, arrays, TableShape(spec.rows, spec.dim, spec.node_type))

    def _place(self, path: str) -> Path:
        for part in path.split("/"):
            check_name(part, "file name")
        place = self._partial / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            raise UsageError(f"expected each part once, received {path} again")
        return place

    def _flush_files(self) -> dict[str, FileRecord]:
        files = sorted(path for path in self._partial.rglob("*") if path.is_file())
        for file in files:
            flush_to_disk(file)
        for folder in sorted(path for path in self._partial.rglob("*") if path.is_dir()):
            flush_to_disk(folder)
        return {
            file.relative_to(self._partial).as_posix(): FileRecord(
                bytes=file.stat().st_size, sha256=sha256_of(file)
            )
            for file in files
        }

    def _write_manifest(self, manifest: Manifest) -> None:
        (self._partial / MANIFEST_FILE).write_text(manifest.to_json())
        flush_to_disk(self._partial / MANIFEST_FILE)

    def _refuse_existing(self) -> None:
        if self.path.is_symlink() or self.path.exists():
            raise ConflictError(
                "expected a new folder, it exists already",
                where=str(self.path),
                hint="model versions are never overwritten; write the next version",
            )

    def _move_into_place(self) -> None:
        flush_to_disk(self._partial)
        self._refuse_existing()
        try:
            self._partial.rename(self.path)
        except OSError as error:
            self._refuse_existing()
            raise ConflictError(
                f"could not move the model into place ({error})", where=str(self.path)
            ) from error
        flush_to_disk(self.path.parent)


def _request_text(inputs: list[dict[str, Any]]) -> str:
    """Return the body of a request, indented unless its tensors are large."""
    text = json.dumps({"inputs": inputs}, allow_nan=False)
    if len(text) <= _LONGEST_INDENTED:
        text = json.dumps({"inputs": inputs}, indent=2, allow_nan=False)
    return text + "\n"


def _checked_manifest(**values: Any) -> Manifest:
    try:
        return Manifest(**values)
    except ValidationError as error:
        raise UsageError(first_problem(error), where=MANIFEST_FILE) from error


def _id_array(ids: Iterable[Id], node_type: str) -> pa.Array:
    values = list(ids)
    try:
        return pa.array(values, pa.string() if values and isinstance(values[0], str) else pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DataError(
            f"expected all ids to be strings or all to be int64 ({error})", where=node_type
        ) from error


def _mapped(files: Mapping[str, Path]) -> dict[str, npt.NDArray[Any]]:
    """Return arrays whose files are mapped."""
    return {name: _mapped_array(path) for name, path in files.items()}


def _mapped_array(path: Path) -> npt.NDArray[Any]:
    try:
        mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # nothing cannot be mapped
        mapped = np.load(path, allow_pickle=False)
    return mapped
