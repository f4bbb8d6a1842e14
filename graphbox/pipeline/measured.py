"""Metrics that an evaluation has measured so far, kept in the run's folder to resume from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphbox.workspace.run_writer import write_text

Metrics = dict[str, float | int]


class Measured:
    """Metrics by name of the measurement, each valid for the inputs it was measured with.

    Args:
        run_path: folder of the run.
    """

    def __init__(self, run_path: Path) -> None:
        self._path = _file(run_path)
        self._known: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def get(self, name: str, inputs: Any, measure: Callable[[], Metrics]) -> Metrics:
        """Return the metrics of ``name``; measure and keep them unless known for the same inputs.

        Args:
            name: unique within the run.
            inputs: everything that the metrics depend on, as plain values.
            measure: measures them.
        """
        text = json.dumps(inputs, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        entry = self._known.get(name)
        if entry is None or entry["inputs"] != digest:
            entry = self._known[name] = {"inputs": digest, "metrics": measure()}
            write_text(self._path, json.dumps(self._known, indent=1))
        metrics: Metrics = entry["metrics"]
        return metrics

    @staticmethod
    def discard(run_path: Path) -> None:
        """Remove all metrics of a run."""
        _file(run_path).unlink(missing_ok=True)


def _file(run_path: Path) -> Path:
    return run_path / "measured.json"
