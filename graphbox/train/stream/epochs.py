"""Chunks as the training loop sees them: an epoch each, scored before its first batch, published after it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from graphbox.table import EmbeddingTable, Table, TablePublisher
from graphbox.table.host_table import host_table
from graphbox.table.publication import PublicationState
from graphbox.train.stage_clock import StageClock
from graphbox.train.stream.chunk import Chunk
from graphbox.train.stream.feed import ChunkFeed, WaitCallback
from graphbox.train.stream.progressive import RunningScores, chunk_figures
from graphbox.train.stream.trainer import StreamingTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Trainer
from graphbox.train.view import GraphView
from graphbox.workspace.chunk_log import ChunkLog

__all__ = ["STREAM_STATE", "ChunkEpochs"]

_LONGEST_SIGN = 300
STREAM_STATE, _SCORES = "stream.state", "stream.scores"


class ChunkEpochs(Trainer):
    """A trainer whose epochs are the chunks of a stream; see the module.

    What is on disk after each step, so that any death between two of them can be gone on from: the chunk in
    the graph; the tables' version, which no reader is told of yet; the checkpoint, which says that the chunk
    is learnt; the version told.

    Args:
        trainer: what learns.
        feed: where the chunks come from.
        publisher: writes the tables' versions for serving.
        log: gets a line for each chunk.
        clock: measures the stages.
        waiting: told what is waited for.
    """

    def __init__(
        self,
        trainer: StreamingTrainer,
        feed: ChunkFeed,
        publisher: TablePublisher,
        log: ChunkLog,
        *,
        clock: StageClock,
        waiting: WaitCallback,
    ) -> None:
        self._trainer = trainer
        self._feed = feed
        self._publisher = publisher
        self._log = log
        self._clock = clock
        self._waiting = waiting
        self._chunk: Chunk | None = None
        self._is_open = False
        self._batches = 0
        self._opened = time.monotonic()
        self._running = RunningScores.empty()
        self._figures: dict[str, float] = {}
        self._scored = self._learnt = -1
        self._name = ""

    # Chunks

    @property
    def is_endless(self) -> bool:
        """More chunks may come in a later attempt."""
        return True

    @property
    def epochs(self) -> int:
        """Number of chunks that are known to be there."""
        return self._learnt + 1 + self._is_open

    def has_epoch(self, epoch: int) -> bool:
        """Wait for a chunk; return whether it came."""
        if epoch == 0:
            self._log.rewind(0)  # of a training that left no checkpoint

        def tell(what: str) -> None:
            self._clock.on_change(f"wait for {what}"[:_LONGEST_SIGN])
            self._waiting(what)

        with self._clock.stage("wait"):
            if not self._feed.wait(epoch, tell):
                return False
        with self._clock.stage("fetch"):
            self._chunk = self._feed.chunk(epoch)
        return True

    def epoch_in_words(self, epoch: int) -> str:
        """Return the name of the chunk."""
        if self._chunk is not None and self._chunk.number == epoch:
            return f"chunk {self._chunk.name}"
        return f"the time after chunk {self._name}"

    def begin_epoch(self, epoch: int) -> int:
        """Score a chunk, unless that was done before a stop, and open it."""
        chunk = self._open_chunk()
        self._opened = time.monotonic()
        if self._scored < epoch:
            self._score(chunk)
        with self._clock.stage("sample"):
            self._batches = self._trainer.open_chunk(chunk)
        self._is_open = True
        return max(1, self._batches)  # so that each chunk is a step, and has a checkpoint of its own

    def _score(self, chunk: Chunk) -> None:
        with self._clock.stage("validate"):
            scores = self._trainer.score_chunk(chunk) if chunk.number else None
            self._figures = {}
            if scores is not None and len(scores.scores):
                self._running = self._running.with_scores(scores)
                self._figures = {**chunk_figures(scores), **self._running.figures()}
        self._scored = chunk.number

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch of the chunk."""
        return self._trainer.train_batch(epoch, batch) if self._batches else (0.0, 0)

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Close the chunk and write the tables' version after it."""
        chunk = self._open_chunk()
        values = dict(self._trainer.close_chunk(chunk))
        with self._clock.stage("checkpoint"):
            dropped = self._age_tables(epoch)
            parameters = self._trainer.served_parameters()
            written = self._publisher.write(epoch, self._rows(), parameters)
        self._is_open, self._learnt, self._name = False, epoch, chunk.name
        figures = {"rows": float(chunk.rows), **self._figures, **values, "published_bytes": float(written)}
        if dropped is not None:
            figures["dropped_rows"] = float(dropped)
        seconds = time.monotonic() - self._opened
        self._log.add({"number": epoch, "name": chunk.name, **figures, "seconds": round(seconds, 3)})
        return figures

    def _age_tables(self, epoch: int) -> int | None:
        """Tell the tables that a pass has ended; before a new base drop rows by their policies."""
        tables = self._trainer.tables().values()
        for table in tables:
            table.end_pass()
        if not self._publisher.begins_chain(epoch):
            return None
        return sum(report.dropped for report in [table.shrink() for table in tables])

    def close(self) -> None:
        """Let the trainer that learns let go of its threads."""
        self._trainer.close()

    def _open_chunk(self) -> Chunk:
        if self._chunk is None:
            raise RuntimeError("has_epoch comes first")
        return self._chunk

    def _rows(self) -> dict[str, EmbeddingTable]:
        """Return what keeps the rows of the model's tables."""
        return {
            name: host_table(table, "publishing after a chunk")
            for name, table in self._trainer.tables().items()
        }

    # Checkpoints

    def before_checkpoint(self) -> None:
        """In the midst of a chunk: write what has changed for serving so far."""
        if self._is_open and self._chunk is not None:
            self._publisher.write_part(self._chunk.number, self._rows())

    def after_checkpoint(self) -> None:
        """Tell readers of the version that belongs to the checkpoint."""
        if self._publisher.state.is_whole and self._learnt >= 0:
            self._publisher.publish(self._name, self._rows(), self._trainer.served_parameters())

    def dense(self) -> dict[str, Tensor]:
        """Return the model's parameters and where the stream is."""
        state = {
            "scored": self._scored,
            "learnt": self._learnt,
            "name": self._name,
            "figures": self._figures,
            "publication": astuple(self._publisher.state),
        }
        text = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
        own = {STREAM_STATE: from_numpy(text), _SCORES: self._running.tensor()}
        return {**self._trainer.dense(), **own}

    def tables(self) -> Mapping[str, Table]:
        """Return the model's tables."""
        return self._trainer.tables()

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:
        """Take up what :meth:`dense` and :meth:`tables` returned, and tell readers what they may not know."""
        self._trainer.restore(
            {name: value for name, value in dense.items() if name not in (STREAM_STATE, _SCORES)}, tables
        )
        state = json.loads(dense[STREAM_STATE].numpy().tobytes())
        self._scored, self._learnt, self._name = state["scored"], state["learnt"], state["name"]
        self._figures = state["figures"]
        self._running = RunningScores.of_tensor(dense[_SCORES])
        self._publisher.state = PublicationState(*state["publication"])
        self._publisher.resume(self._rows())
        self._log.rewind(self._learnt + 1)
        self.after_checkpoint()

    # The rest is the model's

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self._trainer.device

    def places(self) -> Mapping[str, str]:
        """Return where the rest is done."""
        return self._trainer.places()

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return what a batch is made of."""
        return self._trainer.batch_arrays(epoch, batch)

    def loss_name(self, epoch: int) -> str:
        """Return what the loss is called."""
        return self._trainer.loss_name(epoch)

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the model as it is after the last chunk."""
        return self._trainer.trained(name, view)
