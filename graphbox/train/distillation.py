"""Distillation: a model learns what others of its run, trained before it, say of all nodes.

Inputs from other models are the logits of teachers that classify, the vectors of teachers that rank, and rows
that tell where a node is in the graph. Students that rank are in
:mod:`graphbox.train.recommendation.distillation`; the loss of those that classify is that of Hinton et al.
(Distilling the Knowledge in a Neural Network, 2015, section 2). With a student that reads no edges it is GLNN
(Zhang et al., ICLR 2022, section 4), with rows of walks beside the features the first part of NOSMOG (Tian et
al., ICLR 2023, section 3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import DistillationSection, ModelSection, RecommendTaskConfig, TaskConfig
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.metrics import accuracy
from graphbox.metrics.blocks import UNWATCHED, Watch
from graphbox.train.recommendation.distillation import Vectors, list_agreement
from graphbox.train.recommendation.queries import ranking_queries
from graphbox.train.tasks import ClassifySplit, Fold, RecommendSplit, Split
from graphbox.train.trained import TrainedModel, load_trained
from graphbox.train.transfer import tensor_on
from graphbox.train.view import GraphView

Logits = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EarlierModels:
    """Outputs of trained models of the run that a model learns from.

    Attributes:
        teachers: logits of each teacher that classifies: float32 [nodes, classes].
        rankers: vectors of each teacher that ranks.
        positions: float32 [nodes, width] by node type, rows of another model.
    """

    teachers: Sequence[Logits] = ()
    rankers: Sequence[Vectors] = ()
    positions: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A text that differs where any of it does; empty where there is nothing."""
        of_rankers = (each for vectors in self.rankers for each in vectors)
        arrays = [*self.teachers, *of_rankers, *(self.positions[name] for name in sorted(self.positions))]
        if not arrays:
            return ""
        found = hashlib.sha256()
        for each in arrays:
            found.update(f"{each.shape}".encode())
            found.update(np.ascontiguousarray(each).data)
        return found.hexdigest()


def earlier_models(config: ModelSection, name: str, run_folder: Path) -> EarlierModels:
    """Return what a model takes from those before it, as they left it in the folder of the run.

    Args:
        config: the model's section of the run file.
        name: its name.
        run_folder: folder of the run.

    Raises:
        NotFoundError: one of them is not trained yet.
        UsageError: a teacher tells no classes, or does not rank by vectors where the student ranks; or the
            model that gives positions has no rows of the nodes.
        FormatError: a file of them is damaged.
    """
    where = f"models.{name}.distil.teachers"
    teachers = [load_trained(run_folder, each) for each in teachers_of(config)]
    if "recommend" in config.TEACHES:
        return EarlierModels(rankers=[_vectors(each, where) for each in teachers])
    source = getattr(config, "positions", None)
    positions = {} if source is None else load_trained(run_folder, source).embeddings
    return EarlierModels([_logits(each, where) for each in teachers], positions=positions)


def teachers_of(config: ModelSection) -> tuple[str, ...]:
    """Return the names of a model's teachers; none where it learns without."""
    section = getattr(config, "distil", None)
    return () if section is None else tuple(section.teachers)


class Distillation:
    """The loss of a student.

    Args:
        section: its teachers and how it learns from them.
        teachers: of each float32 [nodes, classes], its logits.
        split: of the task; gives the known classes.
        device: where the student computes.

    Raises:
        UsageError: a teacher tells other classes, or of other nodes.
    """

    def __init__(
        self,
        section: DistillationSection,
        teachers: Sequence[Logits],
        split: ClassifySplit,
        device: torch.device,
    ) -> None:
        shape = (len(split.labels), len(split.classes))
        for each, name in zip(teachers, section.teachers, strict=True):
            if each.shape != shape:
                raise UsageError(
                    f"expected a teacher with logits of {shape[0]} nodes and {shape[1]} classes, received "
                    f"`{name}` with {list(each.shape)}",
                    where="distil.teachers",
                )
        self._temperature = section.temperature
        self._label_weight = section.label_weight
        self._teachers = teachers
        self._device = device
        known = np.full(shape[0], -1, np.int64)
        train = split.nodes("train")
        known[train] = split.labels[train]
        self._known = tensor_on(known, device)
        self._nodes_by_known = shape[0] / max(1, len(train))

    def soft_classes(self, nodes: NDArray[np.int64]) -> Tensor:
        """Return the mean of what the teachers say of nodes: float32 [n, classes], probabilities."""
        said = [tensor_on(np.array(each[nodes]), self._device) for each in self._teachers]
        return torch.stack([torch.softmax(each / self._temperature, dim=1) for each in said]).mean(dim=0)

    def loss(self, logits: Tensor, nodes: Tensor) -> Tensor:
        """Return the mean loss of a batch.

        That is the Kullback-Leibler divergence of the student's classes from the teachers', both at the
        temperature, times its square, so that gradients have one scale at any; and with ``label_weight`` the
        cross-entropy of nodes with a known class, each counted so that all of them weigh as much as all
        nodes.

        Args:
            logits: float32 [n, classes] of the student.
            nodes: int64 [n].
        """
        soft = self.soft_classes(nodes.cpu().numpy())
        own = torch.log_softmax(logits / self._temperature, dim=1)
        divergence = functional.kl_div(own, soft, reduction="batchmean") * self._temperature**2
        if not self._label_weight:
            return divergence
        known = self._known[nodes]
        of_known = functional.cross_entropy(logits, known, ignore_index=-1, reduction="sum")
        by_label = of_known * self._nodes_by_known / len(nodes)
        return (1.0 - self._label_weight) * divergence + self._label_weight * by_label


def teacher_agreement(
    student: TrainedModel,
    teachers: Sequence[TrainedModel],
    graph: Graph,
    split: Split,
    task: TaskConfig,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> float:
    """Return how far a student and its teachers together agree on a fold.

    Of a task of kind classify it is the share of the nodes that get one class from both; of kind recommend
    the mean share of the teachers' first ``k`` candidates that are among the student's, see
    :func:`graphbox.train.recommendation.distillation.list_agreement`.

    Args:
        student: the student.
        teachers: its teachers; what several say is averaged.
        graph: the whole graph.
        split: the split of their task.
        task: the task.
        fold: validation or test.
        watch: may stop it.

    Raises:
        UsageError: the models do not do the task themselves, or nobody is taught such a task.
    """
    if isinstance(split, RecommendSplit) and isinstance(task, RecommendTaskConfig):
        queries = ranking_queries(GraphView(graph, split, fold), split, fold)
        said_first = [_vectors(each) for each in teachers]
        return list_agreement(_vectors(student), said_first, queries, task.k, watch)
    if not isinstance(split, ClassifySplit):
        raise UsageError(f"expected a task of kind classify or recommend, received one of kind {split.KIND}")
    nodes = split.nodes(fold)
    said = [torch.softmax(torch.from_numpy(_logits(each)[nodes]), dim=1) for each in teachers]
    together = torch.stack(said).mean(dim=0).argmax(dim=1).numpy()
    return accuracy(together, _logits(student)[nodes].argmax(axis=1).astype(np.int64))


def _logits(model: TrainedModel, where: str | None = None) -> Logits:
    if model.logits is None:
        raise UsageError(
            f"expected a model that tells classes itself, received `{model.name}`, whose vectors "
            "a classifier reads",
            where=where,
            hint="name a model of kind gnn, mlp or module",
        )
    return model.logits


def _vectors(model: TrainedModel, where: str | None = None) -> Vectors:
    if model.kind != "two_tower" or model.target is None:
        raise UsageError(
            f"expected a model that ranks by vectors of queries and candidates, received `{model.name}`",
            where=where,
            hint="name a model of kind lightgcn or matrix_factorization",
        )
    return model.embeddings[model.node_type], model.target
