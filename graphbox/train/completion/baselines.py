"""Baselines of completion: frequencies of entities as answers, and rules of one step."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import CompleteTaskConfig
from graphbox.errors import DoesNotFitError
from graphbox.metrics import Measure, Watch
from graphbox.train.completion.evaluation import TripleScores, rank_triples
from graphbox.train.completion.queries import concatenated_ranges
from graphbox.train.tasks import CompleteSplit, Fold
from graphbox.train.view import GraphView

_POPULARITY_SHARE = 1e-3
"""Score of the most popular candidate beside the confidence of rules: it breaks ties between these."""

_MOST_RULES = 1 << 25
"""Pairs of steps between the same two entities, at most, over all entities: each takes some 60 bytes while
rules are found."""

Metrics = dict[str, float | int]


def completion_baselines(
    view: GraphView,
    split: CompleteSplit,
    task: CompleteTaskConfig,
    fold: Fold,
    seed: int,  # noqa: ARG001 - the interface of baselines
) -> dict[str, Measure]:
    """Return the measurements of the task's baselines by name."""
    num_nodes = {node_type: view.num_nodes(node_type) for node_type in split.node_types}
    removed = {node_type: view.removed_nodes(node_type) for node_type in split.node_types}
    scores = {"popular": popular_scores, "rules": rule_scores}

    def measure(name: str, watch: Watch) -> Metrics:
        score = scores[name](split, fold, num_nodes)
        return rank_triples(split, fold, num_nodes, score, removed=removed, watch=watch)

    return {name: partial(measure, name) for name in task.baselines}


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

    Raises:
        DoesNotFitError: so many relations join the same entities that their rules would fill the memory.
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
    confidence = _Confidence(steps, num_relations)
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
        said = confidence.of(found[:, 2], wanted)
        np.add.at(result, (row, found[:, 1] - offsets[answer_type]), said)
        return result

    return score


def _with(pairs: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.column_stack([pairs, last])


class _Confidence:
    """Confidence of rules between steps: the share of the pairs joined by one that the other joins too.

    Only values above 0 are stored. No step implies itself: the pairs that it joins are known, and no
    candidates.

    Args:
        steps: int64 [n, 3], first and second entity and the step, ascending.
        relations: number of relations; a step is a relation, or one backwards.
    """

    def __init__(self, steps: NDArray[np.int64], relations: int) -> None:
        self._num_steps = 2 * relations
        first = np.ones(len(steps), dtype=bool)
        first[1:] = (np.diff(steps[:, :2], axis=0) != 0).any(axis=1)
        start = np.append(np.flatnonzero(first), len(steps))
        rules = int(np.square(np.diff(start)).sum())
        if rules > _MOST_RULES:
            raise DoesNotFitError(
                f"expected at most {_MOST_RULES:,} pairs of relations that join the same two entities, "
                f"received {rules:,}",
                where="the baseline `rules`",
                hint="leave it out: write `baselines: [popular]` in the task",
            )
        joined = sp.csr_array(
            (np.ones(len(steps)), steps[:, 2], start), shape=(len(start) - 1, self._num_steps)
        )
        together = (joined.T @ joined).tocoo()
        alone = together.diagonal()
        apart = together.row != together.col
        one, other = together.row[apart].astype(np.int64), together.col[apart].astype(np.int64)
        keys = one * self._num_steps + other
        order = np.argsort(keys)
        self._keys = keys[order]
        self._shares = (together.data[apart] / alone[one])[order].astype(np.float32)

    def of(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return how far each step of the first array speaks for that of the second: float32 [n]."""
        if not len(self._keys):
            return np.zeros(len(one), dtype=np.float32)
        wanted = one * self._num_steps + other
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[place] == wanted, self._shares[place], np.float32(0.0))
