"""Where the time of a training goes: sampling, fetching, computing, pushing, and the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

STAGES = ("sample", "fetch", "compute", "push", "validate", "checkpoint", "wait")
"""Stages of a training: batches are drawn; rows and features read; losses and gradients computed; parameters
and rows changed; the model measured; checkpoints written; new data of a stream waited for."""

OTHER = "other"


class StageClock:
    """Measures stages, of which one at a time is under way; an inner one interrupts the outer.

    Args:
        seconds: what was measured before, in a training that goes on.
    """

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self._seconds = dict.fromkeys((*STAGES, OTHER), 0.0)
        self._stack = [OTHER]
        self._since = time.perf_counter()
        self.on_change: Callable[[str], None] = lambda _stage: None
        self.restart(seconds)

    @property
    def current(self) -> str:
        """The stage under way."""
        return self._stack[-1]

    def restart(self, seconds: Mapping[str, float] | None = None) -> None:
        """Begin again, with what was measured before; the time until now is of no stage."""
        self._seconds = {stage: (seconds or {}).get(stage, 0.0) for stage in (*STAGES, OTHER)}
        self._since = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block to the stage ``name`` of :data:`STAGES`."""
        self._switch()
        self._stack.append(name)
        self.on_change(name)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage so far, and those of none of them as ``other``."""
        self._switch()
        return dict(self._seconds)

    def _switch(self) -> None:
        now = time.perf_counter()
        self._seconds[self._stack[-1]] += now - self._since
        self._since = now
