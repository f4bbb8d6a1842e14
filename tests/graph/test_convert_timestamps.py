"""Timestamps: integers as they are, dates and times of text and Arrow as microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DataError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.convert import TimestampReader
from graphbox.graph.ingest import import_graph

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def read(*batches: list[str | None], is_text: bool = True) -> list[tuple[list[int], list[int]]]:
    """Return the values and the rows that cannot be used, batch by batch."""
    reader = TimestampReader(is_text=is_text, place="t.csv, column `t`")
    found = []
    for batch in batches:
        converted = reader.read(pa.array(batch, pa.large_string()))
        wrong = np.zeros(len(batch), bool)
        for each in converted.wrong:
            wrong |= each.rows
        found.append((converted.values.tolist(), np.flatnonzero(wrong).tolist()))
    return found


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-05-31", datetime(2024, 5, 31, tzinfo=UTC)),
        ("2024-05-31 12:30", datetime(2024, 5, 31, 12, 30, tzinfo=UTC)),
        ("2024-05-31T12:30:05", datetime(2024, 5, 31, 12, 30, 5, tzinfo=UTC)),
        ("2024-05-31T12:30:05.25Z", datetime(2024, 5, 31, 12, 30, 5, 250_000, tzinfo=UTC)),
        ("2024-05-31T12:30:05.000001+02:00", datetime(2024, 5, 31, 10, 30, 5, 1, tzinfo=UTC)),
        ("1969-12-31 23:59:59-0330", datetime(1970, 1, 1, 3, 29, 59, tzinfo=UTC)),
        ("0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_dates_and_times_of_text(text: str, instant: datetime) -> None:
    assert read([text], [None, text]) == [
        ([microseconds(instant)], []),
        ([0, microseconds(instant)], [0]),
    ]


def test_what_is_no_date() -> None:
    wrong = ["2024-13-01", "2024-02-30", "31.05.2024", "2024-05-31T25:00", "2024-05-31T12:00:00.1234567"]
    ((values, rows),) = read(["2024-05-31", *wrong, "2024-06-01Z", "2024-06-01"])
    assert rows == [1, 2, 3, 4, 5, 6]
    assert values[7] - values[0] == 86_400_000_000


def test_the_first_row_says_whether_a_column_has_integers_or_dates() -> None:
    assert read([None, "7"], ["2024-05-31", "-8"])[1] == ([0, -8], [0])
    (_, first), (values, rows) = read([None, "May", "2024-05-31"], ["7", "2024-05-31"])
    assert first == [0, 1]
    assert rows == [0]
    assert values[1] == microseconds(datetime(2024, 5, 31, tzinfo=UTC))
    # Whatever the batches are.
    cells: list[str | None] = [None, "May", "2024-05-31", "7", "2024-05-31"]
    assert [row for values, rows in read(*([cell] for cell in cells)) for row in rows] == [0, 0, 0]


def test_strings_of_arrow_are_dates_and_never_integers() -> None:
    assert read(["2024-05-31", "7"], is_text=False)[0][1] == [1]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), date(2024, 5, 31)),
        (pa.date64(), date(2024, 5, 31)),
        (pa.timestamp("s"), datetime(2024, 5, 31)),
        (pa.timestamp("ms", "Europe/Berlin"), datetime(2024, 5, 31, 2, tzinfo=timezone(timedelta(hours=2)))),
        (pa.timestamp("ns"), datetime(2024, 5, 31)),
    ],
)
def test_dates_and_times_of_parquet_come_back(tmp_path: Path, kind: pa.DataType, value: object) -> None:
    times = pa.array([value, None], kind)
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3], "at": times}), tmp_path / "e.parquet")
    edges = EdgeSource(("n", "to", "n"), tmp_path / "e.parquet", timestamp="at")
    report = import_graph(GraphSource("g", {"n": NodeSource()}, (edges,)), tmp_path / "g")
    assert report.edges[0].skipped == {"missing timestamp": 1}
    stored = Graph.open(tmp_path / "g").csc().timestamp
    assert stored is not None
    assert stored.tolist() == [microseconds(datetime(2024, 5, 31, tzinfo=UTC))]


def test_other_types_are_refused() -> None:
    reader = TimestampReader(is_text=False, place="e.parquet, column `t`")
    for kind in (pa.float64(), pa.time32("s"), pa.bool_()):
        with pytest.raises(DataError, match="expected timestamps"):
            reader.read(pa.array([], kind))
