"""Trains one model of a run file from a stream."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from graphbox.config import ModelConfig, TaskConfig
from graphbox.durable import write_atomically
from graphbox.errors import NotFoundError
from graphbox.table import Expiry, TablePublisher
from graphbox.train.assignment import Assignment, make_streaming_trainer
from graphbox.train.computing import computing_on, summing_in_order
from graphbox.train.fit import torch_threads
from graphbox.train.loop import CHECKPOINT_INTERVAL_S, Outcome, ProgressCallback, StopCallback, train
from graphbox.train.memory import TrainingMemory
from graphbox.train.stream.epochs import ChunkEpochs
from graphbox.train.stream.feed import ChunkFeed, WaitCallback
from graphbox.train.tracking.trackers import Tracker
from graphbox.train.trained import save_trained
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView
from graphbox.workspace.chunk_log import ChunkLog


@dataclass(frozen=True)
class FollowedModel:
    """The model that learns from a stream.

    Attributes:
        name: of the model.
        config: its section of the run file.
        task: the section of its task, or None.
        seed: of every random choice.
        source: tells the stream from others.
        expiry: when rows of its tables leave, or None: never.
    """

    name: str
    config: ModelConfig
    task: TaskConfig | None
    seed: int
    source: str
    expiry: Expiry | None = None

    @property
    def settings(self) -> str:
        """Digest of everything that must be the same when the training goes on."""
        task = "" if self.task is None else self.task.model_dump_json()
        text = f"{self.config.model_dump_json()} {task} {self.seed} {self.source}"
        return hashlib.sha256(text.encode()).hexdigest()


def follow(
    feed: ChunkFeed,
    model: FollowedModel,
    publisher: TablePublisher,
    *,
    run_folder: Path,
    threads: int | None = None,
    device: torch.device = CPU,
    trackers: tuple[Tracker, ...] = (),
    progress: ProgressCallback | None = None,
    waiting: WaitCallback | None = None,
    stop: StopCallback | None = None,
    checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
) -> Outcome:
    """Score and learn the chunks of a stream until no more come; go on after those learnt before.

    Args:
        feed: where chunks come from.
        model: what learns.
        publisher: writes the tables' versions for serving; its state is that of the last checkpoint.
        run_folder: folder of the run; see :func:`graphbox.train.fit` for what is written, and
            :mod:`graphbox.workspace.chunk_log`.
        threads: threads for sampling, tables and torch; None: all CPUs of the process.
        device: where the model computes.
        trackers: get the figures of the training too.
        progress: called with where the training is.
        waiting: called while a chunk is waited for.
        stop: asked after each batch whether to stop.
        checkpoint_interval_s: seconds between checkpoints in the midst of a chunk.

    Raises:
        NotFoundError: no chunk came at all.
        UsageError: the model does not learn from streams, or it and the task or the graph do not fit.
        InterruptedRunError: ``stop`` asked to; a checkpoint was written.
        ConflictError: graph and checkpoint are of different streams.
        GraphboxError: the loss is no longer a finite number.
    """
    waiting = waiting or (lambda _: None)
    if not feed.graph().node_types:
        if not feed.wait(0, waiting):
            raise NotFoundError(
                "expected a chunk to begin with, received none",
                where=model.source,
                hint="a chunk is consumed when its marker is there, or a later one in a folder of files",
            )
        feed.chunk(0)
    memory = TrainingMemory(device=device)
    assignment = Assignment(
        model.name,
        GraphView(feed.graph(), None),
        None,
        model.task,
        model.seed,
        threads,
        expiry=model.expiry,
        memory=memory,
        device=device,
    )
    with torch_threads(threads), computing_on(device, model.name, model.config):
        trainer = ChunkEpochs(
            make_streaming_trainer(model.config, assignment),
            feed,
            publisher,
            ChunkLog(run_folder),
            clock=assignment.clock,
            waiting=waiting,
        )
        try:
            with summing_in_order(device, wanted=trainer.sums_in_order):
                outcome = train(
                    trainer,
                    model=model.name,
                    run_folder=run_folder,
                    settings=model.settings,
                    clock=assignment.clock,
                    trackers=trackers,
                    progress=progress,
                    stop=stop,
                    resume=True,
                    threads=threads,
                    checkpoint_interval_s=checkpoint_interval_s,
                )
            graph = feed.graph()
            save_trained(trainer.trained(model.name, GraphView(graph, None)), graph, run_folder)
        finally:
            trainer.close()
            memory.release()
    with write_atomically(run_folder / "trained" / model.name / "outcome.json") as stream:
        stream.write(json.dumps(asdict(outcome), indent=1).encode())
    return outcome
