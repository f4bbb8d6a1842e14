"""Interface of all table readers: a stream of bounded batches, with the place of every row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.errors import DataError, did_you_mean

_SHOWN_COLUMNS = 20

STORED_AGAIN = "second copies"
"""Name in reports of the rows of :attr:`Batch.stored_again`: skipped by design, never rejected."""


@dataclass(frozen=True)
class MalformedLine:
    """A line that is no row of the table.

    Attributes:
        kind: what is wrong, e.g. ``wrong number of cells``; lines are counted by kind.
        place: ``file:line``, lines counted from 1.
        text: the line, shortened, with what is wrong in words where the kind does not say it all.
    """

    kind: str
    place: str
    text: str


@dataclass(frozen=True, eq=False)
class Batch:
    """Some consecutive rows of a table.

    Attributes:
        columns: the wanted columns by name, of equal length. From text: large_string, an empty cell is
            null and a quoted empty one is the empty string. From other files: the file's own types, with
            dictionaries decoded and every string type as large_string.
        num_rows: number of rows; may be 0 in a batch that only carries malformed lines.
        first_row: position in the table of the first row, from 0; malformed lines are no rows.
        read_bytes: bytes of input consumed so far, compressed ones where the input is compressed.
        malformed: the first malformed lines of each kind that were skipped since the batch before.
        malformed_counts: how many were skipped since the batch before, by kind; all of them.
        stored_again: how many rows were left out since the batch before because the files, as PGLBox shards
            them, hold each row twice.
    """

    columns: Mapping[str, pa.Array]
    num_rows: int
    first_row: int
    read_bytes: int
    malformed: Sequence[MalformedLine] = ()
    malformed_counts: Mapping[str, int] = field(default_factory=dict)
    stored_again: int = 0


class Table(ABC):
    """A table that is read as a stream of batches.

    Attributes:
        name: the file, or what the table is, for messages.
        size_bytes: bytes of input in all, or None when that is not known before reading.
        is_text: whether all columns are text, so that numbers must be parsed.
        reiterable: whether :meth:`batches` may be called again; a stream can be read once.
    """

    name: str
    size_bytes: int | None
    is_text: bool = False
    reiterable: bool = True

    @property
    def column_separator(self) -> str | None:
        """Character between the cells of a line; None where the table is not delimited text.

        Raises:
            DataError: see :meth:`column_names`.
        """
        return None

    @property
    def comment_lines(self) -> int:
        """Number of leading lines that are comments, not rows.

        Raises:
            DataError: see :meth:`column_names`.
        """
        return 0

    @abstractmethod
    def column_names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order.

        Raises:
            DataError: the input is damaged, or something else than its format says.
        """

    def column_types(self) -> Mapping[str, pa.DataType]:
        """Return the types of the columns, where the table says them before its rows are read; text does not.

        Raises:
            DataError: see :meth:`column_names`.
        """
        return {}

    def has_column(self, name: str) -> bool:
        """Return whether a column may be asked for.

        These are :meth:`column_names`, and where each line names what it holds whatever one could name.

        Raises:
            DataError: see :meth:`column_names`.
        """
        return name in self.column_names()

    @abstractmethod
    def batches(self, columns: Sequence[str], *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of some columns, in order.

        Reading runs ahead in other threads: with the batch that was yielded it holds up to about five times
        ``batch_bytes`` and some tens of MiB, whatever the size of the input. The last batch, which may have
        no rows, says the malformed lines at the end of the input.

        Args:
            columns: names of the wanted columns; repeated ones are read once.
            batch_bytes: about the most bytes of memory a batch may take; one row may take more.

        Raises:
            DataError: a column is missing or twice there, the input is damaged, or it is a stream that was
                read before.
        """

    def blocks(
        self, columns: Sequence[str], places: Sequence[float], *, block_bytes: int
    ) -> Iterator[Mapping[str, pa.Array]]:
        """Yield some columns of short blocks of rows at places all over the table, to see what it is like.

        Nothing between the blocks is read. Places that fall together give one block; a table that can only
        be read from its beginning gives none. What is malformed is left out.

        Args:
            columns: names of the wanted columns.
            places: ascending shares of the table, from 0 to below 1.
            block_bytes: about how many bytes of memory or text a block has.

        Raises:
            DataError: a column is missing or twice there, or the input is damaged.
        """
        del columns, places, block_bytes
        return iter(())

    def where(self, row: int, column: str) -> str:
        """Return the place of a cell for a message.

        Args:
            row: position in the table, from 0; one of a batch that was yielded.
            column: name of the column.

        Returns:
            ``file:line, column `x``` where the table has lines, else ``file, row n, column `x```, n from 1.
        """
        return f"{self.name}, row {row + 1:,}, column `{column}`"


def check_columns(name: str, wanted: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    """Return the wanted columns, each once.

    Raises:
        DataError: one is missing or twice among the present ones, which it names.
    """
    for column in wanted:
        if present.count(column) == 1:
            continue
        if column in present:
            raise DataError(f"expected one column `{column}`, received {present.count(column)}", where=name)
        shown = ", ".join(f"`{other}`" for other in present[:_SHOWN_COLUMNS])
        more = f" and {len(present) - _SHOWN_COLUMNS:,} more" if len(present) > _SHOWN_COLUMNS else ""
        raise DataError(
            f"expected a column `{column}`, received {shown or 'none'}{more}",
            where=name,
            hint=did_you_mean(column, present)
            or "rename it in the table, or name one of the table's own columns instead",
        )
    return tuple(dict.fromkeys(wanted))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that :func:`plain_column` gives a column."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = plain_type(kind.value_type)
        return kind if item == kind.value_type else pa.large_list(item)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    return kind


def plain_column(values: pa.Array) -> pa.Array:
    """Return a column without dictionaries, run ends and views, every kind of string as large_string.

    Lists whose items change are large_list.
    """
    kind = values.type
    target = plain_type(kind)
    if target == kind:
        return values
    if pa.types.is_run_end_encoded(kind):
        return plain_column(pc.run_end_decode(values))
    if pa.types.is_dictionary(kind):
        if pa.types.is_string(kind.value_type):
            return values.dictionary_decode().cast(target)
        return plain_column(values.dictionary).take(values.indices)  # Arrow cannot take from views
    if not pa.types.is_nested(kind):
        return values.cast(target)
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    mask = values.is_null() if values.null_count else None
    return pa.LargeListArray.from_arrays(pa.array(offsets), plain_column(pc.list_flatten(values)), mask=mask)
