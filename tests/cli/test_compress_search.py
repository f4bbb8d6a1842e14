"""`graphbox compress` with limits: versions of the Pareto set, the report, and limits that nothing keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphbox.artifact import Artifact
from graphbox.compress.search import Workbench
from graphbox.config import BenchConfig, CompressConfig, SearchConfig
from graphbox.deploy import DeployedModel
from graphbox.pipeline.compression_search import Quality, Watch, search_version
from graphbox.workspace import Workspace
from tests.cli.conftest import Call
from tests.server.sample_models import add_model, write_encoder, write_vectors


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    """A workspace with a model that comes from no run."""
    workspace = Workspace(folder / "workspace")
    add_model(workspace, "companion", write_encoder)
    return workspace


def test_versions_within_the_limits_are_written(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--max-drop", "40%", "--trials", "8", "--target", "onnxruntime"]
    report = graphbox(*arguments, "--json").json["compress"]["companion"]
    search = report["search"]
    assert len(search["trials"]) == 8
    assert search["metric"] == "agreement"
    assert search["limits"] == ["--max-drop 40%"]
    versions = {record.version: record for record in workspace.models("companion")}
    points = {point["version"]: point for point in search["points"]}
    assert set(points) <= set(versions)
    chosen = points[report["version"]]
    assert chosen["key"] == search["chosen"]
    assert chosen["size_bytes"] == min(point["size_bytes"] for point in points.values())
    assert all(point["exceeds"] == [] for point in points.values())
    assert all(versions[number].parent == 1 for number in points if number != 1)
    page = Path(search["report"])
    assert "<svg" in page.read_text()
    assert json.loads(page.with_name("report.json").read_text())["chosen"] == search["chosen"]
    assert graphbox("models", "promote", "companion", "--version", str(report["version"])).code == 0


def test_a_search_that_is_repeated_writes_no_version_twice(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--max-drop", "40%", "--trials", "4", "--target", "onnxruntime"]
    assert graphbox(*arguments).code == 0
    before = {record.version for record in workspace.models("companion")}
    steps = [
        (workspace.root / "models" / "companion" / str(version) / "manifest.json").read_text()
        for version in before
    ]
    again = graphbox(*arguments, "--version", "1", "--json").json["compress"]["companion"]
    after = {record.version for record in workspace.models("companion")}
    assert after - before <= {point["version"] for point in again["search"]["points"]}
    assert len(set(steps)) == len(steps)
    assert not list((workspace.root / "compress" / "companion").glob(".models*"))


def test_limits_that_nothing_keeps_end_with_exit_code_6(workspace: Workspace, graphbox: Call) -> None:
    refused = graphbox("compress", "companion", "--max-size", "1kB", "--trials", "3")
    assert refused.code == 6
    assert "none of 3 tried is" in refused.err
    assert "--max-size 1000" in refused.err
    assert [record.version for record in workspace.models("companion")] == [1]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--max-size", "small", "expected a size like"),
        (
            "--max-p50",
            "3",
            "error: --max-p50: expected a time like 3ms or 250us, or like 100% of the original's",
        ),
        ("--max-p99", "0%", "error: --max-p99: expected a time like 3ms"),
        (
            "--tables",
            "int9",
            "error: --tables: expected CODEC or TABLE=CODEC, with a codec of float32, float16",
        ),
        ("--tables", "package=", "expected CODEC or TABLE=CODEC"),
        ("--tables", "=int8", "expected CODEC or TABLE=CODEC"),
        ("--tables", "packages=int8", "error: --tables: expected one of the tables package"),
        ("--min", "recall", "expected a minimum like"),
        ("--max-drop", "200%", "expected a drop like"),
        ("--minutes", "-1", "expected a positive time"),
        ("--min", "recall@20=0.4", "expected one of the measured metrics"),
    ],
)
def test_wrong_limits_are_refused(
    workspace: Workspace, graphbox: Call, option: str, value: str, message: str
) -> None:
    refused = graphbox("compress", "companion", option, value)
    assert refused.code == 2
    assert message in refused.err
    assert "Value error" not in refused.err
    assert len(workspace.models("companion")) == 1


def test_a_wrong_choice_is_refused_without_words_of_the_parser(graphbox: Call) -> None:
    refused = graphbox("compress", "companion", "--dense", "int9")
    assert refused.code == 2
    assert refused.err.startswith("error: Invalid value for '--dense': 'int9' is not one of 'auto'")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (["int8", "float16"], "expected one codec for all tables, received int8 and float16"),
        (
            ["package=int8", "package=int3"],
            "expected one codec for the table `package`, received int8 and int3",
        ),
    ],
)
def test_two_codecs_for_a_table_are_refused(
    workspace: Workspace, graphbox: Call, tables: list[str], message: str
) -> None:
    refused = graphbox("compress", "companion", *(f"--tables={each}" for each in tables))
    assert refused.code == 2
    assert message in refused.err
    assert len(workspace.models("companion")) == 1


def codecs_of(workspace: Workspace, version: int) -> dict[str, str]:
    tables = Artifact.open(workspace.model("companion", version).path).manifest.tables
    return {name: spec.codec for name, spec in tables.items()}


def test_tables_are_named_with_their_codecs(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--version", "1", "--max-drop", "100%", "--tables"]
    assert graphbox(*arguments, "package=int8").code == 0
    assert codecs_of(workspace, 2) == {"package": "int8_rowwise", "target": "float32"}
    assert graphbox(*arguments, "float16", "--tables", "package=int8").code == 0
    assert codecs_of(workspace, 3) == {"package": "int8_rowwise", "target": "float16"}


def test_tables_that_are_named_are_not_searched(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--max-drop", "100%", "--target", "onnxruntime", "--json"]
    named = graphbox(*arguments, "--tables", "package=int8", "--trials", "5").json
    search = named["compress"]["companion"]["search"]
    tables = [trial["recipe"]["tables"] for trial in search["trials"][1:]]
    assert {each["package"] for each in tables} == {"int8"}
    assert len({each.get("target", "float32") for each in tables}) == 4
    assert search["command"].endswith("--batch 1 --tables package=int8")
    repeated = [*search["command"].split()[1:], "--json"]
    again = graphbox(*repeated).json["compress"]["companion"]["search"]
    assert [trial["key"] for trial in again["trials"]] == [trial["key"] for trial in search["trials"]]
    both = graphbox(
        *arguments, "--version", "1", "--tables=float16", "--tables=package=int8", "--trials", "9"
    ).json
    fixed = both["compress"]["companion"]["search"]
    assert fixed["command"].endswith("--batch 1 --tables float16 --tables package=int8")
    assert [trial["recipe"]["tables"] for trial in fixed["trials"]] == [
        {},
        {"package": "int8", "target": "float16"},
    ]


def test_limits_of_latency_are_in_command_report_and_lines(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--max-drop", "100%", "--trials", "3", "--target", "onnxruntime"]
    limits = ["--max-p50", "1000%", "--max-p99", "20s"]
    search = graphbox(*arguments, *limits, "--json").json["compress"]["companion"]["search"]
    assert search["limits"] == ["--max-p50 1000%", "--max-p99 20000ms", "--max-drop 100%"]
    assert search["command"].startswith(
        "graphbox compress companion --version 1 --max-p50 1000% --max-p99 20000ms"
    )
    bounds = {key: search["bounds"][key] for key in ("p50_ms", "p50_ratio", "p99_ms", "p99_ratio")}
    assert bounds == {"p50_ms": None, "p50_ratio": 10.0, "p99_ms": 20000.0, "p99_ratio": None}
    refused = graphbox(*arguments, "--version", "1", "--max-p50", "0.1%")
    assert refused.code == 6
    assert re.search(r"exceeds --max-p50 0\.1% \(it has [\d.e+]+%\)", refused.err)


def test_versions_of_another_search_are_not_taken_for_the_same(workspace: Workspace) -> None:
    """Its models may have been calibrated on other rows."""

    def evaluate(model: DeployedModel, _part: str) -> dict[str, float]:
        return {"auc": 0.4 + 0.1 * any(spec.codec != "float32" for spec in model.manifest.tables.values())}

    def search(measured_on: str) -> set[int]:
        settings = CompressConfig(max_drop="100%", search=SearchConfig(trials=2))
        quality = Quality(evaluate, "auc", measured_on)
        parent, bench = workspace.model("companion", 1), BenchConfig(target="onnxruntime")
        report = search_version(workspace, parent, settings, bench, quality, Watch())
        return {point["version"] for point in report["search"]["points"]} - {1}

    first = search("one part")
    assert first
    assert search("one part") <= first
    assert search("another part").isdisjoint(first)


def test_bounds_of_neighbors_are_compared_once(
    workspace: Workspace, graphbox: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []
    neighbor_bounds = Workbench.neighbor_bounds

    def counted(bench: Workbench, bounds: Sequence[int | None]) -> tuple[int | None, ...]:
        compared.append(bounds)
        return neighbor_bounds(bench, bounds)

    monkeypatch.setattr(Workbench, "neighbor_bounds", counted)
    assert graphbox("compress", "companion", "--max-size", "1kB", "--trials", "2").code == 6
    assert len(compared) == 1


def test_searches_go_with_their_version(workspace: Workspace, graphbox: Call) -> None:
    assert graphbox("compress", "companion", "--trials", "2", "--max-drop", "100%").code == 0
    folder = workspace.search_folder("companion")
    assert len(list(folder.glob("1-*"))) == 1
    workspace.remove_model("companion", 1)
    assert list(folder.glob("*")) == []


def test_models_of_a_killed_search_are_removed(workspace: Workspace) -> None:
    left = workspace.search_folder("companion") / ".models-1" / "candidate"
    left.mkdir(parents=True)
    (left / "rows.npy").write_bytes(b"rows of persons")
    workspace.remove_search_models()
    assert not left.parent.exists()


def test_two_searches_of_a_version_do_not_meet(workspace: Workspace, graphbox: Call) -> None:
    with workspace.searching("companion", 1):
        refused = graphbox("compress", "companion", "--trials", "2")
    assert refused.code == 1
    assert "search of companion version 1" in refused.err
    assert len(workspace.models("companion")) == 1


def test_fixed_methods_are_not_searched(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--dense", "auto", "--tables", "int8", "--max-drop", "40%"]
    report = graphbox(*arguments, "--trials", "5", "--target", "onnxruntime", "--json").json
    trials = report["compress"]["companion"]["search"]["trials"]
    assert {trial["recipe"]["dense"] for trial in trials} == {"float32"}  # it has no matrix products
    assert [set(trial["recipe"]["tables"].values()) for trial in trials] == [set(), {"int8"}]
    command = report["compress"]["companion"]["search"]["command"]
    assert command.endswith("--target onnxruntime/cpu --threads 1 --batch 1 --dense auto --tables int8")


def test_a_bound_of_neighbors_is_applied(workspace: Workspace, graphbox: Call) -> None:
    arguments = ["compress", "companion", "--max-neighbors", "1", "--dense", "float32", "--tables", "float32"]
    assert graphbox(*arguments, "--max-drop", "100%").code == 0
    artifact = Artifact.open(workspace.model("companion", 2).path)
    assert artifact.manifest.lineage.steps[-1] == "neighbors at most 1"
    searched = graphbox(*arguments, "--max-drop", "100%", "--version", "1", "--trials", "3", "--json").json
    search = searched["compress"]["companion"]["search"]
    assert [trial["recipe"]["max_neighbors"] for trial in search["trials"]] == [None, 1]
    assert search["command"].endswith("--dense float32 --tables float32 --max-neighbors 1")


def test_a_bound_of_neighbors_of_a_model_without_lists_is_refused(folder: Path, graphbox: Call) -> None:
    add_model(Workspace(folder / "workspace"), "vectors", write_vectors)
    for more in ([], ["--trials", "2"]):
        refused = graphbox("compress", "vectors", "--max-neighbors", "4", *more)
        assert refused.code != 0
        assert "this one reads no neighbour lists" in refused.err
        assert "leave `max_neighbors`" in refused.err
