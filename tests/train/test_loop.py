"""The loop itself: what it keeps, which state it ends in, and where it says the time went."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.errors import FormatError, GraphboxError, InterruptedRunError, NotFoundError
from graphbox.pipeline import stop_on_signals
from graphbox.table import EmbeddingTable, Table
from graphbox.table.host_table import host_table
from graphbox.train import Selection, TrainedModel, Trainer, loop
from graphbox.train.checkpoint import CheckpointStore
from graphbox.train.loop import Outcome, train
from graphbox.train.metrics_log import MetricsLog
from graphbox.train.stage_clock import OTHER, STAGES, StageClock
from graphbox.train.view import GraphView
from graphbox.workspace import last_sign

VALUES = (0.1, 0.5, 0.4, 0.5, 0.3, 0.9)


class Counting(Trainer):
    """Its state is the number of batches trained; what validation gives is known beforehand."""

    def __init__(
        self, patience: int | None = None, *, breaks_at: int = -1, values: tuple[float, ...] = VALUES
    ) -> None:
        self.count = torch.zeros(1)
        self.table = EmbeddingTable(2, seed=0)
        self._patience = patience
        self._breaks_at = breaks_at
        self._values = values

    @property
    def epochs(self) -> int:
        return len(self._values)

    @property
    def selection(self) -> Selection:
        return Selection("score", self._patience)

    def begin_epoch(self, epoch: int) -> int:
        return 2

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        if epoch * 2 + batch == self._breaks_at:
            return float("nan"), 1
        self.count += 1
        keys = np.array([epoch * 2 + batch])
        self.table.pull(keys)
        self.table.push(keys, np.ones((1, 2), np.float32))
        return 1.0, 1

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        return {"score": self._values[epoch]}

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        return {"nodes": np.array([epoch, batch]), "inputs": np.array([1.0, np.inf])}

    def dense(self) -> dict[str, Tensor]:
        return {"count": self.count}

    def tables(self) -> dict[str, EmbeddingTable]:
        return {"rows": self.table}

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:
        self.count, self.table = dense["count"].clone(), host_table(tables["rows"], "counting")

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        raise NotImplementedError


def run(trainer: Trainer, folder: Path, **options: Any) -> Outcome:
    return train(trainer, model="m", run_folder=folder, settings="s", **options)


def test_all_epochs_are_trained_and_the_best_state_is_taken(tmp_path: Path) -> None:
    trainer = Counting()
    outcome = run(trainer, tmp_path)
    assert (outcome.epochs, outcome.steps, outcome.best_epoch) == (6, 12, 6)
    assert int(trainer.count) == len(trainer.table) == 12


def test_patience_ends_training_at_the_best_state(tmp_path: Path) -> None:
    trainer = Counting(patience=2)
    outcome = run(trainer, tmp_path)
    # Of equal figures the first counts: epochs 3 and 4 are no better than epoch 2.
    assert (outcome.epochs, outcome.best_epoch) == (4, 2)
    assert int(trainer.count) == len(trainer.table) == 4
    kept = sorted(int(place.name) for place in (tmp_path / "checkpoints" / "m").iterdir())
    assert kept == [4, 8]  # the best, and the last


@pytest.mark.parametrize("loss", [float("inf"), -float("inf"), float("nan")])
def test_a_loss_that_is_no_finite_number_ends_training(tmp_path: Path, loss: float) -> None:
    class Breaking(Counting):
        def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
            return (loss, 1) if epoch else super().train_batch(epoch, batch)

    with pytest.raises(GraphboxError, match=f"expected a finite loss, received {loss}"):
        run(Breaking(), tmp_path)
    assert (tmp_path / "failed" / "m" / "batch.npz").exists()


def test_a_run_whose_folder_is_removed_ends(tmp_path: Path) -> None:
    class Removing(Counting):
        def end_epoch(self, epoch: int) -> Mapping[str, float]:
            if epoch == 2:
                shutil.rmtree(tmp_path / "run")
            return super().end_epoch(epoch)

    with pytest.raises(NotFoundError, match="removed while its model was trained"):
        run(Removing(), tmp_path / "run")


def test_a_signal_ends_the_validation_and_the_training_can_be_resumed(tmp_path: Path) -> None:
    expected = run(Counting(), tmp_path / "whole")
    points = points_of(tmp_path / "whole")

    class Stopped(Counting):
        def end_epoch(self, epoch: int) -> Mapping[str, float]:
            if epoch == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().end_epoch(epoch)

    folder = tmp_path / "stopped"
    with stop_on_signals(lambda _: None) as stop, pytest.raises(InterruptedRunError, match="on request"):
        run(Stopped(), folder, stop=stop, at_once=stop.at_once)
    resumed = run(Counting(), folder, resume=True)
    assert (resumed.epochs, resumed.steps, resumed.best_epoch) == (
        expected.epochs,
        expected.steps,
        expected.best_epoch,
    )
    assert points_of(folder) == points


def test_patience_begins_anew_with_each_better_figure(tmp_path: Path) -> None:
    outcome = run(Counting(patience=2, values=(0.1, 0.05, 0.2, 0.15, 0.3, 0.1)), tmp_path)
    assert (outcome.epochs, outcome.best_epoch) == (6, 5)


def test_a_training_that_gives_up_ends_there_without_a_checkpoint(tmp_path: Path) -> None:
    log, seen = MetricsLog(tmp_path / "metrics.jsonl", "m"), []

    def gives_up() -> bool:
        seen.append([value for _, value in log.figures("score")])
        return len(seen) == 4

    trainer = Counting()
    outcome = run(trainer, tmp_path, gives_up=gives_up)
    assert seen == [list(VALUES[:count]) for count in (1, 2, 3, 4)]
    assert log.figures("score") == list(enumerate(VALUES[:4], start=1))
    assert MetricsLog(tmp_path / "metrics.jsonl", "other").figures("score") == []
    assert MetricsLog(tmp_path / "nothing.jsonl", "m").figures("score") == []
    assert (outcome.epochs, outcome.best_epoch, int(trainer.count)) == (4, 2, 8)  # its last state
    kept = [int(place.name) for place in sorted((tmp_path / "checkpoints" / "m").iterdir())]
    assert kept == [2, 4]  # those of better figures: it did not end
    # Resumed it measures that epoch again, and asks again.
    seen.clear()
    run(Counting(), tmp_path, resume=True, gives_up=lambda: gives_up() or len(seen) == 2)
    assert seen == [list(VALUES[:3]), list(VALUES[:4])]


def test_a_figure_that_is_no_number_is_never_the_best(tmp_path: Path) -> None:
    outcome = run(Counting(values=(float("nan"), 0.1, float("nan"))), tmp_path)
    assert (outcome.epochs, outcome.best_epoch) == (3, 2)


def test_resumed_after_its_end_takes_the_best_state_again(tmp_path: Path) -> None:
    first = run(Counting(patience=2), tmp_path)
    trainer = Counting(patience=2)
    assert run(trainer, tmp_path, resume=True) == first
    assert int(trainer.count) == 4


def test_a_best_checkpoint_that_is_gone_is_said(tmp_path: Path) -> None:
    run(Counting(patience=2), tmp_path)
    place = tmp_path / "checkpoints" / "m" / f"{4:010d}"
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="checkpoint of step 4, in which m is to end, is gone"):
        run(Counting(patience=2), tmp_path, resume=True)


def test_last_two_checkpoints_and_the_best_stay(tmp_path: Path) -> None:
    run(Counting(patience=3), tmp_path, checkpoint_interval_s=0.0)
    kept = sorted(int(place.name) for place in (tmp_path / "checkpoints" / "m").iterdir())
    assert kept == [4, 9, 10]
    store = CheckpointStore(tmp_path / "checkpoints" / "m", "s")
    assert store.load(step=5) is None
    best = store.load(step=4)
    assert best is not None
    assert int(best.dense["count"]) == 4


def test_batch_without_a_finite_loss_is_kept(tmp_path: Path) -> None:
    with pytest.raises(GraphboxError, match="m, epoch 2, batch 2 of 2: expected a finite loss") as caught:
        run(Counting(breaks_at=3), tmp_path)
    folder = tmp_path / "failed" / "m"
    assert str(folder) in str(caught.value)
    assert "the last checkpoint is from 1 batch before it" in str(caught.value)  # the best epoch
    text = (folder / "failure.json").read_text()
    assert '"non_finite_arrays": [\n  "inputs"\n ]' in text
    with np.load(folder / "batch.npz") as batch:
        assert batch["nodes"].tolist() == [1, 1]


def test_a_failure_before_any_checkpoint_says_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(GraphboxError, match="no checkpoint was written before it"):
        run(Counting(breaks_at=1), tmp_path)


def points_of(folder: Path) -> list[tuple[int, int, dict[str, float]]]:
    """Return step, epoch and figures of each point, without those that tell a time."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["values"].pop("samples_per_s", None)
    return [(line["step"], line["epoch"], line["values"]) for line in lines]


def test_points_written_after_the_last_checkpoint_are_not_there_twice(tmp_path: Path) -> None:
    run(Counting(), tmp_path / "whole")
    with pytest.raises(GraphboxError, match="epoch 4, batch 2 of 2"):
        run(Counting(breaks_at=7), tmp_path / "died")
    store = CheckpointStore(tmp_path / "died" / "checkpoints" / "m", "s")
    died_at = points_of(tmp_path / "died")[-1][0]
    assert store.last_step() == 4 < died_at  # so there are points to be taken back
    run(Counting(), tmp_path / "died", resume=True)
    assert points_of(tmp_path / "died") == points_of(tmp_path / "whole")


def test_sign_of_life_names_the_place(tmp_path: Path) -> None:
    assert last_sign(tmp_path) is None
    run(Counting(), tmp_path)
    sign = last_sign(tmp_path)
    assert sign is not None
    assert (sign.model, sign.stage, sign.epoch, sign.step) == ("m", "finished", 6, 12)
    (tmp_path / "heartbeat.json").write_text("{")
    assert last_sign(tmp_path) is None


class TestStageClock:
    @pytest.fixture
    def ticks(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [0.0]
        monkeypatch.setattr("graphbox.train.stage_clock.time.perf_counter", lambda: now[0])
        return now

    def test_inner_stages_interrupt_outer_ones(self, ticks: list[float]) -> None:
        clock = StageClock()
        entered: list[str] = []
        clock.on_change = entered.append
        ticks[0] = 1.0
        with clock.stage("compute"):
            ticks[0] = 3.0
            with clock.stage("fetch"):
                assert clock.current == "fetch"
                ticks[0] = 7.0
            ticks[0] = 8.0
        ticks[0] = 10.0
        seconds = clock.seconds()
        assert seconds == {**dict.fromkeys(STAGES, 0.0), "compute": 3.0, "fetch": 4.0, OTHER: 3.0}
        assert entered == ["compute", "fetch"]

    def test_goes_on_from_what_was_measured(self, ticks: list[float]) -> None:
        clock = StageClock()
        ticks[0] = 5.0
        clock.restart({"push": 2.0})
        with clock.stage("push"):
            ticks[0] = 6.0
        assert clock.seconds()["push"] == 3.0
        assert clock.seconds()[OTHER] == 0.0

    def test_an_error_ends_its_stage(self, ticks: list[float]) -> None:
        clock = StageClock()
        with pytest.raises(ValueError, match="x"), clock.stage("sample"):
            raise ValueError("x")
        assert clock.current == OTHER


def test_checkpoints_that_take_long_come_further_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes a second here, a checkpoint two: those between epochs may take 5 % of the time."""
    now = [0.0]
    saved: list[float] = []

    class Slow(Counting):
        def begin_epoch(self, epoch: int) -> int:
            return 200

        def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
            now[0] += 1.0
            return 1.0, 1

        def before_checkpoint(self) -> None:
            saved.append(now[0])
            now[0] += 2.0

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    run(Slow(values=(1.0,)), tmp_path, checkpoint_interval_s=10.0)
    between = np.diff(saved[:-2])  # without the best and the last
    assert saved[0] == 11.0  # before it is known how long one takes
    assert (between == 43.0).all()
    assert len(between) >= 3
    monkeypatch.setattr(loop, "_LONGEST_INTERVAL_S", 20.0)
    saved.clear()
    run(Slow(values=(1.0,)), tmp_path / "bounded", checkpoint_interval_s=10.0)
    assert (np.diff(saved[:-2]) == 23.0).all()
