"""Probes of a GPU: how fast it reads random sectors and rows, and copies; kernels reach a share of that.

A probe reads every row of a block of memory once, in a scattered order. The block is many times larger than
the caches, so that the same reads in a kernel that does more cannot be faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias, get_args

import torch
import triton
import triton.language as tl

from graphbox.device import check_device
from graphbox.errors import DoesNotFitError, UsageError

Place: TypeAlias = Literal["device", "pinned"]
"""Memory that is read: the GPU's own, or pinned host memory, which it reads by itself."""
Direction: TypeAlias = Literal["host_to_device", "device_to_host", "device_to_device"]

SECTOR_BYTES = 32
"""Smallest read of a GPU."""
REPEATS = 5

_WORD_BYTES = 4
_LEAST_BYTES = 1 << 30
_LEAST_CACHES = 16  # L2 caches that the block of memory is as large as
_SHARE_OF_FREE = 4  # at most this part of free memory is taken
_INTERPRETED_BYTES = 1 << 14
_MOST_ROWS = 1 << 31
_MOST_VALUE = 1 << 15
_LANES = 512
_TILE_WORDS = 2048
_MOST_COLUMNS = 1024
_SECTOR_READS = (4, 16)  # of a lane; the faster count is the bound
_ROW_READS = (1, 4)


@triton.jit
def _scattered(number, MASK: tl.constexpr, SHIFT: tl.constexpr):
    """Return where uint32 numbers from 0 to ``MASK`` are in a permutation of all of them.

    Each step can be taken back: a shift with exclusive or, a product with an odd number in as many bits.
    """
    number ^= number >> SHIFT
    number = (number * 0x7FEB352D) & MASK
    number ^= number >> SHIFT
    number = (number * 0x31848BAB) & MASK
    return number ^ (number >> SHIFT)


@triton.jit
def _read_sectors(
    words, sums, MASK: tl.constexpr, SHIFT: tl.constexpr, SECTOR_WORDS: tl.constexpr,
    READS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * (READS * LANES)
    total = tl.zeros([LANES], tl.int32)
    for read in tl.static_range(READS):
        number = first + read * LANES + tl.arange(0, LANES)
        sector = _scattered(number.to(tl.uint32), MASK, SHIFT).to(tl.int64)
        total += tl.load(words + sector * SECTOR_WORDS, mask=number <= MASK, other=0)
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _read_rows(
    words, sums, MASK: tl.constexpr, SHIFT: tl.constexpr, ROW_WORDS: tl.constexpr,
    READS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * (READS * ROWS)
    total = tl.zeros([ROWS, COLUMNS], tl.int32)
    for read in tl.static_range(READS):
        number = first + read * ROWS + tl.arange(0, ROWS)
        row = _scattered(number.to(tl.uint32), MASK, SHIFT).to(tl.int64)[:, None]
        for first_column in range(0, ROW_WORDS, COLUMNS):
            column = first_column + tl.arange(0, COLUMNS)[None, :]
            inside = (number <= MASK)[:, None] & (column < ROW_WORDS)
            total += tl.load(words + row * ROW_WORDS + column, mask=inside, other=0)
    tl.store(sums + tl.program_id(0), tl.sum(tl.sum(total, axis=1), axis=0))


def read_sectors(words: torch.Tensor, device: torch.device, reads: int = _SECTOR_READS[0]) -> torch.Tensor:
    """Read the first word of every row of ``words`` once, in a scattered order.

    Args:
        words: int32 [rows, words of a row], a power of two rows, on ``device`` or in pinned host memory.
        device: where the kernel runs.
        reads: of a lane, a power of two.

    Returns:
        int32, the sums of what each program read, which wrap around.
    """
    programs = triton.cdiv(len(words), reads * _LANES)
    sums = torch.empty(programs, dtype=torch.int32, device=device)
    mask, shift = _permutation(len(words))
    _read_sectors[programs,](
        words, sums, mask, shift, words.shape[1], READS=reads, LANES=_LANES, enable_fp_fusion=False
    )
    return sums


def read_rows(words: torch.Tensor, device: torch.device, reads: int = _ROW_READS[0]) -> torch.Tensor:
    """Read every row of ``words`` once, in a scattered order; see :func:`read_sectors`."""
    columns = min(triton.next_power_of_2(words.shape[1]), _MOST_COLUMNS)
    rows = _TILE_WORDS // columns
    programs = triton.cdiv(len(words), reads * rows)
    sums = torch.empty(programs, dtype=torch.int32, device=device)
    mask, shift = _permutation(len(words))
    _read_rows[programs,](
        words, sums, mask, shift, words.shape[1], READS=reads, ROWS=rows, COLUMNS=columns,
        enable_fp_fusion=False,
    )  # fmt: skip
    return sums


def _permutation(rows: int) -> tuple[int, int]:
    """Return mask and shift of :func:`_scattered`."""
    bits = rows.bit_length() - 1
    return rows - 1, max((bits + 1) // 2, 1)


def sector_bandwidth(where: Place, device: torch.device, *, size_bytes: int | None = None) -> float:
    """Return how many bytes per second ``device`` reads in random sectors of 32 bytes.

    Args:
        where: what is read.
        device: a GPU, or the CPU with Triton's interpreter, which says nothing of speed.
        size_bytes: how large the block of memory is, say as large as the arrays that a kernel reads;
            rounded down to a power of two. None: 1 GiB, or more where caches are large.

    Raises:
        UsageError: another place, or a block of less than one sector.
        BackendMissingError: Triton or the device is not there.
        DoesNotFitError: there is no such block of memory.
    """
    return _read_bandwidth(read_sectors, _SECTOR_READS, where, device, SECTOR_BYTES, size_bytes)


def row_bandwidth(
    where: Place, row_bytes: int, device: torch.device, *, size_bytes: int | None = None
) -> float:
    """Return how many bytes per second ``device`` reads in random rows.

    Args:
        where: as in :func:`sector_bandwidth`.
        row_bytes: of a row, a multiple of 4.
        device: as there.
        size_bytes: as there.

    Raises:
        UsageError: another place, or no such rows.
        BackendMissingError: Triton or the device is not there.
        DoesNotFitError: there is no such block of memory.
    """
    if row_bytes < _WORD_BYTES or row_bytes % _WORD_BYTES:
        raise UsageError(
            f"expected a multiple of {_WORD_BYTES} bytes, received {row_bytes}", where="row_bytes"
        )
    return _read_bandwidth(read_rows, _ROW_READS, where, device, row_bytes, size_bytes)


def copy_bandwidth(direction: Direction, device: torch.device, *, size_bytes: int | None = None) -> float:
    """Return how many bytes per second are copied, from or to pinned memory where the host has a part in it.

    A byte that is copied is read once and written once, and counts once.

    Args:
        direction: from where to where.
        device: as in :func:`sector_bandwidth`.
        size_bytes: how much is copied at once; None: as there.

    Raises:
        UsageError: another direction, or nothing to copy.
        BackendMissingError: Triton or the device is not there.
        DoesNotFitError: there are no such blocks of memory.
    """
    if direction not in get_args(Direction):
        raise UsageError(
            f"expected {', '.join(get_args(Direction))}, received {direction!r}", where="direction"
        )
    check_device(device)
    size_bytes = _block_bytes(device, size_bytes) // _WORD_BYTES * _WORD_BYTES
    places: list[Place] = ["pinned" if end == "host" else "device" for end in direction.split("_to_")]
    with _on(device):
        return size_bytes / statistics.median(_copy_seconds(places, device, size_bytes))


def run_seconds(work: Callable[[], object], device: torch.device) -> list[float]:
    """Return how long each of five runs of ``work`` took on ``device``: of one by the interpreter.

    On a GPU its own clock is read, between events on the current stream. There every run that counts follows
    one that does not, so that the launch of its first kernel takes none of its time.

    Args:
        work: what is timed.
        device: where it runs, the current device if it is a GPU.
    """
    work()
    if device.type != "cuda":
        return [_wall_seconds(work)]  # which says nothing of speed
    seconds = []
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(REPEATS):
        work()
        begin.record()
        work()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return seconds


def touched_sectors(positions: torch.Tensor, item_bytes: int) -> int:
    """Return in how many different sectors items of an array begin: so many are read at least.

    Args:
        positions: int64 of any shape, of the items in an array that begins with a sector; negative: none.
        item_bytes: of an item.
    """
    return len(torch.unique(positions[positions >= 0] * item_bytes // SECTOR_BYTES))


def _wall_seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return max(time.perf_counter() - started, 1e-9)


def _read_bandwidth(
    read: Callable[[torch.Tensor, torch.device, int], torch.Tensor],
    choices: Sequence[int],
    where: Place,
    device: torch.device,
    row_bytes: int,
    size_bytes: int | None,
) -> float:
    if where not in get_args(Place):
        raise UsageError(f"expected {' or '.join(get_args(Place))}, received {where!r}", where="where")
    check_device(device)
    rows = _block_bytes(device, size_bytes) // row_bytes
    if rows < 1:
        raise UsageError(
            f"expected room for a row of {row_bytes} bytes, received {size_bytes}", where="size_bytes"
        )
    rows = min(1 << (rows.bit_length() - 1), _MOST_ROWS)
    with _on(device):
        return rows * row_bytes / _read_seconds(read, choices, where, device, (rows, row_bytes))


def _read_seconds(
    read: Callable[[torch.Tensor, torch.device, int], torch.Tensor],
    choices: Sequence[int],
    where: Place,
    device: torch.device,
    shape: tuple[int, int],
) -> float:
    words = _block(where, device, *shape)
    medians = [
        statistics.median(run_seconds(partial(read, words, device, reads), device)) for reads in choices
    ]
    return min(medians)


def _copy_seconds(places: Sequence[Place], device: torch.device, size_bytes: int) -> list[float]:
    source, target = (_block(place, device, 1, size_bytes) for place in places)
    return run_seconds(lambda: target.copy_(source, non_blocking=True), device)


def _block_bytes(device: torch.device, size_bytes: int | None) -> int:
    if size_bytes is not None:
        if size_bytes < _WORD_BYTES:
            raise UsageError(
                f"expected at least {_WORD_BYTES} bytes, received {size_bytes}", where="size_bytes"
            )
        return size_bytes
    if device.type != "cuda":
        return _INTERPRETED_BYTES
    properties = torch.cuda.get_device_properties(device)
    free, _ = torch.cuda.mem_get_info(device)
    return min(max(_LEAST_BYTES, _LEAST_CACHES * properties.L2_cache_size), free // _SHARE_OF_FREE)


def _block(where: Place, device: torch.device, rows: int, row_bytes: int) -> torch.Tensor:
    """Return random words, int32 [rows, row_bytes / 4]: zeros may be read faster than data is."""
    shape = (rows, row_bytes // _WORD_BYTES)
    try:
        words = torch.randint(_MOST_VALUE, shape, dtype=torch.int32, device=device)
        if where == "device" or device.type != "cuda":
            return words
        pinned = torch.empty(shape, dtype=torch.int32, pin_memory=True)
    except RuntimeError as error:  # torch.OutOfMemoryError is one, and so is what pinning raises
        raise DoesNotFitError(
            f"expected {rows * row_bytes} bytes of {where} memory for a probe of {device}: {error}",
            hint="free memory of the GPU or of the host, or raise the limit of locked memory (ulimit -l)",
        ) from None
    return pinned.copy_(words)


@contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """Make ``device`` the current one, where kernels and events go; then free what torch would keep."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        try:
            yield
        finally:
            torch.cuda.empty_cache()
            if hasattr(torch.accelerator, "empty_host_cache"):  # torch 2.11 may be too old for it
                torch.accelerator.empty_host_cache()
