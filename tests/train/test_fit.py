"""Training as a whole: it learns, ends the same however often it was killed, and stops where it must."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphbox.config import (
    ClassifyTaskConfig,
    Metapath2VecConfig,
    ModelConfig,
    RecommendTaskConfig,
    SageConfig,
)
from graphbox.errors import (
    ConflictError,
    FormatError,
    InterruptedRunError,
    NotFoundError,
    UsageError,
)
from graphbox.graph import Graph
from graphbox.train import (
    ClassifySplit,
    RecommendSplit,
    TrainedModel,
    TrainProgress,
    evaluate_baselines,
    evaluate_embeddings,
    evaluate_scores,
    fit,
    load_outcome,
    load_trained,
)
from graphbox.train.stage_clock import OTHER, STAGES
from graphbox.workspace import last_sign
from tests.train.job_server import JobServer

Case = tuple[Any, ModelConfig, Any]


@pytest.fixture(params=["sage", "pretrained", "skip_gram", "network"])
def case(request: pytest.FixtureRequest) -> Case:
    """Return split, model section and task section."""
    task = "classify" if request.param in {"skip_gram", "network"} else "recommend"
    return (
        request.getfixturevalue(f"{task}_split"),
        request.getfixturevalue(f"{request.param}_config"),
        request.getfixturevalue(f"{task}_task"),
    )


def run(graph: Graph, case: Case, folder: Path, **options: Any) -> TrainedModel:
    split, config, task = case
    settings = {"seed": 11, "threads": 1, "name": "model", **options}
    return fit(graph, split, config=config, task=task, run_folder=folder, **settings)


def arrays(trained: TrainedModel) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {f"embeddings {k}": v for k, v in trained.embeddings.items()}
    if trained.logits is not None:
        found["logits"] = trained.logits
    if trained.encoder is not None:
        found["target"] = trained.encoder.target
        found |= {f"inputs {k}": v for k, v in trained.encoder.inputs.items()}
        found |= {f"neighbors {k}": v for k, v in trained.encoder.neighbors.items()}
        found |= {k: v.numpy() for k, v in trained.encoder.model.state_dict().items()}
    return found


def assert_same(first: TrainedModel, second: TrainedModel) -> None:
    mine, theirs = arrays(first), arrays(second)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def points(folder: Path) -> list[dict[str, Any]]:
    """Return the points of a run without what depends on the clock."""
    found = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        point = json.loads(line)
        point.pop("time_s")
        point["values"].pop("samples_per_s", None)
        found.append(point)
    return found


@pytest.fixture(scope="module")
def processes() -> Iterator[JobServer]:
    with JobServer("tests.train.training_process") as server:
        yield server


class TestKill:
    """Deaths at each stage of the loop, of two trainings in turn; of all kinds see ``tests/contract``."""

    @pytest.mark.parametrize("case", ["pretrained"], indirect=True)
    def test_resumed_ends_like_never_killed(
        self, graph: Graph, case: Case, tmp_path: Path, processes: JobServer
    ) -> None:
        whole = run(graph, case, tmp_path / "whole")
        folder = tmp_path / "killed"
        job: dict[str, Any] = {
            "graph": str(graph.path),
            "run": str(folder),
            "sections": {
                name: part.model_dump(mode="json")
                for name, part in zip(("model", "task"), case[1:], strict=True)
            },
        }
        # Before the first checkpoint, between a validation and its checkpoint, and in a checkpoint.
        for stage, times in (("compute", 1), ("validate", 1), ("checkpoint", 2)):
            assert processes.run(**job, stage=stage, times=times) == -signal.SIGKILL
            assert not (folder / "trained" / "model" / "trained.json").exists()
            sign = last_sign(folder)
            assert sign is not None
            assert (sign.model, sign.stage) == ("model", stage)
        assert processes.run(**job, stage=None) == 0
        assert_same(load_trained(folder, "model"), whole)
        assert points(folder) == points(tmp_path / "whole")


class TestFit:
    def test_same_seed_same_model_another_seed_another(
        self, graph: Graph, case: Case, tmp_path: Path
    ) -> None:
        first = run(graph, case, tmp_path / "first")
        assert_same(first, run(graph, case, tmp_path / "again"))
        other = run(graph, case, tmp_path / "other", seed=12)
        assert (other.embeddings["item"] != first.embeddings["item"]).any()

    def test_comes_back_from_disk(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        trained = run(graph, case, tmp_path)
        loaded = load_trained(tmp_path, "model")
        assert_same(trained, loaded)
        queries = np.array([0, 5, 17])
        np.testing.assert_array_equal(trained.score(queries), loaded.score(queries))
        vectors = np.load(tmp_path / "embeddings" / "model" / "item.npy")
        np.testing.assert_array_equal(vectors, trained.embeddings["item"])
        ids = (tmp_path / "embeddings" / "model" / "item.ids.txt").read_text().splitlines()
        assert ids == graph.ids("item").tolist()

    def test_stop_leaves_a_checkpoint_to_go_on_from(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        whole = run(graph, case, tmp_path / "whole")
        calls = iter(range(1000))
        with pytest.raises(InterruptedRunError, match="stopped on request in epoch 2 of") as caught:
            run(graph, case, tmp_path / "stopped", stop=lambda: next(calls) == first_epoch(tmp_path) + 1)
        assert caught.value.exit_code == 75
        assert not (tmp_path / "stopped" / "trained" / "model" / "trained.json").exists()
        assert_same(run(graph, case, tmp_path / "stopped", resume=True), whole)
        assert points(tmp_path / "stopped") == points(tmp_path / "whole")

    def test_finished_training_is_not_repeated(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        first = run(graph, case, tmp_path)
        written = (tmp_path / "metrics.jsonl").read_bytes()

        def never() -> bool:
            raise AssertionError("a batch was trained")

        assert_same(run(graph, case, tmp_path, resume=True, stop=never), first)
        assert (tmp_path / "metrics.jsonl").read_bytes() == written

    def test_without_resume_all_starts_anew(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        first = run(graph, case, tmp_path)
        before = points(tmp_path)
        assert_same(run(graph, case, tmp_path), first)
        assert points(tmp_path) == before

    def test_progress_and_points(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        seen: list[TrainProgress] = []
        run(graph, case, tmp_path, progress=seen.append)
        config = case[1]
        before = config.pretrain.epochs if isinstance(config, SageConfig) and config.pretrain else 0
        epochs = before + config.model_dump()["epochs"]
        assert [at.epoch for at in seen] == sorted(at.epoch for at in seen)
        assert seen[-1].epoch == seen[-1].epochs == epochs
        found = points(tmp_path)
        assert ("pretrain_loss" in seen[-1].values) == bool(before)
        losses = [point["values"]["loss"] for point in found if "loss" in point["values"]]
        assert np.mean(losses[-3:]) < np.mean(losses[:3])
        assert {point["model"] for point in found} == {"model"}
        if isinstance(config, SageConfig):
            names = {"validation_recall@10", "validation_ndcg@10"}
            validated = [point["epoch"] for point in found if set(point["values"]) == names]
            assert validated == [before + 2, before + 3]
        heartbeat = json.loads((tmp_path / "heartbeat.json").read_text())
        assert (heartbeat["model"], heartbeat["stage"]) == ("model", "finished")
        outcome = load_outcome(tmp_path, "model")
        assert outcome.epochs == epochs
        assert (outcome.best_epoch is None) == (config.kind != "gnn")
        seconds = outcome.stage_seconds
        assert set(seconds) == {*STAGES, OTHER}
        assert seconds["compute"] > 0

    def test_damaged_checkpoint_is_named(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        run(graph, case, tmp_path)
        place = max((tmp_path / "checkpoints" / "model").glob("[0-9]*"))
        path = next(place.glob("*.table/*.segment"))
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(FormatError) as caught:
            run(graph, case, tmp_path, resume=True)
        assert str(path) in str(caught.value)
        assert "delete the folder" in str(caught.value)

    def test_checkpoint_of_other_settings_is_refused(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        run(graph, case, tmp_path)
        with pytest.raises(ConflictError):
            run(graph, case, tmp_path, resume=True, seed=99)

    def test_nothing_trained_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="no trained model `model`"):
            load_trained(tmp_path, "model")
        assert list(tmp_path.iterdir()) == []

    def test_damaged_model_is_said(self, graph: Graph, case: Case, tmp_path: Path) -> None:
        run(graph, case, tmp_path)
        path = tmp_path / "embeddings" / "model" / "item.npy"
        path.write_bytes(path.read_bytes()[:64])
        with pytest.raises(FormatError, match="unreadable files"):
            load_trained(tmp_path, "model")


def first_epoch(folder: Path) -> int:
    """Return the number of batches of the first epoch of the run in ``folder / "whole"``."""
    return max(int(point["step"]) for point in points(folder / "whole") if point["epoch"] == 0)


class TestQuality:
    """The models find what the graph was made with."""

    def test_sage_beats_popularity(
        self,
        graph: Graph,
        recommend_split: RecommendSplit,
        recommend_task: RecommendTaskConfig,
        sage_config: SageConfig,
        tmp_path: Path,
    ) -> None:
        config = sage_config.model_copy(update={"epochs": 12, "validate_every": 12})
        trained = run(graph, (recommend_split, config, recommend_task), tmp_path)
        metrics = evaluate_scores(graph, recommend_split, recommend_task, trained.score)
        baselines = evaluate_baselines(graph, recommend_split, recommend_task)
        assert metrics["ndcg@10"] > 1.3 * baselines["popular"]["ndcg@10"]

    def test_skip_gram_beats_the_majority(
        self,
        graph: Graph,
        classify_split: ClassifySplit,
        classify_task: ClassifyTaskConfig,
        skip_gram_config: Metapath2VecConfig,
        tmp_path: Path,
    ) -> None:
        trained = run(graph, (classify_split, skip_gram_config, classify_task), tmp_path)
        metrics = evaluate_embeddings(graph, classify_split, classify_task, trained.embeddings)
        majority = evaluate_baselines(graph, classify_split, classify_task)["majority"]
        assert metrics["accuracy"] > majority["accuracy"] + 0.2

    def test_sage_needs_a_task_to_rank_for(
        self,
        graph: Graph,
        classify_split: ClassifySplit,
        classify_task: ClassifyTaskConfig,
        sage_config: SageConfig,
        tmp_path: Path,
    ) -> None:
        with pytest.raises(UsageError, match="expected a task of kind recommend"):
            run(graph, (classify_split, sage_config, classify_task), tmp_path)
