"""Ranking of the validation part while a model is trained, which several processes divide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphbox.metrics import DeviceScores, RankingQueries, ScoreBlock, evaluate_ranking
from graphbox.train.processes import ALONE, TrainingProcesses


def validation_figures(
    score: ScoreBlock | DeviceScores,
    queries: RankingQueries,
    in_degree: NDArray[np.int64],
    *,
    k: int,
    threads: int | None,
    processes: TrainingProcesses = ALONE,
) -> dict[str, float]:
    """Return ``validation_recall@k`` and ``validation_ndcg@k`` over queries.

    Args:
        score: see :func:`graphbox.metrics.evaluate_ranking`; for the slice of the queries of this process.
        queries: what to find, the same in all processes.
        in_degree: int64 [candidates].
        k: length of the ranked list.
        threads: they call ``score`` side by side.
        processes: which all call this, and all get the figures.

    Raises:
        UsageError: there are no queries.
    """
    own = processes.slice_of(len(queries.queries))
    part = queries.take(np.arange(own.start, own.stop))
    found: dict[str, float] = {}
    if len(part.queries) or not len(queries.queries):  # which is refused
        found = evaluate_ranking(score, part, in_degree, k=k, buckets=(), threads=threads)
    figures = {f"validation_{name}": float(found.get(name, 0.0)) for name in (f"recall@{k}", f"ndcg@{k}")}
    return processes.mean("validation figures", figures, len(part.queries))
