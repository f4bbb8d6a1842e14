"""Rows that cannot be used: counted by kind, the first ones shown, or the very first refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from graphbox.errors import DataError
from graphbox.graph.schema import Int64Array
from graphbox.graph.source import STORED_AGAIN, Batch

EXAMPLES = 5
"""Number of rows of each kind that are shown."""

DANGLING = "dangling_edges"
"""Kind of the edges with an end that is no node."""
DUPLICATE = "duplicate_edges"
"""Kind of the edges whose source and target are those of an edge before."""

_HINT = "correct the row, or import without strict to skip and count such rows"
_HINT_OF_ALL = "check that the format, the columns and the kinds asked for are those of the table"


@dataclass(frozen=True)
class Problem:
    """Reason why one row cannot be used.

    Attributes:
        place: ``file:line, column``.
        expected: the expected value.
        received: the value found.
        hint: remedy.
    """

    place: str
    expected: str
    received: str
    hint: str = _HINT

    def __str__(self) -> str:
        # Without the folder: the same tables give the same graph wherever they lie.
        file, separator, column = self.place.partition(", column ")
        return f"{file.rpartition('/')[2]}{separator}{column}: {self.received}"

    def error(self) -> DataError:
        """Return the error that refuses the row."""
        return DataError(
            f"expected {self.expected}, received {self.received}", where=self.place, hint=self.hint
        )

    def error_of_all(self, rows: int, what: str) -> DataError:
        """Return the error for a table of ``rows`` of which, as of this row, none can be used."""
        return DataError(
            f"expected {self.expected}, received {self.received} (none of the {rows:,} {what} can be used)",
            where=self.place,
            hint=_HINT_OF_ALL if self.hint == _HINT else self.hint,
        )


class SkippedRows:
    """The rows of one table that cannot be used.

    Args:
        strict: refuse the first one instead of counting.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._counts: dict[str, int] = {}
        self._problems: dict[str, list[Problem]] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of rows by kind."""
        return self._counts

    @property
    def examples(self) -> dict[str, tuple[str, ...]]:
        """The first rows of each kind: their place and what stands there."""
        return {kind: tuple(map(str, problems)) for kind, problems in self._problems.items() if problems}

    def add(self, kind: str, rows: Int64Array, describe: Callable[[int], Problem]) -> None:
        """Count rows.

        Args:
            kind: what is wrong, in a few words.
            rows: the rows, ascending.
            describe: says what is wrong with one of them; asked for the first few of each kind.

        Raises:
            DataError: naming the first of them, in strict mode.
        """
        self.add_counted(kind, len(rows), map(describe, rows.tolist()))

    def add_counted(self, kind: str, count: int, problems: Iterable[Problem]) -> None:
        """Count rows of which only the first are known.

        Raises:
            DataError: naming the first of them, in strict mode.
        """
        if not count:
            return
        known = self._problems.setdefault(kind, [])
        for problem in problems:
            if self._strict:
                raise problem.error()
            if len(known) >= EXAMPLES:
                break
            known.append(problem)
        self._counts[kind] = self._counts.get(kind, 0) + count

    def add_malformed(self, batch: Batch) -> None:
        """Count the lines that the reader of a table could not read, and those it passed over as copies.

        Raises:
            DataError: naming the first of them, in strict mode.
        """
        for kind, count in batch.malformed_counts.items():
            lines = [line for line in batch.malformed if line.kind == kind]
            problems = (
                Problem(line.place, "a line like the others", f"{kind}: {line.text}") for line in lines
            )
            self.add_counted(kind, count, problems)
        self.add_counted(STORED_AGAIN, batch.stored_again, ())

    def refuse_all(self, rows: int, what: str) -> None:
        """Raise when all rows were skipped, naming the first row of the most frequent kind.

        Args:
            rows: rows read.
            what: what they should have been, e.g. ``edges``.

        Raises:
            DataError: rows were skipped.
        """
        kinds = [kind for kind, problems in self._problems.items() if problems]
        if kinds:
            most_frequent = max(kinds, key=lambda kind: self._counts.get(kind, 0))
            raise self._problems[most_frequent][0].error_of_all(rows, what)
