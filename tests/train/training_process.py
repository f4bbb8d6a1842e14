"""Trains a model in a process of its own, which may kill itself: ``kill -9`` after so many batches.

Usage: training_process.py GRAPH RUN CONFIG(JSON) BATCHES_TO_LIVE RESUME(0|1)
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from graphbox.config import ClassifyTaskConfig, Metapath2VecConfig, RecommendTaskConfig, SageConfig
from graphbox.graph import Graph
from graphbox.train import fit, make_split


def main(graph_path: str, run: str, configs: str, batches_to_live: str, resume: str) -> None:
    """Train with one thread and a checkpoint after each batch."""
    graph = Graph.open(graph_path)
    sections = json.loads(configs)
    kind = sections["model"]["kind"]
    task_class = RecommendTaskConfig if kind == "sage" else ClassifyTaskConfig
    model_class = SageConfig if kind == "sage" else Metapath2VecConfig
    task = task_class.model_validate_json(json.dumps(sections["task"]))
    model = model_class.model_validate_json(json.dumps(sections["model"]))
    left = int(batches_to_live)

    def live_on() -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    fit(
        graph,
        make_split(graph, task, 0),
        name="model",
        config=model,
        task=task,
        run_folder=Path(run),
        seed=11,
        threads=1,
        stop=live_on,
        resume=resume == "1",
        checkpoint_interval_s=0.0,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
