"""Evaluation of a trained model by the protocol of its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig, TaskConfig
from graphbox.config.tasks import TASK_KINDS
from graphbox.errors import DataError, UsageError
from graphbox.graph import Graph
from graphbox.memory import available_bytes
from graphbox.metrics import (
    UNWATCHED,
    Measure,
    ScoreBlock,
    Watch,
    evaluate_ranking,
)
from graphbox.train.baseline_costs import baselines_left_out
from graphbox.train.class_report import class_report
from graphbox.train.node_classifier import class_probabilities
from graphbox.train.recommendation.queries import in_degree, ranking_queries
from graphbox.train.scores import cosine_scores
from graphbox.train.splitting.groups import node_groups
from graphbox.train.tasks import ClassifySplit, Fold, RecommendSplit, Split
from graphbox.train.trained import TrainedModel
from graphbox.train.view import GraphView

Metrics = dict[str, float | int]


def evaluate_scores(
    graph: Graph,
    split: Split,
    task: TaskConfig,
    score: ScoreBlock,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Rank all candidates by ``score`` for every query of a recommend task's fold.

    Args:
        graph: the whole graph; only what is known when ``fold`` is predicted is used.
        split: the split of the task.
        task: the task's section of the run file.
        score: maps query nodes [b] to scores float32 [b, nodes].
        fold: validation or test.
        watch: receives the number of queries ranked, and may stop the measurement.

    Raises:
        UsageError: the task is not of kind recommend.
    """
    if not isinstance(split, RecommendSplit) or not isinstance(task, RecommendTaskConfig):
        raise UsageError(f"expected a task of kind recommend, received one of kind {task.kind}")
    view = GraphView(graph, split, fold)
    queries = ranking_queries(view, split, fold)
    groups = split.edges_by_relation(fold)
    degree = in_degree(view, split)
    return evaluate_ranking(score, queries, degree, k=task.k, positive_groups=groups, watch=watch)


def evaluate_embeddings(
    graph: Graph,
    split: Split,
    task: TaskConfig,
    embeddings: Mapping[str, NDArray[np.float32]],
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure frozen embeddings on a task: by a classifier, or by ranking with the cosine.

    The classifier is that of :func:`graphbox.train.node_classifier.class_probabilities`.

    Args:
        graph: the whole graph.
        split: the split of the task.
        task: the task's section of the run file.
        embeddings: float32 [nodes, dim] by node type, that of the task among them.
        fold: validation or test.
        watch: receives the progress of a ranking, and may stop it.

    Raises:
        UsageError: embeddings alone do not do such a task.
        DataError: there are none of the task's node type, they hold NaN or infinity, or are not one for each
            node.
    """
    if split.node_type not in embeddings:
        raise DataError(
            f"expected embeddings of {split.node_type}, received those of {', '.join(embeddings) or 'none'}",
            hint="let its walks or layers reach the node type of the task",
        )
    for node_type, vectors in embeddings.items():
        count = graph.num_nodes(node_type)
        if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
            raise DataError(
                f"expected finite embeddings float32 [{count}, dim], received {vectors.dtype} "
                f"{vectors.shape}{'' if np.isfinite(vectors).all() else ' with NaN or infinity'}",
                where=f"node type {node_type}",
            )
    if isinstance(split, RecommendSplit):
        score = cosine_scores(embeddings[split.node_type])
        return evaluate_scores(graph, split, task, score, fold, watch)
    if not isinstance(split, ClassifySplit) or not isinstance(task, ClassifyTaskConfig):
        raise UsageError(f"expected a task that embeddings alone do, received one of kind {split.KIND}")
    view = GraphView(graph, split, fold)
    group = node_groups(graph, task.node_type, task.group).of_nodes if task.neighbor_classes else None
    found = class_probabilities(
        view, split, embeddings, fold, neighbors=task.neighbors, neighbor_classes_by_group=group
    )
    return class_report(split, split.nodes(fold), found)


def evaluate_logits(split: Split, logits: NDArray[np.float32], fold: Fold = "test") -> Metrics:
    """Measure what a model that was trained for a classify task predicts itself.

    Args:
        split: the split of the task.
        logits: float32 [nodes of the task's node type, classes].
        fold: validation or test.

    Raises:
        UsageError: the task has no classes.
    """
    if not isinstance(split, ClassifySplit):
        raise UsageError(f"expected a task of kind classify, received one of kind {split.KIND}")
    nodes = split.nodes(fold)
    scores = logits[nodes]
    if split.has_several:
        scores = np.asarray(1.0 / (1.0 + np.exp(-scores.astype(np.float64))), np.float32)
    return class_report(split, nodes, scores)


def evaluate_class_probabilities(
    split: Split, probabilities: NDArray[np.float32], fold: Fold = "test"
) -> Metrics:
    """Measure the probabilities of classes that a model of a classify task gives itself.

    Args:
        split: the split of the task.
        probabilities: float32 [nodes of the task's node type, classes].
        fold: validation or test.

    Raises:
        UsageError: the task has no classes.
    """
    if not isinstance(split, ClassifySplit):
        raise UsageError(f"expected a task of kind classify, received one of kind {split.KIND}")
    return class_report(split, split.nodes(fold), probabilities[split.nodes(fold)])


def evaluate_trained(
    graph: Graph,
    split: Split,
    task: TaskConfig,
    trained: TrainedModel,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure a trained model on its task.

    Args:
        graph: the whole graph.
        split: the split of the task.
        task: the task's section of the run file.
        trained: the model.
        fold: validation or test.
        watch: receives the progress, and may stop the measurement.
    """
    return TASK_KINDS[task.kind].evaluate()(graph, split, task, trained, fold, watch)


def evaluate_baselines(
    graph: Graph, split: Split, task: TaskConfig, fold: Fold = "test", seed: int = 0
) -> dict[str, Metrics]:
    """Return the metrics of the task's baselines by name: ``{baseline: {metric: value}}``.

    Args:
        graph: the whole graph.
        split: the split of the task.
        task: the task's section of the run file.
        fold: validation or test.
        seed: draws the sample of queries where there are more than the task's ``baseline_queries``.

    Raises:
        UsageError: the split is one of another kind of task.
    """
    found = planned_baselines(graph, split, task, fold, seed)
    return {name: measure(UNWATCHED) for name, measure in found.measures.items()}


@dataclass(frozen=True)
class PlannedBaselines:
    """The baselines of a task.

    Attributes:
        measures: their measurements, which have yet to run, by name.
        left_out: why others do not run, by name.
    """

    measures: Mapping[str, Measure]
    left_out: Mapping[str, str]


def planned_baselines(
    graph: Graph, split: Split, task: TaskConfig, fold: Fold, seed: int
) -> PlannedBaselines:
    """Return the baselines of a task; see :func:`evaluate_baselines`.

    Without a list in the task those are left out that would take too long, or more than half of the memory
    that is available; see :mod:`graphbox.train.baseline_costs`.

    Raises:
        UsageError: the split is one of another kind of task.
    """
    if task.kind != split.KIND:
        raise UsageError(f"expected the split of this task, received one of another kind than {task.kind}")
    view = GraphView(graph, split, fold)
    measures = TASK_KINDS[task.kind].baseline_measures()(view, split, task, fold, seed)
    left_out = baselines_left_out(view, split, task, measures, fold, available_bytes() // 2)
    return PlannedBaselines(
        {name: measure for name, measure in measures.items() if name not in left_out}, left_out
    )


def evaluate_classes(
    graph: Graph, split: Split, task: TaskConfig, trained: TrainedModel, fold: Fold, watch: Watch
) -> Metrics:
    """Measure a model on a task of kind classify; see :func:`evaluate_trained`."""
    if trained.logits is not None:
        return evaluate_logits(split, trained.logits, fold)
    return evaluate_embeddings(graph, split, task, trained.embeddings, fold, watch)


def evaluate_ranked(
    graph: Graph, split: Split, task: TaskConfig, trained: TrainedModel, fold: Fold, watch: Watch
) -> Metrics:
    """Measure a model on a task of kind recommend; see :func:`evaluate_trained`."""
    return evaluate_scores(graph, split, task, trained.score, fold, watch)
