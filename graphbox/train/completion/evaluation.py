"""Evaluation of completed triples: the filtered rank of each held-out tail and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from graphbox.config import CompleteTaskConfig
from graphbox.errors import UsageError
from graphbox.graph import Graph
from graphbox.metrics import UNWATCHED, DeviceScores, FilteredQueries, Watch, filtered_ranks, rank_report
from graphbox.train.completion.queries import DirectedQueries, answers_of
from graphbox.train.completion.triple_rows import DeviceTriples
from graphbox.train.tasks import CompleteSplit, Fold
from graphbox.train.trained import TrainedModel

_MOST_RELATIONS = 1000
"""Relations with figures of their own in a report."""

_NO_NODES = np.empty(0, np.int64)

Metrics = dict[str, float | int]


class TripleScores(Protocol):
    """Scores the candidates of queries."""

    def __call__(
        self, nodes: NDArray[np.int64], relations: NDArray[np.int64], *, to_heads: bool
    ) -> NDArray[np.float32]:
        """Return the scores of all tails for heads, or of all heads for tails: float32 [n, candidates].

        Args:
            nodes: int64 [n], the heads; the tails with ``to_heads``.
            relations: int64 [n], all with the same types of heads and tails.
            to_heads: whether heads are asked for.
        """
        ...


def evaluate_completion(
    graph: Graph,
    split: CompleteSplit,
    task: CompleteTaskConfig,  # noqa: ARG001 - the interface of evaluations
    trained: TrainedModel,
    fold: Fold = "test",
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Measure a trained model of a knowledge graph; see :func:`rank_triples`.

    Raises:
        UsageError: the model scores no triples.
    """
    if trained.triples is None:
        raise UsageError(
            f"expected a model that scores triples, received `{trained.name}`, which has embeddings alone"
        )
    num_nodes = {node_type: graph.num_nodes(node_type) for node_type in split.node_types}
    removed = {node_type: graph.removed_nodes(node_type) for node_type in split.node_types}
    return rank_triples(split, fold, num_nodes, trained.score_triples, removed=removed, watch=watch)


def rank_triples(
    split: CompleteSplit,
    fold: Fold,
    num_nodes: Mapping[str, int],
    score: TripleScores | DeviceTriples,
    *,
    removed: Mapping[str, NDArray[np.int64]] | None = None,
    triples: NDArray[np.int64] | None = None,
    threads: int | None = None,
    watch: Watch = UNWATCHED,
) -> Metrics:
    """Rank the tail of each triple among all nodes of its type, and the head among those of its own.

    What else is true, by the known folds and ``fold`` itself, takes no rank; ties take the middle. Triples
    with entities or relations that no known triple has are ranked like the others.

    Args:
        split: the split of the task.
        fold: validation or test.
        num_nodes: number of nodes by type.
        score: what is measured, in host memory or on a device.
        removed: int64, nodes that are no candidates, by type.
        triples: int64 [n, 3], those of the fold to rank; all when absent.
        threads: they score side by side. None: see :func:`graphbox.native.thread_count`.
        watch: receives the number of queries ranked, and may stop the measurement.

    Returns:
        ``mrr``, ``mean_rank``, ``hits@1``, ``hits@3``, ``hits@10`` and ``queries`` of both directions
        together; ``mrr_tail``, ``hits@10_tail``, ``mrr_head``, ``hits@10_head`` of each; ``queries_unseen``,
        those of triples with an entity that no known triple has; ``mrr_relation_<name>`` and
        ``queries_relation_<name>`` of each relation, of the 1,000 most frequent where there are more.
    """
    triples = split.triples(fold) if triples is None else triples
    true = DirectedQueries.of(split.true_in(fold), len(split.relations))
    ranks = np.empty((len(triples), 2))
    done = 0

    def step(of_part: int, _: int) -> None:
        watch.step(done + of_part, 2 * len(triples))

    pair_of_ends = split.relation_ends[triples[:, 1]] @ [len(split.node_types), 1]
    for pair in np.unique(pair_of_ends):
        inside = np.flatnonzero(pair_of_ends == pair)
        ends = [split.node_types[end] for end in divmod(int(pair), len(split.node_types))]
        for direction, candidates in enumerate(reversed(ends)):
            ranks[inside, direction] = _ranks(
                split,
                true,
                triples[inside],
                score,
                num_nodes[candidates],
                _NO_NODES if removed is None else removed[candidates],
                direction == 1,
                threads,
                Watch(step, watch.check),
            )
            done += len(inside)
    report = rank_report(ranks.ravel())
    for direction, name in enumerate(("tail", "head")):
        of_direction = rank_report(ranks[:, direction])
        report |= {f"{metric}_{name}": of_direction[metric] for metric in ("mrr", "hits@10")}
    report["queries_unseen"] = 2 * int(_has_unseen(split, fold, triples, num_nodes).sum())
    report |= _of_relations(split.relations, triples[:, 1], ranks)
    return report


def sampled_triples(triples: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """Return some of the triples, int64 [n, 3], at most ``most``: the same ones for the same seed."""
    if len(triples) <= most:
        return triples
    chosen = np.random.default_rng(seed).choice(len(triples), most, replace=False)
    return triples[np.sort(chosen)]


def _ranks(
    split: CompleteSplit,
    true: DirectedQueries,
    triples: NDArray[np.int64],
    score: TripleScores | DeviceTriples,
    candidates: int,
    excluded: NDArray[np.int64],
    to_heads: bool,
    threads: int | None,
    watch: Watch,
) -> NDArray[np.float64]:
    """Return the ranks of the answers of one direction, of triples of one pair of types: float64 [n]."""
    asked, answer = (2, 0) if to_heads else (0, 2)
    nodes, relations = triples[:, asked], triples[:, 1]
    indptr, known = answers_of(true, nodes, relations + len(split.relations) * to_heads)
    queries = FilteredQueries(triples[:, answer], indptr, known, excluded=excluded)
    if isinstance(score, DeviceTriples):
        on_device = DeviceScores(lambda numbers: score(nodes[numbers], relations[numbers], to_heads=to_heads))
        return filtered_ranks(on_device, queries, candidates, watch=watch)
    return filtered_ranks(
        lambda numbers: score(nodes[numbers], relations[numbers], to_heads=to_heads),
        queries,
        candidates,
        threads=threads,
        watch=watch,
    )


def _of_relations(names: Sequence[str], relations: NDArray[np.int64], ranks: NDArray[np.float64]) -> Metrics:
    """Return the figures of each relation, of the most frequent where there are many.

    Args:
        names: names of the relations.
        relations: int64 [n], those of the triples.
        ranks: float64 [n, 2], ranks of tails and heads.
    """
    numbers, relation_of, triples = np.unique(relations, return_inverse=True, return_counts=True)
    mrr = np.bincount(relation_of, (1 / ranks).mean(axis=1)) / triples
    told = np.sort(np.argsort(-triples, kind="stable")[:_MOST_RELATIONS])
    report: Metrics = {}
    for place in told.tolist():
        name = names[numbers[place]]
        report[f"mrr_relation_{name}"] = float(mrr[place])
        report[f"queries_relation_{name}"] = 2 * int(triples[place])
    return report


def _has_unseen(
    split: CompleteSplit, fold: Fold, triples: NDArray[np.int64], num_nodes: Mapping[str, int]
) -> NDArray[np.bool_]:
    """Return which triples have an entity that no known triple has: bool [n]."""
    known = split.known(fold)
    seen = [np.zeros(num_nodes[node_type], dtype=bool) for node_type in split.node_types]
    for end in (0, 1):
        for number, of_type in enumerate(seen):
            of_type[known[split.relation_ends[known[:, 1], end] == number, 2 * end]] = True
    unseen = np.zeros(len(triples), dtype=bool)
    for end in (0, 1):
        for number, of_type in enumerate(seen):
            inside = split.relation_ends[triples[:, 1], end] == number
            unseen[inside] |= ~of_type[triples[inside, 2 * end]]
    return unseen
