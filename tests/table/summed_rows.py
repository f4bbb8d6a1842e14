"""Sums of many rows in plain NumPy: of parts in their order, then of the sums of the parts in theirs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphbox import _core

PART = _core.SUMMED_TOGETHER


def added(rows: Iterable[np.ndarray]) -> np.ndarray:
    """Return the sum of at least one row, one after another."""
    first, *others = rows
    total = first.copy()
    for row in others:
        total += row
    return total


def added_in_parts(rows: np.ndarray) -> np.ndarray:
    """Return the sum of at least one row."""
    return added([added(rows[first : first + PART]) for first in range(0, len(rows), PART)])


def summed(rows: np.ndarray, gradients: np.ndarray) -> tuple[list[int], np.ndarray, list[int]]:
    """Return different rows by first appearance, the sums of their gradients, and how many these are."""
    order = np.argsort(rows, kind="stable")
    distinct, begins, counts = np.unique(rows[order], return_index=True, return_counts=True)
    ends = begins + counts
    sums = [added_in_parts(gradients[order[begin:end]]) for begin, end in zip(begins, ends, strict=True)]
    by_appearance = np.argsort(order[begins])
    of_rows = np.array(sums, np.float32).reshape(-1, gradients.shape[1])
    return distinct[by_appearance].tolist(), of_rows[by_appearance], counts[by_appearance].tolist()
