"""Random choices that follow from numbers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seed_of", "seeded"]


def seed_of(*numbers: int) -> int:
    """Return a seed, 0 to 2^63 - 1, that follows from these numbers; other numbers give an unlike one.

    Zeros at the end count as nothing: purposes are told apart by numbers from 1 on.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def seeded(*numbers: int) -> Iterator[None]:
    """Let torch draw by :func:`seed_of` these numbers while the block runs, and then as if it had not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(*numbers))
        yield
