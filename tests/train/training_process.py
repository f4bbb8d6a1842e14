"""Trains a model in a process of its own, which may kill itself: ``kill -9`` as it enters a stage.

Usage: training_process.py GRAPH RUN CONFIG(JSON) STAGE TIMES; an empty stage is never entered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from graphbox.config import MODEL_SECTIONS, ClassifyTaskConfig, RecommendTaskConfig
from graphbox.graph import Graph
from graphbox.train import fit, make_split
from graphbox.workspace import Heartbeat


def main(graph_path: str, run: str, configs: str, stage: str, times: str) -> None:
    """Train with one thread and a checkpoint after each batch; die as ``stage`` is entered so many times."""
    graph = Graph.open(graph_path)
    sections = json.loads(configs)
    kind = sections["model"]["kind"]
    task_class = RecommendTaskConfig if kind == "sage" else ClassifyTaskConfig
    task = task_class.model_validate_json(json.dumps(sections["task"]))
    model: Any = MODEL_SECTIONS[kind].model_validate_json(json.dumps(sections["model"]))
    left = int(times)
    beat = Heartbeat.beat

    def last_beat(self: Heartbeat, model: str, entered: str, **where: int) -> None:
        nonlocal left
        beat(self, model, entered, **where)
        left -= entered == stage
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Heartbeat.beat = last_beat  # type: ignore[method-assign, assignment]

    fit(
        graph,
        make_split(graph, task, 0),
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
    main(*sys.argv[1:])
