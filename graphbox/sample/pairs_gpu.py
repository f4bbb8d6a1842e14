"""Windows of walks and their skip-gram pairs in Triton kernels: the twin of ``csrc/sample/walk_windows.h``.

What is left of walks stands in one row of places, walk after walk; a place knows where its contexts are. So
no pair is written down unless it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from graphbox.errors import UnsupportedError
from graphbox.philox_gpu import bounded_at, words_at

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from graphbox.sample.walk_gpu import WalkerDraws

WINDOW_STREAM = 6
"""``Stream::kWindow`` of ``csrc/random/philox.h``."""

_KEEP_HOP = tl.constexpr(1)  # of the counter: see csrc/sample/walk_windows.cpp
_WIDEST_WALK = 1 << 16
_TILE = 1024  # entries of walks that a program looks at
_BLOCK = 256


class DeviceWindows(NamedTuple):
    """Settings of windows over walks; see :func:`graphbox.sample.skip_gram_pairs`.

    Attributes:
        window: most steps between centre and context.
        column_offsets: int64 [paths, columns] on the device, added to the nodes of each column; or None.
        dynamic_window: draw a window for each centre.
        kept_below: int64 [keys] on the device, of :func:`keep_thresholds`; None: every occurrence stays.
    """

    window: int
    column_offsets: Tensor | None = None
    dynamic_window: bool = False
    kept_below: Tensor | None = None


class WalkPlaces(NamedTuple):
    """Nodes kept of walks, one after another; only the first ``begins[-1]`` places count.

    Attributes:
        begins: int64 [walks + 1], where each walk begins, and the end.
        key: int64 [places].
        first: int64 [places], the first place of its contexts.
        last: int64 [places], one past the last; a centre is none of its own contexts.
    """

    begins: Tensor
    key: Tensor
    first: Tensor
    last: Tensor


def keep_thresholds(keep: npt.NDArray[np.float64]) -> Tensor:
    """Return below which words of 32 bits an occurrence of each key stays: int64 [keys].

    Args:
        keep: float64 [keys], the probability of each, 0 to 1.
    """
    return torch.from_numpy(np.ceil(np.ldexp(keep, 32)).astype(np.int64))


@triton.jit
def _kept(
    walks, path_of, column_offsets, kept_below, draw_key, position, walk, column, size, width,
    HAS_OFFSETS: tl.constexpr, SEVERAL_PATHS: tl.constexpr, SUBSAMPLE: tl.constexpr,
):  # fmt: skip
    """Return the keys of walks, and which of them stay: up to the end of a walk, unless they are dropped."""
    inside = (walk < size)[:, None] & (column < width)[None, :]
    key = tl.load(walks + walk[:, None] * width + column[None, :], mask=inside, other=-1)
    kept = tl.cumsum((key < 0).to(tl.int32), 1) == 0
    if HAS_OFFSETS:
        path = tl.zeros_like(walk)
        if SEVERAL_PATHS:
            path = tl.load(path_of + walk, mask=walk < size, other=0)
        key += tl.load(column_offsets + path[:, None] * width + column[None, :], mask=kept, other=0)
    if SUBSAMPLE:
        word = words_at(draw_key, _KEEP_HOP, column, position)
        kept &= word.to(tl.int64) < tl.load(kept_below + key, mask=kept, other=0)
    return key, kept


@triton.jit
def _measure(
    walks, path_of, column_offsets, kept_below, keys, positions, lengths, size, width,
    HAS_OFFSETS: tl.constexpr, SEVERAL_PATHS: tl.constexpr, SUBSAMPLE: tl.constexpr, WALKS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    walk = tl.program_id(0).to(tl.int64) * WALKS + tl.arange(0, WALKS)
    column = tl.arange(0, COLUMNS)
    draw_key = tl.load(keys + walk, mask=walk < size, other=0).to(tl.uint64, bitcast=True)
    position = tl.load(positions + walk, mask=walk < size, other=0)
    _, kept = _kept(
        walks, path_of, column_offsets, kept_below, draw_key, position, walk, column, size, width,
        HAS_OFFSETS, SEVERAL_PATHS, SUBSAMPLE,
    )  # fmt: skip
    tl.store(lengths + walk, tl.sum(kept.to(tl.int64), 1), mask=walk < size)


@triton.jit
def _place(
    walks, path_of, column_offsets, kept_below, keys, positions, begins, key_at, first_at, last_at, size,
    width, window, HAS_OFFSETS: tl.constexpr, SEVERAL_PATHS: tl.constexpr, SUBSAMPLE: tl.constexpr,
    DYNAMIC: tl.constexpr, WALKS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    walk = tl.program_id(0).to(tl.int64) * WALKS + tl.arange(0, WALKS)
    column = tl.arange(0, COLUMNS)
    draw_key = tl.load(keys + walk, mask=walk < size, other=0).to(tl.uint64, bitcast=True)
    position = tl.load(positions + walk, mask=walk < size, other=0)
    key, kept = _kept(
        walks, path_of, column_offsets, kept_below, draw_key, position, walk, column, size, width,
        HAS_OFFSETS, SEVERAL_PATHS, SUBSAMPLE,
    )  # fmt: skip
    count = kept.to(tl.int64)
    number = tl.cumsum(count, 1) - 1
    length = tl.sum(count, 1)[:, None]
    reach = tl.zeros_like(number) + window
    if DYNAMIC:
        word = words_at(draw_key, 0, column, position)
        reach = 1 + bounded_at(word, window, draw_key, column, position, kept).to(tl.int64)
    begin = tl.load(begins + walk, mask=walk < size, other=0)[:, None]
    place = begin + number
    tl.store(key_at + place, key, mask=kept)
    tl.store(first_at + place, begin + tl.maximum(number - reach, 0), mask=kept)
    tl.store(last_at + place, begin + tl.minimum(number + reach + 1, length), mask=kept)


def places_of_walks(
    walks: Tensor,
    windows: DeviceWindows,
    draws: WalkerDraws,
    path_of: Tensor | None = None,
    out: WalkPlaces | None = None,
) -> WalkPlaces:
    """Lay windows over walks; the host waits for nothing.

    Args:
        walks: int64 [n, columns] on the device; a walk ends at its first negative entry.
        windows: how.
        draws: what each walk draws windows and drops by.
        path_of: int64 [n], the row of ``column_offsets`` of each walk; None: the first.
        out: where to write, with room for all entries; ``begins`` is new. None: new arrays.

    Returns:
        The places.

    Raises:
        UnsupportedError: walks of more than 65,536 columns.
    """
    size, width = walks.shape
    if width > _WIDEST_WALK:
        raise UnsupportedError(
            f"windows on a device are laid over walks of at most {_WIDEST_WALK} nodes, received {width}",
            where="walks",
            hint="take them to host memory",
        )
    if out is None:
        key, first, last = torch.zeros(3, size * width, dtype=torch.int64, device=walks.device)
    else:
        _, key, first, last = out
    begins = torch.zeros(size + 1, dtype=torch.int64, device=walks.device)
    if walks.numel() == 0:
        return WalkPlaces(begins, key, first, last)
    columns = triton.next_power_of_2(width)
    block = max(1, _TILE // columns)
    offsets, kept_below = windows.column_offsets, windows.kept_below
    options = {
        "HAS_OFFSETS": offsets is not None,
        "SEVERAL_PATHS": path_of is not None,
        "SUBSAMPLE": kept_below is not None,
        "WALKS": block,
        "COLUMNS": columns,
        "enable_fp_fusion": False,
    }
    arrays = (
        walks,
        walks if path_of is None else path_of,
        walks if offsets is None else offsets,
        walks if kept_below is None else kept_below,
        draws.keys,
        draws.positions,
    )
    grid = (triton.cdiv(size, block),)
    lengths = torch.empty(size, dtype=torch.int64, device=walks.device)
    _measure[grid](*arrays, lengths, size, width, **options)
    torch.cumsum(lengths, 0, out=begins[1:])
    _place[grid](
        *arrays,
        begins,
        key,
        first,
        last,
        size,
        width,
        windows.window,
        DYNAMIC=windows.dynamic_window,
        **options,
    )
    return WalkPlaces(begins, key, first, last)


@triton.jit
def _count(
    key_at, first_at, last_at, end, counts, size, reach, SKIP_EQUAL: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < tl.load(end)
    key = tl.load(key_at + place, mask=inside, other=0)
    first = tl.load(first_at + place, mask=inside, other=0)
    last = tl.load(last_at + place, mask=inside, other=0)
    count = tl.where(inside, last - first - 1, 0)
    if SKIP_EQUAL:
        count = tl.zeros_like(place)
        for distance in range(1, reach + 1):
            before = inside & (place - distance >= first)
            after = inside & (place + distance < last)
            count += (before & (tl.load(key_at + place - distance, mask=before, other=0) != key)).to(tl.int64)
            count += (after & (tl.load(key_at + place + distance, mask=after, other=0) != key)).to(tl.int64)
    tl.store(counts + place, count, mask=place < size)


def count_pairs(
    places: WalkPlaces, reach: int, *, skip_equal: bool = False, out: Tensor | None = None
) -> Tensor:
    """Return in how many pairs each place is the centre: int64 [places], 0 for those that do not count.

    Args:
        places: the places.
        reach: the most places between a centre and its context.
        skip_equal: do not count pairs of equal keys.
        out: int64 [places], where to write; None: a new array.
    """
    counts = torch.empty_like(places.key) if out is None else out
    if len(counts):
        _count[triton.cdiv(len(counts), _BLOCK),](
            places.key,
            places.first,
            places.last,
            places.begins[-1:],
            counts,
            len(counts),
            reach,
            SKIP_EQUAL=skip_equal,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
    return counts
