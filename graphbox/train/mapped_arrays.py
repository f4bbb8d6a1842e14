"""Arrays that are written to files block by block, and mapped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def gathered(
    blocks: Iterable[npt.NDArray[Any]],
    dtype: npt.DTypeLike,
    row_shape: tuple[int, ...] = (),
    file: Path | None = None,
) -> npt.NDArray[Any]:
    """Return blocks one after the other: in memory, or mapped from a file, which may be removed then.

    Changes of a mapped array stay in this process (copy on write).

    Args:
        blocks: rows [n, *row_shape] each.
        dtype: of the array.
        row_shape: shape of a row; () for a flat array.
        file: where to write them; None: they are kept in memory.
    """
    nothing = np.empty((0, *row_shape), dtype)
    if file is None:
        return np.concatenate([nothing, *blocks])
    rows = 0
    with file.open("wb") as stream:
        for block in blocks:
            rows += len(block)
            stream.write(np.ascontiguousarray(block, dtype).data)
    return np.asarray(np.memmap(file, dtype, "c", shape=(rows, *row_shape))) if rows else nothing
