"""Evaluation of predicted clicks: of a model, the prior, and a logistic regression on the same features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from graphbox.config import ClickTaskConfig, ModelSection, kinds_that
from graphbox.errors import UsageError
from graphbox.fields import Rows, take_rows
from graphbox.graph import Graph
from graphbox.metrics import UNWATCHED, Measure, Watch
from graphbox.models.click_fields import ClickFields, FieldBatch, choose_fields
from graphbox.train.click.labels import labels_report
from graphbox.train.click.rows import LogRows
from graphbox.train.click.trainer import row_groups, unread_features
from graphbox.train.tasks import ClickSplit, Fold
from graphbox.train.trained import TrainedModel
from graphbox.train.view import GraphView

_HASHED_COLUMNS = 1 << 18
_MOST_ROWS = 1 << 18
_MOST_ITERATIONS = 300
_TOLERANCE = 1e-3

Metrics = dict[str, float | int]


def evaluate_click(
    graph: Graph,
    split: ClickSplit,
    task: ClickTaskConfig,
    trained: TrainedModel,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure the probabilities that a model gives the rows of a fold.

    Raises:
        UsageError: the model predicts no clicks.
    """
    if trained.click is None:
        raise UsageError(
            f"expected a model that predicts clicks, received one of kind {trained.kind}",
            where=f"models.{trained.name}",
            hint=f"models of kind {', '.join(kinds_that(_predicts_clicks))} do",
        )
    fields, predict = trained.click.fields, trained.click.predict_rows
    return evaluate_probabilities(graph, split, task, fields, predict, fold, watch)


def _predicts_clicks(section: type[ModelSection]) -> bool:
    return "click" in section.TASK_KINDS


def evaluate_probabilities(
    graph: Graph,
    split: ClickSplit,
    task: ClickTaskConfig,
    fields: ClickFields,
    predict: Callable[[Rows], NDArray[np.float32]],
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure the probabilities that ``predict`` gives the rows of a fold, by label.

    Args:
        graph: the whole graph.
        split: the split of the task.
        task: the task's section of the run file.
        fields: what is read of a row.
        predict: returns the probabilities of each prepared row, float32 [rows, labels]: of the first label of
            the task, or of all.
        fold: validation or test.
        watch: receives the number of rows predicted, and may stop the measurement.
    """
    view = GraphView(graph, split, fold)
    log = LogRows(view, split.node_type, fields, split.is_in(fold), split.all_labels())
    parts, done = [], 0
    for rows, _ in log.windows():
        watch.check()
        parts.append(predict(rows))
        done += len(parts[-1])
        watch.step(done, len(log))
    return _report(view, split, task, fold, np.concatenate(parts))


def click_baselines(
    view: GraphView,
    split: ClickSplit,
    task: ClickTaskConfig,
    fold: Fold,
    seed: int,  # noqa: ARG001 - the interface of baselines
) -> dict[str, Measure]:
    """Return the measurements of the task's baselines by name; each learns from the folds before ``fold``.

    They predict each label by itself.
    """
    learnt: tuple[Fold, ...] = ("train", "validation") if fold == "test" else ("train",)
    baselines: Mapping[str, Callable[[LogRows, LogRows], NDArray[np.float32]]] = {
        "prior": _prior,
        "logistic_regression": _logistic_regression,
    }
    specs = view.features(task.node_type)
    fields = ClickFields(choose_fields(specs, None, unread_features(task), f"node type {task.node_type}"))
    labels = split.all_labels()
    known, asked = (
        LogRows(view, task.node_type, fields, split.is_in(*folds), labels) for folds in (learnt, (fold,))
    )

    def measure(name: str, _: Watch) -> Metrics:
        of_labels = [baselines[name](known.with_label(number), asked) for number in range(len(task.labels))]
        return _report(view, split, task, fold, np.stack(of_labels, axis=1))

    return {name: partial(measure, name) for name in task.baselines}


def _report(
    view: GraphView, split: ClickSplit, task: ClickTaskConfig, fold: Fold, probabilities: NDArray[np.float32]
) -> Metrics:
    chosen = split.is_in(fold)
    names = task.labels[: probabilities.shape[1]]
    return labels_report(names, split.all_labels()[chosen], probabilities, row_groups(view, task, chosen))


def _prior(known: LogRows, asked: LogRows) -> NDArray[np.float32]:
    """Return the share of positives, for every row."""
    return np.full(len(asked), known.chosen_labels().mean(), np.float32)


def _logistic_regression(known: LogRows, asked: LogRows) -> NDArray[np.float32]:
    """Return the probabilities of a logistic regression of the first label, with an L2 penalty of strength 1.

    It reads the fields that models read: a column for each key, by a hash of 18 bits, and the standardized
    numbers. It learns from about 262,144 rows at most, evenly spaced among the positive ones and among the
    others: so it meets both, however few there are of one.
    """
    scale = known.fields.scale_of(known.windows(), len(known))
    step = -(-len(known) // _MOST_ROWS)
    parts, labels = [], []
    done = np.zeros(2, np.int64)
    for rows, given in known.windows():
        positive = given[:, 0] == 1
        of_kind = [np.flatnonzero(positive == kind) for kind in (False, True)]
        index = np.sort(
            np.concatenate([each[-n % step :: step] for each, n in zip(of_kind, done, strict=True)])
        )
        done += [len(each) for each in of_kind]
        if len(index):
            parts.append(_columns(known.fields.batch(take_rows(rows, index), scale)))
            labels.append(positive[index])
    from sklearn.linear_model import LogisticRegression  # here, as trainings load this module

    model = LogisticRegression(C=1.0, tol=_TOLERANCE, max_iter=_MOST_ITERATIONS)
    model.fit(scipy.sparse.vstack(parts), np.concatenate(labels))
    found = [
        model.predict_proba(_columns(asked.fields.batch(rows, scale)))[:, 1] for rows, _ in asked.windows()
    ]
    return np.concatenate([np.zeros(0), *found]).astype(np.float32)


def _columns(batch: FieldBatch) -> scipy.sparse.csr_matrix:
    """Return the fields of rows as columns: [rows, hashed columns and numbers]."""
    count = len(batch)
    bag = np.arange(len(batch.offsets) - 1).repeat(np.diff(batch.offsets.numpy()))
    column = (batch.keys.numpy().view(np.uint64) % np.uint64(_HASHED_COLUMNS)).astype(np.int64)
    hashed = scipy.sparse.csr_matrix((batch.weights.numpy(), (bag % count, column)), (count, _HASHED_COLUMNS))
    return scipy.sparse.hstack([hashed, scipy.sparse.csr_matrix(batch.numbers.numpy())], format="csr")
