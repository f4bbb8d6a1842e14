"""Trains models in processes of their own, which may kill themselves: ``kill -9`` as they enter a stage."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig, model_kind
from graphbox.graph import Graph
from graphbox.train import fit, make_split
from graphbox.workspace import Heartbeat
from tests.train.job_server import serve_jobs


def train_model(graph: str, run: str, sections: dict[str, Any], stage: str | None, times: int = 1) -> None:
    """Train with one thread and a checkpoint after each batch; die as ``stage`` is entered so many times."""
    whole = Graph.open(graph)
    kind = sections["model"]["kind"]
    task_class = RecommendTaskConfig if kind == "sage" else ClassifyTaskConfig
    task = task_class.model_validate_json(json.dumps(sections["task"]))
    model: Any = model_kind(kind).section.model_validate_json(json.dumps(sections["model"]))
    left = times
    beat = Heartbeat.beat

    def last_beat(self: Heartbeat, model: str, entered: str, **where: int) -> None:
        nonlocal left
        beat(self, model, entered, **where)
        left -= entered == stage
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Heartbeat.beat = last_beat  # type: ignore[method-assign, assignment]

    fit(
        whole,
        make_split(whole, task, 0),
        name="model",
        config=model,
        task=task,
        run_folder=Path(run),
        seed=11,
        threads=1,
        resume=True,
        checkpoint_interval_s=0.0,
    )


if __name__ == "__main__":
    serve_jobs(train_model)
