"""The engine: what is recorded, what is repeated, and how every end leaves the run."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graphbox.config import RunConfig, load_config
from graphbox.errors import ConflictError, DataError, GraphboxError, InterruptedRunError, UsageError
from graphbox.memory import SAMPLE_S, PeakMemory
from graphbox.pipeline import (
    Silence,
    Stage,
    StageContext,
    StageResult,
    Stop,
    continue_run,
    run_pipeline,
)
from graphbox.pipeline.artifacts import new_version
from graphbox.workspace import Workspace

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


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    return load_config(path, check_files=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


class Recorder:
    """Stages that note their calls; one of them can be told to fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.resumed: dict[str, bool] = {}
        self.error: dict[str, BaseException] = {}
        self.valid = True
        self.stages = tuple(
            Stage(name, self._stage(name), still_valid=lambda *_: self.valid)
            for name in ("one", "two", "three")
        )

    def _stage(self, name: str) -> Any:
        def work(context: StageContext) -> StageResult:
            self.calls.append(name)
            self.resumed[name] = context.resumed
            if name in self.error:
                raise self.error[name]
            before = [len(outputs) for outputs in context.finished.values()]
            return StageResult(
                f"did {name}", {"stage": name, "before": before}, {"metrics": {name: {"m": {"x": 1.0}}}}
            )

        return work


def test_stages_run_in_order_and_are_recorded(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    report = run_pipeline(config, workspace, stages=recorder.stages)
    assert recorder.calls == ["one", "two", "three"]
    assert report.state == "finished"
    assert [stage.state for stage in report.stages] == ["finished"] * 3
    assert all(stage.seconds is not None and stage.seconds >= 0 for stage in report.stages)
    assert all(stage.peak_bytes is not None and stage.peak_bytes > 10_000_000 for stage in report.stages)
    assert workspace.run(report.run).stages[2].outputs["before"] == [2, 2]
    assert report.metrics == {"three": {"m": {"x": 1.0}}}
    log = (report.path / "log.txt").read_text()
    assert "stage two finished" in log


def test_document(config: RunConfig, workspace: Workspace) -> None:
    document = run_pipeline(config, workspace, stages=Recorder().stages).document()
    json.dumps(document)
    assert {"run", "metrics", "baselines", "export", "compress", "bench", "stages"} <= set(document)
    assert {"name", "state", "seconds", "peak_bytes"} == set(document["stages"][0])


def test_finished_run_is_not_repeated(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    first = run_pipeline(config, workspace, stages=recorder.stages)
    second = run_pipeline(config, workspace, stages=recorder.stages)
    assert len(recorder.calls) == 3
    assert second.document() == first.document()


def test_fresh_starts_anew(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    run_pipeline(config, workspace, stages=recorder.stages)
    assert run_pipeline(config, workspace, stages=recorder.stages, fresh=True).run == "numbers-2"
    assert len(recorder.calls) == 6


def test_another_config_is_another_run(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    run_pipeline(config, workspace, stages=recorder.stages)
    other = config.model_copy(update={"seed": 5})
    assert run_pipeline(other, workspace, stages=recorder.stages).run == "numbers-2"


def test_changed_inputs_start_a_new_run(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    run_pipeline(config, workspace, stages=recorder.stages)
    recorder.valid = False
    assert run_pipeline(config, workspace, stages=recorder.stages).run == "numbers-2"


def test_failed_stage_is_repeated_and_only_it(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    recorder.error["two"] = DataError("the data is wrong", hint="mend it")
    with pytest.raises(DataError, match="the data is wrong"):
        run_pipeline(config, workspace, stages=recorder.stages)
    record = workspace.run("last")
    assert record.state == "failed"
    assert [stage.state for stage in record.stages] == ["finished", "failed", "pending"]
    assert record.error == {"code": "data", "message": "the data is wrong", "where": None, "hint": "mend it"}
    recorder.error.clear()
    report = run_pipeline(config, workspace, stages=recorder.stages)
    assert report.run == "numbers-1"
    assert recorder.calls == ["one", "two", "two", "three"]
    assert recorder.resumed == {"one": False, "two": True, "three": False}
    assert workspace.run("last").error is None


def test_fault_ends_with_a_message_and_the_traceback_in_the_log(
    config: RunConfig, workspace: Workspace
) -> None:
    recorder = Recorder()
    recorder.error["one"] = ZeroDivisionError("division by zero")
    with pytest.raises(
        GraphboxError, match="the stage `one` failed unexpectedly: ZeroDivisionError"
    ) as caught:
        run_pipeline(config, workspace, stages=recorder.stages)
    assert caught.value.exit_code == 1
    assert "please report it with" in str(caught.value.hint)
    assert "Traceback" in (workspace.run("last").path / "log.txt").read_text()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "x.npy"),
            3,
            "x.npy: there is no space left on the disk",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "x.npy"),
            1,
            "x.npy: the system refuses to read or write: Read-only file system",
        ),
        (MemoryError(), 3, "there is not enough memory"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 5, "pip install 'graphbox[train]'"),
    ],
)
def test_plain_causes_are_named(
    error: Exception, code: int, message: str, config: RunConfig, workspace: Workspace
) -> None:
    recorder = Recorder()
    recorder.error["one"] = error
    with pytest.raises(GraphboxError) as caught:
        run_pipeline(config, workspace, stages=recorder.stages)
    assert caught.value.exit_code == code
    assert message in str(caught.value)


def test_stop_is_resumable(config: RunConfig, workspace: Workspace) -> None:
    recorder, stop = Recorder(), Stop()
    stop.request()
    with pytest.raises(InterruptedRunError) as caught:
        run_pipeline(config, workspace, stages=recorder.stages, stop=stop)
    assert caught.value.exit_code == 75
    assert "graphbox runs resume numbers-1" in str(caught.value.hint)
    assert workspace.run("last").state == "interrupted"
    assert continue_run("last", workspace, stages=recorder.stages).state == "finished"


def test_second_ctrl_c_leaves_the_run_interrupted(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    recorder.error["two"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(config, workspace, stages=recorder.stages)
    assert workspace.run("last").state == "interrupted"


def test_signals() -> None:
    """In a process of its own, which a signal that is not handled may end."""
    code = """
        import os, signal
        from graphbox.pipeline import stop_on_signals

        told = []
        with stop_on_signals(told.append) as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.requested
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                print("interrupted", len(told))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted 1\n", "", -signal.SIGTERM)


def test_until(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    report = run_pipeline(config, workspace, stages=recorder.stages, until="two")
    assert [stage.state for stage in report.stages] == ["finished", "finished", "pending"]
    assert run_pipeline(config, workspace, stages=recorder.stages).run == report.run
    assert recorder.calls == ["one", "two", "three"]
    with pytest.raises(UsageError, match="does not ask for the stage `four`"):
        continue_run(report.run, workspace, stages=recorder.stages, until="four")


def test_stage_again(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    report = run_pipeline(config, workspace, stages=recorder.stages)
    continue_run(report.run, workspace, stages=recorder.stages, until="two", again=True)
    assert recorder.calls == ["one", "two", "three", "two"]


def test_run_in_another_process_cannot_be_taken(config: RunConfig, workspace: Workspace) -> None:
    recorder = Recorder()
    recorder.error["two"] = DataError("x")
    with pytest.raises(DataError):
        run_pipeline(config, workspace, stages=recorder.stages)
    with workspace.resume_run("numbers-1"), pytest.raises(ConflictError, match="is in use by process"):
        run_pipeline(config, workspace, stages=recorder.stages)


def test_killed_process(config: RunConfig, workspace: Workspace, tmp_path: Path) -> None:
    code = """
        import os, signal, sys
        from graphbox.config import load_config
        from graphbox.pipeline import Stage, StageResult, run_pipeline
        from graphbox.workspace import Workspace

        def fall(context):
            os.kill(os.getpid(), signal.SIGKILL)

        stages = [Stage("one", lambda context: StageResult("", {"kept": 1})), Stage("two", fall)]
        run_pipeline(load_config(sys.argv[1], check_files=False), Workspace(sys.argv[2]), stages=stages)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "run.yaml"), str(workspace.root)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    record = workspace.run("last")
    assert (record.state, record.stage) == ("interrupted", "two")
    assert json.loads((record.path / "run.json").read_text())["stage"] == "two"
    seen: list[Mapping[str, Any]] = []

    def rise(context: StageContext) -> StageResult:
        seen.append(context.finished["one"])
        return StageResult("")

    stages = [Stage("one", lambda _: pytest.fail("it had finished")), Stage("two", rise)]
    assert run_pipeline(config, workspace, stages=stages).run == record.id
    assert seen == [{"kept": 1}]


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "sampled"])
def test_peak_memory(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        monkeypatch.setattr("graphbox.memory._CLEAR", Path("/proc/self/none"))
    size = 300_000_000
    with PeakMemory() as before:
        pass
    with PeakMemory() as large:
        block = bytearray(size)
        for offset in range(0, size, 4096):
            block[offset] = 1
        time.sleep(0 if kernel else 5 * SAMPLE_S)  # a sample sees only what is held when it is taken
        del block
    with PeakMemory() as after:
        pass
    assert large.bytes - before.bytes > 0.9 * size
    assert large.bytes - after.bytes > 0.5 * size


def test_version_of_a_killed_attempt_is_removed(
    config: RunConfig, workspace: Workspace, tmp_path: Path
) -> None:
    def context(*, resumed: bool) -> StageContext:
        return StageContext(
            config=config,
            workspace=workspace,
            run_id="numbers-1",
            run_path=tmp_path,
            finished={},
            resumed=resumed,
            progress=Silence(),
            stop=Stop(),
        )

    version, folder = new_version(context(resumed=False), "export", "encoder")
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    assert version == 1
    # The process dies here; the next attempt makes another version and leaves nothing of the first.
    version, folder = new_version(context(resumed=True), "export", "encoder")
    assert version == 2
    assert list((workspace.root / "models" / "encoder").iterdir()) == []
    folder.mkdir()
    # A stage that is run again on purpose keeps what an earlier one made.
    assert new_version(context(resumed=False), "export", "encoder")[0] == 3
    assert folder.exists()


def test_processes_that_cannot_train_a_model_are_refused_before_any_stage(
    config: RunConfig, workspace: Workspace, tmp_path: Path
) -> None:
    recorder = Recorder()
    asked = config.model_copy(update={"processes": 2})
    with pytest.raises(UsageError, match="`walk` of kind metapath2vec: one loop draws its pairs"):
        run_pipeline(asked, workspace, stages=recorder.stages)
    stream = config.stream.model_copy(update={"folder": str(tmp_path)})
    follows = tuple(Stage(each.name, each.run, follows=True) for each in recorder.stages)
    with pytest.raises(
        UsageError, match="expected one process for a model that follows a stream, received 2"
    ):
        run_pipeline(asked.model_copy(update={"stream": stream}), workspace, stages=follows)
    assert recorder.calls == []
