"""Splits the rows of a task of kind `click`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClickTaskConfig, GivenSplitConfig, RowTimeSplitConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.table.salt import salted_keys
from graphbox.train.click.labels import UNKNOWN, read_labels
from graphbox.train.splitting.parts import (
    IGNORED,
    TRAIN,
    VALIDATION,
    digest_of,
    fold_of,
    given_part,
    latest_parts,
    unit_hash,
)
from graphbox.train.tasks import FOLDS, ClickSplit

_BLOCK_ROWS = 1 << 16


def split_click(
    graph: Graph,
    task: ClickTaskConfig,
    seed: int,
    folder: Path | None = None,  # noqa: ARG001 - arrays are in memory
) -> ClickSplit:
    """Split the rows of the task; see :func:`graphbox.train.make_split`."""
    count = graph.num_nodes(task.node_type)
    specs = graph.features(task.node_type)
    labels = read_labels(task, specs, lambda name: graph.feature_rows(task.node_type, name, 0, count))
    known = labels[:, 0] != UNKNOWN
    known[graph.removed_nodes(task.node_type)] = False
    split = task.split
    if isinstance(split, GivenSplitConfig):
        fold = _given(graph, task, split, known, seed)
        hint = f"the feature `{split.feature}` says what is held out"
    elif isinstance(split, RowTimeSplitConfig):
        fold = _by_time(graph, task, split, known)
        hint = f"rows of one `{split.feature}` fall into one part: use larger fractions, or another split"
    else:
        fold = fold_of(_row_hash(graph, task.node_type, seed), task)
        hint = "use larger fractions"
    fold = np.where(known, fold, -1).astype(np.int8)
    for name, of_rows in zip(task.labels, labels.T, strict=True):
        _check_folds(of_rows, fold, f"node type {task.node_type}, label `{name}`", hint)
    positive, further = labels[:, 0] == 1, labels[:, 1:]
    # Without further labels that of releases that knew none: runs of theirs can be resumed and compared.
    text = task.model_dump_json(exclude=None if task.also else {"also"})
    return ClickSplit(
        node_type=task.node_type,
        label=task.label,
        split_feature=split.feature if isinstance(split, GivenSplitConfig) else None,
        labels=positive & known,
        fold=fold,
        also=task.labels[1:],
        further_labels=further if task.also else None,
        digest=digest_of(text, seed, positive, fold, further),
    )


def _check_folds(labels: NDArray[np.int8], fold: NDArray[np.int8], where: str, hint: str) -> None:
    """Check that each fold has rows of both kinds.

    Raises:
        DataError: one has not.
    """
    if not (labels == 1).any() or not (labels == 0).any():
        hint = "without rows of both kinds there is nothing to learn: look at the column"
    for position, name in enumerate(FOLDS):
        of_fold = labels[fold == position]
        positives, negatives = int(np.count_nonzero(of_fold == 1)), int(np.count_nonzero(of_fold == 0))
        if not positives or not negatives:
            raise DataError(
                f"expected positive and negative rows in each fold, received {positives:,} and "
                f"{negatives:,} in {name}",
                where=where,
                hint=hint,
            )


def _row_hash(graph: Graph, node_type: str, seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each row, by its id alone: float64 [n]."""
    count = graph.num_nodes(node_type)
    number = np.empty(count)
    is_numbered = graph.id_type(node_type) == "int64"
    for start in range(0, count, _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, count))
        ids = graph.ids(node_type, rows)
        if is_numbered:  # mixed twice, so that seeds give parts that have nothing to do with each other
            mixed = salted_keys(salted_keys(ids, f"rows {seed}"), "part").view(np.uint64)
            number[rows] = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
        else:
            number[rows] = unit_hash(seed, (f"node {name}" for name in ids.tolist()))
    return number


def _given(
    graph: Graph, task: ClickTaskConfig, given: GivenSplitConfig, known: NDArray[np.bool_], seed: int
) -> NDArray[np.int8]:
    """Return the part of each row as its feature says, -1 for none."""
    name = str(given.feature)
    part_of = given_part(graph.features(task.node_type).get(name), given, f"node type {task.node_type}")
    fold = part_of[np.asarray(graph.feature(task.node_type, name)).astype(np.int64)]
    if not ((fold == VALIDATION) & known).any():
        cut = _row_hash(graph, task.node_type, seed) < task.validation_fraction
        fold[(fold == TRAIN) & cut] = VALIDATION
    return np.where(fold == IGNORED, -1, fold).astype(np.int8)


def _by_time(
    graph: Graph, task: ClickTaskConfig, split: RowTimeSplitConfig, known: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Return the part of each row: the latest are for test, those before them for validation."""
    spec = graph.features(task.node_type).get(split.feature)
    where = f"node type {task.node_type}"
    if spec is None or spec.kind not in {"integer", "number"}:
        raise UsageError(
            f"expected an integer or number that says when a row came to be, received `{split.feature}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where=where,
            hint=f"write `{split.feature}: integer` under the `features` of that table",
        )
    time = np.asarray(graph.feature(task.node_type, split.feature))
    unknown = known & np.isnan(time) if spec.kind == "number" else np.zeros(len(time), bool)
    if unknown.any():
        raise DataError(
            f"expected a time in every row, received {int(unknown.sum()):,} rows without",
            where=f"{where}, feature `{split.feature}`",
            hint="leave those rows out, or take another split",
        )
    fold = np.full(len(time), IGNORED, np.int8)
    fold[known] = latest_parts(time[known], task)
    return fold
