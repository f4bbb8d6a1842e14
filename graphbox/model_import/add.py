"""Writes a model version of a file of another program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphbox.artifact import Artifact, ArtifactWriter, Lineage, TargetSpec
from graphbox.artifact.lookup_form import UnknownIds
from graphbox.artifact.manifest import Score, is_plain_name
from graphbox.deploy import open_model
from graphbox.errors import UsageError
from graphbox.model_import.array_files import npy_blocks, npz_blocks, safetensors_blocks
from graphbox.model_import.formats import FileFormat
from graphbox.model_import.onnx_model import read_onnx_model
from graphbox.model_import.parquet_files import parquet_blocks
from graphbox.model_import.row_blocks import RowBlock, RowStream, lines_of_ids
from graphbox.model_import.text_files import part_blocks, word2vec_binary_blocks, word2vec_blocks

__all__ = ["EmbeddingOptions", "add_model", "row_blocks_of"]


@dataclass(frozen=True)
class EmbeddingOptions:
    """Options for reading a file of rows.

    Attributes:
        node_type: that the ids are of.
        score: of neighbours.
        unknown_ids: answer for ids that the file lacks; see `LookupForm`.
        ids: text file with an id a line; None: those of the file, or else positions from 0.
        tensor: of ``.npz`` and safetensors, the name of the rows where there are several.
        id_column: of Parquet.
        column: of Parquet, of lists.
    """

    node_type: str = "node"
    score: Score = "cosine"
    unknown_ids: UnknownIds = "refuse"
    ids: Path | None = None
    tensor: str | None = None
    id_column: str | None = None
    column: str | None = None


def add_model(
    path: Path,
    file_format: FileFormat,
    folder: Path,
    name: str,
    version: int,
    *,
    target: str = "auto",
    example: Path | None = None,
    join_calls: bool = True,
    embedding: EmbeddingOptions | None = None,
) -> Artifact:
    """Write a model version of a file.

    An ONNX file becomes bare tensors, and has to answer its example request before the version counts. Rows
    become embeddings with their nearest neighbours; they are copied in blocks, only their ids are in memory.

    Args:
        path: of the file, or of a folder of part files.
        file_format: of it; see `graphbox.model_import.format_of`.
        folder: of the version, to be made.
        name: of the model.
        version: its number.
        target: of ONNX, to try the model on.
        example: of ONNX, a KServe v2 request that it accepts.
        join_calls: of ONNX, whether a server may join calls; see `TensorsForm`.
        embedding: of rows, how to read them.

    Raises:
        UsageError: an option is for files of another format, or names what is not there.
        DataError: the file is damaged, or not what its format says.
        UnsupportedError: the model cannot be served.
        ConflictError: the folder exists.
    """
    options = embedding or EmbeddingOptions()
    _check_options(file_format, options, example, target, join_calls)
    with ArtifactWriter(folder) as writer:
        targets: dict[str, TargetSpec] = {}
        dim = 1
        if file_format == "onnx":
            read_onnx_model(path, target, example).write(writer, join_calls=join_calls)
        else:
            table = options.node_type if is_plain_name(options.node_type) else "rows"
            given = None if options.ids is None else lines_of_ids(options.ids)
            stream = RowStream(row_blocks_of(path, file_format, options), str(path), given)
            _, dim = writer.add_streamed_table(table, options.node_type, stream.rows(), stream.ids)
            writer.set_lookup(options.node_type, {options.node_type: table}, options.unknown_ids)
            targets[options.node_type] = TargetSpec(table=table, score=options.score)

        def answer_once(artifact: Artifact) -> None:
            with open_model(artifact.path, target, verify=False) as model:
                model.warm_up()

        return writer.commit(
            name=name,
            version=version,
            kind="tensors" if file_format == "onnx" else "embedding",
            task=None,
            dim=dim,
            targets=targets,
            lineage=Lineage(steps=(f"added from {file_format}",)),
            check=answer_once if file_format == "onnx" else None,
        )


def row_blocks_of(path: Path, file_format: FileFormat, options: EmbeddingOptions) -> Iterator[RowBlock]:
    """Yield the rows of a file of a format of rows."""
    has_ids = options.ids is not None
    readers: dict[FileFormat, Callable[[], Iterator[RowBlock]]] = {
        "npy": lambda: npy_blocks(path),
        "npz": lambda: npz_blocks(path, options.tensor, has_ids=has_ids),
        "safetensors": lambda: safetensors_blocks(path, options.tensor),
        "parquet": lambda: parquet_blocks(path, options.id_column, options.column, has_ids=has_ids),
        "word2vec": lambda: word2vec_blocks(path),
        "word2vec_binary": lambda: word2vec_binary_blocks(path),
        "pglbox": lambda: part_blocks(path),
    }
    return readers[file_format]()


def _check_options(
    file_format: FileFormat, options: EmbeddingOptions, example: Path | None, target: str, join_calls: bool
) -> None:
    """Reject options that the format has no use for, rather than ignore them.

    Raises:
        UsageError: there is such an option.
    """
    rows = {"npy", "npz", "safetensors", "parquet", "word2vec", "word2vec_binary", "pglbox"}
    uses: list[tuple[str, bool, set[str]]] = [
        ("--example", example is not None, {"onnx"}),
        ("--target", target != "auto", {"onnx"}),
        ("--no-join", not join_calls, {"onnx"}),
        ("--type", options.node_type != EmbeddingOptions.node_type, rows),
        ("--score", options.score != EmbeddingOptions.score, rows),
        ("--unknown-ids", options.unknown_ids != EmbeddingOptions.unknown_ids, rows),
        ("--ids", options.ids is not None, {"npy", "npz", "safetensors", "parquet"}),
        ("--tensor", options.tensor is not None, {"npz", "safetensors"}),
        ("--id-column", options.id_column is not None, {"parquet"}),
        ("--column", options.column is not None, {"parquet"}),
    ]
    for option, is_given, formats in uses:
        if is_given and file_format not in formats:
            raise UsageError(
                f"expected a file of the format {' or '.join(sorted(formats))} with {option}, received "
                f"{file_format}",
                where=option,
            )
    if options.ids is not None and options.id_column is not None:
        raise UsageError("expected either --ids or --id-column, received both", where="--ids")
