"""The pipeline of a run file: stages from import to bench, each recorded, resumable after any end."""

from __future__ import annotations

from graphbox.pipeline.engine import continue_run, run_pipeline
from graphbox.pipeline.progress import Progress, Silence, Stop, stop_on_signals
from graphbox.pipeline.report import RunReport
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.start import run

__all__ = [
    "Progress",
    "RunReport",
    "Silence",
    "Stage",
    "StageContext",
    "StageResult",
    "Stop",
    "continue_run",
    "run",
    "run_pipeline",
    "stop_on_signals",
]
