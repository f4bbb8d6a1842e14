"""Searches for compressed versions over REST: lists, reports, unfinished and damaged ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphbox.compress.limits import Limits
from graphbox.compress.search.report import popularity_drift
from graphbox.config import BenchConfig, CompressConfig, LatencyLimit, SearchConfig
from graphbox.errors import GateError
from graphbox.pipeline.compression_search import Quality, Watch, search_version
from graphbox.workspace import Workspace
from graphbox.workspace.searches import PROGRESS_FILE, REPORT_FILE
from tests.server.sample_models import add_model, write_encoder
from tests.server.server_process import ServerProcess, StartServer, start_process

MODELS = "/api/v1/models"
KEY = "0123456789ab"


class StoppedError(Exception):
    """Ends a search as a signal does."""


def search(
    workspace: Workspace, name: str, trials: int, stop_after: int | None = None, **limits: Any
) -> None:
    """Search for versions of version 1 of a model.

    Args:
        workspace: where it is.
        name: of the model.
        trials: at most.
        stop_after: raise `StoppedError` after so many new trials.
        limits: besides a drop of 40%.
    """
    done = 0

    def step(line: str, trial: int, most: int) -> None:
        nonlocal done
        done += 1
        if done == stop_after:
            raise StoppedError

    search_version(
        workspace,
        workspace.model(name, 1),
        CompressConfig(max_drop="40%", search=SearchConfig(trials=trials, **limits)),
        BenchConfig(target="onnxruntime"),
        Quality(),
        Watch(step=step),
    )


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with a finished search of `companion`; tests add models of other names."""
    workspace = Workspace(tmp_path_factory.mktemp("searched") / "workspace")
    add_model(workspace, "companion", write_encoder)
    search(workspace, "companion", 5)
    return workspace


@pytest.fixture(scope="module")
def server(searched: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    running = start_process({"port": 0, "workspace": searched.root}, log)
    running.wait_until_ready()
    yield running
    assert running.stop() == 0, log.read_text()
    if running.process.stdout is not None:
        running.process.stdout.close()


def report_of(workspace: Workspace, name: str = "companion") -> tuple[Path, dict[str, Any]]:
    (record,) = workspace.searches(name)
    document: dict[str, Any] = json.loads((record.path / REPORT_FILE).read_text())
    return record.path, document


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    return body


def served_trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial of the file as it is served."""
    return {"exceeds": [], "standard_error": None, **trial}


def test_list_and_report_are_those_of_the_file(client: httpx.Client, searched: Workspace) -> None:
    folder, document = report_of(searched)
    (summary,) = client.get(f"{MODELS}/companion/compressions").json()
    assert summary["id"] == folder.name == f"{summary['version']}-{summary['key']}"
    assert (summary["state"], summary["running"], summary["trials"]) == ("finished", False, 5)
    found = client.get(f"{MODELS}/companion/compressions/{summary['id']}").json()
    assert {key: found[key] for key in summary} == summary
    same = ("metric", "limits", "bounds", "original", "points", "chosen", "metrics_test", "drift", "rejected")
    for name in (*same, "layer_errors", "table_errors", "command", "environment"):
        expected = document[name]
        if name == "original":
            expected = served_trial(expected)
        if isinstance(expected, list) and name in {"points", "rejected"}:
            expected = [served_trial(each) for each in expected]
        assert found[name] == expected, name
    assert [trial["key"] for trial in found["tried"]] == [trial["key"] for trial in document["trials"]]
    assert found["unfinished"] is None
    versions = {record.version for record in searched.models("companion")}
    assert {point["version"] for point in found["points"]} <= versions
    (chosen,) = [point for point in found["points"] if point["key"] == found["chosen"]]
    assert chosen["version"] == summary["chosen_version"]
    assert not (folder / PROGRESS_FILE).exists()


def test_bounds_are_the_limits_as_numbers(client: httpx.Client, searched: Workspace) -> None:
    _, document = report_of(searched)
    original = document["original"]["metrics"]["agreement"]
    assert document["limits"] == ["--max-drop 40%"]
    bounds = dict(document["bounds"])
    assert bounds.pop("metric") == pytest.approx(0.6 * original)
    assert bounds == dict.fromkeys(["size_bytes", "p50_ms", "p50_ratio", "p99_ms", "p99_ratio"])


def test_a_model_without_searches_has_none(client: httpx.Client, searched: Workspace) -> None:
    add_model(searched, "other", write_encoder)
    assert client.get(f"{MODELS}/other/compressions").json() == []
    found = problem(client.get(f"{MODELS}/other/compressions/1-{KEY}"), 404, "not_found")
    assert found["message"] == f"the model `other` has no search `1-{KEY}`"
    assert found["hint"] == f"GET {MODELS}/other/compressions lists what there is"


@pytest.mark.parametrize("path", ["nothing/compressions", f"nothing/compressions/1-{KEY}"])
def test_an_unknown_model_is_not_found(client: httpx.Client, path: str) -> None:
    found = problem(client.get(f"{MODELS}/{path}"), 404, "not_found")
    assert found["message"] == "there is no model `nothing`"


@pytest.mark.parametrize(
    "wanted", ["..", "%2e%2e", "..%2fcompanion", ".models-1", "1", "1-", "1-0123456789ab%2f..", "*"]
)
def test_no_path_is_made_from_a_request(client: httpx.Client, searched: Workspace, wanted: str) -> None:
    (searched.root / "compress" / "companion" / ".models-1").mkdir(exist_ok=True)
    for path in (f"companion/compressions/{wanted}", f"{wanted}/compressions"):
        answer = client.get(f"{MODELS}/{path}")
        assert answer.status_code == 404, (path, answer.text)
        assert str(searched.root) not in answer.text


def test_a_server_without_a_workspace_has_no_searches(tmp_path: Path, start_server: StartServer) -> None:
    folder = tmp_path / "models"
    write_encoder(folder / "companion" / "1")
    with start_server(models=(folder,)).client() as client:
        assert client.get(f"{MODELS}/companion/compressions").json() == []
        problem(client.get(f"{MODELS}/companion/compressions/1-{KEY}"), 404, "not_found")
        problem(client.get(f"{MODELS}/nothing/compressions"), 404, "not_found")


def test_an_interrupted_search_shows_its_trials_and_then_its_outcome(
    client: httpx.Client, searched: Workspace
) -> None:
    add_model(searched, "interrupted", write_encoder)
    with pytest.raises(StoppedError):
        search(searched, "interrupted", 5, stop_after=2)
    (summary,) = client.get(f"{MODELS}/interrupted/compressions").json()
    assert (summary["state"], summary["trials"], summary["chosen_version"]) == ("unfinished", 3, None)
    path = f"{MODELS}/interrupted/compressions/{summary['id']}"
    found = client.get(path).json()
    assert [trial["state"] for trial in found["tried"]] == ["measured"] * 3
    assert (found["points"], found["chosen"], found["metrics_test"]) == ([], None, {})
    unfinished = found["unfinished"]
    assert (unfinished["trials"], unfinished["failure"]) == (3, None)
    assert unfinished["command"].startswith("graphbox compress interrupted --version 1 --max-drop 40%")
    with searched.searching("interrupted", 1):
        assert client.get(path).json()["running"]
    search(searched, "interrupted", 5)
    finished = client.get(path).json()
    assert (finished["state"], finished["running"], len(finished["tried"])) == ("finished", False, 5)
    tried = [trial["key"] for trial in found["tried"]]
    assert [trial["key"] for trial in finished["tried"]][:3] == tried
    assert finished["chosen_version"] is not None


def test_a_continued_search_keeps_the_report_of_before(client: httpx.Client, searched: Workspace) -> None:
    add_model(searched, "continued", write_encoder)
    search(searched, "continued", 3)
    _, before = report_of(searched, "continued")
    with pytest.raises(GateError):
        search(searched, "continued", 4, max_size=1000)
    (summary,) = client.get(f"{MODELS}/continued/compressions").json()
    found = client.get(f"{MODELS}/continued/compressions/{summary['id']}").json()
    assert (found["state"], found["trials"], len(found["tried"])) == ("unfinished", 4, 3)
    assert found["limits"] == before["limits"]
    assert found["chosen"] == before["chosen"]
    assert found["unfinished"]["trials"] == 4
    assert found["unfinished"]["limits"] == ["--max-size 1000B", "--max-drop 40%"]
    assert "none of 4 tried is" in found["unfinished"]["failure"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metric": 3}', '{"trials": 7, "points": []}'])
def test_a_damaged_report_is_said_so(client: httpx.Client, searched: Workspace, content: str) -> None:
    if not searched.models("damaged"):
        add_model(searched, "damaged", write_encoder)
    folder = searched.search_folder("damaged") / f"1-{KEY}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT_FILE).write_text(content)
    (summary,) = client.get(f"{MODELS}/damaged/compressions").json()
    assert (summary["id"], summary["state"]) == (f"1-{KEY}", "damaged")
    found = problem(client.get(f"{MODELS}/damaged/compressions/1-{KEY}"), 422, "format")
    assert found["message"].startswith("expected the report of a search")
    assert str(searched.root) not in json.dumps(found)


def test_figures_that_are_no_numbers_are_null(client: httpx.Client, searched: Workspace) -> None:
    add_model(searched, "figures", write_encoder)
    _, document = report_of(searched)
    document["trials"][1]["metrics"]["mrr"] = math.nan
    del document["drift"], document["trials"][1]["recipe"]["unchanged"]  # not written by earlier releases
    document["added_by_a_later_release"] = document["trials"][1]["added_by_a_later_release"] = 1
    folder = searched.search_folder("figures") / f"1-{KEY}"
    folder.mkdir(parents=True)
    (folder / REPORT_FILE).write_text(json.dumps(document))
    found = client.get(f"{MODELS}/figures/compressions/1-{KEY}").json()
    assert found["tried"][1]["metrics"]["mrr"] is None
    assert (found["drift"], found["tried"][1]["recipe"]["unchanged"]) == ([], [])
    assert re.fullmatch(r"1-[0-9a-f]{12}", found["id"])


def test_drift_is_that_of_the_file(client: httpx.Client, searched: Workspace) -> None:
    add_model(searched, "drift", write_encoder)
    _, document = report_of(searched)
    document["drift"] = popularity_drift(
        {"recall_in_degree_over_50": 0.5, "positives_in_degree_over_50": 7, "recall_in_degree_0": 0.25},
        {"recall_in_degree_over_50": 0.25, "recall_in_degree_0": math.nan},
        "recall",
    )
    folder = searched.search_folder("drift") / f"1-{KEY}"
    folder.mkdir(parents=True)
    (folder / REPORT_FILE).write_text(json.dumps(document))
    found = client.get(f"{MODELS}/drift/compressions/1-{KEY}").json()
    assert found["drift"] == [
        {"group": "in_degree_over_50", "positives": 7, "original": 0.5, "chosen": 0.25},
        {"group": "in_degree_0", "positives": 0, "original": 0.25, "chosen": None},
    ]


def test_searches_are_listed_by_time_and_go_with_their_version(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    add_model(workspace, "companion", write_encoder)
    add_model(workspace, "companion", write_encoder)
    searches = workspace.search_folder("companion")
    for name in (f"1-{KEY}", "2-aaaaaaaaaaaa", "3-bbbbbbbbbbbb", ".models-1", "1-short", f"01-{KEY}"):
        (searches / name).mkdir(parents=True)
        (searches / name / PROGRESS_FILE).write_text("{}")
    (searches / "1-cccccccccccc").mkdir()
    assert {search.id for search in workspace.searches("companion")} == {f"1-{KEY}", "2-aaaaaaaaaaaa"}
    workspace.remove_model("companion", 2)
    assert [search.id for search in workspace.searches("companion")] == [f"1-{KEY}"]


def test_bounds_of_several_limits() -> None:
    from graphbox.compress.search.report import _bounds

    limits = Limits(
        max_size_bytes=7,
        max_p50=LatencyLimit(0.9, relative=True),
        max_p99=LatencyLimit(2.5),
        minimums={"recall": 0.3, "mrr": 0.9},
    )
    expected = {"size_bytes": 7, "p50_ms": None, "p50_ratio": 0.9, "p99_ms": 2.5, "p99_ratio": None}
    assert _bounds(limits, "recall", 0.5) == {**expected, "metric": 0.3}
    assert _bounds(Limits(), "recall", 0.5) == dict.fromkeys([*expected, "metric"])
