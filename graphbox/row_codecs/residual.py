"""Codec ``residual(m)``: a row is the sum of one row from each of ``m`` codebooks; ``m`` bytes a row.

Chen, Guan, Wang, "Approximate Nearest Neighbor Search by Residual Vector Quantization", Sensors 10(12), 2010.
faiss (``pip install 'graphbox[ann]'``) trains the codebooks and finds the codes; the core alone decodes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.errors import BackendMissingError, DataError, UsageError
from graphbox.row_codecs.codec import (
    ArrayPart,
    Arrays,
    ArraySpec,
    RowSource,
    TableShape,
    check_finite,
    row_blocks,
)
from graphbox.rows import Float32, Int64, StoredRows

__all__ = ["ResidualCodec", "can_train_codebooks"]

_CODES_FILE = "codes.npy"
_CODEBOOKS_FILE = "codebooks.npy"
_BOOK_ROWS: Final = 256
_MOST_BOOKS: Final = 64
_MOST_TRAINED: Final = 65_536
"""Rows that codebooks are trained on, 256 for each of theirs."""
_SEED: Final = 1_234


def can_train_codebooks() -> bool:
    """Return whether faiss is installed; rows are decoded without it."""
    return find_spec("faiss") is not None


@dataclass(frozen=True)
class ResidualCodec:
    """Rows as sums of codebook rows.

    Attributes:
        books: number of codebooks, from 1 to 64.
        beam: partial sums that are kept while codes are searched; more is slower and closer.

    Raises:
        UsageError: a number is out of range.
    """

    books: int
    beam: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.books <= _MOST_BOOKS or self.beam < 1:
            raise UsageError(
                f"expected 1 to {_MOST_BOOKS} codebooks and a beam of at least 1, received {self.books} and "
                f"{self.beam}"
            )

    @property
    def name(self) -> str:
        """Name in a manifest."""
        return f"residual({self.books})"

    def files(self, rows: int, dim: int) -> dict[str, ArraySpec]:
        """Return type and shape of each file."""
        return {
            _CODES_FILE: ArraySpec("|u1", (rows, self.books)),
            _CODEBOOKS_FILE: ArraySpec("<f4", (self.books, _BOOK_ROWS, dim)),
        }

    def bytes_of(self, rows: int, dim: int) -> int:
        """Return the bytes of a table, codebooks included."""
        return rows * self.books + 4 * self.books * _BOOK_ROWS * dim

    def encode(self, source: RowSource) -> Arrays:
        """Return codes, and the codebooks they are of, trained on a sample of the rows.

        Raises:
            BackendMissingError: faiss is not installed.
            DataError: there are fewer rows than a codebook has, or one is not finite.
        """
        quantizer = self._trained(source)
        codes = np.empty((len(source), self.books), np.uint8)
        for place, block in row_blocks(source):
            check_finite(block)
            codes[place] = quantizer.compute_codes(np.ascontiguousarray(block))
        import faiss

        books = faiss.vector_to_array(quantizer.codebooks).reshape(self.books, _BOOK_ROWS, source.dim)
        return {_CODES_FILE: codes, _CODEBOOKS_FILE: books.astype(np.float32, copy=False)}

    def open(self, arrays: Mapping[str, npt.NDArray[Any]], table: TableShape) -> StoredRows:
        """Return the rows of arrays."""
        from graphbox import _core

        codes = np.ascontiguousarray(arrays[_CODES_FILE])
        books = np.ascontiguousarray(arrays[_CODEBOOKS_FILE])
        return StoredRows(_core.StoredRows.of_codebooks(codes, books), self.name, table.noun)

    def select(self, arrays: Mapping[str, npt.NDArray[Any]], rows: Int64) -> dict[str, ArrayPart]:
        """Return the arrays of some rows."""
        return {
            _CODES_FILE: ArrayPart(arrays[_CODES_FILE], rows),
            _CODEBOOKS_FILE: ArrayPart(arrays[_CODEBOOKS_FILE]),
        }

    def _trained(self, source: RowSource) -> Any:
        try:
            import faiss
        except ImportError as error:
            raise BackendMissingError(
                f"expected faiss for the codec `{self.name}`, it is not installed",
                hint="pip install 'graphbox[ann]'",
            ) from error
        if len(source) < _BOOK_ROWS:
            raise DataError(
                f"expected at least {_BOOK_ROWS} rows, as many as a codebook has, received {len(source)}",
                hint="use another codec for this table",
            )
        quantizer = faiss.ResidualQuantizer(source.dim, self.books, 8)
        quantizer.max_beam_size = self.beam
        quantizer.cp.seed = _SEED
        quantizer.cp.min_points_per_centroid = 1  # else faiss warns on stderr
        quantizer.train(_sample(source))
        return quantizer


def _sample(source: RowSource) -> Float32:
    """Return rows to train on: all, or evenly many of each block by a fixed seed."""
    generator = np.random.Generator(np.random.Philox(_SEED))
    share = min(1.0, _MOST_TRAINED / len(source))
    parts = []
    for _, block in row_blocks(source):
        check_finite(block)
        count = len(block) if share == 1 else int(share * len(block))
        parts.append(block[np.sort(generator.choice(len(block), count, replace=False))])
    return np.ascontiguousarray(np.concatenate(parts), np.float32)
