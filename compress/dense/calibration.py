"""Calibration feeds: inputs of a model's ONNX part, of real requests where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.deploy.made_up_feeds import made_up_feeds
from graphbox.deploy.model import DeployedModel
from graphbox.deploy.program import CheckedProgram
from graphbox.deploy.protocol import Feeds
from graphbox.errors import DataError, UsageError

__all__ = ["MAX_BYTES", "MAX_ROWS", "Calibration", "Queries"]

MAX_ROWS: Final = 512
MAX_BYTES: Final = 64 << 20
_BATCH: Final = 32


@dataclass(frozen=True, eq=False)
class Queries:
    """Real queries of a model, by number.

    Attributes:
        count: number of queries.
        feeds: returns the feeds of the ONNX part for some of them: int64 [batch], in [0, `count`).
    """

    count: int
    feeds: Callable[[npt.NDArray[np.int64]], Feeds]

    @classmethod
    def of_model(cls, model: DeployedModel) -> Queries:
        """Return the queries that an open model knows: its nodes, or its example rows."""
        return cls(model.num_queries, model.program_feeds)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Feeds of a model's ONNX part, finite and bounded.

    Attributes:
        feeds: one for each call, arrays by the names of the inputs.
        rows: rows of all feeds together; of a feed, the largest first dimension of its arrays.
        notes: remarks on features that say little.
    """

    feeds: tuple[Feeds, ...]
    rows: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of_feeds(
        cls, feeds: Iterable[Feeds], *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES
    ) -> Calibration:
        """Take feeds until a bound is reached.

        Args:
            feeds: arrays by the names of the inputs; read no further than needed.
            max_rows: of all feeds together.
            max_bytes: of all feeds together; the first feed is taken whatever its size.

        Raises:
            UsageError: there are no feeds, or a bound is not positive.
            DataError: a number in them is NaN or infinite.
        """
        if min(max_rows, max_bytes) < 1:
            raise UsageError(
                f"expected positive bounds of the calibration feeds, received {max_rows} rows and "
                f"{max_bytes} bytes"
            )
        taken = tuple(_bounded(feeds, max_rows, max_bytes))
        if not taken:
            raise UsageError(
                "expected at least one row of calibration feeds, received none",
                hint="give feeds of requests, or choose a method without calibration (`dense: int8`)",
            )
        for feed in taken:
            _check_finite(feed)
        return cls(taken, sum(_rows(feed) for feed in taken), tuple(_constant_features(taken)))

    @classmethod
    def of_model(
        cls, model: DeployedModel, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES, seed: int = 0
    ) -> Calibration:
        """Make feeds from the queries that an open model knows: its nodes, or its example rows.

        Args:
            model: open, on any target.
            max_rows: bound on the rows of all feeds; a query may take several.
            max_bytes: bound on the bytes of all feeds.
            seed: of the choice of queries.

        Raises:
            UsageError: the model has no queries.
            UnsupportedError: the model has no ONNX part.
        """
        return cls.of_random(Queries.of_model(model), max_rows=max_rows, max_bytes=max_bytes, seed=seed)

    @classmethod
    def of_random(
        cls, queries: Queries, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES, seed: int = 0
    ) -> Calibration:
        """Make feeds from some queries; see `of_model`."""
        order = np.random.default_rng(seed).permutation(queries.count)[:max_rows]
        return cls.of_queries(queries, order, max_rows=max_rows, max_bytes=max_bytes)

    @classmethod
    def of_queries(
        cls,
        queries: Queries,
        numbers: npt.NDArray[np.int64],
        *,
        batch: int = _BATCH,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> Calibration:
        """Make feeds from chosen queries.

        Args:
            queries: to choose from.
            numbers: of the queries, in their order.
            batch: queries of a feed.
            max_rows: bound on the rows of all feeds; a query may take several.
            max_bytes: bound on the bytes of all feeds.

        Raises:
            UsageError: there are no queries.
            UnsupportedError: the model has no ONNX part.
            DataError: a number in the feeds is NaN or infinite.
        """
        batches = (numbers[start : start + batch] for start in range(0, len(numbers), batch))
        feeds = (queries.feeds(batch) for batch in batches)
        return cls.of_feeds(feeds, max_rows=max_rows, max_bytes=max_bytes)

    @classmethod
    def made_up(cls, program: CheckedProgram, *, rows: int = 2 * _BATCH) -> Calibration:
        """Make up feeds from the shapes of a program's inputs, for a bare ONNX file.

        They show whether a converted file computes the same; ranges of activations need real feeds.
        """
        return cls.of_feeds([made_up_feeds(program, rows)], max_rows=max(rows, MAX_ROWS))


def _bounded(feeds: Iterable[Feeds], max_rows: int, max_bytes: int) -> Iterator[Feeds]:
    rows = size_bytes = 0
    for feed in feeds:
        if not _rows(feed):
            continue
        size_bytes += sum(array.nbytes for array in feed.values())
        if rows and (size_bytes > max_bytes or rows + _rows(feed) > max_rows):
            return
        rows += _rows(feed)
        yield feed


def _rows(feed: Feeds) -> int:
    return max((array.shape[0] if array.ndim else 1 for array in feed.values()), default=0)


def _check_finite(feed: Feeds) -> None:
    for name, array in feed.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(
                f"expected finite calibration feeds, received {int((~np.isfinite(array)).sum())} numbers "
                "that are NaN or infinite",
                where=f"input `{name}`",
                hint="leave out these requests, or replace the numbers as serving does",
            )


def _constant_features(feeds: tuple[Mapping[str, npt.NDArray[Any]], ...]) -> Iterator[str]:
    """Yield a remark for each matrix of numbers with columns that have one value only."""
    for name, first in feeds[0].items():
        if first.dtype.kind != "f" or first.ndim != 2:
            continue
        arrays = [feed[name] for feed in feeds if feed[name].shape[1:] == first.shape[1:]]
        lowest = np.min([array.min(axis=0) for array in arrays if len(array)], axis=0)
        highest = np.max([array.max(axis=0) for array in arrays if len(array)], axis=0)
        constant = int((lowest == highest).sum())
        if constant and sum(len(array) for array in arrays) > 1:
            yield (
                f"input `{name}`: {constant} of {first.shape[1]} columns are constant in the calibration "
                "feeds; ranges of activations do not cover other values of them"
            )
