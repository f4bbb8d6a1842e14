"""Model versions of a run: their numbers, and their place in the workspace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from graphbox.pipeline.stage import StageContext
from graphbox.workspace import ModelRecord, Workspace
from graphbox.workspace.run_writer import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from graphbox.artifact import Artifact, Manifest

__all__ = ["new_version", "precision_of", "register"]


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


def register(
    workspace: Workspace, artifact: Artifact, *, run_id: str | None, parent: int | None = None
) -> ModelRecord:
    """Make an artifact known to the workspace, as the active version of its name."""
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
    )


def precision_of(manifest: Manifest) -> str:
    """Return the precision of a model's weights and rows: ``float32``, ``int8``, or both named."""
    parts = [manifest.onnx.precision] if manifest.onnx is not None else []
    parts += [table.codec for table in manifest.tables.values()]
    return " + ".join(sorted({part.partition("_")[0] for part in parts}))
