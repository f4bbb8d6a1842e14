"""The small run file through every stage, and the commands that work on what it left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from graphbox.cli.nodes import chosen_nodes
from graphbox.errors import UsageError
from graphbox.graph import Graph
from tests.cli.conftest import Call, call_main, write_tables

STAGES = ["import", "split", "train", "evaluate", "export", "compress", "bench", "promote"]


@pytest.fixture
def report(finished: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((finished / "report.json").read_text())
    return document


def test_document(report: dict[str, Any]) -> None:
    assert report["state"] == "finished"
    assert report["metrics"]["field"]["walk"].keys() >= {"accuracy", "macro_f1"}
    assert report["metrics"]["cite"]["sage"].keys() >= {"recall@5", "ndcg@5", "mrr"}
    assert {name: outcome["epochs"] > 0 for name, outcome in report["training"].items()} == {
        "walk": True,
        "sage": True,
    }
    assert report["training"]["sage"]["stage_seconds"]["compute"] > 0
    assert set(report["baselines"]["field"]) == {"majority", "neighbors_vote", "label_propagation", "sgc"}
    assert set(report["baselines"]["cite"]) >= {"user_knn", "gfcf", "ials", "ease"}
    assert report["baselines_left_out"] == {"field": {}, "cite": {}}
    assert report["notes"]["cite"]["sage"].startswith("validation recall@5 ")
    assert report["export"]["citer"]["max_absolute_error"] < 1e-4
    assert report["export"]["citer"]["rows"] > 60
    assert [stage["name"] for stage in report["stages"]] == STAGES
    for stage in report["stages"]:
        assert stage["state"] == "finished"
        assert stage["seconds"] > 0
        assert stage["peak_bytes"] > 50_000_000


def test_compression_in_the_document(report: dict[str, Any]) -> None:
    entry = report["compress"]["citer"]
    assert (entry["version"], entry["parent"]) == (2, 1)
    assert entry["size_bytes"]["after"] < entry["size_bytes"]["before"]
    metric = entry["metric"]
    assert metric["name"] == "recall@5"
    assert set(entry["metrics_test"]) == set(report["metrics"]["cite"]["sage"])
    assert abs(entry["metrics_test"]["recall@5"] - report["metrics"]["cite"]["sage"]["recall@5"]) < 0.2
    assert metric["drop"] == pytest.approx(metric["before"] - metric["after"])
    assert metric["drop"] <= metric["max_drop"] == 0.2


def test_bench_in_the_document(report: dict[str, Any]) -> None:
    versions = report["bench"]["citer"]
    assert [(each["version"], each["precision"]) for each in versions] == [(1, "float32"), (2, "int8")]
    for each in versions:
        assert each["effective"]["adapter"] == "onnxruntime"
        assert [(batch["operation"], batch["batch"]) for batch in each["batches"]] == [
            ("neighbors", 1),
            ("infer", 1),
            ("infer", 8),
            ("program", 1),
            ("program", 8),
        ]
        assert all(0 < batch["p50_ms"] <= batch["p99_ms"] for batch in each["batches"])


def test_finished_run_answers_at_once(graphbox: Call, finished: Path, report: dict[str, Any]) -> None:
    outcome = graphbox("-C", finished / "workspace", "run", finished / "run.yaml", "--json")
    assert outcome.json == report
    assert "run papers-1 had finished: nothing was left to do; --fresh starts a new one" in outcome.err


def test_tables_on_the_terminal(graphbox: Call, finished: Path) -> None:
    outcome = graphbox("-C", finished / "workspace", "run", finished / "run.yaml")
    for text in ("user_knn (baseline)", "Compression", "Latency and throughput", "max absolute error", "->"):
        assert text in outcome.out


def test_runs(graphbox: Call, finished_folder: Path, report: dict[str, Any]) -> None:
    (run,) = graphbox("runs", "--json").json
    assert (run["id"], run["state"], run["stage"]) == ("papers-1", "finished", "promote")
    shown = graphbox("runs", "show", "last", "--json").json
    assert shown["stages"] == report["stages"]
    assert shown["report"]["metrics"] == report["metrics"]
    assert "papers-1: finished" in graphbox("runs", "show", "papers-1").out
    assert "stage train finished" in graphbox("runs", "logs", "last").out
    lines = graphbox("runs", "logs", "last", "--json").out.splitlines()
    assert all("line" in json.loads(line) for line in lines)
    compared = graphbox("runs", "compare", "last", "papers-1", "--json").json
    assert (compared["runs"], compared["settings"]) == (["papers-1", "papers-1"], [])
    values = {(m["task"], m["model"], m["metric"]): m["values"] for m in compared["metrics"]}
    assert values["field", "walk", "accuracy"] == [report["metrics"]["field"]["walk"]["accuracy"]] * 2
    assert "the settings are the same" in graphbox("runs", "compare", "last", "papers-1").out
    assert graphbox("runs", "resume", "last", "--json").json["bench"] == report["bench"]
    assert graphbox("runs", "rm", "last", "--json").json["freed_bytes"] > 0
    assert "no runs yet" in graphbox("runs").out


def test_models(graphbox: Call, finished_folder: Path) -> None:
    models = graphbox("models", "--json").json
    assert [(m["name"], m["version"], m["active"]) for m in models] == [
        ("citer", 1, False),
        ("citer", 2, True),
        ("walker", 1, True),
    ]
    assert models[1]["parent"] == 1
    assert models[1]["run"] == "papers-1"
    assert "recall@5" in graphbox("models").out
    shown = graphbox("models", "show", "citer").out
    assert "version 2" in shown
    assert "p50 ms" in shown
    assert graphbox("models", "promote", "citer", "--version", "1").code == 0
    assert graphbox("models", "show", "citer", "--json").json["version"] == 1
    assert graphbox("models", "rm", "citer").code == 0
    assert not (finished_folder / "workspace" / "models" / "citer" / "1").exists()
    assert [m["name"] for m in graphbox("models", "--json").json] == ["walker"]


def test_bench_command(graphbox: Call, finished_folder: Path) -> None:
    outcome = graphbox("bench", "citer", "--batch", "2", "--seconds", "0.05", "--json")
    assert [each["version"] for each in outcome.json["bench"]["citer"]] == [1, 2]
    benches = graphbox("models", "show", "citer", "--json").json["bench"]
    assert [b["batch"] for b in benches if b["operation"] == "infer"] == [1, 2, 8]


def test_eval_gives_the_same_again(graphbox: Call, finished_folder: Path, report: dict[str, Any]) -> None:
    again = graphbox("eval", "last", "--json").json
    assert again["metrics"] == report["metrics"]
    assert again["baselines"] == report["baselines"]


def test_export_makes_new_versions(graphbox: Call, finished_folder: Path) -> None:
    document = graphbox("export", "papers-1", "--json").json
    assert document["export"]["citer"]["version"] == 3
    assert graphbox("models", "show", "citer", "--json").json["version"] == 2


def test_compress_command(graphbox: Call, finished_folder: Path) -> None:
    arguments = ["compress", "citer", "--version", "1", "--tables", "float32", "--max-drop", "0.5", "--json"]
    entry = graphbox(*arguments).json["compress"]["citer"]
    assert entry["version"] == 3
    record = graphbox("models", "show", "citer", "--version", "3", "--json").json
    assert (record["version"], record["parent"], record["precision"]) == (3, 1, "float32 + int8")


def test_embed_export(graphbox: Call, finished_folder: Path) -> None:
    outcome = graphbox("embed", "export", "last", "-o", "out", "--model", "walk", "--json")
    assert outcome.json["node_types"]["paper"] == [60, 8]
    vectors = np.load("out/paper.npy", allow_pickle=False)
    ids = Path("out/paper.ids.txt").read_text().splitlines()
    table = pq.read_table("out/paper.parquet")
    assert ids == table.column("id").to_pylist() == [f"p{number}" for number in range(60)]
    np.testing.assert_array_equal(np.array(table.column("vector").to_pylist(), np.float32), vectors)


def test_embed_export_ofchosen_nodes(graphbox: Call, finished_folder: Path) -> None:
    Path("wanted.txt").write_text("p7\np3\np7\n")
    arguments = ["embed", "export", "last", "--model", "walk", "--format", "npy"]
    whole = graphbox(*arguments, "-o", "whole", "--json").json["node_types"]
    assert set(whole) > {"paper"}
    chosen = graphbox(*arguments, "-o", "some", "--type", "paper", "--nodes", "wanted.txt", "--json")
    assert chosen.code == 0, chosen.json
    assert chosen.json["node_types"] == {"paper": [2, 8]}
    assert Path("some/paper.ids.txt").read_text().splitlines() == ["p7", "p3"]
    vectors = np.load("whole/paper.npy", allow_pickle=False)[[7, 3]]
    np.testing.assert_array_equal(np.load("some/paper.npy", allow_pickle=False), vectors)
    assert not Path("some/author.npy").exists()


@pytest.mark.parametrize("line", ["--5", "-", "9999999999999999999", "\u00b2", ""])
def test_embed_export_of_what_is_no_integer_id(tmp_path: Path, line: str) -> None:
    graph = Graph.from_coo([0, 1], [1, 2], num_nodes=3)
    (tmp_path / "wanted.txt").write_text(f"+1\n{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="expected an integer id") as caught:
        chosen_nodes(graph, "node", tmp_path / "wanted.txt")
    assert caught.value.where == f"{tmp_path / 'wanted.txt'}:2"
    assert caught.value.hint == "there are: 0, 1, 2, ..."


def test_embed_neighbors(graphbox: Call, finished_folder: Path) -> None:
    document = graphbox("embed", "neighbors", "last", "p7", "-k", "5", "--json").json
    assert document["model"] == "sage"
    scores = [each["score"] for each in document["neighbors"]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert "p7" not in {each["id"] for each in document["neighbors"]}
    asked = ("embed", "neighbors", "last", "p7", "-k", "59", "--json")
    every = graphbox(*asked).json["neighbors"]
    new = graphbox(*asked, "--not-linked").json["neighbors"]
    assert 0 < len(new) < len(every)
    assert [each for each in every if each in new] == new
    refused = graphbox("embed", "export", "last", "-o", "v.npy")
    assert (refused.code, "expected a folder" in refused.err) == (2, True)
    assert "Nearest to p7" in graphbox("embed", "neighbors", "last", "p7").out


def test_graph_imported_anew_is_not_taken_for_the_runs_own(graphbox: Call, finished_folder: Path) -> None:
    with (finished_folder / "cites.csv").open("a") as file:
        file.write("p1,p59\n")
    assert graphbox("import", "run.yaml").code == 0
    outcome = graphbox("embed", "neighbors", "last", "p7", "--not-linked")
    assert outcome.code == 1
    assert "the version of the graph `papers` that the run was trained on is gone" in outcome.err


def test_graph_replaced_during_a_run_stops_it(graphbox: Call, folder: Path) -> None:
    assert graphbox("train", "run.yaml", "-q").code == 0
    change = (folder / "cites.csv").read_text() + "p1,p59\n"
    (folder / "cites.csv").write_text(change)
    assert graphbox("import", "run.yaml").code == 0
    outcome = graphbox("eval", "last")
    assert outcome.code == 1
    assert "the version of the graph `papers` that the run was trained on is gone" in outcome.err
    assert graphbox("run", "run.yaml", "-q", "--json", "export={}", "compress={}").json["run"] == "papers-2"


def test_two_runs_at_once_in_one_workspace(folder: Path) -> None:
    arguments = ["-m", "graphbox", "run", "run.yaml", "export={}", "compress={}", "--json"]
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments, f"seed={seed}"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    answers = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert {json.loads(out)["run"] for out, _ in answers} == {"papers-1", "papers-2"}
    assert len(call_main(["runs", "--json"]).json) == 2


def test_train_then_run_is_one_run(graphbox: Call, folder: Path) -> None:
    trained = graphbox("train", "run.yaml", "--json")
    assert trained.json["models"] == ["sage", "walk"]
    assert [s["state"] for s in trained.json["stages"]][2:4] == ["finished", "pending"]
    assert graphbox("run", "run.yaml", "--json", "--resume").json["run"] == trained.json["run"]


# A training long enough to be met in the middle, and nothing after its evaluation.
LONG = ["run", "run.yaml", "models.sage.epochs=60", "export={}", "compress={}", "--json"]


def start_run(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """Start the long run in another process."""
    command = [sys.executable, "-m", "graphbox", *LONG, *overrides]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_training(folder: Path, process: subprocess.Popen[str], timeout_s: float = 120) -> None:
    """Wait until the model `sage` has trained a little."""
    path = folder / "workspace" / "runs" / "papers-1" / "metrics.jsonl"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        if path.exists() and path.read_text().count('"sage"') >= 3:
            return
        time.sleep(0.02)
    pytest.fail("the training did not start in time")


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The metrics of the long run when nothing stops it."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    write_tables(folder)
    arguments = ["-C", folder / "workspace", *(folder / a if a == "run.yaml" else a for a in LONG)]
    metrics: dict[str, Any] = call_main(arguments).json["metrics"]
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_interrupted_run_ends_like_one_that_was_not(
    number: signal.Signals, folder: Path, uninterrupted: dict[str, Any]
) -> None:
    process = start_run(folder)
    wait_for_training(folder, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    state = call_main(["runs", "show", "last", "--json"]).json
    assert (state["state"], state["stage"]) == ("interrupted", "train")
    if number != signal.SIGKILL:
        assert process.returncode == 75
        assert "`graphbox runs resume papers-1`" in err
    resumed = call_main(LONG).json
    assert resumed["run"] == "papers-1"
    assert resumed["metrics"] == uninterrupted


def test_second_process_cannot_take_a_run_that_is_running(folder: Path) -> None:
    endless = "models.sage.epochs=100000"
    process = start_run(folder, endless)
    try:
        wait_for_training(folder, process)
        outcome = call_main([*LONG, endless])
        assert outcome.code == 1
        assert f"the run `papers-1` is in use by process {process.pid}" in outcome.err
        assert "(`__main__.py run`, since " in outcome.err
        assert "stop it: `graphbox runs stop papers-1`" in outcome.err
        assert call_main(["runs", "--json"]).json[0]["state"] == "running"
        stopped = call_main(["runs", "stop", "last"])
        assert (stopped.code, stopped.out) == (
            0,
            "run papers-1 is interrupted; `graphbox runs resume papers-1` resumes it\n",
        )
        assert process.wait(timeout=60) == 75
        again = call_main(["runs", "stop", "last"])
        assert again.code == 1
        assert "expected a run that is running, received one that is interrupted" in again.err
    finally:
        process.kill()
        process.communicate(timeout=60)


SHARED = """\
version: 1
name: shared
threads: 1
graph:
  name: shared
  nodes: {user: {}, item: {}}
  edges: [{type: [user, bought, item], path: bought.csv}]
tasks:
  items: {kind: recommend, node_type: user, target_type: item, relations: [bought], k: 3}
models:
  walk: {kind: deepwalk, dim: 4, epochs: 1}
  light: {kind: lightgcn, task: items, dim: 4, epochs: 1, candidates: 8}
"""


def test_neighbors_of_a_node_whose_id_two_types_have(graphbox: Call, folder: Path) -> None:
    rows = [f"{user},{(user * step) % 30}" for user in range(20, 50) for step in (1, 3, 7, 11)]
    (folder / "bought.csv").write_text("\n".join(["source,target", *rows, "lone,30"]) + "\n")
    (folder / "run.yaml").write_text(SHARED)
    outcome = graphbox("train", "run.yaml", "-q")
    assert outcome.code == 0, outcome.err
    refused = graphbox("embed", "neighbors", "last", "25", "--model", "walk")
    assert refused.code == 2
    assert "the id `25`, which user, item have" in refused.err
    assert "--type user" in refused.err
    assert "--type item" in refused.err
    for model, ranked in (("walk", "user"), ("light", "item")):
        asked = ("embed", "neighbors", "last", "25", "--model", model, "-k", "5", "--json")
        for node_type, answer_type in (("user", ranked), ("item", "item")):
            document = graphbox(*asked, "--type", node_type).json
            assert {key: str(value) for key, value in document["query"].items()} == {
                "id": "25",
                "type": node_type,
            }
            assert {each["type"] for each in document["neighbors"]} == {answer_type}
            same = [str(each["id"]) for each in document["neighbors"] if answer_type == node_type]
            assert "25" not in same
    assert graphbox("embed", "neighbors", "last", "40", "--json").json["query"]["type"] == "user"
    assert graphbox("embed", "neighbors", "last", "3", "--json").json["query"]["type"] == "item"
    wrong = graphbox("embed", "neighbors", "last", "25", "--type", "users")
    assert (wrong.code, "did you mean `user`?" in wrong.err) == (2, True)
    absent = graphbox("embed", "neighbors", "last", "3", "--type", "user")
    assert (absent.code, "`3`" in absent.err) == (2, True)
    assert graphbox("embed", "neighbors", "last", "none").code == 2
