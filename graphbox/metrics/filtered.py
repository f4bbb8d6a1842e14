"""Filtered ranking of links, as knowledge graphs are judged: one true answer at a time among all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics.blocks import UNWATCHED, Watch, made_in_turn, rows_and_threads
from graphbox.metrics.ranking import DEVICE_ROWS, DeviceScores, ScoreBlock, check_numbers, check_shape

_BLOCK_ROWS = 128


@dataclass(frozen=True)
class FilteredQueries:
    """Links to find, one for each query, with what else is true and takes no place.

    Attributes:
        targets: integer [q], the true answer of each query.
        known_indptr: int64 [q + 1].
        known: integer, all known answers of query i at ``known_indptr[i]:known_indptr[i + 1]``, whether in
            training, validation or test; the target may be among them.
        excluded: int64, distinct, what is no candidate of any query, such as removed nodes; none is a known
            answer.
    """

    targets: NDArray[np.integer]
    known_indptr: NDArray[np.int64]
    known: NDArray[np.integer]
    excluded: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


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
    score: ScoreBlock | DeviceScores,
    queries: FilteredQueries,
    num_candidates: int,
    *,
    block_rows: int | None = None,
    threads: int | None = None,
    watch: Watch = UNWATCHED,
) -> NDArray[np.float64]:
    """Return the rank of each query's target among all candidates but the query's other known answers.

    The filtered setting of Bordes et al. (NeurIPS 2013). A target that ties takes the middle of its ranks, so
    that a model which scores all candidates alike gains nothing (Sun et al., "A re-evaluation of knowledge
    graph completion methods", ACL 2020).

    Args:
        score: maps the numbers of queries [b], 0 to q - 1, to scores of all candidates, float32
            [b, candidates]; higher is better. Where they are made on a device they are counted there.
        queries: what to find, and what is true besides.
        num_candidates: how many candidates there are.
        block_rows: queries scored at once, fewer where their scores would fill more than 64 MiB; None: 128,
            and 4,096 on a device. A score may depend on how many are made at once, by its rounding, so this
            depends on no number of threads.
        threads: they call ``score`` side by side, fewer where the scores would fill more than 256 MiB; on a
            device one does. None: see :func:`graphbox.native.thread_count`.
        watch: receives the number of queries ranked, and may stop the measurement.

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
    if isinstance(score, DeviceScores):
        rows_of_block, threads = rows_and_threads(block_rows or DEVICE_ROWS, num_candidates, 1)
    else:
        rows_of_block, threads = rows_and_threads(block_rows or _BLOCK_ROWS, num_candidates, threads)

    starts = range(0, count, rows_of_block)
    blocks = [slice(start, min(start + rows_of_block, count)) for start in starts]
    ranks = np.empty(count)
    made = made_in_turn(
        lambda block: _ranks(score, queries, block, num_candidates), blocks, threads, watch.check
    )
    for block, of_block in zip(blocks, made, strict=True):
        ranks[block] = of_block
        watch.step(block.stop, count)
    return ranks


def _ranks(
    score: ScoreBlock | DeviceScores, queries: FilteredQueries, block: slice, num_candidates: int
) -> NDArray[np.float64]:
    numbers = np.arange(block.start, block.stop)
    targets = queries.targets[block].astype(np.int64)
    known = queries.known[queries.known_indptr[block.start] : queries.known_indptr[block.stop]]
    rows = np.repeat(np.arange(len(numbers)), np.diff(queries.known_indptr[block.start : block.stop + 1]))
    rows, known = np.unique(np.stack([rows, known])[:, known != targets[rows]], axis=1)
    counts = _counts(score, numbers, num_candidates, targets, (rows, known), queries.excluded)
    return np.asarray(counts[:, 0] + (counts[:, 1] + 1) / 2, dtype=np.float64)


def _counts(
    score: ScoreBlock | DeviceScores,
    numbers: NDArray[np.int64],
    candidates: int,
    targets: NDArray[np.int64],
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    excluded: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Count what ranks above each target, and what ties: see ``device_ranking.filtered_counts``."""
    if isinstance(score, DeviceScores):
        from graphbox.metrics.device_ranking import filtered_counts  # torch, where there are its tensors

        made = score.score(numbers)
        check_shape(tuple(made.shape), len(numbers), candidates)
        counts, is_nan = filtered_counts(made, targets, known, excluded)
        check_numbers(is_nan, numbers)
        return counts
    scores = np.asarray(score(numbers), dtype=np.float32)
    check_shape(scores.shape, len(numbers), candidates)
    check_numbers(np.asarray(np.isnan(scores).any(axis=1)), numbers)
    reached = scores[np.arange(len(numbers)), targets]
    above = (scores > reached[:, None]).sum(axis=1)
    ties = (scores == reached[:, None]).sum(axis=1)  # the target itself among them
    if len(excluded):
        none = scores[:, excluded]
        above -= (none > reached[:, None]).sum(axis=1)
        ties -= (none == reached[:, None]).sum(axis=1)
    # What is true besides is counted out again: it is little, where a mask would be as large as the scores.
    filtered, against = scores[known], reached[known[0]]
    above -= np.bincount(known[0], filtered > against, len(numbers)).astype(np.int64)
    ties -= np.bincount(known[0], filtered == against, len(numbers)).astype(np.int64)
    return np.stack([above, ties], axis=1)
