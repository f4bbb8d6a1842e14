"""The contract of kinds of models: from a run file to an endpoint, over deaths, threads, processes, tiers.

A new kind needs an entry of ``MODELS`` in ``tests/contract/run_files.py``, and one of ``LACKS`` if it lacks
something.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from graphbox.config import model_kinds
from tests.cli.conftest import Outcome, call_main
from tests.contract.run_files import MODELS, TASKS, write_tables
from tests.server.server_process import start_process
from tests.table.distributed_processes import Processes
from tests.train.job_server import JobServer

LACKS: Mapping[str, tuple[str, ...]] = {
    "deepwalk": ("features", "processes"),
    "node2vec": ("features", "processes"),
    "metapath2vec": ("features", "processes"),
    "line": ("topology", "features", "processes"),
    "sage": ("features",),
    "pinsage": ("topology", "features"),
    "lightgcn": ("topology", "features", "tables", "processes"),
    "matrix_factorization": ("topology", "features"),
    "deepfm": ("topology", "features"),
    "dcn": ("topology", "features"),
    "wide_and_deep": ("topology", "features"),
    "din": ("topology", "features"),
    "mmoe": ("topology", "features"),
    "distmult": ("topology", "features"),
    "complex": ("topology", "features"),
    "transe": ("topology", "features"),
    "rotate": ("topology", "features"),
    "temporal": ("topology", "features", "tables", "processes"),
    "sasrec": ("topology", "features"),
    "gru4rec": ("topology", "features"),
    "comirec": ("topology", "features"),
}
"""Unsupported settings of kinds: budgets of parts of the graph or of tables, and several processes."""

BUDGETS = {"topology": "30kB", "features": "2kB", "tables": "32MiB"}
ABILITIES = (*BUDGETS, "processes")
REFUSALS = {
    **dict.fromkeys(BUDGETS, "expected models that keep their {ability} within a budget, received `{kind}`"),
    "processes": "expected a model that several processes can train, received `{kind}` of kind {kind}",
}

every_kind = pytest.mark.parametrize("kind", MODELS)


class Trainings:
    """Runs of the kinds in one workspace, each when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self._reports: dict[str, Any] = {}
        write_tables(folder)

    def call(self, command: str, kind: str, *arguments: str) -> Outcome:
        """Call the command line with the run file of a kind."""
        return call_main(self.arguments(command, kind, *arguments))

    def arguments(self, command: str, kind: str, *arguments: str) -> list[str]:
        return ["-C", str(self.workspace), command, str(self.folder / f"{kind}.yaml"), *arguments, "--json"]

    def again(self, kind: str, *overrides: str) -> str:
        """Train anew with other settings; return the run."""
        outcome = self.call("train", kind, "export={}", *overrides, "--fresh")
        assert outcome.code == 0, outcome.err
        run: str = outcome.json["run"]
        return run

    def report(self, kind: str) -> Any:
        """Return the report of the run of a kind, from the import of the graph to its export."""
        if kind not in self._reports:
            outcome = self.call("run", kind, "bench={batch_sizes: [1], seconds: 0.01}")
            assert outcome.code == 0, outcome.err
            self._reports[kind] = outcome.json
        return self._reports[kind]

    def run_folder(self, kind: str, run: str | None = None) -> Path:
        return self.workspace / "runs" / (run or self.report(kind)["run"])

    def arrays(self, kind: str, run: str | None = None) -> dict[str, NDArray[Any]]:
        """Return what a run trained; None: the run of :meth:`report`."""
        return arrays(self.run_folder(kind, run), kind)

    def figures(self, kind: str, run: str | None = None) -> list[Mapping[str, float]]:
        """Return the figures that a training wrote, without those of the clock and of where rows were."""
        points = [
            json.loads(line)["values"]
            for line in (self.run_folder(kind, run) / "metrics.jsonl").read_text().splitlines()
        ]
        ignored = ("samples_per_s", "hit_rate")
        return [
            {name: value for name, value in each.items() if not name.endswith(ignored)} for each in points
        ]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    folder = tmp_path_factory.mktemp("contract")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.delenv("GRAPHBOX_WORKSPACE", raising=False)
        yield Trainings(folder)


@pytest.fixture(scope="module")
def jobs() -> Iterator[JobServer]:
    with JobServer("tests.contract.training_process") as server:
        yield server


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes("tests.train.divided_training") as started:
        yield started


@pytest.fixture(scope="module")
def client(trainings: Trainings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Requests to one server with the models of all kinds."""
    for kind in MODELS:
        trainings.report(kind)
    server = start_process(
        {"port": 0, "workspace": str(trainings.workspace)}, tmp_path_factory.mktemp("log") / "log"
    )
    server.wait_until_ready()
    with server.client() as client:
        yield client
    assert server.stop() == 0
    assert server.process.stdout is not None
    server.process.stdout.close()


def arrays(run: Path, model: str) -> dict[str, NDArray[Any]]:
    """Return the vectors, rows and parameters that a run left of a model, by file and name."""
    found: dict[str, NDArray[Any]] = {}
    for folder in (run / "trained" / model, run / "embeddings" / model):
        for path in folder.rglob("*.npy"):
            found[str(path.relative_to(folder))] = np.load(path)
        for path in folder.rglob("*.safetensors"):
            found |= {f"{path.name} {name}": value for name, value in load_file(path).items()}
    return found


def assert_same(mine: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> None:
    assert_close(mine, theirs, 0.0)


def assert_close(
    mine: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]], tolerance: float
) -> None:
    assert mine.keys() == theirs.keys()
    assert mine
    for name, value in mine.items():
        np.testing.assert_allclose(value, theirs[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_every_kind_is_in_the_contract() -> None:
    assert set(MODELS) == set(model_kinds())


class TestModelKind:
    """The contract of all kinds of models."""

    @every_kind
    def test_trains_two_epochs(self, trainings: Trainings, kind: str) -> None:
        report = trainings.report(kind)
        assert report["training"][kind]["epochs"] == 2
        figures = trainings.figures(kind)
        losses = [value for each in figures for name, value in each.items() if name.endswith("loss")]
        assert len(losses) >= 2
        assert np.isfinite(losses).all()
        metrics = report["metrics"][MODELS[kind]["task"]][kind]
        assert metrics
        assert all(np.isfinite(value) for value in metrics.values())

    @every_kind
    def test_killed_and_resumed_it_ends_with_the_same_bits(
        self, trainings: Trainings, jobs: JobServer, kind: str
    ) -> None:
        whole = trainings.report(kind)["run"]
        arguments = trainings.arguments("train", kind, "export={}", "--fresh")
        assert jobs.run(arguments=arguments, stage="checkpoint", times=2) == -signal.SIGKILL
        outcome = trainings.call("train", kind, "export={}")
        assert outcome.code == 0, outcome.err
        run = outcome.json["run"]
        assert run != whole
        assert_same(trainings.arrays(kind, run), trainings.arrays(kind))
        assert trainings.figures(kind, run) == trainings.figures(kind)

    @every_kind
    def test_two_threads_train_the_same_model(self, trainings: Trainings, kind: str) -> None:
        run = trainings.again(kind, "threads=2")
        assert_close(
            trainings.arrays(kind, run), trainings.arrays(kind), 1e-3
        )  # torch may add up in another order

    @every_kind
    def test_two_processes_train_the_same_model(
        self, trainings: Trainings, processes: Processes, kind: str, tmp_path: Path
    ) -> None:
        if "processes" in LACKS.get(kind, ()):
            pytest.skip("they are refused, see below")
        whole = trainings.run_folder(kind)
        job = {
            "graph": str(trainings.workspace / "graphs" / "town"),
            "split": str(whole / "splits" / f"{MODELS[kind]['task']}.npz"),
            "config": {"kind": kind, **MODELS[kind]},
            "task": TASKS[MODELS[kind]["task"]],
        }
        run = tmp_path / "run"
        stopped = processes.run("fits", 2, tmp_path, model=job, run=str(run), stop_after=10**9)
        assert stopped == [False, False]
        assert_close(arrays(run, "model"), trainings.arrays(kind), 2e-2)

    @every_kind
    @pytest.mark.parametrize("ability", ABILITIES)
    def test_tiers_hold_the_same_model_and_what_is_lacking_is_refused(
        self, trainings: Trainings, kind: str, ability: str
    ) -> None:
        override = f"memory.{ability}={BUDGETS[ability]}" if ability in BUDGETS else "processes=2"
        checked = trainings.call("check", kind, override)
        if ability in LACKS.get(kind, ()):
            assert checked.code == 2
            assert REFUSALS[ability].format(ability=ability, kind=kind) in checked.err
            return
        assert checked.code == 0, checked.err
        if ability in BUDGETS:
            run = trainings.again(kind, override)
            assert_same(trainings.arrays(kind, run), trainings.arrays(kind))
            assert trainings.figures(kind, run) == trainings.figures(kind)

    @every_kind
    def test_a_loss_that_is_not_finite_ends_it_with_the_batch_kept(
        self, trainings: Trainings, kind: str
    ) -> None:
        rates = {"table_learning_rate": 1e38, "learning_rate": 1e37}
        known = rates.keys() & model_kinds()[kind].section.model_fields.keys()
        if "table_learning_rate" not in known:
            rates["learning_rate"] = 1e38  # that of rows
        wild = [f"models.{kind}.{name}={rates[name]}" for name in known]
        outcome = trainings.call("train", kind, "export={}", *wild, "--fresh")
        assert outcome.code == 1, outcome.out
        assert "expected a finite loss, received" in outcome.err
        assert "lower the learning rates" in outcome.err
        (failed,) = trainings.workspace.glob(f"runs/{kind.replace('_', '-')}-*/failed/{kind}")
        report = json.loads((failed / "failure.json").read_text())
        assert report["loss"] in {"nan", "inf"}
        with np.load(failed / "batch.npz") as batch:
            assert {name: list(array.shape) for name, array in batch.items()} == report["arrays"]
            assert report["arrays"] or kind == "module"  # of whose loader no batch is kept

    @every_kind
    def test_answers_a_request(self, trainings: Trainings, client: httpx.Client, kind: str) -> None:
        request = json.loads(
            (trainings.workspace / "models" / kind / "1" / "example_request.json").read_text()
        )
        answer = client.post(f"/v2/models/{kind}/infer", json=request)
        assert answer.status_code == 200, answer.text
        for output in answer.json()["outputs"]:
            if output["datatype"].startswith("FP"):
                assert np.isfinite(np.array(output["data"], dtype=float)).all()
