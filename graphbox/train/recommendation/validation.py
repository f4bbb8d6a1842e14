"""Measures two towers on the validation part while they are trained; several processes divide a ranking."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.metrics import RankingQueries, evaluate_ranking
from graphbox.train.links.evaluation import evaluate_pairs, inner_products
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.recommendation.queries import ranking_queries, validation_queries
from graphbox.train.scores import product_scores
from graphbox.train.tasks import LinkSplit, RecommendSplit
from graphbox.train.view import GraphView


class TowerValidation:
    """Figures of the validation part of a task of kind recommend or predict_links.

    Args:
        split: the split of the task.
        task: the task.
        seed: draws 4,096 queries where there are more; None: all are ranked.
        threads: they score and rank side by side.
        processes: which all ask for figures, and all get them.
    """

    def __init__(
        self,
        split: RecommendSplit | LinkSplit,
        task: RecommendTaskConfig | PredictLinksTaskConfig,
        *,
        seed: int | None = None,
        threads: int | None = None,
        processes: TrainingProcesses = ALONE,
    ) -> None:
        self._split, self._task = split, task
        self._seed, self._threads, self._processes = seed, threads, processes
        self._queries: RankingQueries | None = None

    @property
    def metric(self) -> str:
        """The figure that decides which state a model ends as."""
        if isinstance(self._task, RecommendTaskConfig):
            return f"validation_ndcg@{self._task.k}"
        return "validation_average_precision"

    def figures(
        self, view: GraphView, in_degree: NDArray[np.int64], sources: Tensor, targets: Tensor
    ) -> dict[str, float]:
        """Return recall and ndcg of a ranking by inner products, or average precision and AUC of links.

        Args:
            view: the graph as it is known when the validation part is predicted.
            in_degree: int64 [candidates], known links that arrive at each.
            sources: float32 [sources, dim], vectors.
            targets: float32 [candidates, dim], vectors.

        Raises:
            UsageError: there are no queries.
        """
        if isinstance(self._split, LinkSplit) and isinstance(self._task, PredictLinksTaskConfig):
            of_pairs = inner_products(sources.cpu().numpy(), targets.cpu().numpy())
            report = evaluate_pairs(self._split, self._task, of_pairs, "validation")
            return {f"validation_{name}": float(report[name]) for name in ("average_precision", "auc")}
        queries, processes = self._ranked(view), self._processes
        own = processes.slice_of(len(queries.queries))
        part = queries.take(np.arange(own.start, own.stop))
        k = self._task.k if isinstance(self._task, RecommendTaskConfig) else 0
        found: dict[str, float] = {}
        if len(part.queries) or not len(queries.queries):  # which is refused
            score = product_scores(sources, targets)
            found = evaluate_ranking(score, part, in_degree, k=k, buckets=(), threads=self._threads)
        figures = {f"validation_{name}": float(found.get(name, 0.0)) for name in (f"recall@{k}", f"ndcg@{k}")}
        return processes.mean("validation figures", figures, len(part.queries))

    def _ranked(self, view: GraphView) -> RankingQueries:
        if self._queries is None:
            assert isinstance(self._split, RecommendSplit)  # noqa: S101 - for the type checker
            if self._seed is None:
                self._queries = ranking_queries(view, self._split, "validation")
            else:
                self._queries = validation_queries(view, self._split, self._seed)
        return self._queries
