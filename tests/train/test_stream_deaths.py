"""A training that follows a stream and dies at any moment ends like one that never died."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.graph import Graph
from graphbox.graph.chunks import stream_of
from graphbox.table import EmbeddingTable, PublishedTables
from graphbox.workspace import read_chunks
from tests.train.job_server import JobServer
from tests.train.purchases import RUN_FILE, write_day
from tests.train.stream_process import MOMENTS

DAYS = 5
KEYS = np.arange(64)
BUYS = ("user", "buys", "item")


@pytest.fixture(scope="module")
def processes() -> Iterator[JobServer]:
    with JobServer("tests.train.stream_process") as server:
        yield server


@dataclass(frozen=True)
class End:
    """Files and records of a training at its end."""

    rows: dict[str, np.ndarray]
    chunks: list[dict[str, Any]]
    points: list[dict[str, Any]]
    edges: list[list[int]]
    held: list[tuple[str, str]]


def served(published: PublishedTables) -> dict[str, np.ndarray]:
    return {name: table.pull(KEYS) for name, table in published.items()}


def end_of(folder: Path) -> End:
    checkpoint = sorted((folder / "run" / "checkpoints" / "rows").iterdir())[-1]
    graph = Graph.open(folder / "workspace" / "graphs" / "shop")
    stream = stream_of(folder / "workspace" / "graphs" / "shop")
    assert stream is not None
    points = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    for point in points:
        point.pop("time_s")
        point["values"].pop("samples_per_s", None)
        point["values"].pop("published_bytes", None)
    chunks = [
        {key: value for key, value in chunk.items() if key not in ("seconds", "published_bytes")}
        for chunk in read_chunks(folder / "run")
    ]
    source, target = graph.csc(BUYS).coo()
    return End(
        {
            name: np.asarray(EmbeddingTable.load(checkpoint / f"{name}.table").pull(KEYS, create=False))
            for name in ("queries", "targets")
        },
        chunks,
        points,
        [source.tolist(), target.tolist()],
        [(chunk.name, chunk.digest) for chunk in stream.chunks],
    )


def shop(folder: Path, days: int = DAYS) -> Path:
    folder.mkdir()
    (folder / "run.yaml").write_text(RUN_FILE)
    (folder / "in").mkdir()
    for day in range(days):
        write_day(folder / "in", day)
    return folder


@pytest.fixture(scope="module")
def expected(processes: JobServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[End, list[Any]]:
    """Return how a training ends that never died, and each of its versions."""
    folder = shop(tmp_path_factory.mktemp("stream") / "expected", days=0)
    versions = []
    for day in range(DAYS):
        write_day(folder / "in", day)
        assert processes.run(folder=str(folder)) == 0
        versions.append(served(PublishedTables.open(folder / "serving")))
    return end_of(folder), versions


def check_served(folder: Path, versions: list[dict[str, np.ndarray]]) -> None:
    """See that what a reader finds now is one of the versions, wholly."""
    if not (folder / "serving" / "version.json").exists():
        return
    published = PublishedTables.open(folder / "serving")
    for name, rows in served(published).items():
        np.testing.assert_array_equal(rows, versions[published.number][name])


def die_and_go_on(
    processes: JobServer, folder: Path, expected: tuple[End, list[Any]], deaths: list[dict[str, Any]]
) -> int:
    """See that a training that dies so ends like one that never did; return how many of the deaths came."""
    end, versions = expected
    shop(folder)
    came = 0
    for death in deaths:
        died = processes.run(folder=str(folder), **death)
        assert died in (0, -signal.SIGKILL), death
        came += died != 0
        check_served(folder, versions)
    assert processes.run(folder=str(folder)) == 0
    check_served(folder, versions)
    assert PublishedTables.open(folder / "serving").number == DAYS - 1
    found = end_of(folder)
    for name, rows in end.rows.items():
        np.testing.assert_array_equal(found.rows[name], rows)
    assert found.chunks == end.chunks
    assert found.points == end.points
    assert found.edges == end.edges
    assert found.held == end.held
    return came


def test_it_learns_and_says_so(expected: tuple[End, list[Any]]) -> None:
    end, _ = expected
    assert [chunk["number"] for chunk in end.chunks] == list(range(DAYS))
    assert "auc" not in end.chunks[0]
    assert end.chunks[-1]["auc"] > 0.7
    assert end.chunks[-1]["running_auc"] > 0.6


def test_deaths_one_after_the_other(
    processes: JobServer, tmp_path: Path, expected: tuple[End, list[Any]]
) -> None:
    deaths = [
        {"moment": "after the append", "call": 2},
        {"moment": "between the tables of a version", "call": 1},
        {"moment": "after a version", "call": 1},
        {"moment": "after a part of a version", "call": 3, "checkpoint_interval_s": 0.0},
        {"moment": "before a version is told", "call": 2},
    ]
    assert die_and_go_on(processes, tmp_path / "shop", expected, deaths) == len(deaths)


# A part of a version is written with a checkpoint in the midst of a chunk alone.
INTERVALS = [
    (moment, interval_s)
    for moment in sorted(MOMENTS)
    for interval_s in (0.0, 1e9)
    if (moment, interval_s) != ("after a part of a version", 1e9)
]


@pytest.mark.stress
@pytest.mark.parametrize(("moment", "interval_s"), INTERVALS)
def test_death_at_every_moment(
    processes: JobServer, tmp_path: Path, expected: tuple[End, list[Any]], moment: str, interval_s: float
) -> None:
    for call in range(1, 8):
        death = {"moment": moment, "call": call, "checkpoint_interval_s": interval_s}
        if not die_and_go_on(processes, tmp_path / str(call), expected, [death]):
            break  # it does not come so often
    assert call > 2
