"""The event stream of a run, over a socket, while another process could be training."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphbox.errors import DataError
from graphbox.workspace import RunWriter, Workspace
from tests.server.server_process import ServerProcess, StartServer, wait_until

EVENTS = "/api/v1/events"
Event = dict[str, Any]


def events_of(answer: httpx.Response) -> Iterator[Event]:
    """Parse a stream; comments are given as events of the name `comment`."""
    event: Event = {}
    for text in answer.iter_lines():
        if not text:
            if event:
                yield event
            event = {}
        elif text.startswith(":"):
            event = {"event": "comment"}
        else:
            name, _, value = text.partition(":")
            event[name] = json.loads(value) if name == "data" else value.strip()


def write_points(run: RunWriter, steps: range) -> None:
    with (run.path / "metrics.jsonl").open("a") as file:
        for step in steps:
            point = {
                "model": "sage",
                "step": step,
                "epoch": 0.5,
                "time_s": step / 10,
                "values": {"loss": 1.0},
            }
            file.write(json.dumps(point) + "\n")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


@pytest.fixture
def run(workspace: Workspace) -> Iterator[RunWriter]:
    with workspace.start_run("debian", "version: 1\n", "0" * 64, ["train"]) as run:
        run.begin_stage("train")
        yield run


@pytest.fixture
def events_server(workspace: Workspace, run: RunWriter, start_server: StartServer) -> ServerProcess:
    return start_server(workspace=workspace.root)


def test_points_arrive_while_the_run_goes_on(events_server: ServerProcess, run: RunWriter) -> None:
    write_points(run, range(2))
    with events_server.client() as client, client.stream("GET", EVENTS, params={"run": run.id}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = events_of(answer)
        first = next(stream)
        assert (first["event"], first["data"]["id"], first["data"]["state"]) == ("run", run.id, "running")
        points = [next(stream), next(stream)]
        assert [point["id"] for point in points] == ["1", "2"]
        assert points[1]["data"] == {
            "model": "sage",
            "phase": None,
            "step": 1,
            "epoch": 0.5,
            "time_s": 0.1,
            "values": {"loss": 1.0},
        }
        started = time.monotonic()
        write_points(run, range(2, 3))
        third = next(event for event in stream if event["event"] == "point")
        assert (third["id"], third["data"]["step"]) == ("3", 2)
        assert time.monotonic() - started < 5
        write_points(run, range(3, 5))
        run.finish_stage("train", seconds=1.0, peak_bytes=1, outputs={}, size_bytes=1)
        run.finish(1)
        rest = list(stream)
    assert [event["id"] for event in rest if event["event"] == "point"] == ["4", "5"]
    assert [event["data"]["state"] for event in rest if event["event"] == "run"][-1] == "finished"
    assert rest[-1] == {"event": "end", "data": {"state": "finished"}}


@pytest.mark.parametrize(
    ("headers", "params", "expected"),
    [
        ({"Last-Event-ID": "3"}, {}, ["4", "5"]),
        ({}, {"after": 2}, ["3", "4", "5"]),
        ({"Last-Event-ID": "4"}, {"after": 1}, ["5"]),
        ({}, {}, ["1", "2", "3", "4", "5"]),
    ],
)
def test_coming_back_gives_what_was_missed(
    events_server: ServerProcess,
    run: RunWriter,
    headers: dict[str, str],
    params: dict[str, Any],
    expected: list[str],
) -> None:
    write_points(run, range(5))
    run.stop_stage("train", DataError("expected numbers", where="row 7"), seconds=1.0, peak_bytes=1)
    with (
        events_server.client() as client,
        client.stream("GET", EVENTS, params={"run": run.id, **params}, headers=headers) as answer,
    ):
        events = list(events_of(answer))
    assert [event["id"] for event in events if event["event"] == "point"] == expected
    assert events[-1] == {"event": "end", "data": {"state": "failed"}}


def test_a_killed_run_ends_the_stream(workspace: Workspace, start_server: StartServer) -> None:
    """A run whose process has let go of it is interrupted, whatever the database says."""
    with workspace.start_run("debian", "version: 1\n", "1" * 64, ["train"]) as run:
        run.begin_stage("train")
    server = start_server(workspace=workspace.root)
    with server.client() as client, client.stream("GET", EVENTS, params={"run": run.id}) as answer:
        events = list(events_of(answer))
    assert events[-1] == {"event": "end", "data": {"state": "interrupted"}}


def test_a_client_that_leaves_is_forgotten(events_server: ServerProcess, run: RunWriter) -> None:
    def streams_counted() -> bool:
        text = httpx.get(f"{events_server.base}/metrics").text
        return 'route="/api/v1/events",status="200"' in text

    with events_server.client() as client, client.stream("GET", EVENTS, params={"run": run.id}) as answer:
        stream = events_of(answer)
        next(stream)
        assert not streams_counted()
    wait_until(streams_counted, what="the stream to end after the client has left")


def test_stopping_the_server_ends_streams(events_server: ServerProcess, run: RunWriter) -> None:
    with events_server.client() as client, client.stream("GET", EVENTS, params={"run": run.id}) as answer:
        stream = events_of(answer)
        next(stream)
        started = time.monotonic()
        events_server.process.send_signal(signal.SIGTERM)
        assert all(event["event"] != "end" for event in stream)
    assert events_server.process.wait(20) == 0
    assert time.monotonic() - started < 8, "the drain timeout was used up"


def test_removed_run_ends_the_stream(workspace: Workspace, start_server: StartServer) -> None:
    server = start_server(workspace=workspace.root)
    with workspace.start_run("debian", "version: 1\n", "2" * 64, ["train"]) as run:
        run.begin_stage("train")
        with server.client() as client, client.stream("GET", EVENTS, params={"run": run.id}) as answer:
            stream = events_of(answer)
            next(stream)
            run.close()
            workspace.remove_run(run.id)
            assert [event["event"] for event in stream if event["event"] == "point"] == []


def test_bad_last_event_id(events_server: ServerProcess, run: RunWriter) -> None:
    for value in ("-1", "x", "1.5"):
        answer = httpx.get(
            f"{events_server.base}{EVENTS}", params={"run": run.id}, headers={"Last-Event-ID": value}
        )
        assert answer.status_code == 400
        assert "last-event-id" in answer.json()["where"]
