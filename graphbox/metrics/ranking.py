"""Full-ranking metrics: every candidate is ranked for every query, in blocks of queries.

Nothing is sampled: metrics over sampled candidates are not consistent with the full ranking (Krichene and
Rendle, "On sampled metrics for item recommendation", KDD 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import UsageError
from graphbox.metrics.blocks import UNWATCHED, Watch, made_in_turn, rows_and_threads

if TYPE_CHECKING:
    from torch import Tensor

RANKED_ROWS = 64
"""Queries that are ranked at once in host memory, unless told otherwise."""

DEVICE_ROWS = 4096
"""Queries that are ranked at once on a device, unless told otherwise."""

ScoreBlock = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Maps query nodes [b] to their scores of all candidates, float32 [b, candidates]; higher is better."""


@dataclass(frozen=True)
class DeviceScores:
    """Scores that are made on a device, and ranked there: the host gets places and counts alone.

    Attributes:
        score: as :data:`ScoreBlock`, but gives a new tensor on the device, which is overwritten.
    """

    score: Callable[[NDArray[np.int64]], Tensor]


@dataclass(frozen=True)
class PopularityBucket:
    """Targets whose training in-degree lies between two bounds, both included.

    Attributes:
        name: the suffix of the bucket's metrics.
        least: smallest in-degree.
        most: largest in-degree, or None without a bound.
    """

    name: str
    least: int
    most: int | None

    def holds(self, in_degree: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of ``in_degree`` lie in the bucket."""
        within = in_degree >= self.least
        return within if self.most is None else within & (in_degree <= self.most)


POPULARITY_BUCKETS = (
    PopularityBucket("in_degree_over_50", 51, None),
    PopularityBucket("in_degree_5_to_50", 5, 50),
    PopularityBucket("in_degree_1_to_4", 1, 4),
    PopularityBucket("in_degree_0", 0, 0),
)


@dataclass(frozen=True)
class RankingQueries:
    """Queries with the targets to find and the candidates to leave out, both in CSR form.

    Attributes:
        queries: int64 [q], distinct query nodes.
        positive_indptr: int64 [q + 1].
        positives: int64, the targets of query i at ``positive_indptr[i]:positive_indptr[i + 1]``, distinct,
            at least one for each query.
        masked_indptr: int64 [q + 1].
        masked: int64, nodes that are no candidates of query i: itself, known answers and so on; none of
            them a positive of the same query.
        excluded: int64, distinct, nodes that are no candidates of any query, such as removed ones.
    """

    queries: NDArray[np.int64]
    positive_indptr: NDArray[np.int64]
    positives: NDArray[np.int64]
    masked_indptr: NDArray[np.int64]
    masked: NDArray[np.int64]
    excluded: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def blocks(self, size: int) -> Iterator[tuple[slice, slice, slice]]:
        """Yield slices of ``queries``, ``positives`` and ``masked``, ``size`` queries at a time."""
        for start in range(0, len(self.queries), size):
            stop = min(start + size, len(self.queries))
            yield (
                slice(start, stop),
                slice(int(self.positive_indptr[start]), int(self.positive_indptr[stop])),
                slice(int(self.masked_indptr[start]), int(self.masked_indptr[stop])),
            )

    def sample(self, count: int, seed: int) -> RankingQueries:
        """Return ``count`` of the queries, drawn with a seed, in their order; all where there are no more."""
        if len(self.queries) <= count:
            return self
        return self.take(self.sampled_rows(count, seed))

    def sampled_rows(self, count: int, seed: int) -> NDArray[np.int64]:
        """Return the places of the queries that :meth:`sample` takes, ascending."""
        return np.sort(np.random.default_rng(seed).permutation(len(self.queries))[:count])

    def take(self, rows: NDArray[np.int64]) -> RankingQueries:
        """Return the queries at the places ``rows``, int64 [n]."""
        positive_indptr, positives = _take_rows(self.positive_indptr, self.positives, rows)
        masked_indptr, masked = _take_rows(self.masked_indptr, self.masked, rows)
        return replace(
            self,
            queries=self.queries[rows],
            positive_indptr=positive_indptr,
            positives=positives,
            masked_indptr=masked_indptr,
            masked=masked,
        )


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the columns of the ``k`` highest scores of each row, best first; ties go to the lower column.

    Args:
        scores: float32 [n, m], -inf for what must not be returned.
        k: 1 to m.

    Returns:
        int64 [n, k]; a row with fewer than ``k`` scores above -inf ends with columns of -inf.
    """
    rows, columns = scores.shape
    if not 1 <= k <= columns:
        raise UsageError(f"expected k between 1 and {columns}, received {k}")
    if rows == 0:
        return np.empty((0, k), dtype=np.int64)
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k].astype(np.int64)
    values = np.take_along_axis(scores, best, axis=1)
    threshold = values.min(axis=1)
    # The partition picks any of the candidates that tie for the last places: pick the lowest instead.
    tied_in = (values == threshold[:, None]).sum(axis=1)
    tied_all = (scores == threshold[:, None]).sum(axis=1)
    for row in np.flatnonzero(tied_all > tied_in):
        above = best[row][values[row] > threshold[row]]
        tied = np.flatnonzero(scores[row] == threshold[row])[: k - len(above)]
        best[row] = np.concatenate([above, tied])
    best.sort(axis=1)
    values = np.take_along_axis(scores, best, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def evaluate_ranking(
    score: ScoreBlock | DeviceScores,
    queries: RankingQueries,
    in_degree: NDArray[np.int64],
    *,
    k: int | Sequence[int] = 20,
    buckets: Sequence[PopularityBucket] = POPULARITY_BUCKETS,
    positive_groups: Mapping[str, NDArray[np.bool_]] | None = None,
    block_rows: int | None = None,
    threads: int | None = None,
    watch: Watch = UNWATCHED,
    sampled_from: int | None = None,
) -> dict[str, float | int]:
    """Rank all candidates for every query and average over queries.

    ``recall@k`` is the share of a query's positives among its first k; ``ndcg@k`` has binary gains, discount
    1 / log2(rank + 1) and the ideal of min(k, positives) hits (Järvelin and Kekäläinen, 2002); ``hit@k`` is
    the share of queries with a positive among their first k; ``coverage@k`` the share of candidates that are
    among the first k of any query; ``arp@k`` the mean training in-degree of a query's first k, averaged over
    queries (average recommendation popularity; Yin et al., "Challenging the long tail recommendation", VLDB
    2012): the higher, the more what is popular is shown. ``mrr`` is 1 / rank of the best positive in the
    whole ranking, where a tie takes the middle of its ranks. Of a popularity bucket, ``recall@k_<bucket>`` is
    the share of the bucket's held-out edges that are found, and ``positives_<bucket>`` their number; the same
    of a group of positives.

    The report is the same, bit for bit, for any number of threads: blocks do not depend on it.

    Args:
        score: gives the scores of a block of queries, in host memory or on a device. Ties are broken alike
            on both.
        queries: what to find and what to leave out.
        in_degree: int64 [candidates], training in-degree by which targets fall into buckets.
        k: length of the ranked list, or several.
        buckets: popularity buckets, disjoint.
        positive_groups: bool [p] by name: which positives are of the group, such as those of one edge type.
        block_rows: queries scored at once, fewer where their scores would fill more than 64 MiB; None: 64,
            and 4,096 on a device. Ranking takes as much memory again as the scores, on a device five times.
        threads: they call ``score`` side by side; on a device one does. None: see
            :func:`graphbox.native.thread_count`.
        watch: receives the number of queries ranked, and may stop the measurement.
        sampled_from: number of queries of which these are a sample; None: they are all.

    Returns:
        ``recall@k``, ``ndcg@k``, ``hit@k``, ``coverage@k`` and ``arp@k`` of each k; ``mrr``, ``queries``,
        ``positives``; and the figures of buckets and groups that have any. Of a sample ``queries_total``
        and no ``coverage@k``, which grows with the number of lists.

    Raises:
        UsageError: no queries, no k, or scores of another shape, or a score that is NaN.
    """
    lengths = _lengths(k)
    if len(queries.queries) == 0:
        raise UsageError(
            "expected at least one query to rank for, received none", hint="enlarge the part that is held out"
        )
    of_positives = {bucket.name: bucket.holds(in_degree[queries.positives]) for bucket in buckets}
    of_positives |= positive_groups or {}
    _check_groups(of_positives, len(queries.positives))
    places = np.empty(len(queries.positives), dtype=np.int64)
    reciprocal_rank = np.empty(len(queries.queries))
    best_place = np.full(len(in_degree), lengths[-1], dtype=np.int64)

    def rank(block: tuple[slice, slice, slice]) -> NDArray[np.int64]:
        rows, positive, masked = block
        positive_row, target = _rows(queries.positive_indptr, rows), queries.positives[positive]
        ranked, counts = _first_places(
            score,
            queries.queries[rows],
            len(in_degree),
            (_rows(queries.masked_indptr, rows), queries.masked[masked]),
            queries.excluded,
            (positive_row, target),
            min(lengths[-1], len(in_degree)),
        )
        places[positive] = _places(ranked, positive_row, target)
        reciprocal_rank[rows] = 1.0 / (counts[:, 0] + (counts[:, 1] + 1) / 2.0)
        return ranked

    if isinstance(score, DeviceScores):
        rows_of_block, threads = rows_and_threads(block_rows or DEVICE_ROWS, len(in_degree), 1)
    else:
        rows_of_block, threads = rows_and_threads(block_rows or RANKED_ROWS, len(in_degree), threads)
    done, popularity = 0, np.empty((len(queries.queries), len(lengths)))
    for ranked in made_in_turn(rank, queries.blocks(rows_of_block), threads, watch.check):
        popularity[done : done + len(ranked)] = _popularity(ranked, in_degree, lengths)
        done += len(ranked)
        watch.step(done, len(queries.queries))
        for place in range(ranked.shape[1]):
            shown = ranked[:, place]
            shown = shown[shown >= 0]
            best_place[shown] = np.minimum(best_place[shown], place)
    report: dict[str, float | int] = {}
    for length, shown_degree in zip(lengths, popularity.mean(axis=0).tolist(), strict=True):
        report |= _at(length, queries, places)
        if sampled_from is None:
            candidates = len(in_degree) - len(queries.excluded)
            report[f"coverage@{length}"] = float(np.count_nonzero(best_place < length) / candidates)
        report[f"arp@{length}"] = shown_degree
        for name, inside in of_positives.items():
            if inside.any():
                report[f"recall@{length}_{name}"] = float(_found(places[inside], length).mean())
            report[f"positives_{name}"] = int(inside.sum())
    if sampled_from is not None:
        report["queries_total"] = sampled_from
    return report | {
        "mrr": float(reciprocal_rank.mean()),
        "queries": len(queries.queries),
        "positives": len(queries.positives),
    }


def _take_rows(
    indptr: NDArray[np.int64], values: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    count = np.diff(indptr)[rows]
    taken = np.concatenate([[0], np.cumsum(count)])
    places = np.arange(taken[-1]) + np.repeat(indptr[rows] - taken[:-1], count)
    return taken, values[places]


def _lengths(k: int | Sequence[int]) -> list[int]:
    """Return the lengths of lists to judge, ascending."""
    lengths = sorted(set([k] if isinstance(k, int) else k))
    if not lengths or lengths[0] < 1:
        raise UsageError(f"expected lengths of ranked lists, at least 1, received {k!r}", where="k")
    return lengths


def _check_groups(groups: Mapping[str, NDArray[np.bool_]], count: int) -> None:
    for name, inside in groups.items():
        if inside.shape != (count,):
            raise UsageError(
                f"expected bool [{count}], a value for each positive, received {inside.shape}", where=name
            )


def _rows(indptr: NDArray[np.int64], rows: slice) -> NDArray[np.int64]:
    """Return the row, from 0, of each entry of ``rows``."""
    return np.repeat(np.arange(rows.stop - rows.start), np.diff(indptr[rows.start : rows.stop + 1]))


def _found(places: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    return (places >= 0) & (places < length)


def _at(length: int, queries: RankingQueries, places: NDArray[np.int64]) -> dict[str, float | int]:
    """Return the figures of lists of one length."""
    number = np.diff(queries.positive_indptr)
    discount = 1.0 / np.log2(np.arange(length) + 2.0)
    found = _found(places, length)
    gain = np.where(found, discount[np.where(found, places, 0)], 0.0)
    ideal = np.cumsum(discount)[np.minimum(number, length) - 1]
    hits = np.add.reduceat(found, queries.positive_indptr[:-1], dtype=np.int64)
    recall = hits / number
    ndcg = np.add.reduceat(gain, queries.positive_indptr[:-1]) / ideal
    return {
        f"recall@{length}": float(recall.mean()),
        f"ndcg@{length}": float(ndcg.mean()),
        f"hit@{length}": float(np.mean(hits > 0)),
    }


def _popularity(
    ranked: NDArray[np.int64], in_degree: NDArray[np.int64], lengths: Sequence[int]
) -> NDArray[np.float64]:
    """Return the mean in-degree of the lists of queries: float64 [queries, lengths].

    Args:
        ranked: int64 [queries, longest], best first; -1 where a list ends early.
        in_degree: int64 [candidates].
        lengths: of the lists to judge.
    """
    is_there = ranked >= 0
    degree = np.cumsum(np.where(is_there, in_degree[ranked], 0), axis=1)
    count = np.maximum(np.cumsum(is_there, axis=1), 1)
    last = np.minimum(np.array(lengths), ranked.shape[1]) - 1
    return np.asarray(degree[:, last] / count[:, last], dtype=np.float64)


_Cells = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns."""


def _first_places(
    score: ScoreBlock | DeviceScores,
    nodes: NDArray[np.int64],
    candidates: int,
    masked: _Cells,
    excluded: NDArray[np.int64],
    positives: _Cells,
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rank the candidates of some queries; see :func:`graphbox.metrics.device_ranking.first_places`."""
    if isinstance(score, DeviceScores):
        from graphbox.metrics.device_ranking import first_places  # torch, where there are its tensors

        made = score.score(nodes)
        check_shape(tuple(made.shape), len(nodes), candidates)
        ranked, counts, is_nan = first_places(made, masked, excluded, positives, k)
        check_numbers(is_nan, nodes)
        return ranked, counts
    scores = np.array(score(nodes), dtype=np.float32, order="C")
    check_shape(scores.shape, len(nodes), candidates)
    check_numbers(np.asarray(np.isnan(scores).any(axis=1)), nodes)
    scores[masked] = -np.inf
    scores[:, excluded] = -np.inf
    ranked = top_k(scores, k)
    ranked[np.take_along_axis(scores, ranked, axis=1) == -np.inf] = -1  # masked ones fill up short lists
    best = np.full(len(scores), -np.inf, dtype=np.float32)
    np.maximum.at(best, positives[0], scores[positives])
    above, ties = ((scores > best[:, None]).sum(axis=1), (scores == best[:, None]).sum(axis=1))
    return ranked, np.stack([above, ties], axis=1)


def check_shape(shape: tuple[int, ...], queries: int, candidates: int) -> None:
    """Check the shape of scores.

    Raises:
        UsageError: it is another one.
    """
    if shape != (queries, candidates):
        raise UsageError(
            f"expected scores of shape {(queries, candidates)} (queries, candidates), received {shape}"
        )


def check_numbers(is_nan: NDArray[np.bool_], queries: NDArray[np.int64]) -> None:
    """Check that no query has a score that is NaN.

    Args:
        is_nan: bool [n], which have.
        queries: int64 [n].

    Raises:
        UsageError: one has.
    """
    if is_nan.any():
        raise UsageError(
            "expected numbers, received a score that is NaN", where=f"query {queries[is_nan.argmax()]}"
        )


def _places(
    ranked: NDArray[np.int64], row: NDArray[np.int64], target: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return where in its row's ranked list each target stands, -1 where it does not."""
    matches = ranked[row] == target[:, None]
    return np.where(matches.any(axis=1), matches.argmax(axis=1), -1)
