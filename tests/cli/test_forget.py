"""`graphbox forget`: what a user sees, and what a running server answers with afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from graphbox.workspace import Workspace
from graphbox.workspace.forgettings import Forgetting
from tests.cli.conftest import Call
from tests.server.server_process import wait_until

FORGET = ("forget", "papers", "--node", "paper")


def test_what_held_them_and_what_is_not_reached(graphbox: Call, finished_folder: Path) -> None:
    dry = graphbox(*FORGET, "p0", "p1", "--dry-run")
    assert dry.code == 0, dry.err
    for line in (
        "graph papers: 2 nodes",
        "run papers-1, sage: 2 nodes",
        "model citer version 1: 2 nodes",
        "model citer version 2: 2 nodes",
        "model walker version 1: 2 nodes",
    ):
        assert line in dry.out
    outcome = graphbox(*FORGET, "p0", "p1")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(
        "forgotten in graph `papers` and what was made of it: 2 nodes of type paper\n"
    )
    for line in dry.out.splitlines():
        assert f"  {line}\n" in outcome.out
    assert "edges of the graph went with them" in outcome.out
    assert "splits and checkpoints of runs were removed" in outcome.out
    assert "not reached:\n  your own tables, paper.csv, author.csv, cites.csv and 1 more" in outcome.out
    assert "nothing holds them" in graphbox(*FORGET, "p0", "p1", "--dry-run").out
    again = graphbox(*FORGET, "p0")
    assert (again.code, again.out) == (2, "")
    assert "nothing was forgotten" in again.err
    runs = graphbox("runs", "show", "last", "--json").json
    assert runs["state"] == "finished"


def test_ids_of_a_file_as_json(graphbox: Call, finished_folder: Path) -> None:
    (finished_folder / "gone.txt").write_text("p3\n\np4\n")
    outcome = graphbox(*FORGET, "--ids", "gone.txt", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["given"] == {"paper": 2}
    assert {(each["kind"], each["nodes"]) for each in outcome.json["rewritten"]} >= {
        ("graph", 2),
        ("model", 2),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("forget",), "expected the name of a graph"),
        (("forget", "papers", "p1"), "expected --node"),
        (FORGET, "received neither"),
        ((*FORGET, "p1", "--ids", "gone.txt"), "received both"),
        ((*FORGET, "--ids", "absent.txt"), "there is no such file"),
        (("forget", "papers", "--resume"), "expected --resume alone"),
        (("forget", "papers", "--node", "papre", "p1"), "did you mean `paper`?"),
        (("forget", "paper", "--node", "paper", "p1"), "did you mean `papers`?"),
    ],
)
def test_mistakes(graphbox: Call, finished_folder: Path, arguments: tuple[str, ...], message: str) -> None:
    outcome = graphbox(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_every_command_says_what_was_interrupted(graphbox: Call, finished_folder: Path) -> None:
    with Workspace(finished_folder / "workspace") as workspace:
        workspace.begin_forgetting(Forgetting("papers", {"paper": ["p7"]}))
    assert "`graphbox forget --resume` resumes it" in graphbox("graphs").err
    resumed = graphbox("forget", "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert [report["given"] for report in resumed.json["resumed"]] == [{"paper": 1}]
    assert "--resume" not in graphbox("graphs").err
    assert "nothing was interrupted" in graphbox("forget", "--resume").out


def test_a_running_server_answers_without_the_forgotten(graphbox: Call, finished_folder: Path) -> None:
    command = [sys.executable, "-m", "graphbox", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]

            def status(paper: str) -> int:
                question = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": [paper]}]}
                return httpx.post(f"{url}v2/models/citer/infer", json=question, timeout=30).status_code

            wait_until(lambda: status("p5") == 200, what="the model")
            outcome = graphbox(*FORGET, "p5")
            assert f"the server at {url} switches to the rewritten versions" in outcome.out
            wait_until(lambda: status("p5") == 400, 10, what="the rewritten version")
            assert status("p6") == 200
        finally:
            server.kill()
            server.communicate(timeout=30)
