"""Choice of the active version: rules, options, comparisons, and servers that load it or do not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphbox.workspace import Workspace
from tests.cli.conftest import Call
from tests.server.sample_models import add_model, write_encoder
from tests.server.server_process import wait_until

GOLDEN = Path(__file__).parent / "golden" / "promotion"


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    """A workspace with two versions of a model, the first one active."""
    workspace = Workspace(folder / "workspace")
    for _ in range(2):
        add_model(workspace, "companion", write_encoder, activate=False)
    return workspace


Serve = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    """Start `graphbox serve` on the workspace; return the process and its address when its model is open."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "graphbox", "serve", "--port", "0", "--json", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=60)[1]
        url = json.loads(line)["url"]
        wait_until(lambda: _get(f"{url}healthz/live") is not None, what="the server")
        wait_until(lambda: served_version(url) is not None, what="the model")
        return process, url

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=60)


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (loopback)
        return json.load(answer)


def served_version(url: str) -> int | None:
    (model,) = _get(f"{url}api/v1/models")
    return next((each["version"] for each in model["versions"] if each["served"]), None)


def answering_version(url: str) -> int:
    version: int = _get(f"{url}api/v1/models/companion/neighbors?id=zsh&k=1")["version"]
    return version


def check_golden(name: str, text: str, **replaced: object) -> None:
    """Compare a text with the golden one; GRAPHBOX_UPDATE_GOLDEN=1 writes it."""
    for word, value in replaced.items():
        text = text.replace(str(value), f"<{word}>")
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GRAPHBOX_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


# ----------------------------------------------------------------------------------------- servers


def test_promote_without_a_server(graphbox: Call, workspace: Workspace) -> None:
    outcome = graphbox("models", "promote", "companion", "--version", "2")
    check_golden("without_a_server", outcome.out)
    assert workspace.active_versions() == {"companion": 2}
    again = graphbox("models", "promote", "companion", "--version", "2", "--json").json
    assert (again["active_before"], again["servers"]) == (2, [])


def test_server_that_follows_takes_it_up(graphbox: Call, workspace: Workspace, serve: Serve) -> None:
    process, url = serve()
    assert answering_version(url) == 1
    outcome = graphbox("models", "promote", "companion", "--version", "2")
    check_golden("server_that_follows", outcome.out, url=url, pid=process.pid)
    wait_until(lambda: answering_version(url) == 2, 5, what="the promoted version")
    process.kill()
    process.wait(60)
    outcome = graphbox("models", "promote", "companion", "--version", "1")
    assert "no server of this workspace is running" in outcome.out, "it was killed"


def test_server_that_does_not_follow_takes_it_up_at_a_signal(
    graphbox: Call, workspace: Workspace, serve: Serve
) -> None:
    process, url = serve("--no-follow")
    assert not _get(f"{url}api/v1/overview")["follows"]
    _, following = serve()
    outcome = graphbox("models", "promote", "companion", "--version", "2", "--json").json
    assert {(server["url"], server["follows"]) for server in outcome["servers"]} == {
        (url, False),
        (following, True),
    }
    wait_until(lambda: answering_version(following) == 2, 5, what="the server that follows")
    assert answering_version(url) == 1, "it was asked not to follow"
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: answering_version(url) == 2, 5, what="the version at the signal")


def test_server_that_does_not_follow_is_named(graphbox: Call, workspace: Workspace, serve: Serve) -> None:
    process, url = serve("--no-follow")
    outcome = graphbox("models", "promote", "companion", "--version", "2")
    check_golden("server_that_does_not_follow", outcome.out, url=url, pid=process.pid)
    process.terminate()
    process.wait(60)
    assert list((workspace.root / ".locks" / "servers").iterdir()) == []


def test_removing_the_active_version_names_the_next(graphbox: Call, workspace: Workspace) -> None:
    outcome = graphbox("models", "rm", "companion", "--version", "1")
    assert outcome.out.endswith("freed; version 2 is active\n")
    assert graphbox("models", "rm", "companion", "--json").json["active"] is None


# ------------------------------------------------------------------------------------------- rules


def active(graphbox: Call) -> dict[str, int]:
    return {each["name"]: each["version"] for each in graphbox("models", "--json").json if each["active"]}


def promotion(outcome: Any, name: str = "citer") -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = outcome.json["promotion"][name]
    return document


Run = Callable[..., Any]


@pytest.fixture
def run(graphbox: Call, finished: Path, finished_folder: Path) -> Run:
    """Run the run file of the finished run again, in a copy of its workspace."""

    def call(*arguments: str) -> Any:
        return graphbox("run", finished / "run.yaml", *arguments)

    return call


def run_longer(run: Run, *overrides: str) -> Any:
    return run("models.sage.epochs=5", *overrides, "--json", "-q")


def test_first_run_is_active_compressed(graphbox: Call, run: Run) -> None:
    assert active(graphbox) == {"citer": 2, "walker": 1}
    shown = run("-q").out
    assert "citer: version 2 is active (it comes from the first run of that name)" in shown
    assert "no server of this workspace is running" in shown


def test_new_version_waits_and_is_compared(graphbox: Call, run: Run) -> None:
    outcome = run_longer(run)
    found = promotion(outcome)
    assert (found["version"], found["active"], found["rule"]) == (4, 2, "never")
    comparison = found["comparison"]
    assert (comparison["metric"], comparison["not_comparable"]) == ("recall@5", None)
    assert comparison["request"] == "neighbors"
    for figure in ("quality", "size_bytes", "request_ms"):
        assert all(value is not None for value in comparison[figure].values())
    assert active(graphbox) == {"citer": 2, "walker": 1}
    measured = outcome.json["bench"]["citer"]
    assert [each["version"] for each in measured] == [2, 3, 4], "the active one is measured beside them"
    text = run("models.sage.epochs=5", "-q").out
    assert "citer: version 4 is not active, version 2 is (`promote: never`): recall@5 " in text
    assert "`graphbox models promote citer --version 4` serves it" in text
    shown = graphbox("models", "show", "citer", "--version", "4").out
    assert "vs version 2" in shown
    assert "neighbors request" in shown


def test_always(graphbox: Call, run: Run) -> None:
    found = promotion(run_longer(run, "export.citer.promote=always"))
    assert (found["version"], found["active"]) == (4, 4)
    assert active(graphbox) == {"citer": 4, "walker": 1}


def test_better_version_is_promoted_and_a_worse_one_is_not(run: Run) -> None:
    rule = "export.citer.promote=if_better"
    worse = promotion(run_longer(run, rule, "models.sage.epochs=1"))
    better = promotion(run_longer(run, rule, "models.sage.epochs=40"))
    for found in (worse, better):
        quality = found["comparison"]["quality"]
        is_better = quality["version"] > quality["active"]
        assert (found["active"] == found["version"]) == is_better
    assert better["active"] == better["version"]
    worse = promotion(run_longer(run, rule, "models.sage.epochs=2"))
    assert worse["active"] == better["version"]
    assert worse["reason"] == "`promote: if_better`, and recall@5 is not higher"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("tasks.cite.k=4", "is measured by recall@4, version 2 by recall@5"),
        ("seed=7", "version 2 was measured on another version of the graph or another test part"),
    ],
)
def test_rule_refuses_what_cannot_be_compared(run: Run, change: str, reason: str) -> None:
    rule = "export.citer.promote=if_better"
    found = promotion(run_longer(run, rule, "models.sage.epochs=40", change))
    assert found["active"] == 2
    assert found["reason"].startswith("`promote: if_better`, but ")
    assert reason in found["reason"]


def test_rule_refuses_what_was_measured_on_another_graph(graphbox: Call, finished_folder: Path) -> None:
    with (finished_folder / "cites.csv").open("a") as table:
        table.write("p0,p59\n")
    overrides = ("export.citer.promote=if_better", "models.sage.epochs=40")
    found = promotion(graphbox("run", "run.yaml", *overrides, "--json", "-q"))
    assert (found["version"], found["active"]) == (4, 2)
    assert "version 2 was measured on another version of the graph" in found["reason"]


def test_changed_rule_trains_nothing_again(graphbox: Call, run: Run) -> None:
    graphbox("models", "promote", "citer", "--version", "1")
    outcome = run("export.citer.promote=always", "--json")
    assert promotion(outcome)["active"] == 2
    assert "promote: runs again, export.citer.promote changed" in outcome.err
    assert "export: runs again" not in outcome.err
    assert active(graphbox)["citer"] == 2


def test_report_says_which_version_is_active_now(graphbox: Call, run: Run) -> None:
    graphbox("models", "promote", "citer", "--version", "1")
    found = promotion(run("--json"))
    assert (found["version"], found["active"], found["reason"]) == (2, 1, "promoted since")
    assert found["comparison"]["active"] == 1


@pytest.mark.parametrize(("option", "expected"), [("--promote", 3), ("--no-promote", 2), (None, 2)])
def test_options_of_export(graphbox: Call, finished_folder: Path, option: str | None, expected: int) -> None:
    outcome = graphbox("export", "papers-1", *([option] if option else []), "--json")
    found = promotion(outcome)
    assert (found["version"], found["active"]) == (3, expected)
    assert found["comparison"]["request_ms"]["version"] > 0
    assert active(graphbox)["citer"] == expected
    assert outcome.json["servers"] == []


def test_options_of_compress(graphbox: Call, finished_folder: Path) -> None:
    arguments = ["compress", "citer", "--version", "1", "--max-drop", "0.5", "--json"]
    assert promotion(graphbox(*arguments))["active"] == 2
    found = promotion(graphbox(*arguments, "--promote"))
    assert (found["version"], found["active"], found["reason"]) == (4, 4, "as asked")
    for option in (("--target", "onnxruntime"), ("--threads", "2"), ("--max-p99", "3ms"), ("--min", "a=1")):
        refused = graphbox("compress", "papers-1", *option)
        assert refused.code == 2
        assert f"received {option[0]}" in refused.err
    refused = graphbox("compress", "papers-1", "--max-drop", "0.5", "--dense", "float32")
    assert (refused.code, "received --dense, --max-drop" in refused.err) == (2, True)
    of_run = promotion(graphbox("compress", "papers-1", "--promote", "--json"))
    assert (of_run["version"], of_run["active"]) == (5, 5)


def test_version_compressed_from_the_active_one_is_better_within_its_limit(graphbox: Call, run: Run) -> None:
    outcome = run("name=other", "export.citer.promote=if_better", "--json", "-q")
    graphbox("models", "promote", "citer", "--version", "3")
    found = promotion(graphbox("compress", "citer", "--max-drop", "0.5", "--json"))
    assert promotion(outcome)["active"] == 2, "the same model again is not better"
    assert (found["version"], found["active"]) == (5, 5)
    assert found["reason"] == "it was compressed from the active version, within `max_drop`"
