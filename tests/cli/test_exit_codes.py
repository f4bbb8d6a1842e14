"""Equal causes have equal exit codes, whichever command meets them; `graphbox.errors` has the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from graphbox.cli.app import app
from graphbox.pipeline.run_data import RunData
from graphbox.workspace import Workspace
from tests.cli.conftest import Call, call_main

USAGE, FAILED, STOPPED, RESUMABLE = 2, 1, 130, 75
TIMEOUT_S = 120


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command."""
    for name, found in sorted(getattr(group, "commands", {}).items()):
        inner = list(commands(found, (*path, name)))
        yield from inner or [(*path, name)]


def title(arguments: tuple[str, ...]) -> str:
    return " ".join(arguments)


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=title)
def test_an_unknown_option(graphbox: Call, path: tuple[str, ...]) -> None:
    outcome = graphbox(*path, "--no-such-option")
    assert outcome.code == USAGE, outcome.err
    assert "--no-such-option" in outcome.err
    assert call_main([*path, "--help"]).code == 0


ABSENT_RUN: list[tuple[str, ...]] = [
    ("eval", "absent-1"),
    ("export", "absent-1"),
    ("embed", "export", "absent-1"),
    ("embed", "neighbors", "absent-1", "p1"),
    ("embed", "answers", "absent-1", "east", "--head", "p1"),
    ("predict", "absent-1"),
    ("runs", "show", "absent-1"),
    ("runs", "logs", "absent-1"),
    ("runs", "compare", "absent-1", "last"),
    ("runs", "resume", "absent-1"),
    ("runs", "stop", "absent-1"),
    ("runs", "rm", "absent-1"),
]
ABSENT_GRAPH: list[tuple[str, ...]] = [
    ("describe", "absent"),
    ("compact", "absent"),
    ("graphs", "rm", "absent"),
    ("import", "cites.csv", "--append", "--name", "absent"),
    ("import", "cites.csv", "--remove", "--name", "absent"),
    ("import", "--remove", "--name", "absent", "--node", "paper", "p1"),
    ("embed", "export", "last", "--graph", "absent"),
    ("embed", "neighbors", "last", "p1", "--graph", "absent"),
    ("predict", "last", "--graph", "absent"),
]
ABSENT_MODEL: list[tuple[str, ...]] = [
    ("models", "show", "absent"),
    ("models", "rm", "absent"),
    ("models", "promote", "absent", "--version", "1"),
    ("bench", "absent"),
    ("compress", "absent"),
    ("predict", "absent"),
    ("embed", "export", "last", "--model", "absent"),
    ("embed", "neighbors", "last", "p1", "--model", "absent"),
]


@pytest.mark.parametrize("call", [*ABSENT_RUN, *ABSENT_GRAPH, *ABSENT_MODEL], ids=title)
def test_what_is_not_there(graphbox: Call, finished_folder: Path, call: tuple[str, ...]) -> None:
    outcome = graphbox(*call, "--json")
    assert outcome.code == USAGE, outcome.err
    assert outcome.json["error"]["code"] == "not_found", outcome.err
    assert "absent" in outcome.err


@pytest.mark.parametrize("call", [*ABSENT_RUN, *ABSENT_GRAPH, *ABSENT_MODEL], ids=title)
def test_no_workspace(graphbox: Call, call: tuple[str, ...]) -> None:
    outcome = graphbox(*call, "--json")
    assert outcome.code == USAGE, outcome.err
    assert outcome.json["error"]["code"] == "not_found", outcome.err


READS_A_RUN_FILE = ("check", "run", "train", "import", "plan")


@pytest.mark.parametrize("name", READS_A_RUN_FILE)
@pytest.mark.parametrize(
    "text", ["version: 1\nname: [", "version: 1\nname: x\ngraph: {nodse: {}}\n", "version: 99\n"]
)
def test_a_run_file_with_mistakes(graphbox: Call, folder: Path, name: str, text: str) -> None:
    (folder / "wrong.yaml").write_text(text)
    outcome = graphbox(name, "wrong.yaml", "--json")
    assert outcome.code == USAGE, outcome.err
    assert outcome.json["error"]["code"] == "config", outcome.err


@pytest.mark.parametrize("name", READS_A_RUN_FILE)
def test_a_run_file_that_is_not_there(graphbox: Call, folder: Path, name: str) -> None:
    outcome = graphbox(name, "absent.yaml", "--json")
    assert outcome.code == USAGE, outcome.err
    assert outcome.json["error"]["code"] == "not_found", outcome.err


@pytest.mark.parametrize(
    "call",
    [
        ("eval", "last"),
        ("export", "last"),
        ("runs", "rm", "last"),
    ],
    ids=title,
)
def test_a_busy_run(graphbox: Call, finished_folder: Path, call: tuple[str, ...]) -> None:
    workspace = Workspace("workspace")
    before = workspace.run("last")
    with workspace.resume_run("last", keeps_record=True):
        outcome = graphbox(*call, "--json")
    assert outcome.code == FAILED, outcome.err
    assert outcome.json["error"]["code"] == "conflict"
    assert "runs stop" in outcome.err
    assert workspace.run("last") == before


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    # Where the tests run in the background of a shell, Ctrl-C is ignored, and so it would be by the command.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "graphbox", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", READS_A_RUN_FILE)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, STOPPED), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_while_a_command_reads(folder: Path, name: str, number: int, code: int) -> None:
    # A shell shows 143 of what ends by SIGTERM, 128 + 15.
    os.mkfifo(folder / "waits.yaml")
    with started(folder, name, "waits.yaml") as process:
        writer = os.open(folder / "waits.yaml", os.O_WRONLY)  # waits until the command reads
        time.sleep(0.1)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
        os.close(writer)
    assert process.returncode == code, (out, err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_repeated_evaluation(finished_folder: Path, number: int) -> None:
    workspace = Workspace("workspace")
    before = workspace.run("last")
    log = before.path / "log.txt"
    marks = log.read_text().count("stage evaluate starts")
    with started(finished_folder, "eval", "last") as process:
        deadline = time.monotonic() + TIMEOUT_S
        while log.read_text().count("stage evaluate starts") == marks and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)  # while libraries are loaded, which takes longest
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == RESUMABLE, err
    assert "keeps its earlier results" in err
    assert workspace.run("last") == before
    assert RunData.open(workspace, "last").record.state == "finished"


@pytest.mark.parametrize("option", [("--hbm", "80GiB"), ("--bandwidths", "doctor.json")])
def test_a_table_of_edges_is_not_planned_for_a_gpu(tmp_path: Path, option: tuple[str, str]) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    outcome = call_main(["-C", str(tmp_path / "workspace"), "plan", str(tmp_path / "edges.csv"), *option])
    assert outcome.code == 2
    assert f"{option[0]}: expected a run file with models" in outcome.err
