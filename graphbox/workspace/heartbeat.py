"""``heartbeat.json``: where a training is, kept so that a process killed at any moment still says it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAME = "heartbeat.json"
_SIZE_BYTES = 1024


@dataclass(frozen=True)
class Sign:
    """The last sign of life of a training.

    Attributes:
        model: the model that was trained.
        stage: what it was doing: ``sample``, ``compute``, ``checkpoint`` and so on.
        epoch: epochs finished.
        batch: batches of this epoch finished.
        step: batches finished in all.
        time: seconds since 1970.
    """

    model: str
    stage: str
    epoch: int
    batch: int
    step: int
    time: float


class Heartbeat:
    """Writes the signs of life of a run's trainings; a context manager.

    A sign is one write of one block into a file that stays open: a few microseconds, so there can be one for
    every stage of every batch. It is not forced to the disk: what a process wrote survives its death by
    ``kill -9`` or lack of memory, though not that of the machine.

    Args:
        run_path: folder of the run.
    """

    def __init__(self, run_path: Path) -> None:
        run_path.mkdir(parents=True, exist_ok=True)
        self._file = os.open(run_path / _NAME, os.O_WRONLY | os.O_CREAT, 0o644)

    def beat(self, model: str, stage: str, *, epoch: int, batch: int, step: int) -> None:
        """Write a sign."""
        sign = {"model": model, "stage": stage, "epoch": epoch, "batch": batch, "step": step}
        text = json.dumps({**sign, "time": round(time.time(), 3)}).encode()
        os.pwrite(self._file, text.ljust(_SIZE_BYTES - 1) + b"\n", 0)

    def close(self) -> None:
        """Close the file; the last sign stays."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def last_sign(run_path: Path) -> Sign | None:
    """Return the last sign of life of the trainings of a run; None when there is none that can be read."""
    try:
        sign: Mapping[str, Any] = json.loads((run_path / _NAME).read_text())
        return Sign(**sign)
    except (OSError, ValueError, TypeError):
        return None
