"""Random choices that follow from numbers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_of(*numbers: int) -> int:
    """Return a seed, 0 to 2^63 - 1, that follows from these numbers; other numbers give an unlike one.

    Zeros at the end count as nothing: purposes are told apart by numbers from 1 on.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def seeded(*numbers: int, device: torch.device | None = None) -> Iterator[None]:
    """Let torch draw by :func:`seed_of` these numbers while the block runs, and then as if it had not.

    Args:
        *numbers: see :func:`seed_of`.
        device: a GPU on which there are draws, too; they are others than those of the CPU.
    """
    with torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        seed = seed_of(*numbers)
        torch.default_generator.manual_seed(seed)
        if device is not None and device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
