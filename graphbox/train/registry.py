"""Which trainer a kind of model has: the one place where kinds of models are listed.

A trainer is made by a function ``(section, assignment) -> Trainer``, named by its import path and imported
when a model of its kind is trained. A user's own comes the same way, from a section of kind ``custom``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from graphbox.config import ClickModelSection, CustomConfig, ModelConfig, TaskConfig
from graphbox.errors import UsageError
from graphbox.table import Expiry
from graphbox.train.import_path import import_by_path
from graphbox.train.memory import TrainingMemory, check_memory
from graphbox.train.processes import ALONE, TrainingProcesses, check_processes
from graphbox.train.stage_clock import StageClock
from graphbox.train.stream.trainer import StreamingTrainer
from graphbox.train.tasks import Split
from graphbox.train.trainer import Trainer
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView

__all__ = [
    "STREAMING_TRAINERS",
    "TRAINERS",
    "Assignment",
    "make_streaming_trainer",
    "make_trainer",
]

TRAINERS: Mapping[str, str] = {
    "complex": "graphbox.train.completion.trainer:make_completion_trainer",
    "distmult": "graphbox.train.completion.trainer:make_completion_trainer",
    "rotate": "graphbox.train.completion.trainer:make_completion_trainer",
    "transe": "graphbox.train.completion.trainer:make_completion_trainer",
    "custom": "graphbox.train.registry:make_custom_trainer",
    "dcn": "graphbox.train.click.trainer:make_click_trainer",
    "deepfm": "graphbox.train.click.trainer:make_click_trainer",
    "wide_and_deep": "graphbox.train.click.trainer:make_click_trainer",
    "lightgcn": "graphbox.train.recommendation.trainer:make_recommendation_trainer",
    "matrix_factorization": "graphbox.train.recommendation.trainer:make_recommendation_trainer",
    "deepwalk": "graphbox.train.walks.skip_gram:make_deepwalk_trainer",
    "line": "graphbox.train.walks.line:make_line_trainer",
    "gnn": "graphbox.train.network.classify:make_graph_network_trainer",
    "metapath2vec": "graphbox.train.walks.skip_gram:make_skip_gram_trainer",
    "node2vec": "graphbox.train.walks.skip_gram:make_deepwalk_trainer",
    "sage": "graphbox.train.recommendation.sage:make_sage_trainer",
    "temporal": "graphbox.train.temporal.trainer:make_temporal_trainer",
}
"""Import path of the function that makes the trainer, by kind of model."""

STREAMING_TRAINERS: Mapping[str, str] = {
    "dcn": "graphbox.train.click.trainer:make_click_trainer",
    "deepfm": "graphbox.train.click.trainer:make_click_trainer",
    "wide_and_deep": "graphbox.train.click.trainer:make_click_trainer",
    "custom": "graphbox.train.registry:make_custom_trainer",
    "deepwalk": "graphbox.train.stream.walks:make_streaming_walks",
    "matrix_factorization": "graphbox.train.stream.factorization:make_streaming_factorization",
    "node2vec": "graphbox.train.stream.walks:make_streaming_walks",
    "temporal": "graphbox.train.temporal.trainer:make_temporal_trainer",
}
"""The same of the kinds that learn from streams: what is made is a ``StreamingTrainer``."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """What a model is trained for.

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
        memory: where graph and tables are kept.
        device: where the model computes; samples and rows come from there where they can.
        processes: which train it together.
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

    @property
    def kernel_device(self) -> torch.device | None:
        """Where kernels train what the native core trains on the CPU; None: it does."""
        return None if self.device == CPU else self.device

    def wrong_task(self, config: ModelConfig | ClickModelSection) -> UsageError:
        """Return the error that the task is none of the kinds that models like this one do."""
        task = self.task
        received = "none" if task is None else f"{config.task} of kind {task.kind}"
        return UsageError(
            f"expected a task of kind {', '.join(config.TASK_KINDS)} for a model of kind {config.kind}, "
            f"received {received}",
            where=f"models.{self.name}.task",
        )


def make_trainer(config: ModelConfig, assignment: Assignment) -> Trainer:
    """Return the trainer of a model's section.

    Raises:
        UsageError: the model, its task, the graph and the budgets of memory do not fit together.
    """
    check_memory(config, assignment.memory, assignment.name)
    check_processes(
        assignment.processes.size, config, assignment.task, assignment.name, assignment.memory.config
    )
    make = import_by_path(TRAINERS[config.kind], f"the trainer of models of kind {config.kind}")
    try:
        trainer: Trainer = make(config, assignment)
    except UsageError as error:
        if error.where in type(config).model_fields:  # a key of the section alone
            error.where = f"models.{assignment.name}.{error.where}"
        raise
    return trainer


def make_streaming_trainer(config: ModelConfig, assignment: Assignment) -> StreamingTrainer:
    """Return the trainer of a model's section that learns from a stream; the assignment has no split.

    Raises:
        UsageError: models of the kind do not learn from streams, or model, task and graph do not fit.
    """
    if config.kind not in STREAMING_TRAINERS:
        raise UsageError(
            f"expected a kind of model that learns from streams, received `{config.kind}`, which learns from "
            "a whole graph",
            where=f"models.{assignment.name}.kind",
            hint=f"these do: {', '.join(sorted(STREAMING_TRAINERS))}",
        )
    make = import_by_path(STREAMING_TRAINERS[config.kind], f"the streaming trainer of kind {config.kind}")
    trainer = make(config, assignment)
    if not isinstance(trainer, StreamingTrainer):
        raise UsageError(
            f"expected a graphbox.train.stream.StreamingTrainer, received {type(trainer).__name__}",
            where=f"models.{assignment.name}",
            hint="a trainer that learns from streams is derived from it",
        )
    return trainer


def make_custom_trainer(config: CustomConfig, assignment: Assignment) -> Trainer:
    """Return the trainer of a section of kind ``custom``: what the user's own code makes.

    Raises:
        UsageError: there is no such code, or it makes no trainer.
    """
    where = f"models.{assignment.name}.trainer"
    made = import_by_path(config.trainer, where)(config, assignment)
    if not isinstance(made, Trainer):
        raise UsageError(
            f"expected a graphbox.train.Trainer, received {type(made).__name__}",
            where=where,
            hint=f"`{config.trainer}` has to return an object of a class derived from Trainer",
        )
    return made
