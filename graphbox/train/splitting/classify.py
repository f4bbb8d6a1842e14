"""Splits the nodes of a task of kind `classify`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig, GivenSplitConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.train.splitting.groups import node_groups
from graphbox.train.splitting.parts import (
    IGNORED,
    TRAIN,
    VALIDATION,
    digest_of,
    fold_of,
    given_part,
    unit_hash,
)
from graphbox.train.tasks import FOLDS, ClassifySplit


def split_classify(
    graph: Graph,
    task: ClassifyTaskConfig,
    seed: int,
    folder: Path | None = None,  # noqa: ARG001 - arrays are in memory
) -> ClassifySplit:
    """Split the nodes of the task; see :func:`graphbox.train.make_split`."""
    classes, labels = _classes(graph, task)
    if isinstance(task.split, GivenSplitConfig):
        fold = _given_nodes(graph, task, task.split, labels, seed)
        hint = f"the feature `{task.split.feature}` says what is held out"
    else:
        groups = node_groups(graph, task.node_type, task.group)
        texts = groups.texts(np.arange(groups.count))
        fold = fold_of(unit_hash(seed, texts), task)[groups.of_nodes]
        hint = "a group is never split: use more groups, or larger fractions"
    fold = np.where(labels < 0, -1, fold).astype(np.int8)
    if not (labels >= 0).any():
        hint = "no node has one at all: look at the column"
    for position, name in enumerate(FOLDS):
        if not (fold == position).any():
            raise DataError(
                f"expected nodes with a `{task.label}` in each fold, received none in {name}",
                where=f"node type {task.node_type}",
                hint=hint,
            )
    return ClassifySplit(
        node_type=task.node_type,
        label=task.label,
        split_feature=task.split.feature if isinstance(task.split, GivenSplitConfig) else None,
        classes=classes,
        labels=labels,
        fold=fold,
        digest=digest_of(task.model_dump_json(), seed, labels, fold),
    )


def _classes(graph: Graph, task: ClassifyTaskConfig) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names of the classes, and the class of each node, -1 where it is unknown."""
    spec = graph.features(task.node_type).get(task.label)
    if spec is None or spec.kind not in ("categorical", "integer"):
        raise UsageError(
            f"expected a categorical or integer feature of {task.node_type} as label, received `{task.label}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where="label",
        )
    values = np.asarray(graph.feature(task.node_type, task.label)).astype(np.int64)
    if spec.categories is not None:
        return tuple(spec.categories), values
    numbers = np.unique(values[values >= 0])
    labels = np.where(values < 0, -1, np.searchsorted(numbers, values)).astype(np.int64)
    return tuple(map(str, numbers.tolist())), labels


def _given_nodes(
    graph: Graph, task: ClassifyTaskConfig, given: GivenSplitConfig, labels: NDArray[np.int64], seed: int
) -> NDArray[np.int8]:
    """Return the part of each node as its feature says, -1 for none."""
    spec = graph.features(task.node_type).get(str(given.feature))
    part_of = given_part(spec, given, f"node type {task.node_type}")
    fold = part_of[np.asarray(graph.feature(task.node_type, str(given.feature))).astype(np.int64)]
    if not (fold == VALIDATION).any():
        trained = np.flatnonzero((fold == TRAIN) & (labels >= 0))
        texts = [f"node {name}" for name in graph.ids(task.node_type, trained).tolist()]
        fold[trained[unit_hash(seed, texts) < task.validation_fraction]] = VALIDATION
    return np.where(fold == IGNORED, -1, fold).astype(np.int8)
