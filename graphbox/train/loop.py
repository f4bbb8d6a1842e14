"""The training loop: epochs of batches, with points, checkpoints, and a stop that loses nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from graphbox.errors import GraphboxError, InterruptedRunError
from graphbox.table import EmbeddingTable
from graphbox.train.checkpoint import Checkpoint, CheckpointStore
from graphbox.train.metrics_log import MetricsLog
from graphbox.train.storage import write_atomically
from graphbox.train.trained import TrainedModel
from graphbox.train.view import GraphView

__all__ = ["CHECKPOINT_INTERVAL_S", "ProgressCallback", "StopCallback", "TrainProgress", "Trainer", "train"]

_POINTS_PER_EPOCH = 10
CHECKPOINT_INTERVAL_S = 20.0
_HEARTBEAT_INTERVAL_S = 1.0


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


ProgressCallback = Callable[[TrainProgress], None]
StopCallback = Callable[[], bool]


class Trainer(Protocol):
    """Trains one model, batch by batch.

    What a batch does depends on the state and on (epoch, batch) alone, never on how the process came there:
    so a training that goes on from a checkpoint ends like one that never stopped.
    """

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        ...

    def loss_name(self, epoch: int) -> str:
        """Return what the loss of an epoch is called among the figures."""
        ...

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of batches."""
        ...

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch; return its mean loss and the number of positives in it."""
        ...

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return figures to report after an epoch, such as a validation metric."""
        ...

    def dense(self) -> dict[str, Tensor]:
        """Return parameters and optimizer state by name."""
        ...

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding tables by name."""
        ...

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""
        ...

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return what was trained as the model ``name``; vectors come from the graph as ``view`` shows it."""
        ...


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

    def restart_point(self) -> None:
        self.loss_sum, self.samples, self.point_s = 0.0, 0, 0.0


def train(
    trainer: Trainer,
    *,
    model: str,
    run_folder: Path,
    settings: str,
    progress: ProgressCallback | None = None,
    stop: StopCallback | None = None,
    resume: bool = False,
    threads: int | None = None,
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
) -> None:
    """Train until the last epoch; a finished training that is resumed is over at once.

    Writes ``metrics.jsonl``, ``heartbeat.json`` and ``checkpoints/<model>/`` under ``run_folder``.

    Args:
        trainer: what to train.
        model: name of the model.
        run_folder: folder of the run.
        settings: digest of everything that must be the same when a training is resumed.
        progress: called with where the training is, at least once for each point.
        stop: asked after each batch whether to stop.
        resume: go on from the last checkpoint, if there is one; else start anew.
        threads: threads of restored embedding tables.
        checkpoint_interval_s: seconds between checkpoints.

    Raises:
        InterruptedRunError: ``stop`` asked to; a checkpoint was written.
        GraphboxError: the loss is no longer a finite number.
        FormatError: the checkpoint is damaged.
        ConflictError: the checkpoint was made with other settings.
    """
    store = CheckpointStore(run_folder / "checkpoints" / model, settings)
    loop = _Loop(
        trainer,
        model,
        store,
        run_folder,
        progress or (lambda _: None),
        stop or (lambda: False),
        checkpoint_interval_s,
    )
    checkpoint = store.load(threads) if resume else None
    if checkpoint is None:
        store.remove()
        loop.begin()
    else:
        loop.restore(checkpoint)
    loop.run()


class _Loop:
    def __init__(
        self,
        trainer: Trainer,
        model: str,
        store: CheckpointStore,
        run_folder: Path,
        progress: ProgressCallback,
        stop: StopCallback,
        checkpoint_interval_s: float,
    ) -> None:
        self._checkpoint_interval_s = checkpoint_interval_s
        self._trainer = trainer
        self._model = model
        self._store = store
        self._log = MetricsLog(run_folder / "metrics.jsonl", model)
        self._heartbeat_path = run_folder / "heartbeat.json"
        self._heartbeat_at = -math.inf
        self._progress = progress
        self._stop = stop
        self._at = _Position()
        self._values: dict[str, float] = {}

    def begin(self) -> None:
        self._log.rewind(-1)

    def restore(self, checkpoint: Checkpoint) -> None:
        self._trainer.restore(checkpoint.dense, checkpoint.tables)
        self._at = _Position(**checkpoint.state)
        self._log.rewind(self._at.step)

    def run(self) -> None:
        saved_at = time.monotonic()
        trained = self._at.epoch < self._trainer.epochs
        while self._at.epoch < self._trainer.epochs:
            batches = self._trainer.begin_epoch(self._at.epoch)
            per_point = max(1, math.ceil(batches / _POINTS_PER_EPOCH))
            while self._at.batch < batches:
                self._train_batch(batches)
                if self._at.batch % per_point == 0 or self._at.batch == batches:
                    self._point({})
                self._beat(batches)
                if self._stop():
                    place = self._save()
                    raise InterruptedRunError(
                        f"training of {self._model} stopped on request in epoch {self._at.epoch + 1} of "
                        f"{self._trainer.epochs}",
                        where=str(place),
                        hint="resume the run to go on from there",
                    )
                if time.monotonic() - saved_at > self._checkpoint_interval_s:
                    self._save()
                    saved_at = time.monotonic()
            self._end_epoch()
        if trained:
            self._save()

    def _train_batch(self, batches: int) -> None:
        started = time.monotonic()
        loss, samples = self._trainer.train_batch(self._at.epoch, self._at.batch)
        seconds = time.monotonic() - started
        if not math.isfinite(loss):
            raise GraphboxError(
                f"expected a finite loss, received {loss}",
                where=f"{self._model}, epoch {self._at.epoch + 1}, batch {self._at.batch + 1} of {batches}",
                hint="lower the learning rates; the last checkpoint is from before this batch",
            )
        self._at.batch += 1
        self._at.step += 1
        self._at.time_s += seconds
        self._at.point_s += seconds
        self._at.loss_sum += loss * samples
        self._at.samples += samples

    def _end_epoch(self) -> None:
        self._at.epoch, self._at.batch = self._at.epoch + 1, 0
        values = self._trainer.end_epoch(self._at.epoch - 1)
        if values:
            self._point(values)

    def _point(self, values: Mapping[str, float]) -> None:
        """Write a point; with no figures given, of the loss since the last one."""
        if not values:
            if not self._at.samples:
                return
            values = {
                self._trainer.loss_name(self._at.epoch): self._at.loss_sum / self._at.samples,
                "samples_per_s": self._at.samples / max(self._at.point_s, 1e-9),
            }
            self._at.restart_point()
        self._values.update(values)
        self._log.add(self._at.step, self._at.epoch, self._at.time_s, values)

    def _beat(self, batches: int) -> None:
        if time.monotonic() - self._heartbeat_at < _HEARTBEAT_INTERVAL_S and self._at.batch < batches:
            return
        self._heartbeat_at = time.monotonic()
        where: dict[str, Any] = {
            "model": self._model,
            "epoch": self._at.epoch,
            "batch": self._at.batch,
            "step": self._at.step,
            "time": time.time(),
        }
        with write_atomically(self._heartbeat_path) as stream:
            stream.write(json.dumps(where).encode())
        done = self._at.epoch + self._at.batch / batches
        self._progress(
            TrainProgress(self._model, done, self._trainer.epochs, self._at.step, dict(self._values))
        )

    def _save(self) -> Path:
        trainer = self._trainer
        return self._store.save(
            Checkpoint(self._at.step, vars(self._at).copy(), trainer.dense(), trainer.tables())
        )
