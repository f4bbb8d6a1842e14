"""Evaluation of link prediction: held-out edges against pairs that no edge joins."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from graphbox.config import PredictLinksTaskConfig
from graphbox.errors import DataError
from graphbox.graph import Graph
from graphbox.graph.live_rows import LiveRows
from graphbox.metrics import UNWATCHED, Watch, link_report
from graphbox.train.splitting.predict_links import NonEdgeTargets
from graphbox.train.tasks import Fold, LinkSplit
from graphbox.train.trained import TrainedModel

PairScore = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.floating]]
"""Maps sources and targets, int64 [n] each, to scores float [n]; higher for likelier links."""

_BLOCK = 65_536
_TOLERANCE = 1e-4
_MOST_ITERATIONS = 500
_MOST_TRAINING_EDGES = 200_000

Metrics = dict[str, float | int]


def evaluate_links(
    graph: Graph,
    split: LinkSplit,
    task: PredictLinksTaskConfig,
    trained: TrainedModel,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure a trained model: by the scores it gave in time, by inner products, or by a classifier on pairs.

    A model that learns on through time has scored the test part itself. The vectors of two towers were
    trained to be multiplied. Embeddings that were trained for nothing in particular are measured by
    :func:`evaluate_link_embeddings`.

    Raises:
        DataError: the model has no vectors of one end.
    """
    if trained.link_scores is not None and fold == "test":
        part = split.part(fold)
        count = len(part.edges)
        scores = trained.link_scores
        return link_report(scores[:count], scores[count:], part.query, part.negative_query, hits=task.hits)
    sources = _vectors(trained, split.node_type)
    if trained.target is not None:
        return evaluate_pairs(split, task, inner_products(sources, trained.target), fold, watch)
    targets = _vectors(trained, split.target_type)
    return evaluate_link_embeddings(graph, split, task, sources, targets, fold, watch)


def evaluate_pairs(
    split: LinkSplit,
    task: PredictLinksTaskConfig,
    score: PairScore,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure the scores of a fold's edges and negatives."""
    part = split.part(fold)
    scores = _in_blocks(score, np.concatenate([part.edges, part.negatives]), watch)
    count = len(part.edges)
    return link_report(scores[:count], scores[count:], part.query, part.negative_query, hits=task.hits)


def inner_products(sources: NDArray[np.float32], targets: NDArray[np.float32]) -> PairScore:
    """Score a pair by the inner product of its vectors: float32 [nodes, dim] of either end."""
    return lambda source, target: np.einsum("nd,nd->n", sources[source], targets[target])


def evaluate_link_embeddings(
    graph: Graph,
    split: LinkSplit,
    task: PredictLinksTaskConfig,
    sources: NDArray[np.float32],
    targets: NDArray[np.float32],
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure frozen embeddings by logistic regression on the Hadamard products of pairs.

    It is trained on the edges of the training part (200,000 of them at most) and as many pairs that no edge
    of it joins, drawn like the task's negatives, on standardized products with an L2 penalty of strength 1
    (Grover and Leskovec, "node2vec", KDD 2016, section 4.4).

    Args:
        graph: the whole graph; which nodes were removed is read.
        split: the split of the task.
        task: the task's section of the run file.
        sources: float32 [nodes of the source type, dim].
        targets: float32 [nodes of the target type, dim].
        fold: validation or test.
        watch: receives the number of pairs scored, and may stop the measurement.

    Raises:
        DataError: the vectors are not one for each node, not of one length, or no finite numbers; or training
            edges join all there is.
    """
    _check(split, sources, targets)
    edges = _some(split.part("train").edges)
    negatives = _training_negatives(graph, split, task, edges)
    if not len(negatives):
        raise DataError(
            "expected pairs that no training edge joins, to learn from, received sources that are joined to "
            "every target",
            where=f"{split.node_type} to {split.target_type}",
            hint="an edge type that joins everything leaves nothing to predict",
        )
    pairs = np.concatenate([edges, negatives])
    products = sources[pairs[:, 0]] * targets[pairs[:, 1]]
    mean = products.mean(axis=0, dtype=np.float64)
    deviation = products.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1.0)
    # Here, as trainers load this module, and do not load that one.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classifier = LogisticRegression(C=1.0, tol=_TOLERANCE, max_iter=_MOST_ITERATIONS)
    with warnings.catch_warnings():
        # Its scores have long settled where the optimizer has not; the number of steps is bounded anyway.
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit((products - mean) / scale, np.repeat([1, 0], [len(edges), len(negatives)]))
    weight = (classifier.coef_[0] / scale).astype(np.float32)
    return evaluate_pairs(
        split,
        task,
        lambda source, target: np.einsum("nd,nd,d->n", sources[source], targets[target], weight),
        fold,
        watch,
    )


def _vectors(trained: TrainedModel, node_type: str) -> NDArray[np.float32]:
    if node_type not in trained.embeddings:
        raise DataError(
            f"expected embeddings of {node_type}, received those of {', '.join(trained.embeddings)}",
            where=f"model {trained.name}",
            hint="let its walks or layers reach both ends of the relations that are predicted",
        )
    return trained.embeddings[node_type]


def _check(split: LinkSplit, sources: NDArray[np.float32], targets: NDArray[np.float32]) -> None:
    ends = ((split.node_type, split.sources, sources), (split.target_type, split.targets, targets))
    for node_type, count, vectors in ends:
        if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
            raise DataError(
                f"expected finite embeddings float32 [{count}, dim], received {vectors.dtype} {vectors.shape}"
                f"{'' if np.isfinite(vectors).all() else ' with NaN or infinity'}",
                where=f"node type {node_type}",
            )
    if sources.shape[1] != targets.shape[1]:
        raise DataError(
            f"expected embeddings of one length, received {sources.shape[1]} and {targets.shape[1]}",
            where=f"{split.node_type} and {split.target_type}",
        )


def _some(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges, or so many of them, evenly spaced, as are enough."""
    if len(edges) <= _MOST_TRAINING_EDGES:
        return edges
    return edges[np.linspace(0, len(edges) - 1, _MOST_TRAINING_EDGES).astype(np.int64)]


def _training_negatives(
    graph: Graph, split: LinkSplit, task: PredictLinksTaskConfig, edges: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return as many pairs that no training edge joins, of the same sources: int64 [n, 2]."""
    known = split.part("train").edges
    sampler = NonEdgeTargets(
        known,
        LiveRows.of_graph(graph, split.node_type),
        LiveRows.of_graph(graph, split.target_type),
        known[:, 1] if task.negative_distribution == "degree" else None,
        int(split.digest[:15], 16),
        within_one_type=split.within_one_type,
    )
    drawn = sampler.draw(edges[:, 0], 1)[:, 0]
    there = drawn >= 0
    return np.stack([edges[there, 0], drawn[there]], axis=1)


def _in_blocks(score: PairScore, pairs: NDArray[np.int64], watch: Watch) -> NDArray[np.floating]:
    blocks: list[NDArray[np.floating]] = []
    for start in range(0, len(pairs), _BLOCK):
        watch.check()
        block = pairs[start : start + _BLOCK]
        blocks.append(score(block[:, 0], block[:, 1]))
        watch.step(start + len(block), len(pairs))
    return np.concatenate(blocks)
