"""Candidates that all queries of a batch share, and the probability with which each is there."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.live_rows import LiveRows
from graphbox.sample import NegativeSampler
from graphbox.train.transfer import moved

Cells: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns, int64 [n] each."""

_UNSEEN_WEIGHT = 0.1
"""In-degree that a candidate without known answers counts as when candidates are drawn."""


class Candidates:
    """Draws the candidates of batches by in-degree to a power, with replacement; they are taken once each.

    Args:
        degree: number [nodes], how many known answers each candidate is.
        live: which of these nodes there are; removed ones are never drawn.
        count: draws for each batch, which may be none.
        exponent: the power.
        seed: seed of the draws.
        device: of the attributes; None: they are in host memory.

    Attributes:
        log_probability: float32 [nodes], logarithm of the probability that a candidate is among those of a
            batch; -inf of removed nodes.
        log_noise: float32 [nodes], logarithm of the probability that one draw gives it; -inf of removed
            nodes.
    """

    def __init__(
        self,
        degree: NDArray[Any],
        live: LiveRows,
        count: int,
        exponent: float,
        seed: int,
        device: torch.device | None = None,
    ) -> None:
        self._count = count
        self._live = live
        weight = live.select(degree) + _UNSEEN_WEIGHT
        self._sampler = NegativeSampler(weight, exponent, seed)
        share = weight**exponent
        share = share / share.sum()
        drawn = -np.expm1(count * np.log1p(-np.minimum(share, 1 - 1e-9)))
        with np.errstate(divide="ignore"):  # of no draws
            self.log_probability, self.log_noise = (
                torch.from_numpy(live.spread(np.log(each).astype(np.float32), fill=-np.inf)).to(device)
                for each in (drawn, share)
            )

    def draw(self, epoch: int, batch: int, threads: int | None) -> NDArray[np.int64]:
        """Return the candidates of a batch: int64, ascending."""
        return self._live.nodes(np.unique(self._sampler.sample(self._count, epoch, batch, threads)))


def columns_among(candidates: NDArray[np.int64], row: NDArray[np.int64], nodes: NDArray[np.int64]) -> Cells:
    """Return those of some cells whose nodes are candidates: their rows, and their nodes' columns.

    Args:
        candidates: int64 [c], ascending.
        row: int64 [n].
        nodes: int64 [n].
    """
    if not len(candidates):
        return row[:0], row[:0]
    column = np.minimum(np.searchsorted(candidates, nodes), len(candidates) - 1)
    found = candidates[column] == nodes
    return row[found], column[found]


def no_negatives(
    shape: tuple[int, int],
    cells: Cells | tuple[Tensor, Tensor],
    device: torch.device,
    groups: Cells | tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return which candidates are no negatives of a query: bool [queries, candidates].

    It is made on the device: to a GPU only what it is made of is copied.

    Args:
        shape: number of queries and of candidates.
        cells: those that are none, for instance because the candidate is an answer of the query.
        device: where it is made.
        groups: int64 [queries] and [candidates], what each is of: of its own no query has negatives.
    """
    if groups is None:
        excluded = torch.zeros(shape, dtype=torch.bool, device=device)
    else:
        of_query, of_candidate = (moved(torch.as_tensor(each), device) for each in groups)
        excluded = of_query[:, None] == of_candidate
    row, column = (moved(torch.as_tensor(each), device) for each in cells)
    excluded[row, column] = True
    return excluded


def log_probability_in_batch(
    log_probability: Tensor, queries: NDArray[np.int64], others: int, drawn: int
) -> Tensor:
    """Return how likely candidates are in a batch that has the positives of its queries beside those drawn.

    A candidate is there when it was drawn, or when it is a positive of one of the queries of the batch, which
    are drawn from all without replacement. In-batch softmax is corrected by how often an item occurs in a
    batch (Yi et al., RecSys 2019), not by one of its causes alone. Seen from one query, the others count.

    Args:
        log_probability: float32 [n], logarithm of the probability that a candidate is drawn.
        queries: int64 [n], how many of the queries have it as a positive.
        others: number of queries there are.
        drawn: how many of them are in the batch.

    Returns:
        float32 [n].
    """
    absent = _log_absent(queries, others, drawn)
    not_drawn = np.log1p(-np.exp(np.minimum(log_probability.numpy().astype(np.float64), -1e-12)))
    with np.errstate(divide="ignore"):  # removed nodes are never there
        present = np.log(-np.expm1(np.minimum(absent, 0.0) + not_drawn))
    return torch.from_numpy(present.astype(np.float32))


def _log_absent(queries: NDArray[np.int64], others: int, drawn: int) -> NDArray[np.float64]:
    """Return how likely none of a candidate's queries is among those drawn: float64 [n], logarithms.

    That is hypergeometric. Differences of log-gamma functions would lose all digits where queries are many.
    """
    counts, place = np.unique(queries, return_inverse=True)
    absent = np.full(len(counts), -np.inf)
    for number, count in enumerate(counts.tolist()):
        if count + drawn <= others:
            fewer, more = sorted((count, drawn))
            absent[number] = np.log1p(-more / (others - np.arange(fewer))).sum()
    return absent[place]
