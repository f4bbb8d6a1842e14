"""Writes embeddings for other programs: NumPy, Parquet and safetensors files with the original ids."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.artifact import Ids
from graphbox.artifact.arrays import write_array
from graphbox.artifact.manifest import check_name
from graphbox.durable import flush_to_disk, replace_durably
from graphbox.errors import DataError, UsageError, did_you_mean, missing_extra

EmbeddingFormat = Literal["npy", "parquet", "safetensors"]
FORMATS: tuple[EmbeddingFormat, ...] = ("npy", "parquet", "safetensors")
_ROWS_PER_GROUP = 65_536


def export_embeddings(
    ids: pa.Array,
    vectors: npt.NDArray[np.float32],
    destination: str | os.PathLike[str],
    node_type: str,
    formats: Iterable[str] = ("npy", "parquet"),
) -> list[Path]:
    """Write the embeddings of one node type; each file appears whole or not at all.

    * ``npy``: ``<node_type>.npy`` float32 [n, dim] and ``<node_type>.ids.txt``, one id per line.
    * ``parquet``: ``<node_type>.parquet`` with ``id`` and ``vector``, a fixed-size list of float32.
    * ``safetensors``: ``<node_type>.safetensors`` with the tensor ``vectors``, and the ``.ids.txt``.

    Args:
        ids: original ids, strings or int64, in the order of the rows.
        vectors: float32 [n, dim]; may be memory-mapped.
        destination: folder to write into, made if need be; files of the same name are replaced.
        node_type: begins the files' names.
        formats: any of `FORMATS`.

    Returns:
        The files written.

    Raises:
        UsageError: on an unknown format.
        DataError: when ids and vectors do not fit, or an id cannot stand on a line of its own.
    """
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in FORMATS:
            raise UsageError(
                f"expected one of the formats {list(FORMATS)}, received `{name}`",
                hint=did_you_mean(name, FORMATS),
            )
    check_name(node_type, "node type that can begin a file name")
    if vectors.ndim != 2 or vectors.dtype != np.float32 or len(vectors) != len(ids):
        raise DataError(
            f"expected vectors float32 [{len(ids)}, dim], received {vectors.dtype} {list(vectors.shape)}",
            where=f"node type `{node_type}`",
        )
    folder = Path(destination)
    folder.mkdir(parents=True, exist_ok=True)
    checked = Ids(ids, node_type)
    written: list[Path] = []
    if {"npy", "safetensors"} & set(wanted):
        written.append(_write(folder / f"{node_type}.ids.txt", lambda path: _write_lines(path, checked)))
    writers: dict[str, Callable[[Path], object]] = {
        "npy": lambda path: _write_npy(path, vectors),
        "parquet": lambda path: _write_parquet(path, checked, vectors),
        "safetensors": lambda path: _write_safetensors(path, vectors),
    }
    written += [_write(folder / f"{node_type}.{name}", writers[name]) for name in wanted]
    return written


def embedding_table(ids: pa.Array, vectors: npt.NDArray[np.float32]) -> pa.Table:
    """Return embeddings as a table with ``id`` and ``vector``, a fixed-size list of float32.

    Args:
        ids: original ids, strings or int64, in the order of the rows.
        vectors: float32 [n, dim].
    """
    dim = vectors.shape[1]
    rows = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(rows, dim)})


def _write_lines(path: Path, ids: Ids) -> None:
    """Write an id a line, in blocks: the texts of all take several times the memory of the ids."""
    arrow = ids.to_arrow()
    with path.open("wb") as stream:
        for first in range(0, len(arrow), _ROWS_PER_GROUP):
            texts = [str(value) for value in arrow.slice(first, _ROWS_PER_GROUP).to_pylist()]
            for row, text in enumerate(texts, first):
                if not text or text.splitlines() != [text]:
                    raise DataError(
                        f"expected ids that fit on one line of text, received {text[:120]!r}",
                        where=f"row {row}",
                        hint="export these embeddings as parquet",
                    )
            stream.write("".join(f"{text}\n" for text in texts).encode())


def _write_npy(path: Path, vectors: npt.NDArray[np.float32]) -> None:
    with path.open("wb") as stream:
        write_array(stream, vectors)


def _write_parquet(path: Path, ids: Ids, vectors: npt.NDArray[np.float32]) -> None:
    schema = embedding_table(ids.to_arrow().slice(0, 0), vectors[:0]).schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, len(vectors), _ROWS_PER_GROUP):
            rows = vectors[start : start + _ROWS_PER_GROUP]
            writer.write_table(embedding_table(ids.to_arrow().slice(start, len(rows)), rows))


def _write_safetensors(path: Path, vectors: npt.NDArray[np.float32]) -> None:
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise missing_extra("safetensors", "train") from error
    save_file({"vectors": np.ascontiguousarray(vectors)}, path, metadata={"format": "graphbox-embeddings"})


def _write(path: Path, write: Callable[[Path], object]) -> Path:
    """Write beside the file's place, flush to the disk, and move it there."""
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(8)}")
    try:
        write(partial)
        flush_to_disk(partial)
        replace_durably(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
