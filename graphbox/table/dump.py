"""The rows of a table as files for other programs and for people: Parquet and text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graphbox.durable import write_atomically
from graphbox.errors import NotFoundError, UsageError
from graphbox.native import Int64Array
from graphbox.table.arguments import Float32Array
from graphbox.table.atomic_folder import system_errors

_CHUNK_BYTES = 8 << 20
_PARQUET = (".parquet", ".pq")
_TEXT = (".tsv", ".txt")


def chunk_rows_for(dim: int) -> int:
    """Return the rows of a chunk, so that memory is bounded whatever ``dim`` is."""
    return max(1, _CHUNK_BYTES // (4 * dim + 8))


def dump_rows(chunks: Iterable[tuple[Int64Array, Float32Array]], dim: int, path: Path) -> int:
    """Write keys and rows to a file, which appears when it is whole, and return the number of rows.

    Args:
        chunks: keys int64 [n] and rows float32 [n, dim].
        dim: values of a row.
        path: of the file; its suffix says the format.

    Raises:
        UsageError: a suffix that names no format.
        NotFoundError: the folder does not exist.
        DoesNotFitError: the disk is full.
        GraphboxError: the system refuses to write.
    """
    if path.suffix not in (*_PARQUET, *_TEXT):
        raise UsageError(
            f"expected a file name that ends in {', '.join((*_PARQUET, *_TEXT))}, received {path.name!r}",
            where="path",
        )
    if not path.absolute().parent.is_dir():
        raise NotFoundError(
            "expected an existing folder to write in, there is none",
            where=str(path.absolute().parent),
            hint=f"make the folder {path.absolute().parent}",
        )
    rows = 0
    write = _parquet_writer if path.suffix in _PARQUET else _text_writer
    with system_errors(path), write_atomically(path) as stream, write(stream, dim) as add:
        for keys, values in chunks:
            add(keys, values)
            rows += len(keys)
    return rows


@contextmanager
def _parquet_writer(stream: Any, dim: int) -> Iterator[Any]:
    """Yield a function that adds row groups: ``id`` int64, ``vector`` a list of ``dim`` float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dim), nullable=False),
        ]
    )
    # Values hardly ever repeat: a dictionary of them would be larger than they are.
    with pq.ParquetWriter(stream, schema, use_dictionary=False, compression="zstd") as writer:

        def add(keys: Int64Array, values: Float32Array) -> None:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dim)
            writer.write_batch(pa.record_batch([pa.array(keys), vectors], schema=schema))

        yield add


@contextmanager
def _text_writer(stream: Any, dim: int) -> Iterator[Any]:
    """Yield a function that adds lines: the key, a tab, the values separated by blanks.

    Values have as few digits as tell them from all other float32.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def add(keys: Int64Array, values: Float32Array) -> None:
        texts = pc.cast(pa.array(values.reshape(-1)), pa.string())
        offsets = pa.array(np.arange(0, len(texts) + 1, dim, dtype=np.int32))
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), " ")
        lines = pc.binary_join_element_wise(pc.cast(pa.array(keys), pa.string()), joined, "\t")
        for line in lines.to_pylist():
            stream.write(line.encode() + b"\n")

    yield add
