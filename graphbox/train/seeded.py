"""Random choices of torch that follow from numbers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seeded"]


@contextmanager
def seeded(*numbers: int) -> Iterator[None]:
    """Let torch draw by these numbers while the block runs, and then go on as if it had not.

    Zeros at the end count as nothing: purposes are told apart by numbers from 1 on.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(
            int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
        )
        yield
