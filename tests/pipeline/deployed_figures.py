"""Metrics of models as they are served, for tests to compare with those of training."""

from __future__ import annotations

from typing import Any, Literal

from graphbox.deploy import open_model
from graphbox.pipeline import RunReport
from graphbox.pipeline.run_data import RunData
from graphbox.pipeline.stages.evaluate import evaluate_deployed
from graphbox.workspace import Workspace

__all__ = ["deployed_figures"]


def deployed_figures(
    workspace: Workspace, report: RunReport, name: str, fold: Literal["validation", "test"]
) -> dict[str, Any]:
    """Return the figures of the first version of an artifact on a part of its task."""
    record = workspace.model(name, 1)
    data = RunData.open(workspace, report.run)
    assert record.task is not None
    with open_model(record.path) as model:
        task = data.config.tasks[record.task]
        return dict(evaluate_deployed(model, data.graph, data.split(record.task), task, fold))
