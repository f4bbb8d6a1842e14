"""Baselines of the next event that train nothing: each reads the events that models learn from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import NextTaskConfig
from graphbox.metrics import Measure, ScoreBlock, Watch, evaluate_ranking
from graphbox.train.sequences.evaluation import item_counts, next_queries
from graphbox.train.tasks import Fold, NextSplit
from graphbox.train.view import GraphView


def popular(split: NextSplit, fold: Fold, items: int) -> ScoreBlock:
    """Score an item by how often it occurs."""
    counts = item_counts(split, fold, items).astype(np.float32)
    return lambda events: np.broadcast_to(counts, (len(events), items))


def markov(split: NextSplit, fold: Fold, items: int) -> ScoreBlock:
    """Score an item by how often it followed the last item of the history, then by how often it occurs.

    A Markov chain of the first order, as counted.
    """
    known = split.known(fold)
    is_last = np.zeros(len(known.values), bool)
    ends = known.offsets[1:][np.diff(known.offsets) > 0]
    is_last[ends - 1] = True
    before = np.flatnonzero(~is_last)
    ones = np.ones(len(before), np.float32)
    followed = sp.csr_array((ones, (known.values[before], known.values[before + 1])), shape=(items, items))
    counts = item_counts(split, fold, items).astype(np.float32)
    share = counts / (counts.max() + 1.0)
    return lambda events: followed[split.items[events - 1]].toarray() + share


def item_knn(split: NextSplit, fold: Fold, items: int) -> ScoreBlock:
    """Score an item by the sum of its cosines with the items of the history.

    An item is the vector of the nodes that have an event with it (Sarwar et al., WWW 2001); all items are
    neighbours.
    """
    known = split.known(fold)
    shape = (len(known.offsets) - 1, items)
    met = sp.csr_array((np.ones(len(known.values), np.float32), known.values, known.offsets), shape=shape)
    met.sum_duplicates()
    met.data[:] = 1.0
    norm = np.sqrt(np.maximum(np.bincount(met.indices, minlength=items), 1)).astype(np.float32)
    unit = sp.csr_array(met @ sp.diags_array(1.0 / norm)).astype(np.float32)
    transposed = sp.csr_array(unit.T)

    def score(events: NDArray[np.int64]) -> NDArray[np.float32]:
        history = split.histories(events)
        asked = sp.csr_array(
            (np.ones(len(history.values), np.float32), history.values, history.offsets),
            shape=(len(events), items),
        )
        return np.asarray(((asked @ transposed) @ unit).toarray(), np.float32)

    return score


NEXT_BASELINES: dict[str, Callable[[NextSplit, Fold, int], ScoreBlock]] = {
    "popular": popular,
    "markov": markov,
    "item_knn": item_knn,
}


def next_baselines(
    view: GraphView, split: NextSplit, task: NextTaskConfig, fold: Fold, seed: int
) -> dict[str, Measure]:
    """Return the measurements of the task's baselines on a fold, by name of the baseline.

    Args:
        view: the graph as it is known when ``fold`` is predicted.
        split: the split of the task.
        task: the task's section of the run file.
        fold: validation or test.
        seed: draws the sample of events where there are more than ``task.baseline_queries``.
    """
    items = view.num_nodes(split.target_type)
    every = next_queries(split, task, fold, view.removed_nodes(split.target_type))
    most = task.baseline_queries
    queries = every if most == "all" else every.sample(most, seed)
    counts = item_counts(split, fold, items)
    total = None if queries is every else len(every.queries)

    def measure(name: str, watch: Watch) -> dict[str, float | int]:
        score = NEXT_BASELINES[name](split, fold, items)
        return evaluate_ranking(score, queries, counts, k=task.k, watch=watch, sampled_from=total)

    names = NEXT_BASELINES if task.baselines is None else task.baselines
    return {name: partial(measure, name) for name in names}
