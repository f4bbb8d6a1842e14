"""Model versions of a run: their numbers, and their place in the workspace."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphbox.pipeline.stage import StageContext
from graphbox.workspace import ModelRecord, Workspace
from graphbox.workspace.run_writer import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from graphbox.artifact import Artifact, Manifest


def new_version(context: StageContext, stage: str, name: str) -> tuple[int, Path]:
    """Return a new version number of ``name`` and the folder for it.

    The number is noted with the run first. When the process is killed before the stage has finished, the
    next attempt removes what is left of that version.
    """
    path = context.run_path / "versions.json"
    noted = json.loads(path.read_text()) if path.exists() else {}
    key = f"{stage}/{name}"
    if context.resumed and key in noted:
        context.workspace.discard_model(name, noted[key])
    version, folder = context.workspace.new_model_path(name)
    write_text(path, json.dumps({**noted, key: version}))
    return version, folder


@dataclass(frozen=True)
class MeasuredBy:
    """Origin of a version's metrics.

    Attributes:
        metric: the one that decides which of two versions is better.
        measured_on: digest of the data that they were measured on; see `graphbox.workspace.ModelRecord`.
    """

    metric: str
    measured_on: str


def measured_by(context: StageContext, task: str | None) -> MeasuredBy | None:
    """Return what the metrics of the run's models of ``task`` are; None without a task."""
    if task is None:
        return None
    config = context.config.tasks[task]
    imported = context.finished["import"]
    # A changed graph keeps the fingerprint of its import, with the changes; compaction numbers it anew.
    is_changed = "+" in imported["fingerprint"]
    settings = config.model_dump(mode="json")
    test_part = {
        "graph": imported["graph"],
        "fingerprint": imported["fingerprint"],
        "version": imported.get("version") if is_changed else None,
        "task": {key: value for key, value in settings.items() if not key.startswith("baseline")},
        "split": context.output("split", "digests")[task],
    }
    digest = hashlib.sha256(json.dumps(test_part, sort_keys=True).encode()).hexdigest()
    return MeasuredBy(config.deciding_metric, digest)


def register(
    workspace: Workspace,
    artifact: Artifact,
    *,
    run_id: str | None,
    measured: MeasuredBy | None,
    parent: int | None = None,
) -> ModelRecord:
    """Make an artifact known to the workspace, active if it is the first version of its name."""
    manifest = artifact.manifest
    return workspace.add_model(
        manifest.name,
        manifest.version,
        kind=manifest.kind,
        task=manifest.task,
        precision=precision_of(manifest),
        metrics=manifest.metrics,
        parent=parent,
        run_id=run_id,
        deciding_metric=None if measured is None else measured.metric,
        measured_on=None if measured is None else measured.measured_on,
    )


def precision_of(manifest: Manifest) -> str:
    """Return the precision of a model's weights and rows: ``float32``, ``int8``, or both named."""
    parts = [manifest.onnx.precision] if manifest.onnx is not None else []
    parts += [table.codec for table in manifest.tables.values()]
    return " + ".join(sorted({part.partition("_")[0] for part in parts}))
