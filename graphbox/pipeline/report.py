"""What a run found, in one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbox.workspace import RunRecord, StageRecord, read_chunks

__all__ = ["SHOWN_CHUNKS", "RunReport"]

SHOWN_CHUNKS = 50
"""How many of the last chunks of a stream a report tells."""


@dataclass(frozen=True)
class RunReport:
    """The results of a run.

    Attributes:
        run: id of the run.
        path: its folder.
        state: state of the run.
        chunks: what became of the last chunks of a stream that it follows.
        training: epochs, batches and seconds of each stage of the training, by model.
        metrics: ``{task: {model: {metric: value}}}``.
        baselines: ``{task: {baseline: {metric: value}}}``.
        export: errors against the trained model, by artifact.
        compress: sizes, latencies and metric before and after, by artifact.
        bench: latency and throughput, by artifact.
        stages: name, state, seconds and peak memory of each stage.
    """

    run: str
    path: Path
    state: str
    chunks: Sequence[Mapping[str, Any]]
    training: Mapping[str, Any]
    metrics: Mapping[str, Any]
    baselines: Mapping[str, Any]
    export: Mapping[str, Any]
    compress: Mapping[str, Any]
    bench: Mapping[str, Any]
    stages: tuple[StageRecord, ...]

    @classmethod
    def of(cls, record: RunRecord) -> RunReport:
        """Return the report of a run as the workspace has it."""
        parts = {name: record.report.get(name, {}) for name in ("training", "metrics", "baselines", "export")}
        return cls(
            run=record.id,
            path=record.path,
            state=record.state,
            chunks=read_chunks(record.path)[-SHOWN_CHUNKS:],
            **parts,
            compress=record.report.get("compress", {}),
            bench=record.report.get("bench", {}),
            stages=record.stages,
        )

    def document(self) -> dict[str, Any]:
        """Return the report as plain values, as ``--json`` prints it."""
        return {
            "run": self.run,
            "path": str(self.path),
            "state": self.state,
            "chunks": list(self.chunks),
            "training": self.training,
            "metrics": self.metrics,
            "baselines": self.baselines,
            "export": self.export,
            "compress": self.compress,
            "bench": self.bench,
            "stages": [
                {"name": s.name, "state": s.state, "seconds": s.seconds, "peak_bytes": s.peak_bytes}
                for s in self.stages
            ],
        }
