"""Earlier models of a workspace that trainings start from: `start_from` in the run file."""

from __future__ import annotations

from pathlib import Path

from graphbox.config import RunConfig
from graphbox.config.section import is_start_folder
from graphbox.errors import NotFoundError, UsageError, did_you_mean
from graphbox.workspace import RunRecord, Workspace


def earlier_models(config: RunConfig, workspace: Workspace, run_id: str | None = None) -> dict[str, Path]:
    """Return the folders of checkpoints that the models of a run start from, by model.

    Models that have checkpoints in the run already are left out: they are resumed.

    Args:
        config: the run file.
        workspace: where the runs are.
        run_id: the run that trains; None: it is not there yet.

    Raises:
        NotFoundError: there is no such run, or it has no such model.
        UsageError: the earlier run has not finished training.
    """
    found = {}
    here = None if run_id is None else workspace.run(run_id).path
    for name, model in config.models.items():
        if model.start_from is None or (here is not None and _checkpoints(here, name)):
            continue
        where = f"models.{name}.start_from"
        if is_start_folder(model.start_from):
            found[name] = Path(model.start_from)
            continue
        run, _, other = model.start_from.partition("/")
        found[name] = _folder(workspace, run, other or name, run_id, where)
    return found


def _folder(workspace: Workspace, run: str, model: str, run_id: str | None, where: str) -> Path:
    records = [record for record in workspace.runs() if record.id != run_id]
    named = [record for record in records if run in (record.id, record.name)]
    if not named:
        known = [*(record.id for record in records), *(record.name for record in records)]
        raise NotFoundError(
            f"expected an earlier run, received `{run}`, which the workspace does not have",
            where=where,
            hint=did_you_mean(run, dict.fromkeys(known))
            or f"`graphbox runs list` lists the runs; `{where}=null` trains without an earlier one",
        )
    for record in named:  # newest first
        if _is_trained(record) and _checkpoints(record.path, model):
            return record.path / "checkpoints" / model
    newest = named[0]
    if not any(_checkpoints(record.path, model) for record in named):
        known = [path.name for path in (newest.path / "checkpoints").glob("*")]
        raise NotFoundError(
            f"expected a run with checkpoints of a model `{model}`, received {newest.id}, which has none",
            where=where,
            hint=did_you_mean(model, known)
            or (f"it has {', '.join(sorted(known))}: write `{run}/MODEL`" if known else None)
            or "they were removed, as when nodes were forgotten: start from a later run",
        )
    raise UsageError(
        f"expected a run that has finished its training, received {newest.id}, which has not",
        where=where,
        hint=f"`graphbox runs resume {newest.id}` finishes it",
    )


def _is_trained(record: RunRecord) -> bool:
    return any(stage.name == "train" and stage.state == "finished" for stage in record.stages)


def _checkpoints(run: Path, model: str) -> bool:
    """Return whether a run has a checkpoint of a model."""
    return any(path.name.isdecimal() for path in (run / "checkpoints" / model).glob("*"))
