"""Codecs of several tables under one byte budget, at the least squared error of what is looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.compress.tables import CODEC_OF_PRECISION, TRAINED_PRECISIONS, table_error, with_popularity
from graphbox.errors import DoesNotFitError, UsageError
from graphbox.row_codecs import ArrayRows, RowCodec, RowSource, TableShape, open_rows

__all__ = ["BudgetedCodecs", "BudgetedTable", "choose_codecs", "sampled_errors"]

_SAMPLED_RUNS: Final = 64
_RUN_ROWS: Final = 64
_UNTRAINED: Final = tuple(
    codec for precision, codec in CODEC_OF_PRECISION.items() if precision not in TRAINED_PRECISIONS
)
"""Codebooks that are trained on a sample fit it better than the other rows."""
_MOST_STATES: Final = 50_000
"""Choices that are kept from table to table; the result is exact while there are no more."""


@dataclass(frozen=True)
class BudgetedTable:
    """A table that shares a byte budget.

    Attributes:
        name: of the table.
        rows: number of rows.
        dim: length of a row.
        errors: relative error of the rows in each codec, by the codec's name; see `sampled_errors`.
        popularity: how often its rows are looked up, in one unit for all tables; None: as often as it has
            rows.
    """

    name: str
    rows: int
    dim: int
    errors: Mapping[str, float]
    popularity: float | None = None

    @property
    def weight(self) -> float:
        """The weight of its squared error."""
        return self.rows if self.popularity is None else self.popularity


@dataclass(frozen=True)
class BudgetedCodecs:
    """The choice for all tables.

    Attributes:
        codecs: by the name of the table.
        nbytes: of all tables in these codecs.
        error: squared relative errors of the tables, each times its popularity.
    """

    codecs: Mapping[str, RowCodec]
    nbytes: int
    error: float


@dataclass(frozen=True)
class _State:
    """Codecs of the tables so far."""

    nbytes: int
    error: float
    chosen: tuple[RowCodec, ...]


def sampled_errors(
    source: RowSource,
    codecs: Iterable[RowCodec] = _UNTRAINED,
    popularity: npt.NDArray[Any] | None = None,
) -> dict[str, float]:
    """Return the relative error of a table in each codec, measured on evenly spread rows.

    Args:
        source: the rows.
        codecs: to measure; the default is those that need no training.
        popularity: of the rows, [n]; None: not known, and codecs with tiers are left out.

    Raises:
        DataError: a codec cannot hold an element of the sample.
    """
    starts = np.unique(np.linspace(0, max(0, len(source) - _RUN_ROWS), _SAMPLED_RUNS).astype(np.int64))
    places = [slice(int(start), int(start) + _RUN_ROWS) for start in starts]
    sample = ArrayRows(np.concatenate([source.block(place.start, place.stop) for place in places]))
    shape = TableShape(len(sample), sample.dim)
    if popularity is None:
        codecs = [codec for codec in codecs if "tiered(" not in codec.name]
    else:
        of_sample = np.concatenate([popularity[place] for place in places])
        codecs = [with_popularity(codec, of_sample) for codec in codecs]
    return {
        codec.name: table_error(sample, open_rows(codec, codec.encode(sample), shape)).relative
        for codec in codecs
    }


def choose_codecs(
    tables: Sequence[BudgetedTable],
    budget_bytes: int,
    codecs: Iterable[RowCodec] = tuple(CODEC_OF_PRECISION.values()),
) -> BudgetedCodecs:
    """Choose the codec of each table: at most ``budget_bytes`` for all, and the least weighted squared error.

    The best choices of some tables are kept whose bytes and errors are not both beaten, and extended by the
    next table. Of equal errors fewer bytes count, and then the codec that comes first.

    Args:
        tables: distinct names; at least one.
        budget_bytes: most bytes of all tables together.
        codecs: to choose from; each table needs an error for at least one of them.

    Raises:
        UsageError: a table has no error for any of the codecs, or names repeat.
        DoesNotFitError: the smallest codecs take more than the budget.
    """
    codecs = tuple(codecs)
    if len({table.name for table in tables}) != len(tables):
        raise UsageError(f"expected distinct tables, received {[table.name for table in tables]}")
    options = [_options(table, codecs) for table in tables]
    smallest = [min(option.nbytes for option in each) for each in options]
    if sum(smallest) > budget_bytes:
        raise DoesNotFitError(
            f"expected a budget of at least {sum(smallest)} bytes, the smallest size of these tables, "
            f"received {budget_bytes}",
            hint="raise the budget, or leave rows or tables out of the model",
        )
    states = [_State(0, 0.0, ())]
    for number, each in enumerate(options):
        most = budget_bytes - sum(smallest[number + 1 :])
        states = _best(
            [
                _State(state.nbytes + option.nbytes, state.error + option.error, state.chosen + option.chosen)
                for state in states
                for option in each
                if state.nbytes + option.nbytes <= most
            ]
        )
    best = min(states, key=lambda state: (state.error, state.nbytes))
    names = [table.name for table in tables]
    return BudgetedCodecs(dict(zip(names, best.chosen, strict=True)), best.nbytes, best.error)


def _options(table: BudgetedTable, codecs: Sequence[RowCodec]) -> list[_State]:
    """Return the codecs of one table that no other one beats."""
    found = [
        _State(codec.bytes_of(table.rows, table.dim), table.weight * table.errors[codec.name] ** 2, (codec,))
        for codec in codecs
        if codec.name in table.errors
    ]
    if not found:
        raise UsageError(
            f"expected errors of table `{table.name}` for some of {[codec.name for codec in codecs]}, "
            f"received {sorted(table.errors)}"
        )
    return _best(found)


def _best(states: list[_State]) -> list[_State]:
    """Return the states, fewest bytes first, that no other one beats in both bytes and error."""
    kept: list[_State] = []
    for state in sorted(states, key=lambda state: (state.nbytes, state.error)):
        if not kept or state.error < kept[-1].error:
            kept.append(state)
    if len(kept) <= _MOST_STATES:
        return kept
    # Too many to extend by the next table: keep the least error of each slice of bytes, and the fewest bytes.
    slice_bytes = kept[-1].nbytes // (_MOST_STATES - 1) + 1
    of_slices = {state.nbytes // slice_bytes: state for state in kept}
    return list(dict.fromkeys([kept[0], *of_slices.values()]))
