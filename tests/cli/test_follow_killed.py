"""`graphbox train --follow` killed again and again: no chunk is skipped, and none is learnt twice."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.graph import Graph
from graphbox.graph.chunks import stream_of
from graphbox.table import EmbeddingTable, PublishedTables, ServingTable
from graphbox.workspace import read_chunks
from tests.train.job_server import JobServer
from tests.train.purchases import RUN_FILE, write_day

DAYS = 8
KILLS = 32
BUYS = ("user", "buys", "item")
STREAM = "stream: {keep_chunks: 3, base_every: 3, drop_rows_after_chunks: 2}\n"
FOLLOW = ["train", "shop.yaml", "--follow", "in", "--once", "-q"]


@pytest.fixture(scope="module")
def processes() -> Iterator[JobServer]:
    with JobServer("tests.cli.main_process") as server:
        yield server


def shop(folder: Path) -> Path:
    (folder / "in").mkdir(parents=True)
    (folder / "shop.yaml").write_text(RUN_FILE.replace("epochs: 2", "epochs: 4") + STREAM)
    return folder


@dataclass(frozen=True)
class End:
    """Files and records of a run, without values that depend on time."""

    figures: list[dict[str, Any]]
    points: list[dict[str, Any]]
    held: list[tuple[str, str]]
    edges: list[list[int]]
    published: dict[str, Any]
    rows: dict[str, list[list[float]]]


# The order of rows in a file, and so its checksums, is that of their places in memory.
TIMES = {"seconds", "time_s", "samples_per_s", "published_bytes"}


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in TIMES}


def end_of(folder: Path) -> End:
    run, graph = folder / "workspace" / "runs" / "shop-1", folder / "workspace" / "graphs" / "shop"
    assert [path.name for path in run.parent.iterdir()] == ["shop-1"]
    stream = stream_of(graph)
    assert stream is not None
    points = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    source, target = Graph.open(graph).csc(BUYS).coo()
    last = max((run / "checkpoints" / "rows").iterdir())
    tables = {name: EmbeddingTable.load(last / f"{name}.table") for name in ("queries", "targets")}
    return End(
        [timeless(chunk) for chunk in read_chunks(run)],
        [{**timeless(point), "values": timeless(point["values"])} for point in points],
        [(chunk.name, chunk.digest) for chunk in stream.chunks],
        [source.tolist(), target.tolist()],
        published_in(run / "serving"),
        {name: table.pull(np.arange(64), create=False).tolist() for name, table in tables.items()},
    )


def published_in(folder: Path) -> dict[str, Any]:
    """Return what a server has after each base and each delta, and how many rows each of them holds."""
    found: dict[str, Any] = {"version": json.loads((folder / "version.json").read_text())["number"]}
    for name in ("queries", "targets"):
        manifests = {
            part: json.loads((part / "manifest.json").read_text()) for part in (folder / name).iterdir()
        }
        for base in (part for part, manifest in manifests.items() if manifest["kind"] == "base"):
            chain = [
                (manifest["chain"]["sequence"], part)
                for part, manifest in manifests.items()
                if manifest["chain"] and manifest["chain"]["base"] == manifests[base]["digest"]
            ]
            table = ServingTable.open(base, unknown="zeros")
            for sequence, part in [(0, base), *sorted(chain)]:
                if sequence:
                    table.apply(part)
                keys = sorted(table.keys().tolist())
                sizes = [
                    (each["rows"], each["live_rows"], each["erased"]) for each in manifests[part]["parts"]
                ]
                found[f"{name}/{part.name}"] = (sizes, keys, table.pull(keys).tolist())
        assert sum(key.startswith(name) for key in found) == len(manifests)
    return found


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("checkpoint_interval_s", [None, 0.0])
def test_killed_at_random_moments(
    processes: JobServer, tmp_path: Path, checkpoint_interval_s: float | None
) -> None:
    call: dict[str, Any] = {"arguments": FOLLOW, "checkpoint_interval_s": checkpoint_interval_s}
    whole = shop(tmp_path / "whole")
    for day in range(DAYS):
        write_day(whole / "in", day)
    started = time.monotonic()
    assert processes.run(folder=str(whole), **call) == 0
    longest_s = time.monotonic() - started

    killed = shop(tmp_path / "killed")
    serving = killed / "workspace" / "runs" / "shop-1" / "serving"
    generator = np.random.default_rng(6)
    days = kills = version = 0
    while kills < KILLS:
        if kills * DAYS >= days * KILLS:
            write_day(killed / "in", days)
            days += 1
        code = processes.run(kill_after_s=generator.uniform(0, longest_s), folder=str(killed), **call)
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        longest_s *= 1.1 if code else 0.8  # so that kills come, and late ones too, on any machine
        if (serving / "version.json").exists():
            number = PublishedTables.open(serving).number
            assert version <= number < days
            version = number
    assert days == DAYS
    assert processes.run(folder=str(killed), **call) == 0
    expected, found = end_of(whole), end_of(killed)
    assert [chunk["number"] for chunk in found.figures] == list(range(DAYS))
    assert len(expected.published) > 4
    assert found == expected
