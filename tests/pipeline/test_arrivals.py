"""Chunks of a stream: their order, and the parts that they lack."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from graphbox.config import StreamConfig
from graphbox.errors import NotFoundError, UsageError
from graphbox.pipeline.follow.arrivals import Arrivals, date_of, order_of


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text("content")


def scan(folder: Path, **options: object) -> dict[str, bool]:
    """Return the chunks in their order, and whether each is whole."""
    found = Arrivals(str(folder), StreamConfig.model_validate(options)).scan()
    return {arrival.name: arrival.missing is None for arrival in found}


def test_names_are_ordered_as_people_count() -> None:
    names = ["20261110/1", "20261101/10", "20261102/0", "20261101/4", "20261101/0"]
    assert sorted(names, key=order_of) == [
        "20261101/0",
        "20261101/4",
        "20261101/10",
        "20261102/0",
        "20261110/1",
    ]
    assert sorted(["part-10", "part-9", "part-a", "part-1"], key=order_of) == [
        "part-1",
        "part-9",
        "part-10",
        "part-a",
    ]


def test_days_with_hours_as_paddle_has_them(tmp_path: Path) -> None:
    make(
        tmp_path,
        "20261101/00/part-0",
        "20261101/00/to.hadoop.done",
        "20261101/01/part-0",
        "20261101/01/donefile",
        "20261101/_SUCCESS",  # of the day, when all its hours are there
        "20261102/00/part-0",
        "logs/today.txt",
        "README",
    )
    assert scan(tmp_path) == {"20261101/00": True, "20261101/01": True, "20261102/00": False}


def test_days_as_hive_has_them_and_markers_beside(tmp_path: Path) -> None:
    make(
        tmp_path,
        "dt=2026-11-01/hour=9/a.parquet",
        "dt=2026-11-01/hour=9.done",
        "dt=2026-11-01/hour=10/a.parquet",
        "dt=2026-11-01/hour=10/_SUCCESS",
    )
    assert scan(tmp_path) == {"dt=2026-11-01/hour=9": True, "dt=2026-11-01/hour=10": True}


def test_tables_in_folders_of_a_chunk_are_no_chunks(tmp_path: Path) -> None:
    make(tmp_path, "20261101/edges/buys.csv", "20261101/_SUCCESS", "20261102/edges/buys.csv")
    assert scan(tmp_path) == {"20261101": True, "20261102": False}


def test_a_growing_folder_of_files(tmp_path: Path) -> None:
    make(tmp_path, "buys-2.csv", "buys-10.csv", "buys-9.csv", ".hidden", "_SUCCESS", "buys-11.csv.tmp")
    assert scan(tmp_path) == {"buys-2.csv": True, "buys-9.csv": True, "buys-10.csv": False}
    make(tmp_path, "buys-10.csv.done")
    # Where one has a marker, all have: files may be written side by side.
    assert scan(tmp_path) == {"buys-2.csv": False, "buys-9.csv": False, "buys-10.csv": True}


def test_without_markers_what_has_not_changed_is_whole_if_asked(tmp_path: Path) -> None:
    make(tmp_path, "20261101/a.csv", "20261102/a.csv")
    for path in ("20261101/a.csv", "20261101"):
        os.utime(tmp_path / path, (1e9, 1e9))
    assert scan(tmp_path, settle_seconds=3600) == {"20261101": True, "20261102": False}


def test_a_pattern_says_what_is_a_chunk(tmp_path: Path) -> None:
    make(tmp_path, "eu/batch-2/a.csv", "eu/batch-2/ready", "eu/batch-10/a.csv", "us/batch-1/a.csv")
    found = scan(tmp_path, chunks="eu/batch-*", markers=("ready",))
    assert found == {"eu/batch-2": True, "eu/batch-10": False}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20261101", date(2026, 11, 1)),
        ("20261101/04", date(2026, 11, 1)),
        ("dt=2026-11-01/hour=04", date(2026, 11, 1)),
        ("buys-2026.11.01.csv", date(2026, 11, 1)),
        ("2026110104.csv", date(2026, 11, 1)),
        ("batch-17", None),
        ("20269999", None),
    ],
)
def test_dates_in_names(name: str, expected: date | None) -> None:
    assert date_of(name) == expected


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="folder in which chunks appear"):
        Arrivals(str(tmp_path / "nowhere"), StreamConfig())
    with pytest.raises(UsageError, match="URL"):
        Arrivals("s3://bucket/stream", StreamConfig())
