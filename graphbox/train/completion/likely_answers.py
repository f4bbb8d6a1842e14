"""Predictions of a model of a knowledge graph: the likeliest tails of a head, or heads of a tail."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.metrics import top_k
from graphbox.train.tasks import CompleteSplit
from graphbox.train.trained import TrainedModel


@dataclass(frozen=True)
class LikelyAnswer:
    """A candidate for the missing end of a triple.

    Attributes:
        id: its original id.
        score: of the triple with it; comparable among the answers of one question.
        known: whether the triple is in the task's data, in whichever part.
    """

    id: str | int
    score: float
    known: bool


def likely_answers(
    graph: Graph,
    split: CompleteSplit,
    trained: TrainedModel,
    relation: str,
    *,
    head: str | int | None = None,
    tail: str | int | None = None,
    k: int = 10,
    with_known: bool = False,
) -> list[LikelyAnswer]:
    """Return the likeliest tails of a head, or heads of a tail, best first.

    Args:
        graph: the graph.
        split: the split of the model's task.
        trained: a model of a knowledge graph.
        relation: name of the relation.
        head: original id of the head; then tails are returned.
        tail: original id of the tail; then heads are.
        k: how many, at most.
        with_known: return what is known already as well.

    Raises:
        UsageError: the model is none of a knowledge graph, the relation is none of its, not one of head and
            tail is given, or ``k`` is not positive.
        NotFoundError: there is no such entity.
    """
    if trained.triples is None:
        raise UsageError(f"expected a model that scores triples, received `{trained.name}`, which does not")
    if (head is None) == (tail is None):
        received = "neither" if head is None else "both"
        raise UsageError(f"expected either a head or a tail, received {received}")
    if k < 1:
        raise UsageError(f"expected 1 or more, received {k}", where="k")
    number = trained.triples.relation(relation)
    head_type, tail_type = trained.triples.end_types(number)
    to_heads = head is None
    asked_type, answer_type = (tail_type, head_type) if to_heads else (head_type, tail_type)
    node = graph.index(asked_type, [tail if to_heads else head])
    scores = trained.score_triples(node, np.array([number]), to_heads=to_heads)
    asked, answer = (2, 0) if to_heads else (0, 2)
    triples = np.concatenate([split.train, split.validation, split.test])
    known = triples[(triples[:, 1] == number) & (triples[:, asked] == node[0]), answer]
    left = scores.copy()
    left[0, graph.removed_nodes(answer_type)] = -np.inf
    if not with_known:
        left[0, known] = -np.inf
    best = top_k(left, min(k, left.shape[1]))[0]
    best = best[np.isfinite(left[0, best])]
    return [
        LikelyAnswer(name, float(scores[0, place]), bool(np.isin(place, known)))
        for name, place in zip(graph.ids(answer_type, best).tolist(), best.tolist(), strict=True)
    ]
