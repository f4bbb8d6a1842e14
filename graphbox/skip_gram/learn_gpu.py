"""Batches of skip-gram in Triton kernels: the twin of ``csrc/train/skip_gram.cpp``, to float tolerance.

A batch takes two launches. The first computes gradients at the rows as they are: a program has some places
that stand side by side, so that rows of centres and contexts are read once for all pairs of a window, and all
pairs are products of small matrices; other programs take the negatives that the batch shares. Nothing is
added to memory that another program writes. The second updates each row once, with the sum of its gradients
in the order of the batch. So results do not depend on the order in which programs run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from graphbox.skip_gram.arrays import BatchArrays, GradientArrays, TieredRows
    from graphbox.skip_gram.tile_shapes import TileShape

_PRECISION = "tf32x3"  # products of float32 by tensor cores, without loss of digits
_SOURCES = 4  # gradients of a row that are read together
_STAGES = 2  # of the pipeline that reads rows ahead
_TILES = 8  # parts of the gradient of a negative that are read together


def shared_bytes(device: torch.device) -> int | None:
    """Return how much shared memory a program may have; None: any, where it is interpreted."""
    if device.type != "cuda":
        return None
    number = torch.cuda.current_device() if device.index is None else device.index
    return int(triton.runtime.driver.active.utils.get_device_properties(number)["max_shared_mem"])


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
def _address(first, rest, num_first, position, row_values, column, TIERED: tl.constexpr):
    """Return where columns of the rows of positions are, each row in the memory it is in."""
    address = first + position * row_values + column
    if TIERED:  # chosen column by column: of rows alone the compiler would forget how addresses are aligned
        address = tl.where(position < num_first, address, rest + (position - num_first) * row_values + column)
    return address


@triton.jit
def _rows(first, rest, num_first, position, there, dim, VALUES: tl.constexpr, TIERED: tl.constexpr):
    """Return the rows of positions, float32 [positions, VALUES], zeros where none is there."""
    column = tl.arange(0, VALUES)[None, :]
    address = _address(first, rest, num_first, position[:, None], dim, column, TIERED)
    return tl.load(address, mask=there[:, None] & (column < dim), other=0.0)


@triton.jit
def _learn_from_walks(
    center, rest_center, context, rest_context, num_first, position_at, first_at, last_at, place, inside, low,
    high, own_centers, own_contexts, scale, dim, TIERED: tl.constexpr, VALUES: tl.constexpr,
    PLACES: tl.constexpr, OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the gradients of rows at places, as centres and as contexts, and the losses of these centres.

    Args:
        center: rows of centres, the first ``num_first`` ones, float32 [rows, dim].
        rest_center: those that follow, in the other memory.
        context: rows of contexts.
        rest_context: those that follow.
        num_first: how many rows come first.
        position_at: int64 [all places], as ``first_at`` and ``last_at``.
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
        TIERED: whether there are rows that follow the first.
        VALUES: see :class:`graphbox.skip_gram.tile_shapes.TileShape`.
        PLACES: as there.
        OTHERS: as there.
        PRECISION: of products.
    """
    position = tl.load(position_at + place, mask=inside, other=-1)
    first = tl.load(first_at + place, mask=inside, other=0)
    last = tl.load(last_at + place, mask=inside, other=0)
    center_sum = tl.zeros((PLACES, VALUES), tl.float32)
    context_sum = tl.zeros((PLACES, VALUES), tl.float32)
    loss = tl.zeros((PLACES,), tl.float32)
    for other_begin in range(low, high, OTHERS):
        other = other_begin + tl.arange(0, OTHERS)
        there = other < high
        others = tl.load(position_at + other, mask=there, other=-1)
        differs = position[:, None] != others[None, :]
        # These places as centres of the others ...
        rows = _rows(context, rest_context, num_first, others, there, dim, VALUES, TIERED)
        logit = tl.dot(own_centers, tl.trans(rows), input_precision=PRECISION)
        is_pair = differs & (other[None, :] >= first[:, None]) & (other[None, :] < last[:, None])
        term, slope = _of_pair(logit)
        loss += tl.sum(tl.where(is_pair, term, 0.0), 1)
        slope = tl.where(is_pair, slope * scale, 0.0)
        center_sum = tl.dot(slope, rows, center_sum, input_precision=PRECISION)
        # ... and as their contexts.
        other_first = tl.load(first_at + other, mask=there, other=0)
        other_last = tl.load(last_at + other, mask=there, other=0)
        rows = _rows(center, rest_center, num_first, others, there, dim, VALUES, TIERED)
        logit = tl.dot(own_contexts, tl.trans(rows), input_precision=PRECISION)
        is_pair = differs & (place[:, None] >= other_first[None, :])
        is_pair &= (place[:, None] < other_last[None, :]) & inside[:, None]
        _, slope = _of_pair(logit)
        slope = tl.where(is_pair, slope * scale, 0.0)
        context_sum = tl.dot(slope, rows, context_sum, input_precision=PRECISION)
    return center_sum, context_sum, loss


@triton.jit
def _learn_from_negatives(
    context, rest_context, num_first, drawn, negative_gradients, own_centers, uses, scale, num_negatives,
    negative_weight, dim, TIERED: tl.constexpr, VALUES: tl.constexpr, CENTERS: tl.constexpr,
    OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return gradients and losses of centres from negatives, whose own gradients are written.

    Args:
        context: rows of negatives, the first ``num_first`` ones, float32 [rows, dim].
        rest_context: those that follow, in the other memory.
        num_first: how many rows come first.
        drawn: int64 [negatives], positions.
        negative_gradients: float32 [negatives, dim], where to write.
        own_centers: float32 [CENTERS, VALUES], rows of centres.
        uses: int64 [CENTERS], in how many pairs each is the centre.
        scale: of gradients.
        num_negatives: how many.
        negative_weight: how many negatives a pair is worth.
        dim: values of a row.
        TIERED: whether there are rows that follow the first.
        VALUES: see :class:`graphbox.skip_gram.tile_shapes.TileShape`.
        CENTERS: as there.
        OTHERS: as there.
        PRECISION: of products.
    """
    center_sum = tl.zeros((CENTERS, VALUES), tl.float32)
    loss = tl.zeros((CENTERS,), tl.float32)
    column = tl.arange(0, VALUES)
    weight = uses.to(tl.float32) * (negative_weight / num_negatives)
    for begin in range(0, num_negatives, OTHERS):
        negative = begin + tl.arange(0, OTHERS)
        there = negative < num_negatives
        position = tl.load(drawn + negative, mask=there, other=0)
        rows = _rows(context, rest_context, num_first, position, there, dim, VALUES, TIERED)
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


@triton.jit
def _store_rows(target, first_row, rows, inside, dim, COUNT: tl.constexpr, VALUES: tl.constexpr):
    """Write float32 [COUNT, VALUES] to rows from ``first_row`` on."""
    column = tl.arange(0, VALUES)
    row = first_row + tl.arange(0, COUNT)
    mask = inside[:, None] & (column < dim)[None, :]
    tl.store(target + row[:, None] * dim + column[None, :], rows, mask=mask)


@triton.jit
def _store_loss(target, stopped, loss):
    """Write the sum of the losses of places; what is not finite stops all that comes after."""
    total = tl.sum(loss.to(tl.float64), 0)
    tl.store(target, total)
    if total - total != 0:  # infinite, or not a number
        tl.store(stopped, 1)


@triton.jit(do_not_specialize=["num_first", "number"])  # one kernel for all batches
def _gradients(
    center, rest_center, context, rest_context, num_first, position_at, first_at, last_at, uses_at, begins,
    pairs, negatives, center_gradients, context_gradients, negative_gradients, losses, stopped, number,
    batches, most_places, walk_tiles, center_tiles, reach, num_negatives, negative_weight, dim,
    TIERED: tl.constexpr, VALUES: tl.constexpr, PLACES: tl.constexpr, CENTERS: tl.constexpr,
    OTHERS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of some places from walks, or from negatives and those of the negatives."""
    program = tl.program_id(0)
    side = tl.program_id(1).to(tl.int64)
    batch = number + side
    num_pairs = tl.load(pairs + batch, mask=batch < batches, other=0)
    # Others of this launch may set it: whether this one still computes then changes nothing.
    if (num_pairs > 0) & (tl.load(stopped, volatile=True) == 0):
        batch_begin = tl.load(begins + batch)
        batch_end = tl.load(begins + batch + 1)
        scale = 1.0 / num_pairs.to(tl.float32)
        at = batch * (walk_tiles + center_tiles) + program
        if program < walk_tiles:
            begin = batch_begin + program * PLACES
            if begin < batch_end:
                place = begin + tl.arange(0, PLACES)
                inside = place < batch_end
                position = tl.load(position_at + place, mask=inside, other=-1)
                own_centers = _rows(center, rest_center, num_first, position, inside, dim, VALUES, TIERED)
                own_contexts = _rows(context, rest_context, num_first, position, inside, dim, VALUES, TIERED)
                low = tl.maximum(begin - reach, batch_begin)
                high = tl.minimum(begin + PLACES + reach, batch_end)
                center_sum, context_sum, loss = _learn_from_walks(
                    center, rest_center, context, rest_context, num_first, position_at, first_at, last_at,
                    place, inside, low, high, own_centers, own_contexts, scale, dim, TIERED, VALUES, PLACES,
                    OTHERS, PRECISION,
                )  # fmt: skip
                row = begin - batch_begin
                own_gradients = center_gradients + 2 * side * most_places * dim
                _store_rows(own_gradients, row, center_sum, inside, dim, PLACES, VALUES)
                own_gradients = context_gradients + side * most_places * dim
                _store_rows(own_gradients, row, context_sum, inside, dim, PLACES, VALUES)
                _store_loss(losses + at, stopped, loss)
        else:
            tile = program - walk_tiles
            begin = batch_begin + tile * CENTERS
            if begin < batch_end:
                place = begin + tl.arange(0, CENTERS)
                inside = place < batch_end
                position = tl.load(position_at + place, mask=inside, other=-1)
                uses = tl.load(uses_at + place, mask=inside, other=0)
                own_centers = _rows(center, rest_center, num_first, position, inside, dim, VALUES, TIERED)
                part = (side * center_tiles + tile) * num_negatives
                center_sum, loss = _learn_from_negatives(
                    context, rest_context, num_first, negatives + batch * num_negatives,
                    negative_gradients + part * dim, own_centers, uses, scale, num_negatives, negative_weight,
                    dim, TIERED, VALUES, CENTERS, OTHERS, PRECISION,
                )  # fmt: skip
                own_gradients = center_gradients + (2 * side + 1) * most_places * dim
                _store_rows(own_gradients, begin - batch_begin, center_sum, inside, dim, CENTERS, VALUES)
                _store_loss(losses + at, stopped, loss)


@triton.jit
def _step(
    values, accumulator, changed, rest_values, rest_accumulator, rest_changed, num_first, position, gradient,
    lr, eps, dim, TIERED: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Update a row by row-wise Adagrad; a gradient of zeros changes nothing."""
    mean_square = tl.sum(gradient * gradient, 0) / dim
    if mean_square != 0:
        column = tl.arange(0, VALUES)
        is_value = column < dim
        row = _address(values, rest_values, num_first, position, dim, column, TIERED)
        sum_of_squares = _address(accumulator, rest_accumulator, num_first, position, 1, 0, TIERED)
        gained = tl.load(sum_of_squares) + mean_square
        value = tl.load(row, mask=is_value, other=0.0)
        step = lr / (tl.sqrt_rn(gained) + eps)
        tl.store(row, value - step * gradient, mask=is_value)
        tl.store(sum_of_squares, gained)
        tl.store(_address(changed, rest_changed, num_first, position, 1, 0, TIERED), 1)


@triton.jit
def _sums(
    items, sources, at, end, item, num_places, batch_begin, first_negative, of_centers, of_contexts,
    of_negatives, most_places, tiles, num_negatives, dim, VALUES: tl.constexpr, SOURCES: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Return the gradients of an item as a centre and as a context, float32 [VALUES] each.

    Args:
        items: int64, as ``sources``; see :class:`graphbox.skip_gram.arrays.BatchArrays`.
        sources: where its gradients are.
        at: the first entry of the item.
        end: one past the last entry of the batch.
        item: what the entries of the row hold.
        num_places: what numbers of negatives begin with.
        batch_begin: the first place of the batch.
        first_negative: the number of its first negative.
        of_centers: gradients of its places as centres; see ``GradientArrays`` there.
        of_contexts: as contexts.
        of_negatives: of its negatives.
        most_places: rows between gradients from contexts and from negatives.
        tiles: parts that the gradient of a negative has.
        num_negatives: negatives of the batch.
        dim: values of a row.
        VALUES: see :class:`graphbox.skip_gram.tile_shapes.TileShape`.
        SOURCES: gradients that are read together.
        TILES: parts that are read together.
    """
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
        address = (source - batch_begin)[:, None] * dim + column[None, :]
        mask = is_place[:, None] & is_value
        from_contexts = tl.load(of_centers + address, mask=mask, other=0.0)
        from_negatives = tl.load(of_centers + most_places * dim + address, mask=mask, other=0.0)
        center_sum += tl.sum(from_contexts + from_negatives, 0)
        context_sum += tl.sum(tl.load(of_contexts + address, mask=mask, other=0.0), 0)
        occurrences += tl.sum(is_place.to(tl.int32), 0)
        more = (tl.sum(same.to(tl.int32), 0) == SOURCES).to(tl.int32)
        found += tl.sum(same.to(tl.int32), 0)
    for number in range(occurrences, found):
        negative = tl.load(sources + at + number) - first_negative
        for first_tile in range(0, tiles, TILES):
            tile = first_tile + tl.arange(0, TILES)
            address = (tile.to(tl.int64) * num_negatives + negative)[:, None] * dim + column[None, :]
            mask = (tile < tiles)[:, None] & is_value
            context_sum += tl.sum(tl.load(of_negatives + address, mask=mask, other=0.0), 0)
    return center_sum, context_sum


@triton.jit(do_not_specialize=["num_first", "number"])
def _update(
    center, center_accumulator, center_changed, rest_center, rest_center_accumulator, rest_center_changed,
    context, context_accumulator, context_changed, rest_context, rest_context_accumulator,
    rest_context_changed, num_first, items, sources, begins, pairs, center_gradients, context_gradients,
    negative_gradients, stopped, number, batches, num_keys, most_places, center_tiles, num_places,
    num_negatives, lr, eps, dim, ONE_TABLE: tl.constexpr, TIERED: tl.constexpr, VALUES: tl.constexpr,
    CENTERS: tl.constexpr, SOURCES: tl.constexpr, TILES: tl.constexpr,
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
            center_sum, context_sum = _sums(
                items, sources, at, end, item, num_places, batch_begin, num_places + batch * num_negatives,
                center_gradients + 2 * side * most_places * dim, context_gradients + side * most_places * dim,
                negative_gradients + side * center_tiles * num_negatives * dim, most_places,
                (places + CENTERS - 1) // CENTERS, num_negatives, dim, VALUES, SOURCES, TILES,
            )  # fmt: skip
            position = item - batch * num_keys
            if ONE_TABLE:
                center_sum += context_sum
            _step(
                center, center_accumulator, center_changed, rest_center, rest_center_accumulator,
                rest_center_changed, num_first, position, center_sum, lr, eps, dim, TIERED, VALUES,
            )  # fmt: skip
            if not ONE_TABLE:
                _step(
                    context, context_accumulator, context_changed, rest_context, rest_context_accumulator,
                    rest_context_changed, num_first, position, context_sum, lr, eps, dim, TIERED, VALUES,
                )  # fmt: skip


class Learning(NamedTuple):
    """Hyperparameters and sizes of the kernels.

    Attributes:
        reach: most places between a centre and its context.
        negative_weight: number of independent negatives that those of a pair count as.
        learning_rate: learning rate of row-wise Adagrad.
        eps: added to the root that it divides by.
        num_keys: rows of a table.
        shape: tile sizes of the programs.
    """

    reach: int
    negative_weight: float
    learning_rate: float
    eps: float
    num_keys: int
    shape: TileShape


class LearningGroup(NamedTuple):
    """A group of batches, and all that its launches read and write; they say nothing else but which batches.

    Attributes:
        center: rows of centres.
        context: rows of contexts; the same arrays where they are the same rows.
        batches: what is learned from.
        gradients: room for what is between the two launches of a batch.
        learning: how.
    """

    center: TieredRows
    context: TieredRows
    batches: BatchArrays
    gradients: GradientArrays
    learning: Learning


def launch_gradients(group: LearningGroup, number: int, side: int) -> None:
    """Compute the gradients and losses of batches ``number`` to ``number + side - 1`` of the group."""
    center, context, batches, gradients, learning = group
    dim = center.first.values.shape[1]
    shape = learning.shape
    _, center_tiles, num_negatives, _ = gradients.negative.shape
    programs = gradients.losses.shape[1]
    _gradients[programs, side](
        center.first.values,
        (center.rest or center.first).values,
        context.first.values,
        (context.rest or context.first).values,
        len(center.first.values),
        batches.position,
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
        gradients.context.shape[1],
        programs - center_tiles,
        center_tiles,
        learning.reach,
        num_negatives,
        learning.negative_weight,
        dim,
        TIERED=center.rest is not None,
        VALUES=shape.values,
        PLACES=shape.places,
        CENTERS=shape.centers,
        OTHERS=shape.others,
        PRECISION=_PRECISION,
        num_warps=shape.warps,
        num_stages=_STAGES,
        enable_fp_fusion=False,
    )


def launch_update(group: LearningGroup, number: int, side: int) -> None:
    """Update the rows of the batches whose gradients were computed; those of several may meet in a row."""
    center, context, batches, gradients, learning = group
    dim = center.first.values.shape[1]
    _, center_tiles, num_negatives, _ = gradients.negative.shape
    most_places = gradients.context.shape[1]
    _update[most_places + num_negatives, side](
        *center.first,
        *(center.rest or center.first),
        *context.first,
        *(context.rest or context.first),
        len(center.first.values),
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
        center_tiles,
        len(batches.position),
        num_negatives,
        learning.learning_rate,
        learning.eps,
        dim,
        ONE_TABLE=center is context,
        TIERED=center.rest is not None,
        VALUES=learning.shape.values,
        CENTERS=learning.shape.centers,
        SOURCES=_SOURCES,
        TILES=_TILES,
        num_warps=1,
        enable_fp_fusion=False,
    )
