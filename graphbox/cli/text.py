"""Numbers, times and tables as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from graphbox.words import byte_size

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["age", "byte_size", "count", "duration", "fitting_tables", "metric", "table"]

_KILO = 1000.0
_BETWEEN_COLUMNS = 3


def count(number: float) -> str:
    """Return a rate or number with a short unit: ``950``, ``12.3k``, ``4.5M``."""
    if number < _KILO:
        return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    for unit in ("k", "M", "G"):
        number /= _KILO
        if number < _KILO or unit == "G":
            return f"{number:.1f}{unit}"
    return ""


def duration(seconds: float | None) -> str:
    """Return a time: ``0.4 s``, ``12 s``, ``3:05 min``, ``1:02:03 h``."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02} h"


def age(moment: datetime) -> str:
    """Return how long ago ``moment`` was: ``just now``, ``5 min ago``, ``2 h ago``, else the date."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 86400:
        return f"{seconds // 3600:.0f} h ago"
    return f"{moment.astimezone():%Y-%m-%d}"


def metric(value: float) -> str:
    """Return the value of a metric: a share with three digits after the point, a count as it is."""
    # Metrics kept as JSON may have lost that they were counts; of a mean rank of thousands no digit matters.
    whole = abs(value) >= _KILO or (abs(value) > 1 and float(value).is_integer())
    return f"{value:,.0f}" if whole else f"{value:.3f}"


def table(
    title: str | None, columns: Iterable[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()
) -> Table:
    """Return a plain table; the columns named in ``numbers`` are set flush right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    built = Table(
        # As long as it is, beyond a narrow table too.
        title=None if title is None else Text(title, style="bold", no_wrap=True, overflow="ignore"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        built.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        built.add_row(*(Text(cell) for cell in row))
    return built


def fitting_tables(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Iterator[Table]:
    """Yield tables of at most ``width`` characters that have, together, all columns of figures.

    Args:
        title: of the first one.
        columns: the first names the rows and is in each table; the others are set flush right.
        rows: a cell for each column.
        width: characters there are; a table has one column of figures in any case.
    """
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    parts: list[list[int]] = []
    used = width
    for column in range(1, len(columns)):
        needed = widths[column] + _BETWEEN_COLUMNS
        if used + needed > width:
            parts.append([])
            used = widths[0]
        parts[-1].append(column)
        used += needed
    for number, part in enumerate(parts):
        chosen = [0, *part]
        names = [columns[column] for column in chosen]
        cells = [[row[column] for column in chosen] for row in rows]
        yield table(title if number == 0 else f"{title}, continued", names, cells, names[1:])
