"""Scores of pairs without training: how popular their ends are, what they share, whether they met before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import PredictLinksTaskConfig
from graphbox.errors import UsageError
from graphbox.metrics import Measure, Watch, link_report
from graphbox.train.splitting.predict_links import known_targets
from graphbox.train.tasks import Fold, LinkSplit
from graphbox.train.view import GraphView

_MOST_STEPS = 2_000_000_000
"""Paths of length two or three that are counted without being asked for; about ten seconds."""
_BLOCK = 128

Scores = tuple[NDArray[np.floating], NDArray[np.floating]]
"""Scores of a fold's edges and of its negatives."""


def popularity(split: LinkSplit, fold: Fold, batch: int) -> Scores:  # noqa: ARG001 - as all baselines
    """Score a pair by the product of the degrees of its ends among the distinct known edges."""
    known = split.known(fold)
    left = np.bincount(known[:, 0], minlength=split.sources) + 1.0
    right = np.bincount(known[:, 1], minlength=split.targets) + 1.0
    if split.within_one_type:
        left = right = left + right - 1.0
    return _of_both(split, fold, lambda pairs: left[pairs[:, 0]] * right[pairs[:, 1]])


def adamic_adar(split: LinkSplit, fold: Fold, batch: int) -> Scores:  # noqa: ARG001 - as all baselines
    """Score a pair by the known paths that join it, a node on the way counting 1 / log(degree).

    Within one type the paths have length two: shared neighbours (Adamic and Adar, "Friends and neighbors on
    the web", 2003). Between two types none has, so that they have length three: a target counts whose sources
    share targets with the source.
    """
    linked = _known_links(split, fold)
    if split.within_one_type:
        first = sp.csr_array(linked * _inverse_log_degree(linked, 0)[None, :])
        return _of_both(split, fold, lambda pairs: _paths(first, linked, pairs))
    first = sp.csr_array(linked * _inverse_log_degree(linked, 0)[None, :])
    back = sp.csr_array(linked.T * _inverse_log_degree(linked, 1)[None, :])
    return _of_both(split, fold, lambda pairs: _paths(first, linked, pairs, back))


def seen_before(split: LinkSplit, fold: Fold, batch: int) -> Scores:  # noqa: ARG001 - as all baselines
    """Score a pair 1 that a known edge joins in the same direction, else 0; nothing is learnt in the fold.

    Poursafaei et al., "Towards better evaluation for dynamic link prediction", NeurIPS 2022.
    """
    keys = np.unique(_keys(split, split.known(fold)))
    return _of_both(split, fold, lambda pairs: np.isin(_keys(split, pairs), keys).astype(np.float64))


def seen_before_online(split: LinkSplit, fold: Fold, batch: int) -> Scores:
    """Score a pair 1 that was joined in the same direction before its batch, in the fold included, else 0."""
    part = split.part(fold)
    seen = set(_keys(split, split.known(fold)).tolist())
    keys, negative_keys = _keys(split, part.edges).tolist(), _keys(split, part.negatives).tolist()
    positive, negative = np.zeros(len(keys)), np.zeros(len(negative_keys))
    for rows, negative_rows in part.batches(batch):
        positive[rows] = [key in seen for key in keys[rows]]
        negative[negative_rows] = [key in seen for key in negative_keys[negative_rows]]
        seen.update(keys[rows])
    return positive, negative


LINK_BASELINES: dict[str, Callable[[LinkSplit, Fold, int], Scores]] = {
    "popularity": popularity,
    "adamic_adar": adamic_adar,
    "seen_before": seen_before,
    "seen_before_online": seen_before_online,
}


def link_baselines_of(split: LinkSplit, task: PredictLinksTaskConfig, fold: Fold) -> tuple[str, ...]:
    """Return the baselines to run: those that the task names, or all that fit and take seconds.

    Raises:
        UsageError: the task names one for events, and its edges are none.
    """
    of_events = ("seen_before", "seen_before_online")
    if task.baselines is not None:
        for number, name in enumerate(task.baselines):
            if name in of_events and not split.is_stream:
                raise UsageError(
                    f"expected events for the baseline {name}, received a split of kind {task.split.kind} "
                    "that holds pairs out whole",
                    where=f"baselines.{number}",
                    hint="a split of kind time, over edges with a timestamp, holds events out",
                )
        return task.baselines
    chosen = ["popularity"]
    if _steps(split, fold) <= _MOST_STEPS:
        chosen.append("adamic_adar")
    return (*chosen, *of_events) if split.is_stream else tuple(chosen)


def link_baselines(
    view: GraphView,  # noqa: ARG001 - the split itself has all that is known
    split: LinkSplit,
    task: PredictLinksTaskConfig,
    fold: Fold,
    seed: int,  # noqa: ARG001 - the interface of baselines
) -> dict[str, Measure]:
    """Return the measurements of the task's baselines on a fold, by name of the baseline."""
    part = split.part(fold)

    def measure(name: str, _: Watch) -> dict[str, float | int]:
        scores = LINK_BASELINES[name](split, fold, task.events_per_batch)
        return link_report(*scores, part.query, part.negative_query, hits=task.hits)

    return {name: partial(measure, name) for name in link_baselines_of(split, task, fold)}


def _of_both(
    split: LinkSplit, fold: Fold, score: Callable[[NDArray[np.int64]], NDArray[np.floating]]
) -> Scores:
    part = split.part(fold)
    return score(part.edges), score(part.negatives)


def _keys(split: LinkSplit, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    return pairs[:, 0] * split.targets + pairs[:, 1]


def _known_links(split: LinkSplit, fold: Fold) -> sp.csr_array:
    return known_targets(
        split.known(fold), split.sources, split.targets, within_one_type=split.within_one_type
    )


def _inverse_log_degree(linked: sp.csr_array, axis: int) -> NDArray[np.float32]:
    degree = np.asarray(linked.sum(axis=axis)).ravel()
    return np.asarray(1.0 / np.log(np.maximum(degree, 2.0)), dtype=np.float32)


def _steps(split: LinkSplit, fold: Fold) -> float:
    """Return about how many paths :func:`adamic_adar` counts."""
    linked = _known_links(split, fold)
    part = split.part(fold)
    asked = np.unique(np.concatenate([part.edges[:, 0], part.negatives[:, 0]]))
    out = np.asarray(linked.sum(axis=1), dtype=np.float64).ravel()
    into = np.asarray(linked.sum(axis=0), dtype=np.float64).ravel()
    two = np.asarray(linked[asked] @ (out if split.within_one_type else into)).sum()
    if split.within_one_type:
        return float(two)
    return float(two + np.asarray(linked[asked] @ (linked.T @ out)).sum())


def _paths(
    first: sp.csr_array, linked: sp.csr_array, pairs: NDArray[np.int64], back: sp.csr_array | None = None
) -> NDArray[np.float64]:
    """Return the weights of paths ``first``, then ``back`` if given, then ``linked``: float64 [n]."""
    scores = np.zeros(len(pairs))
    sources, row = np.unique(pairs[:, 0], return_inverse=True)
    order = np.argsort(row, kind="stable")
    ends = np.searchsorted(row[order], np.arange(0, len(sources) + _BLOCK, _BLOCK))
    for number, start in enumerate(range(0, len(sources), _BLOCK)):
        step = sp.csr_array(first[sources[start : start + _BLOCK]])
        # Over shared targets to sources, and on to theirs.
        reached = step @ linked if back is None else sp.csr_array(step @ back) @ linked
        chosen = order[ends[number] : ends[number + 1]]
        scores[chosen] = _entries(reached, row[chosen] - start, pairs[chosen, 1])
    return scores


def _entries(
    matrix: sp.csr_array, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return entries of a matrix, which never becomes a dense one: float64 [n]."""
    matrix.sort_indices()
    width = matrix.shape[1]
    filled = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * width + matrix.indices
    wanted = rows * width + columns
    place = np.searchsorted(filled, wanted)
    found = place < len(filled)
    found[found] = filled[place[found]] == wanted[found]
    values = np.zeros(len(rows))
    values[found] = matrix.data[place[found]]
    return values
