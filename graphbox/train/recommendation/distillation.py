"""Distillation of rankings: a model learns the candidates that its teachers rank first.

The teachers' k best candidates of each query are found once, before the training (Ranking Distillation, Tang
and Wang, KDD 2018). Where that paper weighs them by their ranks, the student learns the teachers'
probabilities by the Kullback-Leibler divergence (Hinton et al., Distilling the Knowledge in a Neural Network,
2015, section 2), over the list and, as one class, all other candidates: those count together, as in the
relaxed rankings of DE-RRD (Kang et al., CIKM 2020). The student's probability of that class is
estimated from the candidates that are drawn for a batch anyway, as in its sampled softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import RankingDistillationSection
from graphbox.errors import UsageError
from graphbox.metrics import RankingQueries
from graphbox.metrics.blocks import UNWATCHED, Watch, rows_and_threads
from graphbox.metrics.ranking import DEVICE_ROWS, RANKED_ROWS
from graphbox.train.transfer import CPU, tensor_on

Vectors = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Vectors of queries and of candidates, float32 [nodes, dim] each: scores are their inner products."""

_NEVER = -1e9


@dataclass(frozen=True, eq=False)
class RankedLists:
    """First candidates of queries, and how probable teachers hold them.

    Attributes:
        candidates: int32 [queries, k], best first; -1 where a query has no more candidates.
        probability: float32 [queries, k], 0 where there is none.
    """

    candidates: NDArray[np.int32]
    probability: NDArray[np.float32]


class RankingDistillation:
    """The part of a student's loss that its teachers give.

    Args:
        section: its teachers and how it learns from them.
        teachers: vectors of each.
        queries: int64 [n], queries that are trained on.
        known: 0/1 [queries, candidates], known answers and the like, which are not in lists.
        removed: int64, candidates that are not there.
        temperature: of the student; divides scores of teachers, too.
        device: where the student computes.

    Raises:
        UsageError: a teacher has vectors of other nodes.
    """

    def __init__(
        self,
        section: RankingDistillationSection,
        teachers: Sequence[Vectors],
        queries: NDArray[np.int64],
        known: sp.csr_array,
        removed: NDArray[np.int64],
        temperature: float,
        device: torch.device,
    ) -> None:
        for vectors, name in zip(teachers, section.teachers, strict=True):
            received = tuple(len(each) for each in vectors)
            if received != known.shape:
                raise UsageError(
                    f"expected a teacher with vectors of {known.shape[0]} queries and {known.shape[1]} "
                    f"candidates, received `{name}` with {received[0]} and {received[1]}",
                    where="distil.teachers",
                )
        self._temperature = section.temperature
        self._device = device
        self._row = np.full(known.shape[0], -1, np.int64)
        self._row[queries] = np.arange(len(queries))
        masked = known[queries]
        asked = RankingQueries(
            queries,
            np.zeros(len(queries) + 1, np.int64),
            np.zeros(0, np.int64),
            masked.indptr.astype(np.int64),
            masked.indices.astype(np.int64),
            removed,
        )
        self._lists = ranked_lists(teachers, asked, section.k, temperature * section.temperature, device)

    def listed(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the teachers' best candidates of queries: int64 [n, k], -1 for none."""
        return self._lists.candidates[self._row[queries]].astype(np.int64)

    def loss(
        self, queries: NDArray[np.int64], listed: Tensor, others: Tensor, log_probability: Tensor
    ) -> Tensor:
        """Return the mean loss of queries; see :func:`listwise_divergence`.

        Args:
            queries: int64 [n].
            listed: float32 [n, k], the student's logits of :meth:`listed`.
            others: float32 [n, drawn].
            log_probability: float32 [drawn].
        """
        probability = tensor_on(self._lists.probability[self._row[queries]], self._device)
        return listwise_divergence(listed, probability, others, log_probability, self._temperature)


def ranked_lists(
    teachers: Sequence[Vectors],
    queries: RankingQueries,
    k: int,
    temperature: float,
    device: torch.device = CPU,
    watch: Watch = UNWATCHED,
) -> RankedLists:
    """Return the candidates of each query that are most probable by the mean of its teachers.

    A teacher's probabilities are the softmax of its scores of all candidates but the masked ones. Scores are
    made in blocks of queries, of at most 64 MiB for each teacher's.

    Args:
        teachers: vectors of each.
        queries: which, and what is no candidate of each; positives do not matter.
        k: length of a list; fewer where there are fewer candidates.
        temperature: scores are divided by it.
        device: where scores are computed.
        watch: may stop it.
    """
    num_queries, num_candidates = len(queries.queries), len(teachers[0][1])
    k = min(k, num_candidates)
    found = RankedLists(np.full((num_queries, k), -1, np.int32), np.zeros((num_queries, k), np.float32))
    candidates = [tensor_on(np.array(each), device) for _, each in teachers]
    excluded = tensor_on(queries.excluded, device)
    wanted = RANKED_ROWS if device.type == "cpu" else DEVICE_ROWS
    size, _ = rows_and_threads(wanted, num_candidates, 1)
    for rows, _, masked in queries.blocks(size):
        watch.check()
        nodes = queries.queries[rows]
        known = np.diff(queries.masked_indptr[rows.start : rows.stop + 1])
        cells = (
            tensor_on(np.repeat(np.arange(len(nodes)), known), device),
            tensor_on(queries.masked[masked], device),
        )
        mean = torch.zeros((len(nodes), num_candidates), device=device)
        for (of_queries, _), of_candidates in zip(teachers, candidates, strict=True):
            scores = tensor_on(np.array(of_queries[nodes]), device) @ of_candidates.T / temperature
            scores[cells] = -torch.inf
            scores[:, excluded] = -torch.inf
            mean += torch.softmax(scores, dim=1).nan_to_num_()  # of a query without any candidate
        probability, best = torch.topk(mean / len(teachers), k, dim=1)
        found.probability[rows] = probability.cpu().numpy()
        found.candidates[rows] = torch.where(probability > 0, best, -1).cpu().numpy()
    return found


def listwise_divergence(
    listed: Tensor, probability: Tensor, others: Tensor, log_probability: Tensor, temperature: float = 1.0
) -> Tensor:
    """Return the mean divergence of a student's ranking from its teachers', over the queries.

    That is the Kullback-Leibler divergence over the candidates of each list and, as one class, all others;
    times the square of the temperature, so that gradients have one scale at any.

    Args:
        listed: float32 [queries, k], the student's logits of listed candidates.
        probability: float32 [queries, k], what the teachers say of them; 0 where nothing is listed.
        others: float32 [queries, drawn], the student's logits of drawn candidates; -inf for what is listed,
            or no candidate of the query.
        log_probability: float32 [drawn], logarithm of the probability that each was drawn.
        temperature: the student's logits are divided by it; the teachers' probabilities are at it already.
    """
    scaled = (listed / temperature).masked_fill(probability == 0, _NEVER)
    rest = torch.logsumexp((others / temperature - log_probability).clamp(min=_NEVER), dim=1)
    logits = torch.cat([scaled, rest[:, None]], dim=1)
    of_rest = (1.0 - probability.sum(dim=1, keepdim=True)).clamp(min=0.0)
    wanted = torch.cat([probability, of_rest], dim=1)
    divergence = torch.special.xlogy(wanted, wanted) - wanted * torch.log_softmax(logits, dim=1)
    loss: Tensor = divergence.sum(dim=1).mean() * temperature**2
    return loss


def list_agreement(
    student: Vectors,
    teachers: Sequence[Vectors],
    queries: RankingQueries,
    k: int,
    watch: Watch = UNWATCHED,
) -> float:
    """Return the mean share of the teachers' first ``k`` candidates that are among the student's first ``k``.

    Args:
        student: its vectors.
        teachers: vectors of each; the softmax of their scores is averaged.
        queries: which, and what is no candidate of each.
        k: length of the lists.
        watch: may stop it.
    """
    theirs, own = (
        ranked_lists(each, queries, k, 1.0, watch=watch).candidates for each in (teachers, [student])
    )
    found = [
        np.isin(wanted[wanted >= 0], first).mean()
        for wanted, first in zip(theirs, own, strict=True)
        if wanted[0] >= 0
    ]
    return float(np.mean(found)) if found else 1.0
