"""Time of the interests of all prefixes of a window: running sums beside a softmax over each prefix.

    python -m benchmarks.interests --json

Both compute the same means of vectors by the same weights, forward and backward, on blocks of about as many
events; the peer makes a matrix of weights with a row for each prefix, as attention with a mask does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from graphbox import __version__
from graphbox.models.comirec import running_means

_BLOCKS: Final = ((512, 6), (256, 10), (64, 50), (16, 200))
_DIM, _INTERESTS = 64, 4
_REPEATS = 15


def softmax_means(events: Tensor, logits: Tensor) -> Tensor:
    """Return the same as `running_means`, by a softmax over each prefix."""
    count, length, heads = logits.shape
    is_seen = torch.ones(length, length, dtype=torch.bool).tril()
    of_heads = logits.transpose(1, 2).unsqueeze(2).masked_fill(~is_seen, -torch.inf)
    weight = of_heads.softmax(dim=3).reshape(count, heads * length, length)
    return (weight @ events).view(count, heads, length, -1).transpose(1, 2).flatten(2)


def seconds(means: Callable[[Tensor, Tensor], Tensor], events: Tensor, logits: Tensor) -> float:
    """Return the CPU time of one pass, forward and backward."""
    of_events, of_logits = events.clone().requires_grad_(), logits.clone().requires_grad_()
    began = time.process_time()
    torch.autograd.backward(means(of_events, of_logits).square().sum())
    return time.process_time() - began


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line, as always")
    parser.parse_args()
    torch.set_num_threads(1)
    systems = {f"graphbox {__version__}": running_means, "softmax over each prefix": softmax_means}
    for count, length in _BLOCKS:
        generator = torch.Generator().manual_seed(0)
        events = torch.randn(count, length, _DIM, generator=generator)
        logits = torch.randn(count, length, _INTERESTS, generator=generator)
        torch.testing.assert_close(running_means(events, logits), softmax_means(events, logits))
        taken: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(_REPEATS):
            for name, means in systems.items():
                taken[name].append(count * length / seconds(means, events, logits))
        for name, rates in taken.items():
            line = {
                "case": f"{count} windows of {length} events",
                "system": name,
                "threads": 1,
                "unit": "events/s",
                "rate": round(statistics.median(rates)),
                "min": round(min(rates)),
                "max": round(max(rates)),
                "repeats": _REPEATS,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
