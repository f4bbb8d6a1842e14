"""Batches of skip-gram in Triton kernels: the twin of ``csrc/train/skip_gram.cpp``, to float tolerance.

A batch takes two launches. The first computes gradients at the rows as they are: a program has some places
that stand side by side, so that rows of centres and contexts are read once for all pairs of a window, and all
pairs are products of small matrices; the negatives that the batch shares follow. Nothing is added to memory
that another program writes. The second updates each row once, with the sum of its gradients in the order of
the batch. So results do not depend on the order in which programs run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "MOST_VALUES",
    "BatchArrays",
    "GradientArrays",
    "Learning",
    "RowArrays",
    "TileShape",
    "launch_gradients",
    "launch_update",
    "tile_shape",
]

MOST_VALUES = 512
"""The longest rows that kernels have room for."""

_PRECISION = "tf32x3"  # products of float32 by tensor cores, without loss of digits
_SOURCES = 4  # gradients of a row that are read together
_STAGES = 2  # of the pipeline that reads rows ahead
_TILES = 8  # parts of the gradient of a negative that are read together


class TileShape(NamedTuple):
    """How large parts are that a program computes with.

    Attributes:
        values: of a row, padded to a power of two.
        places: of a program.
        others: contexts or negatives at a time.
        warps: of a program.
    """

    values: int
    places: int
    others: int
    warps: int


def tile_shape(dim: int) -> TileShape:
    """Return the shape for rows of ``dim`` values."""
    values = max(16, triton.next_power_of_2(dim))
    if values <= 128:
        return TileShape(values, 32, 32, 4 if values <= 64 else 8)
    return TileShape(values, 16, 16, 8 if values <= 256 else 16)


class RowArrays(NamedTuple):
    """Rows of a table on the device.

    Attributes:
        values: float32 [keys, dim].
        accumulator: float32 [keys], the state of row-wise Adagrad.
        changed: uint8 [keys], 1 where a row was updated.
    """

    values: Tensor
    accumulator: Tensor
    changed: Tensor


class BatchArrays(NamedTuple):
    """What batches learn from, of a group of them; see :mod:`graphbox.skip_gram.batches`.

    Attributes:
        key: int64 [places].
        first: int64 [places], the first place of its contexts.
        last: int64 [places], one past the last.
        uses: int64 [places], of how many pairs it is the centre.
        begins: int64 [batches + 1], where the places of each begin.
        pairs: int64 [batches], how many each has.
        negatives: int64 [batches, negatives], keys.
        items: int64 [places + batches * negatives], batch * keys + key of all that has a gradient, ascending.
        sources: int64, which place it is, or which negative, counted from ``places`` on.
    """

    key: Tensor
    first: Tensor
    last: Tensor
    uses: Tensor
    begins: Tensor
    pairs: Tensor
    negatives: Tensor
    items: Tensor
    sources: Tensor


class GradientArrays(NamedTuple):
    """Room for the gradients of the batches that are computed side by side, and what is told of them.

    Attributes:
        center: float32 [side, places, dim].
        context: float32 [side, places, dim].
        negative: float32 [side, tiles, negatives, dim], of each program's places.
        losses: float64 [batches, tiles].
        stopped: int32 [1], 1 after a loss that is not finite: nothing is computed any more.
    """

    center: Tensor
    context: Tensor
    negative: Tensor
    losses: Tensor
    stopped: Tensor


@triton.jit
def _of_pair(logit):
    """Return log(1 + e^-x), NaN where x is infinite, and its derivative."""
    exponential = tl.exp(-tl.abs(logit))
    loss = tl.where(logit < 0, -logit, logit - logit) + tl.log(1 + exponential)
    return loss, tl.where(logit >= 0, -exponential, -1.0) / (1 + exponential)


@triton.jit
def _of_negative(logit):
    """Return log(1 + e^x), NaN where x is infinite, and its derivative."""
    exponential = tl.exp(-tl.abs(logit))
    loss = tl.where(logit > 0, logit, logit - logit) + tl.log(1 + exponential)
    return loss, tl.where(logit >= 0, 1.0, exponential) / (1 + exponential)


@triton.jit
def _rows(values, key, there, dim, VALUES: tl.constexpr):
    """Return the rows of keys, float32 [keys, VALUES], zeros where none is there."""
    column = tl.arange(0, VALUES)
    mask = there[:, None] & (column < dim)[None, :]
    return tl.load(values + key[:, None] * dim + column[None, :], mask=mask, other=0.0)


@triton.jit
def _learn_from_walks(
    center, context, key_at, first_at, last_at, place, inside, low, high, own_centers, own_contexts, scale,
    dim, VALUES: tl.constexpr, PLACES: tl.constexpr, OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the gradients of rows at places, as centres and as contexts, and the losses of these centres.

    Args:
        center: rows of centres, float32 [keys, dim].
        context: rows of contexts.
        key_at: int64 [all places], as ``first_at`` and ``last_at``.
        first_at: the first place of the contexts of each.
        last_at: one past the last.
        place: int64 [PLACES].
        inside: bool [PLACES], which of them count.
        low: the first place that may be in a pair with one of these.
        high: one past the last.
        own_centers: float32 [PLACES, VALUES], their rows.
        own_contexts: their rows as contexts.
        scale: of gradients.
        dim: values of a row.
        VALUES: see :class:`TileShape`.
        PLACES: as there.
        OTHERS: as there.
        PRECISION: of products.
    """
    key = tl.load(key_at + place, mask=inside, other=-1)
    first = tl.load(first_at + place, mask=inside, other=0)
    last = tl.load(last_at + place, mask=inside, other=0)
    center_sum = tl.zeros((PLACES, VALUES), tl.float32)
    context_sum = tl.zeros((PLACES, VALUES), tl.float32)
    loss = tl.zeros((PLACES,), tl.float32)
    for other_begin in range(low, high, OTHERS):
        other = other_begin + tl.arange(0, OTHERS)
        there = other < high
        other_key = tl.load(key_at + other, mask=there, other=-1)
        differs = key[:, None] != other_key[None, :]
        # These places as centres of the others ...
        rows = _rows(context, other_key, there, dim, VALUES)
        logit = tl.dot(own_centers, tl.trans(rows), input_precision=PRECISION)
        is_pair = differs & (other[None, :] >= first[:, None]) & (other[None, :] < last[:, None])
        term, slope = _of_pair(logit)
        loss += tl.sum(tl.where(is_pair, term, 0.0), 1)
        slope = tl.where(is_pair, slope * scale, 0.0)
        center_sum = tl.dot(slope, rows, center_sum, input_precision=PRECISION)
        # ... and as their contexts.
        other_first = tl.load(first_at + other, mask=there, other=0)
        other_last = tl.load(last_at + other, mask=there, other=0)
        rows = _rows(center, other_key, there, dim, VALUES)
        logit = tl.dot(own_contexts, tl.trans(rows), input_precision=PRECISION)
        is_pair = differs & (place[:, None] >= other_first[None, :])
        is_pair &= (place[:, None] < other_last[None, :]) & inside[:, None]
        _, slope = _of_pair(logit)
        slope = tl.where(is_pair, slope * scale, 0.0)
        context_sum = tl.dot(slope, rows, context_sum, input_precision=PRECISION)
    return center_sum, context_sum, loss


@triton.jit
def _learn_from_negatives(
    context, drawn, negative_gradients, own_centers, center_sum, loss, uses, scale, num_negatives,
    negative_weight, dim, VALUES: tl.constexpr, OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return gradients and losses of centres with those from negatives, whose own gradients are written.

    Args:
        context: rows of negatives, float32 [keys, dim].
        drawn: int64 [negatives], keys.
        negative_gradients: float32 [negatives, dim], where to write.
        own_centers: float32 [places, VALUES], rows of centres.
        center_sum: their gradients so far.
        loss: float32 [places], so far.
        uses: int64 [places], in how many pairs each is the centre.
        scale: of gradients.
        num_negatives: how many.
        negative_weight: how many negatives a pair is worth.
        dim: values of a row.
        VALUES: see :class:`TileShape`.
        OTHERS: as there.
        PRECISION: of products.
    """
    column = tl.arange(0, VALUES)
    weight = uses.to(tl.float32) * (negative_weight / num_negatives)
    for begin in range(0, num_negatives, OTHERS):
        negative = begin + tl.arange(0, OTHERS)
        there = negative < num_negatives
        rows = _rows(context, tl.load(drawn + negative, mask=there, other=0), there, dim, VALUES)
        logit = tl.dot(own_centers, tl.trans(rows), input_precision=PRECISION)
        counts = (uses > 0)[:, None] & there[None, :]
        term, slope = _of_negative(logit)
        loss += tl.sum(tl.where(counts, term, 0.0), 1) * weight
        slope = tl.where(counts, slope * (weight * scale)[:, None], 0.0)
        center_sum = tl.dot(slope, rows, center_sum, input_precision=PRECISION)
        of_negatives = tl.dot(tl.trans(slope), own_centers, input_precision=PRECISION)
        target = negative[:, None].to(tl.int64) * dim + column[None, :]
        mask = there[:, None] & (column < dim)[None, :]
        tl.store(negative_gradients + target, of_negatives, mask=mask)
    return center_sum, loss


@triton.jit(do_not_specialize=["number"])  # one kernel for all batches
def _gradients(
    center, context, key_at, first_at, last_at, uses_at, begins, pairs, negatives, center_gradients,
    context_gradients, negative_gradients, losses, stopped, number, batches, most_places, most_tiles, reach,
    num_negatives, negative_weight, dim, VALUES: tl.constexpr, PLACES: tl.constexpr, OTHERS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of some places of a batch, and those that negatives have from them."""
    tile = tl.program_id(0)
    side = tl.program_id(1).to(tl.int64)
    batch = number + side
    num_pairs = tl.load(pairs + batch, mask=batch < batches, other=0)
    if (num_pairs > 0) & (tl.load(stopped) == 0):
        batch_begin = tl.load(begins + batch)
        batch_end = tl.load(begins + batch + 1)
        begin = batch_begin + tile * PLACES
        if begin < batch_end:
            place = begin + tl.arange(0, PLACES)
            inside = place < batch_end
            key = tl.load(key_at + place, mask=inside, other=-1)
            scale = 1.0 / num_pairs.to(tl.float32)
            own_centers = _rows(center, key, inside, dim, VALUES)
            own_contexts = _rows(context, key, inside, dim, VALUES)
            low = tl.maximum(begin - reach, batch_begin)
            high = tl.minimum(begin + PLACES + reach, batch_end)
            center_sum, context_sum, loss = _learn_from_walks(
                center, context, key_at, first_at, last_at, place, inside, low, high, own_centers,
                own_contexts, scale, dim, VALUES, PLACES, OTHERS, PRECISION,
            )  # fmt: skip
            part = side * most_tiles + tile
            center_sum, loss = _learn_from_negatives(
                context, negatives + batch * num_negatives, negative_gradients + part * num_negatives * dim,
                own_centers, center_sum, loss, tl.load(uses_at + place, mask=inside, other=0), scale,
                num_negatives, negative_weight, dim, VALUES, OTHERS, PRECISION,
            )  # fmt: skip
            column = tl.arange(0, VALUES)
            target = (side * most_places + place - batch_begin)[:, None] * dim + column[None, :]
            mask = inside[:, None] & (column < dim)[None, :]
            tl.store(center_gradients + target, center_sum, mask=mask)
            tl.store(context_gradients + target, context_sum, mask=mask)
            total = tl.sum(loss.to(tl.float64), 0)
            tl.store(losses + batch * most_tiles + tile, total)
            if total - total != 0:  # infinite, or not a number
                tl.store(stopped, 1)


@triton.jit
def _step(values, accumulator, changed, key, gradient, lr, eps, dim, VALUES: tl.constexpr):
    """Update a row by row-wise Adagrad; a gradient of zeros changes nothing."""
    mean_square = tl.sum(gradient * gradient, 0) / dim
    if mean_square != 0:
        column = tl.arange(0, VALUES)
        is_value = column < dim
        gained = tl.load(accumulator + key) + mean_square
        value = tl.load(values + key * dim + column, mask=is_value, other=0.0)
        step = lr / (tl.sqrt_rn(gained) + eps)
        tl.store(values + key * dim + column, value - step * gradient, mask=is_value)
        tl.store(accumulator + key, gained)
        tl.store(changed + key, 1)


@triton.jit(do_not_specialize=["number"])
def _update(
    center, center_accumulator, center_changed, context, context_accumulator, context_changed, items, sources,
    begins, pairs, center_gradients, context_gradients, negative_gradients, stopped, number, batches,
    num_keys, most_places, most_tiles, num_places, num_negatives, lr, eps, dim, ONE_TABLE: tl.constexpr,
    VALUES: tl.constexpr, PLACES: tl.constexpr, SOURCES: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Update the row of an item, if it is the first of its row."""
    side = tl.program_id(1).to(tl.int64)
    batch = number + side
    num_pairs = tl.load(pairs + batch, mask=batch < batches, other=0)
    if (num_pairs > 0) & (tl.load(stopped) == 0):
        batch_begin = tl.load(begins + batch)
        places = tl.load(begins + batch + 1) - batch_begin
        begin = batch_begin + batch * num_negatives
        end = begin + places + num_negatives
        at = begin + tl.program_id(0)
        item = tl.load(items + at, mask=at < end, other=-1)
        before = tl.load(items + at - 1, mask=(at > begin) & (at < end), other=-1)
        if item != before:
            column = tl.arange(0, VALUES)
            is_value = (column < dim)[None, :]
            slot = tl.arange(0, SOURCES)
            center_sum = tl.zeros((VALUES,), tl.float32)
            context_sum = tl.zeros((VALUES,), tl.float32)
            occurrences = 0
            found = 0
            more = 1
            while more > 0:
                entry = at + found + slot
                same = (entry < end) & (tl.load(items + entry, mask=entry < end, other=-1) == item)
                source = tl.load(sources + entry, mask=same, other=num_places)
                is_place = source < num_places
                row = side * most_places + source - batch_begin
                address = row[:, None] * dim + column[None, :]
                mask = is_place[:, None] & is_value
                center_sum += tl.sum(tl.load(center_gradients + address, mask=mask, other=0.0), 0)
                context_sum += tl.sum(tl.load(context_gradients + address, mask=mask, other=0.0), 0)
                occurrences += tl.sum(is_place.to(tl.int32), 0)
                more = (tl.sum(same.to(tl.int32), 0) == SOURCES).to(tl.int32)
                found += tl.sum(same.to(tl.int32), 0)
            tiles = (places + PLACES - 1) // PLACES
            first_part = side * most_tiles
            for number_of in range(occurrences, found):
                negative = tl.load(sources + at + number_of) - num_places - batch * num_negatives
                for first_tile in range(0, tiles, TILES):
                    tile = first_tile + tl.arange(0, TILES)
                    row = (first_part + tile) * num_negatives + negative
                    address = row[:, None] * dim + column[None, :]
                    mask = (tile < tiles)[:, None] & is_value
                    context_sum += tl.sum(tl.load(negative_gradients + address, mask=mask, other=0.0), 0)
            key = item - batch * num_keys
            if ONE_TABLE:
                gradient = center_sum + context_sum
                _step(center, center_accumulator, center_changed, key, gradient, lr, eps, dim, VALUES)
            else:
                _step(center, center_accumulator, center_changed, key, center_sum, lr, eps, dim, VALUES)
                _step(context, context_accumulator, context_changed, key, context_sum, lr, eps, dim, VALUES)


class Learning(NamedTuple):
    """How rows learn.

    Attributes:
        reach: most places between a centre and its context.
        negative_weight: how many negatives a pair is worth.
        learning_rate: of row-wise Adagrad.
        eps: added to the root that it divides by.
        num_keys: rows of a table.
    """

    reach: int
    negative_weight: float
    learning_rate: float
    eps: float
    num_keys: int


def launch_gradients(
    center: RowArrays,
    context: RowArrays,
    batches: BatchArrays,
    gradients: GradientArrays,
    learning: Learning,
    number: int,
    side: int,
) -> None:
    """Compute the gradients and losses of batches ``number`` to ``number + side - 1`` of the group."""
    dim = center.values.shape[1]
    shape = tile_shape(dim)
    _, most_tiles, num_negatives, _ = gradients.negative.shape
    _gradients[most_tiles, side](
        center.values,
        context.values,
        batches.key,
        batches.first,
        batches.last,
        batches.uses,
        batches.begins,
        batches.pairs,
        batches.negatives,
        gradients.center,
        gradients.context,
        gradients.negative,
        gradients.losses,
        gradients.stopped,
        number,
        len(batches.pairs),
        gradients.center.shape[1],
        most_tiles,
        learning.reach,
        num_negatives,
        learning.negative_weight,
        dim,
        VALUES=shape.values,
        PLACES=shape.places,
        OTHERS=shape.others,
        PRECISION=_PRECISION,
        num_warps=shape.warps,
        num_stages=_STAGES,
        enable_fp_fusion=False,
    )


def launch_update(
    center: RowArrays,
    context: RowArrays,
    batches: BatchArrays,
    gradients: GradientArrays,
    learning: Learning,
    number: int,
    side: int,
) -> None:
    """Update the rows of the batches whose gradients were computed; those of several may meet in a row."""
    dim = center.values.shape[1]
    shape = tile_shape(dim)
    _, most_tiles, num_negatives, _ = gradients.negative.shape
    most_places = gradients.center.shape[1]
    _update[most_places + num_negatives, side](
        *center,
        *context,
        batches.items,
        batches.sources,
        batches.begins,
        batches.pairs,
        gradients.center,
        gradients.context,
        gradients.negative,
        gradients.stopped,
        number,
        len(batches.pairs),
        learning.num_keys,
        most_places,
        most_tiles,
        len(batches.key),
        num_negatives,
        learning.learning_rate,
        learning.eps,
        dim,
        ONE_TABLE=center.values is context.values,
        VALUES=shape.values,
        PLACES=shape.places,
        SOURCES=_SOURCES,
        TILES=_TILES,
        num_warps=1,
        enable_fp_fusion=False,
    )
