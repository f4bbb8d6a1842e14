"""Evaluation of next items: all items are ranked for each held-out event, by its history."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.config import NextTaskConfig
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.metrics import UNWATCHED, RankingQueries, ScoreBlock, Watch, evaluate_ranking
from graphbox.train.compressed import CompressedRows
from graphbox.train.scores import largest_products
from graphbox.train.tasks import Fold, NextSplit, Split
from graphbox.train.trained import TrainedModel


def next_queries(
    split: NextSplit, task: NextTaskConfig, fold: Fold, excluded: NDArray[np.int64]
) -> RankingQueries:
    """Return the events to predict in a fold as queries, by their numbers; each has one item to find.

    Args:
        split: the split of the task.
        task: the task; without ``repeat`` items of a history are no candidates of its event.
        fold: validation or test.
        excluded: int64, items that are candidates of no event, such as removed ones.
    """
    events = split.tested(fold)
    histories = split.histories(events)
    if task.repeat:
        histories = CompressedRows(np.zeros_like(histories.offsets), histories.values[:0])
    return RankingQueries(
        queries=events,
        positive_indptr=np.arange(len(events) + 1),
        positives=split.items[events],
        masked_indptr=histories.offsets,
        masked=histories.values,
        excluded=excluded,
    )


def item_counts(split: NextSplit, fold: Fold, items: int) -> NDArray[np.int64]:
    """Return how often each item occurs among the events that are known when ``fold`` is predicted."""
    return np.bincount(split.known(fold).values, minlength=items).astype(np.int64)


def rank_events(
    graph: Graph,
    split: NextSplit,
    task: NextTaskConfig,
    score: ScoreBlock,
    fold: Fold,
    watch: Watch = UNWATCHED,
) -> dict[str, float | int]:
    """Rank all items by ``score`` for every event to predict in a fold.

    Args:
        graph: the whole graph.
        split: the split of the task.
        task: the task's section of the run file.
        score: maps numbers of events [b] to scores float32 [b, items].
        fold: validation or test.
        watch: receives the number of events ranked, and may stop the measurement.
    """
    queries = next_queries(split, task, fold, graph.removed_nodes(split.target_type))
    counts = item_counts(split, fold, graph.num_nodes(split.target_type))
    return evaluate_ranking(score, queries, counts, k=task.k, watch=watch)


def scores_of(
    vectors: NDArray[np.float32], events: NDArray[np.int64], items: NDArray[np.float32]
) -> ScoreBlock:
    """Return the function that scores items for events by the inner product, the largest of several vectors.

    Args:
        vectors: float32 [events, n * dim], n vectors for each of ``events``.
        events: int64 [events], ascending.
        items: float32 [items, dim].
    """
    return lambda asked: largest_products(vectors[np.searchsorted(events, asked)], items)


def evaluate_next(
    graph: Graph, split: Split, task: NextTaskConfig, trained: TrainedModel, fold: Fold, watch: Watch
) -> dict[str, float | int]:
    """Measure a model on a task of kind next; see :func:`graphbox.train.evaluate.evaluate_trained`.

    Raises:
        UsageError: the model does not encode histories, or the split is one of another kind of task.
    """
    if not isinstance(split, NextSplit) or trained.sequence is None or trained.target is None:
        raise UsageError(
            f"expected a model of sequences for a task of kind next, received `{trained.name}` of kind "
            f"{trained.kind}"
        )
    events = split.tested(fold)
    items = np.asarray(trained.target)
    vectors = trained.sequence.encode(items, split.histories(events))
    return rank_events(graph, split, task, scores_of(vectors, events, items), fold, watch)
