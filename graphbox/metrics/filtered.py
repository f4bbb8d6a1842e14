"""Filtered ranking of links, as knowledge graphs are judged: one true answer at a time among all others."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics.blocks import rows_and_threads
from graphbox.metrics.ranking import ScoreBlock

__all__ = ["FilteredQueries", "evaluate_filtered", "filtered_ranks", "rank_report"]

_BLOCK_ROWS = 128


@dataclass(frozen=True)
class FilteredQueries:
    """Links to find, one for each query, with what else is true and takes no place.

    Attributes:
        targets: integer [q], the true answer of each query.
        known_indptr: int64 [q + 1].
        known: integer, all known answers of query i at ``known_indptr[i]:known_indptr[i + 1]``, whether in
            training, validation or test; the target may be among them.
        relations: integer [q], by which figures are told apart as well, or None.
    """

    targets: NDArray[np.integer]
    known_indptr: NDArray[np.int64]
    known: NDArray[np.integer]
    relations: NDArray[np.integer] | None = None


def evaluate_filtered(
    score: ScoreBlock,
    queries: FilteredQueries,
    num_candidates: int,
    *,
    hits: Sequence[int] = (1, 3, 10),
    block_rows: int = _BLOCK_ROWS,
    threads: int | None = None,
) -> dict[str, float | int]:
    """Rank the target of each query among all candidates but its other known answers.

    Args:
        score: as :func:`filtered_ranks` takes it.
        queries: what to find, and what is true besides.
        num_candidates: how many candidates there are.
        hits: the ranks within which a target counts as found.
        block_rows: as :func:`filtered_ranks` takes it.
        threads: as :func:`filtered_ranks` takes it.

    Returns:
        What :func:`rank_report` does; ``mrr_relation_<r>`` and ``queries_relation_<r>`` where relations are
        given.

    Raises:
        UsageError: no queries, targets out of range, scores of another shape or NaN.
    """
    ranks = filtered_ranks(score, queries, num_candidates, block_rows=block_rows, threads=threads)
    report = rank_report(ranks, hits=hits)
    if queries.relations is not None:
        for relation in np.unique(queries.relations):
            inside = queries.relations == relation
            report[f"mrr_relation_{relation}"] = float(np.mean(1 / ranks[inside]))
            report[f"queries_relation_{relation}"] = int(inside.sum())
    return report


def rank_report(ranks: NDArray[np.float64], *, hits: Sequence[int] = (1, 3, 10)) -> dict[str, float | int]:
    """Return ``mrr``, ``hits@k`` of each k, ``mean_rank`` and ``queries`` of the ranks of some targets.

    Raises:
        UsageError: there are none.
    """
    if not len(ranks):
        raise UsageError("expected at least one link to rank, received none")
    report: dict[str, float | int] = {"mrr": float(np.mean(1 / ranks)), "mean_rank": float(ranks.mean())}
    report |= {f"hits@{k}": float(np.mean(ranks <= k)) for k in hits}
    report["queries"] = len(ranks)
    return report


def filtered_ranks(
    score: ScoreBlock,
    queries: FilteredQueries,
    num_candidates: int,
    *,
    block_rows: int = _BLOCK_ROWS,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Return the rank of each query's target among all candidates but the query's other known answers.

    The filtered setting of Bordes et al. (NeurIPS 2013). A target that ties takes the middle of its ranks, so
    that a model which scores all candidates alike gains nothing (Sun et al., "A re-evaluation of knowledge
    graph completion methods", ACL 2020).

    Args:
        score: maps the numbers of queries [b], 0 to q - 1, to scores of all candidates, float32
            [b, candidates]; higher is better.
        queries: what to find, and what is true besides.
        num_candidates: how many candidates there are.
        block_rows: queries scored at once; fewer where their scores would fill more than 64 MiB. A score may
            depend on how many are made at once, by its rounding, so this depends on no number of threads.
        threads: they call ``score`` side by side, fewer where the scores would fill more than 256 MiB. None:
            see :func:`graphbox.native.thread_count`.

    Returns:
        float64 [q], from 1.

    Raises:
        UsageError: no queries, targets out of range, scores of another shape or NaN.
    """
    count = len(queries.targets)
    if count == 0:
        raise UsageError("expected at least one link to rank, received none")
    outside = (queries.targets < 0) | (queries.targets >= num_candidates)
    if outside.any():
        place = int(outside.argmax())
        raise UsageError(
            f"expected targets from 0 to {num_candidates - 1}, received {queries.targets[place]}",
            where=f"query {place}",
        )
    ranks = np.empty(count)
    rows_of_block, threads = rows_and_threads(block_rows, num_candidates, threads)

    def rank(start: int) -> None:
        block = slice(start, min(start + rows_of_block, count))
        ranks[block] = _ranks(score, queries, block, num_candidates)

    with ThreadPoolExecutor(threads) as executor:
        for _ in executor.map(rank, range(0, count, rows_of_block)):
            pass
    return ranks


def _ranks(
    score: ScoreBlock, queries: FilteredQueries, block: slice, num_candidates: int
) -> NDArray[np.float64]:
    numbers = np.arange(block.start, block.stop)
    scores = np.asarray(score(numbers), dtype=np.float32)
    if scores.shape != (len(numbers), num_candidates):
        raise UsageError(
            f"expected scores of shape {(len(numbers), num_candidates)} (queries, candidates), received "
            f"{scores.shape}"
        )
    if np.isnan(scores).any():
        row = int(np.isnan(scores).any(axis=1).argmax())
        raise UsageError("expected numbers, received a score that is NaN", where=f"query {numbers[row]}")
    local = np.arange(len(numbers))
    targets = queries.targets[block]
    reached = scores[local, targets]
    above = (scores > reached[:, None]).sum(axis=1)
    ties = (scores == reached[:, None]).sum(axis=1)  # the target itself among them
    # What is true besides is counted out again: it is little, where a mask would be as large as the scores.
    known = queries.known[queries.known_indptr[block.start] : queries.known_indptr[block.stop]]
    rows = np.repeat(local, np.diff(queries.known_indptr[block.start : block.stop + 1]))
    rows, known = np.unique(np.stack([rows, known])[:, known != targets[rows]], axis=1)
    filtered = scores[rows, known]
    above -= np.bincount(rows, filtered > reached[rows], len(numbers)).astype(np.int64)
    ties -= np.bincount(rows, filtered == reached[rows], len(numbers)).astype(np.int64)
    return np.asarray(above + (ties + 1) / 2, dtype=np.float64)
