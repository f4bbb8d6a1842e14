"""Distillation: a model learns what others of its run, trained before it, say of all nodes.

What it takes from them are the logits of teachers, and rows of another model that tell where a node is in the
graph. The loss is that of Hinton et al. (Distilling the Knowledge in a Neural Network, 2015, section 2); with
a student that reads no edges it is GLNN (Zhang et al., ICLR 2022, section 4), with rows of walks beside the
features the first part of NOSMOG (Tian et al., ICLR 2023, section 3).
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

from graphbox.config import DistillationSection, ModelSection, NetworkSection
from graphbox.errors import UsageError
from graphbox.metrics import accuracy
from graphbox.train.tasks import ClassifySplit, Fold, Split
from graphbox.train.trained import TrainedModel, load_trained
from graphbox.train.transfer import tensor_on

Logits = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EarlierModels:
    """What a model takes from models of its run that are trained already.

    Attributes:
        teachers: of each teacher float32 [nodes, classes], its logits.
        positions: float32 [nodes, width] by node type, rows of another model.
    """

    teachers: Sequence[Logits] = ()
    positions: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A text that differs where any of it does; empty where there is nothing."""
        arrays = [*self.teachers, *(self.positions[name] for name in sorted(self.positions))]
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
        UsageError: a teacher tells no classes, or the model that gives positions has no rows of the nodes.
        FormatError: a file of them is damaged.
    """
    if not isinstance(config, NetworkSection):
        return EarlierModels()
    teachers = [
        _logits(load_trained(run_folder, each), f"models.{name}.distil.teachers")
        for each in teachers_of(config)
    ]
    source = getattr(config, "positions", None)
    positions = {} if source is None else load_trained(run_folder, source).embeddings
    return EarlierModels(teachers, positions)


def teachers_of(config: ModelSection) -> tuple[str, ...]:
    """Return the names of a model's teachers; none where it learns without."""
    if not isinstance(config, NetworkSection) or config.distil is None:
        return ()
    return config.distil.teachers


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
    student: TrainedModel, teachers: Sequence[TrainedModel], split: Split, fold: Fold = "test"
) -> float:
    """Return the share of a fold's nodes that get one class from a student and from its teachers together.

    Args:
        student: the student.
        teachers: its teachers; what several say is averaged.
        split: the split of their task.
        fold: validation or test.

    Raises:
        UsageError: one of the models tells no classes, or the task has none.
    """
    if not isinstance(split, ClassifySplit):
        raise UsageError(f"expected a task of kind classify, received one of kind {split.KIND}")
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
