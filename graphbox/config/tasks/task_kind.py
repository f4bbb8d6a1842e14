"""Task kind: one object with all that graphbox knows about a kind of task.

Like :class:`graphbox.config.model_kind.ModelKind` it names what is imported where it is needed, so that
reading a run file imports neither torch nor ``graphbox.train``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphbox.metrics import Measure
    from graphbox.train.tasks import Split


@dataclass(frozen=True)
class TaskKind:
    """A kind of task: its section of the run file, what it holds out, and how models are measured.

    Import paths are written ``package.module:name``.

    Attributes:
        section: class of the section; its field ``kind`` is a literal of one name, the name of the kind, and
            its ``deciding_metric`` the figure that says which of two models is better.
        held_out: class of the split, derived from :class:`graphbox.train.tasks.Split`.
        splitting: function ``(graph, task, seed) -> Split``.
        evaluation: function ``(graph, split, task, trained, fold, watch) -> {metric: value}``.
        baselines: function ``(view, split, task, fold, seed) -> {baseline: measurement}``.
    """

    section: type[BaseModel]
    held_out: str
    splitting: str
    evaluation: str
    baselines: str

    @property
    def name(self) -> str:
        """Name of the kind."""
        names: tuple[str, ...] = get_args(self.section.model_fields["kind"].annotation)
        return names[0]

    def split_class(self) -> type[Split]:
        """Import and return the class of what is held out."""
        found: type[Split] = resolve_name(self.held_out)
        return found

    def split(self) -> Callable[..., Split]:
        """Import and return the function that decides what is held out."""
        found: Callable[..., Split] = resolve_name(self.splitting)
        return found

    def evaluate(self) -> Callable[..., dict[str, Any]]:
        """Import and return the function that measures a trained model."""
        found: Callable[..., dict[str, Any]] = resolve_name(self.evaluation)
        return found

    def baseline_measures(self) -> Callable[..., dict[str, Measure]]:
        """Import and return the function that returns the measurements of baselines."""
        found: Callable[..., dict[str, Measure]] = resolve_name(self.baselines)
        return found
