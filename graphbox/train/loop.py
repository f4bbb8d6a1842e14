"""The training loop: epochs of batches, with points, checkpoints, and a stop that loses nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphbox.device import device_in_words
from graphbox.errors import FormatError, GraphboxError, InterruptedRunError
from graphbox.table.host_table import host_table
from graphbox.train.checkpoint import Checkpoint, CheckpointStore
from graphbox.train.failed_batch import save_failed_batch
from graphbox.train.memory import discard_table
from graphbox.train.metrics_log import MetricsLog
from graphbox.train.model_description import ModelDescription
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.stage_clock import StageClock
from graphbox.train.tracking.trackers import Tracker
from graphbox.train.trainer import Trainer
from graphbox.train.warm_start import WarmStart
from graphbox.words import counted
from graphbox.workspace import Heartbeat

_POINTS_PER_EPOCH = 10
CHECKPOINT_INTERVAL_S = 20.0
_CHECKPOINT_SHARE = 0.05
"""Share of the time that checkpoints between epochs may take; where one takes long, they come later."""
_LONGEST_INTERVAL_S = 600.0
"""Seconds of training that a process that dies loses at most, however long a checkpoint takes."""
_PROGRESS_INTERVAL_S = 0.2


@dataclass(frozen=True)
class TrainProgress:
    """Where a training is.

    Attributes:
        model: name of the model.
        epoch: epochs finished, fractions included.
        epochs: epochs in all.
        step: batches trained so far.
        values: the latest figures.
    """

    model: str
    epoch: float
    epochs: int
    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """Result of a training.

    Attributes:
        epochs: epochs that were trained.
        steps: batches that were trained.
        best_epoch: the epoch after which the model was best, if that was looked for, else None.
        stage_seconds: time by stage, see :class:`graphbox.train.stage_clock.StageClock`.
        devices: devices of the model; of a training that was resumed elsewhere, each in its turn.
        places: where the rest was done, and why, see :meth:`graphbox.train.Trainer.places`.
        started_from: the state taken from an earlier run, as :class:`graphbox.train.warm_start.WarmStart`
            has it; None: it started anew.
        best_value: the figure that was best then.
        validation: figures of the validation part of the state that it ended in, by their names in the log;
            of a model that was trained twice those of the first training. Empty: nothing was measured.
        first: epochs, steps and seconds of the first training of a model that was trained twice.
    """

    epochs: int
    steps: int
    best_epoch: int | None
    stage_seconds: Mapping[str, float]
    devices: Sequence[str] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    started_from: Mapping[str, Any] | None = None
    best_value: float | None = None
    validation: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, Any] | None = None


ProgressCallback = Callable[[TrainProgress], None]
StopCallback = Callable[[], bool]
GivesUpCallback = Callable[[], bool]
AtOnce = Callable[[], AbstractContextManager[None]]
"""Makes a block that a stop request ends by raising InterruptedRunError, wherever it is."""


@dataclass
class _Position:
    """Where the loop is, and the figures since the last point."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    time_s: float = 0.0
    loss_sum: float = 0.0
    samples: int = 0
    point_s: float = 0.0
    points: int = 0
    best_value: float | None = None
    best_step: int | None = None
    best_epoch: int | None = None
    worse_epochs: int = 0
    finished: bool = False
    stage_seconds: dict[str, float] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    started_from: dict[str, Any] | None = None
    validation: dict[str, float] = field(default_factory=dict)

    def restart_point(self) -> None:
        self.loss_sum, self.samples, self.point_s = 0.0, 0, 0.0


def train(
    trainer: Trainer,
    *,
    model: str,
    run_folder: Path,
    settings: str,
    clock: StageClock | None = None,
    trackers: tuple[Tracker, ...] = (),
    progress: ProgressCallback | None = None,
    stop: StopCallback | None = None,
    at_once: AtOnce = nullcontext,
    resume: bool = False,
    threads: int | None = None,
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
    processes: TrainingProcesses = ALONE,
    description: ModelDescription | None = None,
    start: Callable[[], WarmStart] | None = None,
    most_epochs: int | None = None,
    gives_up: GivesUpCallback | None = None,
) -> Outcome:
    """Train until the last epoch; a finished training that is resumed is over at once.

    Writes ``metrics.jsonl``, ``heartbeat.json`` and ``checkpoints/<model>/`` under ``run_folder``. The
    trainer ends in its last state, or in its best where it has a ``selection``.

    Of several processes, which all call this, rank 0 writes these and talks to ``trackers``, ``progress`` and
    ``stop``. It ends by itself, with all rows; what the trainers of the others have is no more than a part.
    Their heartbeats and points are in ``processes/<rank>/``.

    Args:
        trainer: what to train.
        model: name of the model.
        run_folder: folder of the run.
        settings: digest of everything that must be the same when a training is resumed.
        clock: measures the stages of ``trainer``.
        trackers: get the figures too.
        progress: called with where the training is, at least once for each point.
        stop: asked after each batch whether to stop.
        at_once: around the end of each epoch, which measures the validation part and can take minutes. A
            training that is stopped there is resumed from its last checkpoint.
        resume: go on from the last checkpoint, if there is one; else start anew.
        threads: threads of restored embedding tables.
        checkpoint_interval_s: seconds between checkpoints; more where writing one takes more than 5 % of
            them, up to 10 minutes. 0: one follows each batch.
        processes: which train together.
        description: what checkpoints record for later trainings that start from them; None: nothing.
        start: gives the trainer what it starts from, unless it is resumed; None: it starts anew.
        most_epochs: epochs after which training ends before the trainer has no more; None: they are all
            trained.
        gives_up: asked after each measured epoch, whose figures are in the log, whether to end there: in the
            present state, without a checkpoint, as nobody wants the model. For a training in one process.

    Raises:
        InterruptedRunError: ``stop`` asked to; a checkpoint was written.
        GraphboxError: the loss is no longer a finite number; the batch was saved.
        FormatError: the checkpoint is damaged.
        ConflictError: the checkpoint was made with other settings.
    """
    store = CheckpointStore(run_folder / "checkpoints" / model, settings, processes, description)
    if not processes.is_first:
        run_folder = run_folder / "processes" / str(processes.rank)
    with Heartbeat(run_folder) as heartbeat:
        loop = _Loop(
            trainer,
            model,
            store,
            run_folder,
            heartbeat,
            clock or StageClock(),
            trackers,
            progress or (lambda _: None),
            stop or (lambda: False),
            at_once,
            threads,
            checkpoint_interval_s,
            processes,
            most_epochs,
            gives_up or (lambda: False),
        )
        checkpoint = store.load(threads, instead_of=trainer.tables()) if resume else None
        if checkpoint is None:
            loop.begin(start)
            store.remove()
        else:
            loop.restore(checkpoint)
        outcome = loop.run()
        if processes.size > 1:
            processes.close()
            if processes.is_first:
                loop.take_whole()
        return outcome


class _Loop:
    def __init__(
        self,
        trainer: Trainer,
        model: str,
        store: CheckpointStore,
        run_folder: Path,
        heartbeat: Heartbeat,
        clock: StageClock,
        trackers: tuple[Tracker, ...],
        progress: ProgressCallback,
        stop: StopCallback,
        at_once: AtOnce,
        threads: int | None,
        checkpoint_interval_s: float,
        processes: TrainingProcesses,
        most_epochs: int | None,
        gives_up: GivesUpCallback,
    ) -> None:
        self._processes = processes
        self._most_epochs = most_epochs
        self._gives_up = gives_up
        self._is_given_up = False
        self._checkpoint_interval_s = checkpoint_interval_s
        self._trainer = trainer
        self._model = model
        self._store = store
        self._run_folder = run_folder
        self._log = MetricsLog(run_folder / "metrics.jsonl", model)
        self._heartbeat = heartbeat
        self._clock = clock
        self._clock.on_change = self._beat
        self._trackers = trackers
        self._progress = progress
        self._progress_at = -math.inf
        self._stop = stop
        self._at_once = at_once
        self._threads = threads
        self._at = _Position()
        self._values: dict[str, float] = {}
        self._saved: tuple[tuple[int, int, bool], Path] | None = None
        self._saved_at = time.monotonic()
        self._save_s = 0.0

    def begin(self, start: Callable[[], WarmStart] | None) -> None:
        self._log.rewind(0)
        self._clock.restart()
        if start is not None:
            with self._clock.stage("fetch"), self._at_once(), self._processes.failing():
                self._at.started_from = asdict(start())

    def restore(self, checkpoint: Checkpoint) -> None:
        self._take_up(checkpoint)
        self._at = _Position(**checkpoint.state)
        self._log.rewind(self._at.points)
        self._clock.restart(self._at.stage_seconds)

    def run(self) -> Outcome:
        if self._trainer.is_endless:
            self._run_epochs()
        elif not self._at.finished:
            self._run_epochs()
            if not self._is_given_up:
                self._at.finished = True
                self._save()
        if self._processes.size == 1 and not self._is_given_up:
            self._take_best()
        self._beat("finished")
        at = self._at
        places = dict(self._trainer.places())
        return Outcome(
            at.epoch,
            at.step,
            at.best_epoch,
            at.stage_seconds,
            at.devices,
            places,
            at.started_from,
            at.best_value,
            at.validation,
        )

    # Epochs and batches

    def _run_epochs(self) -> None:
        device = device_in_words(self._trainer.device)
        if self._at.devices[-1:] != [device]:
            self._at.devices.append(device)
        while not self._is_over() and self._trainer.has_epoch(self._at.epoch):
            self._run_epoch()

    def _run_epoch(self) -> None:
        self._beat("begin epoch")
        batches = self._trainer.begin_epoch(self._at.epoch)
        per_point = max(1, math.ceil(batches / _POINTS_PER_EPOCH))
        while self._at.batch < batches:
            self._train_batch(batches)
            if self._at.batch % per_point == 0 or self._at.batch == batches:
                self._point({})
            self._show(batches)
            is_due = time.monotonic() - self._saved_at > self._interval_s()
            stop, save = self._processes.decide(self._stop(), is_due)
            if stop:
                self._interrupt()
            if save:
                self._save()
        self._end_epoch()
        if self._is_given_up:
            return
        if self._trainer.is_endless:
            self._save()
        (stop,) = self._processes.decide(self._stop())
        if stop:
            self._interrupt()

    def _train_batch(self, batches: int) -> None:
        started = time.monotonic()
        loss, samples = self._trainer.train_batch(self._at.epoch, self._at.batch)
        seconds = time.monotonic() - started
        if not math.isfinite(loss):
            self._fail(loss, batches)
        self._at.batch += 1
        self._at.step += 1
        self._at.time_s += seconds
        self._at.point_s += seconds
        self._at.loss_sum += loss * samples
        self._at.samples += samples

    def _end_epoch(self) -> None:
        epoch = self._at.epoch
        self._at.epoch, self._at.batch = epoch + 1, 0
        with self._clock.stage("validate"), self._at_once():
            values = self._processes.agree(self._trainer.end_epoch(epoch))
        if values:
            self._point(values)
            self._is_given_up = self._gives_up()
            if not self._is_given_up:
                self._compare(values)

    def _compare(self, values: Mapping[str, float]) -> None:
        """Keep this state if it is the best so far."""
        selection = self._trainer.selection
        if selection is None:
            self._at.validation |= _of_validation(values)
        if selection is None or selection.metric not in values:
            return
        value, best = values[selection.metric], self._at.best_value
        is_better = best is None or (value < best if selection.smaller_is_better else value > best)
        if math.isnan(value) or not is_better:
            self._at.worse_epochs += 1
            return
        self._at.best_value, self._at.worse_epochs = value, 0
        self._at.validation = _of_validation(values)
        self._at.best_step, self._at.best_epoch = self._at.step, self._at.epoch
        self._save()

    def _is_over(self) -> bool:
        return self._is_given_up or self._out_of_patience() or self._at.epoch == self._most_epochs

    def _out_of_patience(self) -> bool:
        selection = self._trainer.selection
        return (
            selection is not None
            and selection.patience is not None
            and self._at.worse_epochs >= selection.patience
        )

    def _take_best(self) -> None:
        if self._at.best_step is None or self._at.best_step == self._at.step:
            return
        best = self._store.load(self._threads, step=self._at.best_step, instead_of=self._trainer.tables())
        if best is None:
            raise self._lost_checkpoint(self._at.best_step)
        self._take_up(best)

    def take_whole(self) -> None:
        """End in the state of the last checkpoint or the best, with the rows that several processes had."""
        step = self._at.step if self._at.best_step is None else self._at.best_step
        checkpoint = self._store.load(self._threads, step=step, whole=True)
        if checkpoint is None:
            raise self._lost_checkpoint(step)
        self._trainer.restore(checkpoint.dense, checkpoint.tables)

    def _lost_checkpoint(self, step: int) -> FormatError:
        return FormatError(
            f"the checkpoint of step {step}, in which {self._model} is to end, is gone",
            where=str(self._run_folder / "checkpoints" / self._model),
            hint="train again with --fresh",
        )

    def _take_up(self, checkpoint: Checkpoint) -> None:
        before = self._trainer.tables()
        self._trainer.restore(checkpoint.dense, checkpoint.tables)
        for table in before.values():
            discard_table(table)

    @property
    def _epochs(self) -> int:
        """Epochs that are trained at most."""
        every = self._trainer.epochs
        return every if self._most_epochs is None else min(every, self._most_epochs)

    # What others see

    def _point(self, values: Mapping[str, float]) -> None:
        """Write a point; with no figures given, of the loss since the last one."""
        if not values:
            if not self._at.samples:
                return
            values = {
                self._trainer.loss_name(self._at.epoch): self._at.loss_sum / self._at.samples,
                "samples_per_s": self._at.samples / max(self._at.point_s, 1e-9),
                **_hit_rates(self._trainer),
            }
            self._at.restart_point()
        self._values.update(values)
        self._log.add(self._at.step, self._at.epoch, self._at.time_s, values)
        self._at.points += 1
        for tracker in self._trackers:
            tracker.log(self._at.step, {f"{self._model}/{name}": value for name, value in values.items()})

    def _beat(self, stage: str) -> None:
        at = self._at
        self._heartbeat.beat(self._model, stage, epoch=at.epoch, batch=at.batch, step=at.step)

    def _show(self, batches: int) -> None:
        if time.monotonic() - self._progress_at < _PROGRESS_INTERVAL_S and self._at.batch < batches:
            return
        self._progress_at = time.monotonic()
        done = self._at.epoch + self._at.batch / batches
        self._progress(TrainProgress(self._model, done, self._epochs, self._at.step, dict(self._values)))

    # Stopping and failing

    def _interrupt(self) -> None:
        place = self._save()
        raise InterruptedRunError(
            f"training of {self._model} stopped on request in {self._trainer.epoch_in_words(self._at.epoch)}",
            where=str(place),
            hint="resume the run to go on from there",
        )

    def _fail(self, loss: float, batches: int) -> None:
        at = self._at
        where: dict[str, Any] = {"model": self._model, "epoch": at.epoch, "batch": at.batch, "step": at.step}
        folder = save_failed_batch(
            self._run_folder / "failed" / self._model, self._trainer, {**where, "loss": str(loss)}
        )
        last = self._store.last_step()
        before = (
            "no checkpoint was written before it"
            if last is None
            else f"the last checkpoint is from {counted(at.step - last, 'batch', 'batches')} before it"
        )
        place = f"{self._model}, epoch {at.epoch + 1}, batch {at.batch + 1} of {batches}"
        of_loss = self._trainer.loss_place()
        raise GraphboxError(
            f"expected a finite loss, received {loss}",
            where=f"{place}, {of_loss}" if of_loss else place,
            hint=f"lower the learning rates; {folder} has the batch and says what in it, or in the model, is "
            f"no finite number; {before}",
        )

    def _save(self) -> Path:
        """Write a checkpoint of this position, unless it was the last thing done; return its folder."""
        trainer, position = self._trainer, (self._at.step, self._at.epoch, self._at.finished)
        if self._saved is not None and self._saved[0] == position:
            return self._saved[1]
        started = time.monotonic()
        with self._clock.stage("checkpoint"):
            trainer.before_checkpoint()
            self._at.stage_seconds = self._clock.seconds()
            place = self._store.save(
                Checkpoint(self._at.step, vars(self._at).copy(), trainer.dense(), trainer.tables()),
                also_keep=self._at.best_step,
            )
            self._saved, self._saved_at = (position, place), time.monotonic()
            trainer.after_checkpoint()
        self._save_s = time.monotonic() - started
        return place

    def _interval_s(self) -> float:
        """Return the seconds after which the next checkpoint is due."""
        if not self._checkpoint_interval_s:
            return 0.0
        long_enough = self._save_s / _CHECKPOINT_SHARE
        return max(self._checkpoint_interval_s, min(long_enough, _LONGEST_INTERVAL_S))


def _of_validation(values: Mapping[str, float]) -> dict[str, float]:
    """Return figures of the validation part, by their names."""
    return {
        name: float(value)
        for name, value in values.items()
        if name.startswith("validation_") and math.isfinite(value)
    }


def _hit_rates(trainer: Trainer) -> dict[str, float]:
    """Return of each table with rows on SSD which share of the rows that were looked up was in memory."""
    rates = {}
    for name, table in trainer.tables().items():
        if table.path is None:
            continue
        tier = host_table(table, "figures of its rows on SSD").tier_statistics()
        if tier.hits + tier.misses:
            rates[f"{name}_hit_rate"] = tier.hits / (tier.hits + tier.misses)
    return rates
