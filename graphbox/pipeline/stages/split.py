"""Stage `split`: what each task holds out, decided by a seeded hash before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.pipeline.stages.import_graph import open_graph

if TYPE_CHECKING:
    from graphbox.train.tasks import Split


def _run(context: StageContext) -> StageResult:
    from graphbox.train.splitting import make_split
    from graphbox.train.tasks import LinkSplit, save_split

    graph = open_graph(context)
    digests, unused = {}, 0
    for number, (name, task) in enumerate(context.config.tasks.items()):
        context.progress.step(f"task {name}", number, len(context.config.tasks), "tasks")
        path = split_path(context.run_path, name)
        folder = None if context.config.memory.topology is None else path.parent
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with context.stop.at_once():
            split = make_split(graph, task, context.config.seed, folder)
        save_split(split, path)
        digests[name] = split.digest
        unused += split.unused_negatives if isinstance(split, LinkSplit) else 0
    summary = f"held out for {_names(list(digests))}"
    if unused:
        summary += f"; {unused:,} given negatives are in no part that is measured"
    return StageResult(summary, {"digests": digests})


def load_splits(context: StageContext) -> dict[str, Split]:
    """Return the split of each task, by the task's name."""
    from graphbox.train.tasks import load_split

    return {name: load_split(split_path(context.run_path, name)) for name in context.config.tasks}


def split_path(run_path: Path, task: str) -> Path:
    """Return where the split of a task is kept."""
    return run_path / "splits" / f"{task}.npz"


def _names(names: list[str]) -> str:
    if not names:
        return "no task"
    return ("the task " if len(names) == 1 else "the tasks ") + ", ".join(names)


STAGE = Stage("split", _run, wanted=lambda config: bool(config.tasks), section="tasks")
