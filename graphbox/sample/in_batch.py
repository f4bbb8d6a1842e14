"""In-batch negatives: the other items of a batch, their collisions, and how often each is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from graphbox import _core
from graphbox.errors import DataError, UsageError
from graphbox.native import integer_array, like, thread_count
from graphbox.sample.adjacency import Adjacency
from graphbox.sample.negative import NegativeSampler, known_positive_rows

__all__ = ["InBatchNegatives", "in_batch_negatives"]

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True)
class InBatchNegatives(Generic[Array]):
    """The candidates of a batch, the same for all its queries.

    Query ``i`` has its positive at candidate ``i``; the others are its negatives but for collisions::

        logits = query_embedding @ item_embedding[negatives.candidates].T
        logits = (logits - negatives.log_expected_count).masked_fill(negatives.collisions, -math.inf)
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)))

    Attributes:
        candidates: int64 [b + extra]: the items of the batch, then those drawn beside.
        collisions: bool [b, b + extra], candidates that must not count as negatives of a query: its own item
            again, an item it has elsewhere in the batch, or another known positive. Never its positive's own
            place.
        log_expected_count: float32 [b + extra], the logarithm of how often each candidate is expected among
            them; None when ``popularity`` was not given.
    """

    candidates: Array
    collisions: Array
    log_expected_count: Any = None


def in_batch_negatives(
    items: Any,
    queries: Any = None,
    *,
    known_positives: Adjacency | None = None,
    popularity: NegativeSampler | None = None,
    extra: NegativeSampler | None = None,
    num_extra: int = 0,
    epoch: int = 0,
    batch: int = 0,
    threads: int | None = None,
) -> InBatchNegatives[Any]:
    """Return the items of a batch of positive pairs as negatives of each other, and more drawn beside.

    Popular items are in many batches, so they are negatives more often than others, and a model that is not
    told learns to push them down. Subtracting the logarithm of the expected count from each logit corrects it
    (Yi et al., "Sampling-bias-corrected neural modeling for large corpus item recommendations", RecSys 2019).
    Items that are never positives are never in a batch: drawing some more uniformly makes negatives of these
    too (mixed negative sampling; Yang et al., WWW Companion 2020). Counts of both kinds then add up.

    Args:
        items: integers [b], the item of each pair.
        queries: integers [b], the query of each pair: the items of one query are no negatives of each other.
            Needed for ``known_positives``.
        known_positives: an adjacency with a row for each query, ascending, for instance the CSR of the edges.
        popularity: draws items as batches do: for batches of edges that are drawn alike,
            ``NegativeSampler.from_graph(graph, edge_type, alpha=1)``. None: no correction.
        extra: draws the candidates beside the batch's, for instance ``NegativeSampler.uniform(n)``.
        num_extra: how many of these.
        epoch: part of the key of the draws of ``extra``.
        batch: part of the key of the draws of ``extra``.
        threads: None: see :func:`graphbox.native.thread_count`. Results do not depend on it.

    Returns:
        Candidates, collisions and correction; torch tensors when ``items`` is one.

    Raises:
        UsageError: a query or item that is none, or another wrong argument.
        DataError: an item of the batch that ``popularity`` never draws; damaged known positives.
    """
    own = integer_array(items, "items")
    asking = own[:0] if queries is None else integer_array(queries, "queries")
    if (known_positives is not None or queries is not None) and len(asking) != len(own):
        raise UsageError(
            f"expected the query of each of {len(own)} items, received {len(asking)}",
            where="queries",
            hint="known positives are looked up by query",
        )
    if (extra is None) != (num_extra == 0) or num_extra < 0:
        raise UsageError(
            f"expected a sampler and how many it draws, received {'none' if extra is None else 'one'} and "
            f"{num_extra!r}",
            where="extra",
        )
    candidates = own
    if extra is not None:
        candidates = np.concatenate([own, extra.sample(num_extra, epoch, batch, threads)])
    collisions = _core.find_collisions(
        asking,
        own,
        candidates,
        None if known_positives is None else known_positive_rows(known_positives),
        thread_count(threads),
    )
    log_expected_count = None
    if popularity is not None:
        count = popularity.expected_count(candidates, len(own))
        if extra is not None:
            count = count + extra.expected_count(candidates, num_extra)
        if not (count > 0).all():
            position = int(np.argmin(count > 0))
            raise DataError(
                f"item {candidates[position]} at position {position} is in the batch, but its weight is 0",
                where="popularity",
                hint="give every item that can be in a batch a weight above 0",
            )
        log_expected_count = like(np.log(count).astype(np.float32), items)
    return InBatchNegatives(like(candidates, items), like(collisions, items), log_expected_count)
