"""Reading rows of features in kernels: from the device where they are resident, else from pinned host memory.

Rows are copied as words, whatever they mean, and each row's use is counted as it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from graphbox.sample.resident_lists import SECTOR_BYTES

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.resident_lists import Residents

_TILE = 1024  # words of a program
_MOST_COLUMNS = 256


@triton.jit
def _read_rows(
    words, residents, places, uses, index, out, size, row_words, row_sectors,
    TIERED: tl.constexpr, COUNTS_USES: tl.constexpr, READS_AWAY: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = number < size
    row = tl.load(index + number, mask=inside, other=0)
    place = tl.zeros_like(row) - 1
    if TIERED:
        place = tl.load(places + row, mask=inside, other=-1)
    if COUNTS_USES:
        tl.atomic_add(uses + row, (row * 0 + row_sectors).to(tl.int32), mask=inside, sem="relaxed")
    is_here = inside & (place >= 0)
    is_away = inside & (place < 0)
    for first in range(0, row_words, COLUMNS):
        column = first + tl.arange(0, COLUMNS)[None, :]
        in_row = column < row_words
        target = out + number[:, None] * row_words + column
        if READS_AWAY:
            source = words + row[:, None] * row_words + column
            wanted = is_away[:, None] & in_row
            tl.store(target, tl.load(source, mask=wanted, other=0), mask=wanted)
        if TIERED:
            copy = residents + place[:, None] + column
            held = is_here[:, None] & in_row
            tl.store(target, tl.load(copy, mask=held, other=0), mask=held)


def read_rows(
    words: Tensor,
    residents: Residents | None,
    uses: Tensor | None,
    index: Tensor,
    *,
    reads_away: bool = True,
) -> Tensor:
    """Return rows; the host does not wait.

    Args:
        words: [rows, words of a row], on the device or in pinned host memory.
        residents: rows that are on the device as well; None: none is.
        uses: int32 [rows], where reads are counted in sectors; None: they are not.
        index: int64 [n], rows that exist, on the device.
        reads_away: False leaves those rows out that are not resident: theirs are not initialised.

    Returns:
        [n, words of a row].
    """
    row_words = words.shape[1]
    out = torch.empty(len(index), row_words, dtype=words.dtype, device=index.device)
    if out.numel() == 0:
        return out
    columns = min(triton.next_power_of_2(row_words), _MOST_COLUMNS)
    rows = max(_TILE // columns, 1)
    _read_rows[triton.cdiv(len(index), rows),](
        words,
        words if residents is None else residents.values,
        index if residents is None else residents.places,
        index if uses is None else uses,
        index,
        out,
        len(index),
        row_words,
        triton.cdiv(row_words * words.element_size(), SECTOR_BYTES),
        TIERED=residents is not None,
        COUNTS_USES=uses is not None,
        READS_AWAY=reads_away,
        ROWS=rows,
        COLUMNS=columns,
        enable_fp_fusion=False,
    )
    return out
