"""Splits the nodes of a task of kind `classify`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig, GivenSplitConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import edge_type_text
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
    found = _several_classes(graph, task) if task.has_several else _one_class(graph, task)
    labels = found.labels
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
                f"expected nodes with a `{found.name}` in each fold, received none in {name}",
                where=f"node type {task.node_type}",
                hint=hint,
            )
    return ClassifySplit(
        node_type=task.node_type,
        label=found.name,
        split_feature=task.split.feature if isinstance(task.split, GivenSplitConfig) else None,
        classes=found.classes,
        labels=labels,
        fold=fold,
        digest=digest_of(
            task.model_dump_json(),
            seed,
            labels,
            fold,
            *((found.offsets, found.numbers) if task.has_several else ()),
        ),
        class_offsets=found.offsets,
        class_numbers=found.numbers,
        memberships=None if task.memberships is None else edge_type_text(task.memberships),
    )


@dataclass(frozen=True, eq=False)
class _Classes:
    """The classes of nodes, see :class:`graphbox.train.tasks.ClassifySplit`."""

    name: str
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def _several_classes(graph: Graph, task: ClassifyTaskConfig) -> _Classes:
    """Return the classes of nodes that can have several: values of slots, or nodes that edges lead to."""
    count = graph.num_nodes(task.node_type)
    if task.memberships is not None:
        source, target = graph.csc(task.memberships).coo()
        reached, number = np.unique(target, return_inverse=True)
        names = tuple(map(str, graph.ids(task.memberships[2], reached).tolist()))
        name = edge_type_text(task.memberships)
    else:
        name = str(task.labels)
        spec = graph.features(task.node_type).get(name)
        if spec is None or spec.kind != "slots":
            raise UsageError(
                f"expected a feature of {task.node_type} of kind slots, received `{name}`"
                f"{'' if spec is None else f' ({spec.kind})'}",
                where="labels",
                hint="a column with one class is named under `label`",
            )
        offsets, values = graph.slot_lists(task.node_type, name)
        source = np.repeat(np.arange(count), np.diff(offsets))
        found, number = np.unique(values, return_inverse=True)
        names = tuple(map(str, found.tolist()))
    pairs = np.unique(np.stack([source, number], axis=1), axis=0)
    offsets = np.searchsorted(pairs[:, 0], np.arange(count + 1))
    labels = np.full(count, -1, np.int64)
    has_some = np.diff(offsets) > 0
    labels[has_some] = pairs[offsets[:-1][has_some], 1]
    return _Classes(name, names, labels, offsets.astype(np.int64), pairs[:, 1].copy())


def _one_class(graph: Graph, task: ClassifyTaskConfig) -> _Classes:
    """Return the classes of nodes that have one, -1 where it is unknown."""
    name = str(task.label)
    spec = graph.features(task.node_type).get(name)
    if spec is None or spec.kind not in ("categorical", "integer"):
        raise UsageError(
            f"expected a categorical or integer feature of {task.node_type} as label, received `{name}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where="label",
            hint="a list of classes is named under `labels`"
            if spec is not None and spec.kind == "slots"
            else None,
        )
    values = np.asarray(graph.feature(task.node_type, name)).astype(np.int64)
    if spec.categories is not None:
        return _Classes(name, tuple(spec.categories), values)
    numbers = np.unique(values[values >= 0])
    labels = np.where(values < 0, -1, np.searchsorted(numbers, values)).astype(np.int64)
    return _Classes(name, tuple(map(str, numbers.tolist())), labels)


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
