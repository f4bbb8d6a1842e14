"""Results of a run, opened for use: its config, graph, splits and trained models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from graphbox.config import ModelSection, RunConfig, load_config
from graphbox.errors import ConflictError, FormatError, NotFoundError, did_you_mean
from graphbox.pipeline.run_graph import open_run_graph
from graphbox.pipeline.stages.split import split_path
from graphbox.workspace import RunRecord, Workspace

if TYPE_CHECKING:
    from graphbox.graph import Graph
    from graphbox.train import TrainedModel
    from graphbox.train.tasks import Split


@dataclass(frozen=True, eq=False)
class RunData:
    """A run, opened.

    Attributes:
        record: what the workspace knows of it.
        config: its run file.
        open_graph: opens the graph, when it is first used.
    """

    record: RunRecord
    config: RunConfig
    open_graph: Callable[[], Graph]

    @classmethod
    def open(
        cls, workspace: Workspace, run_id: str, *, graph: str | None = None, as_it_is: bool = False
    ) -> RunData:
        """Open the run ``run_id``; ``last`` is the newest.

        Args:
            workspace: where it is.
            run_id: its id.
            graph: name of a graph to take instead of the run's; in whatever state it is.
            as_it_is: take the run's graph in its current version.

        Raises:
            NotFoundError: there is no such run or graph.
            FormatError: it has no graph yet.
        """
        from graphbox.graph import Graph

        record = workspace.run(run_id)
        config = load_config(record.path / "config.yaml", check_files=False)
        imported = next(
            (
                stage.outputs
                for stage in record.stages
                if stage.name in ("import", "follow") and stage.state == "finished"
            ),
            None,
        )
        hint = f"`graphbox runs resume {record.id}` resumes it"
        if imported is None:
            raise FormatError("the run has no graph yet", where=f"run {record.id}", hint=hint)
        if graph is None and not as_it_is:
            return cls(record, config, partial(open_run_graph, workspace, record.id, imported))
        if graph is not None:
            path = workspace.graph(graph).path
            return cls(record, config, lambda: Graph.open(path))
        # Looked for when it is used: models of clicks predict without it.
        return cls(record, config, lambda: Graph.open(workspace.graph(imported["graph"]).path))

    @cached_property
    def graph(self) -> Graph:
        """The graph it was trained on, or the one that was asked for instead.

        Raises:
            NotFoundError: the graph was removed.
            ConflictError: the version that it was trained on is gone.
        """
        return self.open_graph()

    def nodes(self, trained: TrainedModel) -> Graph:
        """Return the graph of a trained model's nodes: :attr:`graph`, or their ids where that is gone."""
        from graphbox.train.trained import load_nodes

        try:
            return self.graph
        except (ConflictError, NotFoundError):
            return load_nodes(self.path, trained)

    def split(self, task: str) -> Split:
        """Return what ``task`` holds out."""
        from graphbox.train.tasks import load_split

        return load_split(split_path(self.path, task))

    def trained(
        self,
        model: str | None,
        *,
        task_kind: str | None = None,
        can: Callable[[ModelSection], bool] | None = None,
    ) -> TrainedModel:
        """Return a trained model of the run.

        Without a name it is the one that the evaluation found best, by the deciding figure of their task,
        among the models of the task of the last model; the last model before they were evaluated.

        Args:
            model: its name, or None.
            task_kind: without a name, only models of tasks of this kind are chosen from, if there are any.
            can: without a name, only models whose section it accepts are chosen from, if there are any.

        Raises:
            NotFoundError: the run has no such model, or has not trained it yet.
        """
        from graphbox.train import load_trained

        names = list(self.config.models)
        if not names:
            raise NotFoundError(
                "the run has no models: its run file has no section `models`",
                where=f"run {self.record.id}",
                hint="add one, and run the run file",
            )
        if model is None:
            names = [name for name in names if can is None or can(self.config.models[name])] or names
            return load_trained(self.path, self._best(self._of_tasks(task_kind) or names))
        if model not in names:
            raise NotFoundError(
                f"the run has no model `{model}`",
                where=f"run {self.record.id}",
                hint=did_you_mean(model, names) or f"its models: {', '.join(names)}",
            )
        return load_trained(self.path, model)

    def _of_tasks(self, kind: str | None) -> list[str]:
        """Return the models of tasks of a kind, in the order of the run file; none where no kind is asked."""
        models = self.config.models.items()
        return [name for name, model in models if model.task and self.config.tasks[model.task].kind == kind]

    def _best(self, names: list[str]) -> str:
        """Return the best of some models, see :meth:`trained`."""
        task = self.config.models[names[-1]].task
        if task is None:
            return names[-1]
        measured = self.record.report.get("metrics", {}).get(task, {})
        key = self.config.tasks[task].deciding_metric
        rivals = [name for name in reversed(names) if key in measured.get(name, {})]
        return max(rivals, key=lambda name: float(measured[name][key]), default=names[-1])

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return self.record.path
