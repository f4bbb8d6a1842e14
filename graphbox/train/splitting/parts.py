"""Parts: by a hash of the original ids, or as a feature of the data names them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphbox.config import GivenSplitConfig
from graphbox.config.tasks import HeldOutFractions
from graphbox.errors import DataError, UsageError, did_you_mean
from graphbox.graph.schema import FeatureSpec

__all__ = [
    "IGNORED",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "cut_latest",
    "digest_of",
    "fold_of",
    "given_part",
    "latest_parts",
    "unit_hash",
]

_HASHED_TOGETHER = 1 << 16

TRAIN, VALIDATION, TEST, IGNORED = 0, 1, 2, 3
"""Parts in the order of :data:`graphbox.train.tasks.FOLDS`; an edge known earlier makes its pair known."""


def unit_hash(seed: int, texts: Iterable[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each text: its 64-bit BLAKE2b keyed with the seed, as a fraction."""
    key = seed.to_bytes(8, "little")
    digests, left = bytearray(), iter(texts)
    while some := list(islice(left, _HASHED_TOGETHER)):
        digests += b"".join(
            hashlib.blake2b(text.encode(), digest_size=8, key=key, person=b"graphbox").digest()
            for text in some
        )
    return (np.frombuffer(digests, dtype="<u8") >> np.uint64(11)).astype(np.float64) / 2.0**53


def fold_of(number: NDArray[np.float64], task: HeldOutFractions) -> NDArray[np.int8]:
    """Return 2 (test) below the test fraction, then 1 (validation) for its share of the rest, else 0."""
    validation_end = task.test_fraction + (1.0 - task.test_fraction) * task.validation_fraction
    return np.where(
        number < task.test_fraction, TEST, np.where(number < validation_end, VALIDATION, TRAIN)
    ).astype(np.int8)


def latest_parts(time: NDArray[Any], task: HeldOutFractions) -> NDArray[np.int8]:
    """Return the part of each time, the latest ones for test; equal times are in one part: int8 [n]."""
    part = np.full(len(time), TRAIN, dtype=np.int8)
    part = cut_latest(part, time, task.test_fraction, TEST)
    return cut_latest(part, time, task.validation_fraction, VALIDATION)


def cut_latest(part: NDArray[np.int8], time: NDArray[Any], fraction: float, number: int) -> NDArray[np.int8]:
    """Return the parts with the latest share of train in another one; equal times stay in one part.

    Args:
        part: int8 [n].
        time: numbers [n].
        fraction: how much of train goes there, at least its last time.
        number: of the other part.
    """
    train = part == TRAIN
    times = np.sort(time[train])
    if not len(times):
        return part
    begin = times[min(int((1.0 - fraction) * len(times)), len(times) - 1)]
    return np.where(train & (time >= begin), number, part).astype(np.int8)


def digest_of(text: str, seed: int, *arrays: NDArray[Any]) -> str:
    """Return the hex digest of what made a split, and of the split."""
    digest = hashlib.blake2b(f"{text} {seed}".encode(), digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def given_part(spec: FeatureSpec | None, given: GivenSplitConfig, where: str) -> NDArray[np.int8]:
    """Return the part that each category of a feature names; the last entry is that of a missing value.

    Raises:
        UsageError: there is no such categorical feature.
        DataError: a category names no part.
    """
    if spec is None or spec.categories is None:
        raise UsageError(
            f"expected a categorical feature that says train, validation or test, received `{given.feature}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where=where,
            hint=f"write `{given.feature}: categorical` under the `features` of that table",
        )
    part_of = {
        value: part
        for part, values in (
            (TRAIN, given.train),
            (VALIDATION, given.validation),
            (TEST, given.test),
            (IGNORED, given.ignored),
        )
        for value in values
    }
    for category in spec.categories:
        if category not in part_of:
            raise DataError(
                f"expected one of {', '.join(part_of)} in `{given.feature}`, received `{category}`",
                where=where,
                hint=did_you_mean(category, part_of)
                or "name it under `train`, `validation`, `test` or `ignored` of the task's `split`",
            )
    return np.array([*(part_of[category] for category in spec.categories), IGNORED], dtype=np.int8)
