"""Arguments of a model's training, and the trainer that its kind makes for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from graphbox.config import ModelSection, TaskConfig, model_kind, model_kinds
from graphbox.config.kinds import line_of_error
from graphbox.errors import BackendMissingError, GraphboxError, UsageError
from graphbox.table import Expiry
from graphbox.train.distillation import EarlierModels
from graphbox.train.memory import TrainingMemory, check_memory
from graphbox.train.processes import ALONE, TrainingProcesses, check_processes
from graphbox.train.stage_clock import StageClock
from graphbox.train.stream.trainer import StreamingTrainer
from graphbox.train.tasks import Split
from graphbox.train.trainer import Trainer
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView


@dataclass(frozen=True, eq=False)
class Assignment:
    """Arguments of a model's training.

    Attributes:
        name: name of the model in the run file.
        view: the graph as training may see it.
        split: the split of its task; None: it has no task, or learns from a stream.
        task: the section of its task, or None.
        seed: seed of every random choice.
        threads: threads of samplers and tables; None: all CPUs of the process. Those of torch are set
            elsewhere.
        clock: measures the stages of the training.
        expiry: when rows of a stream's tables leave, or None: never.
        memory: placement of graph and tables.
        device: device of the model; samples and rows come from there where they can.
        processes: processes that train it together.
        earlier: outputs of models of its run that are trained already.
    """

    name: str
    view: GraphView
    split: Split | None
    task: TaskConfig | None
    seed: int
    threads: int | None
    clock: StageClock = field(default_factory=StageClock)
    expiry: Expiry | None = None
    memory: TrainingMemory = field(default_factory=TrainingMemory)
    device: torch.device = CPU
    processes: TrainingProcesses = ALONE
    earlier: EarlierModels = field(default_factory=EarlierModels)

    @property
    def kernel_device(self) -> torch.device | None:
        """Where kernels train what the native core trains on the CPU; None: it does."""
        return None if self.device == CPU else self.device

    def wrong_task(self, config: ModelSection) -> UsageError:
        """Return the error that the task is none of the kinds that models like this one do."""
        task = self.task
        received = "none" if task is None else f"{config.task} of kind {task.kind}"
        return UsageError(
            f"expected a task of kind {', '.join(config.TASK_KINDS)} for a model of kind {config.kind}, "
            f"received {received}",
            where=f"models.{self.name}.task",
        )


def make_trainer(config: ModelSection, assignment: Assignment) -> Trainer:
    """Return the trainer of a model's section.

    Raises:
        UsageError: the model, its task, the graph and the budgets of memory do not fit together.
        BackendMissingError: its kind cannot be loaded.
    """
    check_memory(config, assignment.memory, assignment.name)
    check_processes(
        assignment.processes.size, config, assignment.task, assignment.name, assignment.memory.config
    )
    try:
        trainer = trainer_of(config.kind)(config, assignment)
    except UsageError as error:
        if error.where in type(config).model_fields:  # a key of the section alone
            error.where = f"models.{assignment.name}.{error.where}"
        raise
    if not isinstance(trainer, Trainer):
        raise _no_trainer(Trainer, trainer, config, assignment)
    return trainer


def trainer_of(kind: str) -> Callable[[Any, Assignment], Trainer]:
    """Import and return what makes the trainers of a kind of model.

    Raises:
        BackendMissingError: the kind or its trainer cannot be imported.
    """
    try:
        return model_kind(kind).trainer()
    except GraphboxError:
        raise
    except Exception as error:  # the code may be of another package: it can raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BackendMissingError(
            f"expected to import the trainer of the kind of model `{kind}`, received "
            f"{type(error).__name__}: {reason}",
            where=line_of_error(error),
            hint="install what it imports, or correct the module",
        ) from error


def make_streaming_trainer(config: ModelSection, assignment: Assignment) -> StreamingTrainer:
    """Return the trainer of a model's section that learns from a stream; the assignment has no split.

    Raises:
        UsageError: models of the kind do not learn from streams, or model, task and graph do not fit.
        BackendMissingError: its kind cannot be loaded.
    """
    make = model_kind(config.kind).streaming_trainer()
    if make is None:
        able = [name for name, kind in model_kinds().items() if kind.streams]
        raise UsageError(
            f"expected a kind of model that learns from streams, received `{config.kind}`, which learns from "
            "a whole graph",
            where=f"models.{assignment.name}.kind",
            hint=f"these do: {', '.join(sorted(able))}",
        )
    trainer = make(config, assignment)
    if not isinstance(trainer, StreamingTrainer):
        raise _no_trainer(StreamingTrainer, trainer, config, assignment)
    return trainer


def _no_trainer(expected: type, made: object, config: ModelSection, assignment: Assignment) -> UsageError:
    """Return the error that a kind made something else than a trainer."""
    return UsageError(
        f"expected the kind {config.kind} to make a {expected.__module__}.{expected.__name__}, received "
        f"{type(made).__name__}",
        where=f"models.{assignment.name}",
        hint=f"derive its class from {expected.__name__}",
    )
