"""Differences between the outputs of two versions for the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.workspace.traffic import ShadowOutput

__all__ = ["compare_outputs"]

_BLOCK_ELEMENTS = 1 << 16
# Behind the ids of a list that is shorter than the others.
_PADDING = frozenset({b"", -1})


def compare_outputs(
    active: Mapping[str, npt.NDArray[Any]], shadow: Mapping[str, npt.NDArray[Any]], tolerance: float
) -> dict[str, ShadowOutput]:
    """Return the differences of each output of the active version, by name.

    An output that the shadow lacks, or has in another shape or of another kind, differs in all rows. Outputs
    with two axes and elements BYTES or INT64 are lists of ids, too.

    Args:
        active: outputs of the active version, the first axis of each that of the rows.
        shadow: outputs of the shadow.
        tolerance: largest absolute difference of two numbers that count as equal.
    """
    return {name: _compare(array, shadow.get(name), tolerance) for name, array in active.items()}


def _compare(active: npt.NDArray[Any], shadow: npt.NDArray[Any] | None, tolerance: float) -> ShadowOutput:
    rows = len(active) if active.ndim else 1
    found = ShadowOutput(rows=rows)
    if shadow is None or _kind(active) != _kind(shadow):
        found.different_rows = rows
        return found
    if active.shape != shadow.shape:
        found.different_rows = rows
    elif active.size:
        _compare_elements(active.reshape(rows, -1), shadow.reshape(rows, -1), tolerance, found)
    if active.ndim == shadow.ndim == 2 and len(shadow) == rows and active.dtype in (np.object_, np.int64):
        _compare_lists(active, shadow, found)
    return found


def _kind(array: npt.NDArray[Any]) -> str:
    return {"O": "text", "b": "boolean"}.get(array.dtype.kind, "number")


def _compare_elements(
    active: npt.NDArray[Any], shadow: npt.NDArray[Any], tolerance: float, found: ShadowOutput
) -> None:
    block = max(1, _BLOCK_ELEMENTS // active.shape[1])
    is_number = _kind(active) == "number"
    for start in range(0, len(active), block):
        some, others = active[start : start + block], shadow[start : start + block]
        if is_number:
            _compare_numbers(some, others, tolerance, found)
        else:
            found.different_rows += int((some != others).any(axis=1).sum())


def _compare_numbers(
    active: npt.NDArray[Any], shadow: npt.NDArray[Any], tolerance: float, found: ShadowOutput
) -> None:
    some, others = active.astype(np.float64), shadow.astype(np.float64)
    is_finite = np.isfinite(some) & np.isfinite(others)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(some - others)
    # Large integers differ where float64 has the same number for both.
    is_different = (active != shadow) & ~(np.isnan(some) & np.isnan(others))
    is_within = is_finite & (difference <= tolerance)
    if tolerance < 1 and active.dtype.kind in "iu" and shadow.dtype.kind in "iu":
        is_within = ~is_different
    found.different_rows += int((is_different & ~is_within).any(axis=1).sum())
    finite = difference[is_finite]
    if finite.size:
        found.numbers += finite.size
        found.difference_sum += float(finite.sum())
        found.difference_max = max(found.difference_max, float(finite.max()))


def _compare_lists(active: npt.NDArray[Any], shadow: npt.NDArray[Any], found: ShadowOutput) -> None:
    for listed, others in zip(active.tolist(), shadow.tolist(), strict=True):
        ids = set(listed) - _PADDING
        found.listed += len(ids)
        found.shared += len(ids.intersection(others))
