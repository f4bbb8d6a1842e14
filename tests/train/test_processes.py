"""Trainings in 2 and 3 processes on the CPU, beside those in one: losses, figures, deaths and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig, HbmConfig, MemoryConfig
from graphbox.errors import (
    BackendMissingError,
    GraphboxError,
    InterruptedRunError,
    ProcessLostError,
    UsageError,
)
from graphbox.graph import Graph
from graphbox.graph.ingest import import_graph
from graphbox.sample import NeighborLoader
from graphbox.train import ClassifySplit, ClickSplit, TrainProgress, fit, load_outcome, make_split
from graphbox.train import launch as launching
from graphbox.train.launch import launch
from graphbox.train.processes import ALONE, check_gpus
from tests.train import test_click


@pytest.fixture(scope="module")
def click_graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("log") / "graph"
    import_graph(test_click.source_of(test_click.log_table()), folder)
    return Graph.open(folder)


@pytest.fixture(scope="module")
def click_split(click_graph: Graph) -> ClickSplit:
    made = make_split(click_graph, test_click.TASK, 0)
    assert isinstance(made, ClickSplit)
    return made


@pytest.fixture(scope="module")
def network() -> GraphNetworkConfig:
    """All neighbours and no dropout: so that parts of a batch are what they are in the whole."""
    return GraphNetworkConfig(
        kind="gnn",
        task="topic",
        dim=8,
        layers=2,
        num_neighbors=(1000, 1000),
        features={"item": ("size", "kept")},
        embeddings=("item", "tag", "group"),
        batch_size=50,
        epochs=2,
        dropout=0.0,
        patience=None,
        clip_norm=1.0,
    )


def points(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def figures(folder: Path, name: str) -> NDArray[np.float64]:
    return np.array([each["values"][name] for each in points(folder) if name in each["values"]])


def fit_network(
    graph: Graph, split: ClassifySplit, task: ClassifyTaskConfig, folder: Path, config: Any, **options: Any
) -> Any:
    options = {"seed": 3, "threads": 1, **options}
    return fit(graph, split, name="net", config=config, task=task, run_folder=folder, **options)


class Recorder:
    def __init__(self) -> None:
        self.steps: list[int] = []

    def log(self, step: int, values: Any) -> None:
        self.steps.append(step)


class TestGraphNetworks:
    def test_learn_as_in_one_process(
        self,
        graph: Graph,
        classify_split: ClassifySplit,
        classify_task: ClassifyTaskConfig,
        network: GraphNetworkConfig,
        tmp_path: Path,
    ) -> None:
        one, several = tmp_path / "one", tmp_path / "several"
        expected = fit_network(graph, classify_split, classify_task, one, network)
        tracker = Recorder()
        seen: list[TrainProgress] = []
        found = fit_network(
            graph,
            classify_split,
            classify_task,
            several,
            network,
            processes=2,
            trackers=(tracker,),
            progress=seen.append,
        )
        np.testing.assert_allclose(figures(several, "loss"), figures(one, "loss"), rtol=1e-3)
        np.testing.assert_allclose(
            figures(several, "validation_accuracy"), figures(one, "validation_accuracy"), atol=0.05
        )
        for name, vectors in expected.embeddings.items():
            np.testing.assert_allclose(found.embeddings[name], vectors, atol=0.02, err_msg=name)
        assert load_outcome(several, "net").steps == load_outcome(one, "net").steps
        assert tracker.steps
        assert seen[-1].epoch == 2
        assert sorted(path.name for path in (several / "processes").iterdir()) == ["1", "net.npz"]


class TestClicks:
    def test_after_a_death_another_number_of_processes_ends_as_one(
        self, click_graph: Graph, click_split: ClickSplit, tmp_path: Path
    ) -> None:
        config = test_click.section("deepfm", dropout=0.0, row_dropout=0.0, row_decay=1e-3, average_decay=0.9)
        one, several = tmp_path / "one", tmp_path / "several"
        expected = test_click.run(click_graph, click_split, one, config)
        killed: list[int] = []

        def kill(at: Any) -> None:
            if at.epoch >= 1 and not killed:
                killed.append(children()[-1])
                os.kill(killed[0], signal.SIGKILL)

        options: dict[str, Any] = {"progress": kill, "checkpoint_interval_s": 0.0}
        with pytest.raises(ProcessLostError, match=r"rank \d was ended by SIGKILL, of 2 processes"):
            test_click.run(click_graph, click_split, several, config, processes=2, **options)
        assert not children()
        assert len(list((several / "checkpoints" / "model").iterdir())) >= 1
        found = test_click.run(click_graph, click_split, several, config, processes=3, resume=True)
        np.testing.assert_allclose(figures(several, "loss"), figures(one, "loss"), rtol=2e-3)
        for name in ("validation_auc", "validation_log_loss"):
            np.testing.assert_allclose(figures(several, name), figures(one, name), atol=5e-3)
        rows = new_rows()
        np.testing.assert_allclose(found.click.predict(rows), expected.click.predict(rows), atol=0.01)

    @pytest.mark.stress
    def test_all_stop_when_asked_and_go_on(
        self, click_graph: Graph, click_split: ClickSplit, tmp_path: Path
    ) -> None:
        config = test_click.section("wide_and_deep")
        straight, stopping = tmp_path / "straight", tmp_path / "stopping"
        expected = test_click.run(click_graph, click_split, straight, config, processes=2)
        stopped = threading.Event()

        def stop(at: Any) -> None:
            if at.epoch >= 1:
                stopped.set()

        options: dict[str, Any] = {"progress": stop, "stop": stopped.is_set}
        with pytest.raises(InterruptedRunError, match="training of model stopped on request"):
            test_click.run(click_graph, click_split, stopping, config, processes=2, **options)
        found = test_click.run(click_graph, click_split, stopping, config, processes=2, resume=True)
        np.testing.assert_array_equal(found.click.predict(new_rows()), expected.click.predict(new_rows()))

    @pytest.mark.stress
    def test_a_loss_that_is_no_number_ends_all_alike(
        self, click_graph: Graph, click_split: ClickSplit, tmp_path: Path
    ) -> None:
        config = test_click.section("dcn", learning_rate=1e30, epochs=5)
        with pytest.raises(GraphboxError, match="expected a finite loss, received"):
            test_click.run(click_graph, click_split, tmp_path, config, processes=2)
        assert (tmp_path / "failed" / "model" / "batch.npz").exists()

    @pytest.mark.stress
    def test_a_job_that_cannot_begin(self) -> None:
        with pytest.raises(GraphboxError, match="KeyError"):
            launch({"device": "cpu"}, 2, progress=None, trackers=(), stop=None)
        assert not children()


@pytest.mark.gpu_kernel
class TestRowsOnDevices:
    """Each process has its part of the rows on its device, under a budget that leaves some of them below."""

    memory = MemoryConfig(hbm=HbmConfig(tables=160 << 10, topology=1 << 20))

    @pytest.fixture(autouse=True)
    def workers_run_kernels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("triton")
        monkeypatch.setattr(launching, "_WORKER", "tests.train.kernel_worker")

    def test_clicks_learn_as_from_rows_in_memory_and_go_on_in_another_number_of_processes(
        self, click_graph: Graph, click_split: ClickSplit, tmp_path: Path
    ) -> None:
        config = test_click.section("deepfm", dropout=0.0, row_dropout=0.0, average_decay=0.9)
        one, several = tmp_path / "one", tmp_path / "several"
        expected = test_click.run(click_graph, click_split, one, config)
        stopped = threading.Event()

        def stop(at: Any) -> None:
            if at.epoch >= 0.5:
                stopped.set()

        options: dict[str, Any] = {"memory": self.memory}
        with pytest.raises(InterruptedRunError, match="training of model stopped on request"):
            test_click.run(
                click_graph,
                click_split,
                several,
                config,
                processes=2,
                progress=stop,
                stop=stopped.is_set,
                **options,
            )
        found = test_click.run(click_graph, click_split, several, config, processes=3, resume=True, **options)
        np.testing.assert_allclose(figures(several, "loss"), figures(one, "loss"), rtol=2e-3)
        for name in ("validation_auc", "validation_log_loss"):
            np.testing.assert_allclose(figures(several, name), figures(one, name), atol=5e-3)
        rows = new_rows()
        np.testing.assert_allclose(found.click.predict(rows), expected.click.predict(rows), atol=0.01)
        assert load_outcome(several, "model").places["tables"] == "cpu"

    def test_networks_learn_as_from_rows_in_memory(
        self,
        graph: Graph,
        classify_split: ClassifySplit,
        classify_task: ClassifyTaskConfig,
        network: GraphNetworkConfig,
        tmp_path: Path,
    ) -> None:
        config = network.model_copy(
            update={"epochs": 1, "num_neighbors": (2, 2), "batch_size": 80, "embeddings": ("item",)}
        )
        options: dict[str, Any] = {"processes": 2}
        host, device = tmp_path / "host", tmp_path / "device"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launching, "_WORKER", "graphbox.train.worker")
            expected = fit_network(graph, classify_split, classify_task, host, config, **options)
        options["memory"] = self.memory
        found = fit_network(graph, classify_split, classify_task, device, config, **options)
        np.testing.assert_allclose(figures(device, "loss"), figures(host, "loss"), rtol=1e-5)
        for name, vectors in expected.embeddings.items():
            np.testing.assert_allclose(found.embeddings[name], vectors, atol=1e-5, err_msg=name)
        assert load_outcome(device, "net").places == {
            "features": "cpu",
            "sampling": "cpu",
            "tables": "cpu",
        }


def new_rows() -> pa.Table:
    table = test_click.log_table(50, seed=9)
    return pa.table({name: list(values) for name, values in table.items() if name != "clicked"})


def children() -> list[int]:
    """Return the processes of trainings that this one started."""
    started = [
        int(child)
        for thread in Path("/proc/self/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return sorted(
        child for child in started if b"graphbox.train.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    )


class TestRefusals:
    def test_models_that_have_nothing_to_divide(
        self,
        graph: Graph,
        classify_split: ClassifySplit,
        classify_task: ClassifyTaskConfig,
        network: GraphNetworkConfig,
        skip_gram_config: Any,
        tmp_path: Path,
    ) -> None:
        whole = network.model_copy(update={"num_neighbors": None})
        for config, reason in (
            (whole, "the whole graph is its one batch"),
            (skip_gram_config, "one loop draws its pairs and learns their rows"),
        ):
            with pytest.raises(UsageError, match=reason) as caught:
                fit_network(graph, classify_split, classify_task, tmp_path, config, processes=2)
            assert caught.value.where == "processes"
        budget = MemoryConfig(tables=100_000_000)
        with pytest.raises(UsageError, match="whose rows the processes divide among them"):
            fit_network(graph, classify_split, classify_task, tmp_path, network, processes=2, memory=budget)
        in_memory = Graph.from_coo([0, 1], [1, 2])
        with pytest.raises(UsageError, match="received one that is in memory alone"):
            fit_network(in_memory, classify_split, classify_task, tmp_path, network, processes=2)

    def test_gpus_that_are_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        check_gpus(2, torch.device("cuda", 0))
        check_gpus(8, torch.device("cpu"))
        with pytest.raises(BackendMissingError, match="a GPU for each of 3 processes, found 2"):
            check_gpus(3, torch.device("cuda"))
        with pytest.raises(UsageError, match="which take GPUs from 0 on, received cuda:1"):
            check_gpus(2, torch.device("cuda", 1))


def test_alone_nothing_is_changed() -> None:
    loss = torch.tensor(2.0, requires_grad=True)
    assert ALONE.share(loss, 1, 3) is loss
    assert ALONE.slice_of(7) == slice(0, 7)
    assert ALONE.agree({"a": 1.0}) == {"a": 1.0}
    assert ALONE.seeds() == ()


@pytest.mark.parametrize("parts", [2, 3, 70])
def test_parts_of_batches_are_the_batches(graph: Graph, parts: int) -> None:
    """Neighbours of a seed are drawn as in the whole batch, whatever part it is in."""

    def loader(part: tuple[int, int]) -> NeighborLoader:
        return NeighborLoader(
            graph,
            {("item", "needs", "item"): [3]},
            ("item", np.arange(100)),
            64,
            shuffle=True,
            seed=4,
            output="numpy",
            features=(),
            part=part,
            num_threads=1,
        )

    def of_seeds(batch: Any) -> dict[int, list[int]]:
        sample = batch.sample
        nodes = sample.nodes["item"]
        rows, cols = (getattr(sample, name)[("item", "needs", "item")] for name in ("row", "col"))
        seeds = nodes[: sample.num_sampled_nodes["item"][0]]
        return {int(seed): nodes[rows[cols == place]].tolist() for place, seed in enumerate(seeds)}

    whole = [of_seeds(batch) for batch in loader((0, 1))]
    divided = [list(loader((part, parts))) for part in range(parts)]
    assert [len(each) for each in divided] == [2] * parts
    for number, expected in enumerate(whole):
        found = [of_seeds(each[number]) for each in divided]
        assert [seed for each in found for seed in each] == list(expected)
        for each in found:
            assert each == {seed: expected[seed] for seed in each}


@pytest.mark.parametrize("part", [(0, 0), (2, 2), (-1, 2), 1, ("a", "b"), (True, 2)])
def test_a_part_is_two_numbers(graph: Graph, part: Any) -> None:
    with pytest.raises(UsageError, match="expected two integers, a part's number") as caught:
        NeighborLoader(graph, {("item", "needs", "item"): [3]}, ("item", np.arange(9)), 3, part=part)
    assert caught.value.where == "part"


def test_a_process_that_does_not_answer_is_ended_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dies, the other hangs: both are over after a while, and only the first is said to have failed."""
    monkeypatch.setattr(launching, "_GRACE_SECONDS", 0.1)

    def started(job: Mapping[str, Any], folder: Path) -> subprocess.Popen[bytes]:
        code = "import time; time.sleep(600)" if job["rank"] == 0 else "raise SystemExit(3)"
        command = [sys.executable, "-S", "-c", code]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(launching, "_started", started)
    with pytest.raises(ProcessLostError, match=r"rank 1 ended with exit code 3, of 2 processes") as caught:
        launch({}, 2, progress=None, trackers=(), stop=None)
    assert "rank 0" not in caught.value.message


def test_processes_load_what_they_train_with_alone() -> None:
    """Each of them waits for what it imports, and all of them share the cores."""
    code = (
        "import sys, graphbox.train.worker, graphbox.train.click.trainer, graphbox.train.network.classify\n"
        "print(*sorted({'sklearn', 'sqlalchemy', 'pandas', 'graphbox.export', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_processes_import_from_where_a_notebook_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/elsewhere"])
    assert launching._import_path() == os.pathsep.join([str(tmp_path), "/elsewhere"])


@pytest.mark.stress
def test_processes_end_with_the_one_that_started_them(
    click_graph: Graph, click_split: ClickSplit, tmp_path: Path
) -> None:
    """Killed as it trains, it leaves nothing running."""
    config = test_click.section("deepfm", epochs=100_000)
    child = os.fork()
    if not child:
        with suppress(BaseException):
            test_click.run(click_graph, click_split, tmp_path, config, processes=2)
        os._exit(1)
    heartbeat = tmp_path / "processes" / "1" / "heartbeat.json"
    wait_for(heartbeat.exists)
    started = [int(each) for each in Path(f"/proc/{child}/task/{child}/children").read_text().split()]
    assert len(started) == 2
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in started))


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
