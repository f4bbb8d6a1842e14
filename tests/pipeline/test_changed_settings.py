"""Changed settings of a run: which stages run again, and that training does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphbox.config import RunConfig, evaluation_settings, load_config, result_settings, training_settings
from graphbox.errors import DataError, InterruptedRunError, UsageError
from graphbox.pipeline import Silence, Stage, StageContext, StageResult, continue_run, run_pipeline
from graphbox.workspace import RunRecord, Workspace

RUN_FILE = """\
version: 1
name: numbers
graph:
  name: numbers
  nodes: {number: {path: number.csv}}
  edges: [{type: [number, divides, number], path: divides.csv}]
tasks:
  divisors: {kind: recommend, node_type: number, relations: [divides]}
models:
  walk: {kind: metapath2vec, task: divisors, metapaths: [[[number, divides, number]]]}
"""


class Stages:
    """Stages that note their calls; outputs of `evaluate` are the metrics set here."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: BaseException | None = None
        self.metrics = 0.5
        export = lambda config: {"export": result_settings(config)["export"]}  # noqa: E731
        self.all = (
            Stage("train", self._work),
            Stage("evaluate", self._work, reads=evaluation_settings, needs=("train",)),
            Stage(
                "export",
                self._work,
                wanted=lambda config: bool(config.export),
                reads=export,
                needs=("evaluate",),
            ),
        )

    def _work(self, context: StageContext) -> StageResult:
        name = next(each for each in ("train", "evaluate", "export") if each not in context.finished)
        self.calls.append(name)
        if self.error is not None:
            raise self.error
        outputs: Mapping[str, Any] = {"metrics": self.metrics} if name == "evaluate" else {}
        return StageResult(name, outputs, {"metrics": {name: len(self.calls)}})


class Notes(Silence):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def config_of(tmp_path: Path, *overrides: str) -> RunConfig:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    return load_config(path, overrides, check_files=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("tasks.divisors.k=5", "tasks.divisors.k"),
        ("tasks.divisors.baselines=[popular]", "tasks.divisors.baselines"),
        ("tasks.divisors.baseline_queries=all", "tasks.divisors.baseline_queries"),
    ],
)
def test_settings_of_the_evaluation_measure_again_without_training(
    tmp_path: Path, workspace: Workspace, override: str, key: str
) -> None:
    stages, notes = Stages(), Notes()
    run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
    report = run_pipeline(config_of(tmp_path, override), workspace, stages=stages.all, progress=notes)
    assert report.run == "numbers-1"
    assert stages.calls == ["train", "evaluate", "evaluate"]
    assert notes.notes == [f"evaluate: runs again, {key} changed"]
    assert load_config(report.path / "config.yaml", check_files=False) == config_of(tmp_path, override)
    run_pipeline(config_of(tmp_path, override), workspace, stages=stages.all)
    assert len(stages.calls) == 3


def test_settings_that_no_result_depends_on_run_nothing(tmp_path: Path, workspace: Workspace) -> None:
    stages = Stages()
    run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
    for override in ("bench.seconds=3", "threads=1"):
        assert run_pipeline(config_of(tmp_path, override), workspace, stages=stages.all).run == "numbers-1"
    assert stages.calls == ["train", "evaluate"]


def test_an_added_export_is_the_only_stage_that_runs(tmp_path: Path, workspace: Workspace) -> None:
    stages, notes = Stages(), Notes()
    run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
    export = "export={walker: {model: walk}}"
    report = run_pipeline(config_of(tmp_path, export), workspace, stages=stages.all)
    assert [stage.name for stage in report.stages] == ["train", "evaluate", "export"]
    assert stages.calls == ["train", "evaluate", "export"]
    more = ("export={walker: {model: walk, parity_rows: 7}}",)
    run_pipeline(config_of(tmp_path, *more), workspace, stages=stages.all, progress=notes)
    assert stages.calls[3:] == ["export"]
    assert notes.notes == ["export: runs again, export.walker.parity_rows changed"]


def test_stages_run_again_when_what_they_need_has_other_results(tmp_path: Path, workspace: Workspace) -> None:
    stages, notes = Stages(), Notes()
    export = "export={walker: {model: walk}}"
    run_pipeline(config_of(tmp_path, export), workspace, stages=stages.all)
    changed = config_of(tmp_path, export, "tasks.divisors.baselines=[popular]")
    run_pipeline(changed, workspace, stages=stages.all)
    assert stages.calls == ["train", "evaluate", "export", "evaluate"]
    stages.metrics = 0.6
    changed = config_of(tmp_path, export, "tasks.divisors.k=5")
    run_pipeline(changed, workspace, stages=stages.all, progress=notes)
    assert stages.calls[4:] == ["evaluate", "export"]
    assert notes.notes[-1] == "export: runs again, the stage `evaluate` has other results"


def test_settings_of_training_are_another_run(tmp_path: Path, workspace: Workspace) -> None:
    stages = Stages()
    run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
    for number, override in enumerate(("models.walk.dim=8", "seed=3", "tasks.divisors.test_fraction=0.3"), 2):
        report = run_pipeline(config_of(tmp_path, override), workspace, stages=stages.all)
        assert report.run == f"numbers-{number}"


def test_training_alone_keeps_the_evaluation(tmp_path: Path, workspace: Workspace) -> None:
    stages, notes = Stages(), Notes()
    run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
    changed = config_of(tmp_path, "tasks.divisors.k=5")
    run_pipeline(changed, workspace, stages=stages.all, until="train", progress=notes)
    assert stages.calls == ["train", "evaluate"]
    assert "nothing was left to do" in notes.notes[0]


class TestAgain:
    def test_overrides_of_the_evaluation(self, tmp_path: Path, workspace: Workspace) -> None:
        stages = Stages()
        run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
        again(workspace, stages, "tasks.divisors.k=5")
        assert stages.calls == ["train", "evaluate", "evaluate"]
        config = load_config(workspace.run("last").path / "config.yaml", check_files=False)
        assert config.tasks["divisors"].deciding_metric == "recall@5"
        assert training_settings(config) == training_settings(config_of(tmp_path))

    @pytest.mark.parametrize("override", ["models.walk.dim=8", "seed=3", "bench.seconds=2"])
    def test_other_settings_are_refused(self, tmp_path: Path, workspace: Workspace, override: str) -> None:
        stages = Stages()
        run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
        before = workspace.run("last")
        with pytest.raises(UsageError, match="expected settings of the stage `evaluate`") as caught:
            again(workspace, stages, override)
        assert caught.value.where == override.partition("=")[0]
        assert "tasks.divisors.k" in (caught.value.hint or "")
        assert workspace.run("last") == before

    def test_a_failure_leaves_the_run_as_it_was(self, tmp_path: Path, workspace: Workspace) -> None:
        stages = Stages()
        run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
        before = workspace.run("last")
        stages.error = DataError("the graph was changed")
        with pytest.raises(DataError, match="the graph was changed"):
            again(workspace, stages, "tasks.divisors.k=5")
        after = workspace.run("last")
        assert (after.state, after.error, after.report) == ("finished", None, before.report)
        assert after.stages == before.stages
        assert (after.updated_at, after.config) == (before.updated_at, before.config)
        assert load_config(after.path / "config.yaml", check_files=False) == config_of(tmp_path)

    @pytest.mark.parametrize(
        "error", [InterruptedRunError("measuring popular of divisors"), KeyboardInterrupt()]
    )
    def test_a_stop_leaves_the_run_as_it_was(
        self, tmp_path: Path, workspace: Workspace, error: BaseException
    ) -> None:
        stages = Stages()
        run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
        before = workspace.run("last")
        mirrored = (before.path / "run.json").read_text()
        stages.error = error
        with pytest.raises(type(error)) as caught:
            again(workspace, stages, "tasks.divisors.k=5")
        if isinstance(caught.value, InterruptedRunError):
            assert (
                caught.value.message == "stopped during the stage `evaluate`: measuring popular of divisors"
            )
            assert "keeps its earlier results" in (caught.value.hint or "")
        assert workspace.run("last") == before
        assert (before.path / "run.json").read_text() == mirrored
        stages.error = None
        again(workspace, stages, "tasks.divisors.k=5")
        after = workspace.run("last")
        assert (after.state, after.config == before.config) == ("finished", False)
        assert stages.calls == ["train", "evaluate", "evaluate", "evaluate"]

    def test_the_record_is_the_earlier_one_meanwhile(self, tmp_path: Path, workspace: Workspace) -> None:
        # So a process that is killed, too, leaves a finished run.
        stages = Stages()
        run_pipeline(config_of(tmp_path), workspace, stages=stages.all)
        before = workspace.run("last")
        seen: list[RunRecord] = []

        def watch(_: StageContext) -> StageResult:
            seen.append(workspace.run("last"))
            return StageResult("", report={"new": 1})

        watching = [replace(each, run=watch) if each.name == "evaluate" else each for each in stages.all]
        continue_run("last", workspace, until="evaluate", again=True, stages=watching)
        assert seen == [before]
        assert workspace.run("last").report == {**before.report, "new": 1}


def again(workspace: Workspace, stages: Stages, *overrides: str) -> None:
    continue_run("last", workspace, until="evaluate", again=True, overrides=overrides, stages=stages.all)
