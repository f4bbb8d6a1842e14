"""What completes triples without training: how often entities are answers, and rules of one step."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import CompleteTaskConfig
from graphbox.train.completion.evaluation import TripleScores, rank_triples
from graphbox.train.completion.queries import concatenated_ranges
from graphbox.train.tasks import CompleteSplit, Fold
from graphbox.train.view import GraphView

__all__ = ["completion_baselines", "popular_scores", "rule_scores"]

_POPULARITY_SHARE = 1e-3
"""What the most popular candidate adds to the confidence of rules: it tells apart what they hold alike."""

Metrics = dict[str, float | int]


def completion_baselines(
    view: GraphView, split: CompleteSplit, task: CompleteTaskConfig, fold: Fold
) -> dict[str, Metrics]:
    """Return the metrics of the task's baselines by name."""
    num_nodes = {node_type: view.num_nodes(node_type) for node_type in split.node_types}
    scores = {"popular": popular_scores, "rules": rule_scores}
    return {
        name: rank_triples(split, fold, num_nodes, scores[name](split, fold, num_nodes))
        for name in task.baselines
    }


def popular_scores(split: CompleteSplit, fold: Fold, num_nodes: dict[str, int]) -> TripleScores:
    """Return scores by how often a candidate is the tail, or head, of the relation in known triples."""
    known = split.known(fold)
    width = max(num_nodes.values())
    count = [
        sp.csr_array(
            (np.ones(len(known), np.float32), (known[:, 1], known[:, end])),
            shape=(len(split.relations), width),
        )
        for end in (0, 2)
    ]

    def score(
        nodes: NDArray[np.int64],  # noqa: ARG001 - whoever asks
        relations: NDArray[np.int64],
        *,
        to_heads: bool,
    ) -> NDArray[np.float32]:
        end = split.relation_ends[relations[0], 0 if to_heads else 1]
        rows: NDArray[np.float32] = count[0 if to_heads else 1][relations].toarray()
        return rows[:, : num_nodes[split.node_types[end]]]

    return score


def rule_scores(split: CompleteSplit, fold: Fold, num_nodes: dict[str, int]) -> TripleScores:
    """Return scores by rules that lead from one known triple to another between the same two entities.

    A rule says that what relation ``s`` joins, relation ``r`` joins too, the same way round or the other;
    its confidence is the share of the triples of ``s`` for which that is known to hold. A candidate's score
    is the sum of the confidences of what speaks for it, plus a little for being popular. Inverse and
    symmetric relations give themselves away so; Dettmers et al. (AAAI 2018) showed how much that can be.
    """
    known = split.known(fold)
    offsets = np.cumsum([0, *(num_nodes[node_type] for node_type in split.node_types)])
    ends = offsets[split.relation_ends[known[:, 1]]] + known[:, ::2]
    backwards = np.column_stack([ends[:, 1], ends[:, 0]])
    num_relations = len(split.relations)
    # What stands between two entities, as seen from the first: a relation, or one backwards.
    steps = np.concatenate(
        [np.column_stack([ends, known[:, 1]]), _with(backwards, known[:, 1] + num_relations)]
    )
    steps = steps[np.lexsort((steps[:, 2], steps[:, 1], steps[:, 0]))]
    start = np.searchsorted(steps[:, 0], np.arange(offsets[-1] + 1))
    confidence = _confidence(steps, num_relations)
    popular = popular_scores(split, fold, num_nodes)

    def score(
        nodes: NDArray[np.int64], relations: NDArray[np.int64], *, to_heads: bool
    ) -> NDArray[np.float32]:
        result = popular(nodes, relations, to_heads=to_heads)
        result *= _POPULARITY_SHARE / np.maximum(result.max(axis=1, keepdims=True), 1.0)
        asked_type, answer_type = split.relation_ends[relations[0], [1, 0] if to_heads else [0, 1]]
        entity = nodes + offsets[asked_type]
        count = start[entity + 1] - start[entity]
        found = steps[concatenated_ranges(start[entity], count)]
        row = np.repeat(np.arange(len(nodes)), count)
        inside = (found[:, 1] >= offsets[answer_type]) & (found[:, 1] < offsets[answer_type + 1])
        row, found = row[inside], found[inside]
        wanted = relations[row] + num_relations * to_heads
        said = confidence[found[:, 2], wanted].astype(np.float32)
        np.add.at(result, (row, found[:, 1] - offsets[answer_type]), said)
        return result

    return score


def _with(pairs: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.column_stack([pairs, last])


def _confidence(steps: NDArray[np.int64], relations: int) -> NDArray[np.float64]:
    """Return the share of the pairs that a step joins that another step joins too: float64 [2 r, 2 r].

    Args:
        steps: int64 [n, 3], first and second entity and the step, ascending.
        relations: number of relations; a step is a relation, or one backwards.
    """
    _, pair = np.unique(steps[:, :2], axis=0, return_inverse=True)
    joined = sp.csr_array(
        (np.ones(len(steps)), (pair.reshape(-1), steps[:, 2])), shape=(int(pair.max()) + 1, 2 * relations)
    )
    together = (joined.T @ joined).toarray()
    alone = np.maximum(together.diagonal(), 1.0)
    # A step speaks for nothing but others: what it joins itself is known, and no candidate.
    np.fill_diagonal(together, 0.0)
    return np.asarray(together / alone[:, None])
