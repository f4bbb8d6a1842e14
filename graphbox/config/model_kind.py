"""Model kind: one object with all that graphbox knows about a kind of model.

A package adds a kind with an entry point of the group ``graphbox.models``, named as the kind::

    [project.entry-points."graphbox.models"]
    popularity = "my_package.kinds:popularity"

``graphbox.config.kinds`` finds them. Importing the module of a kind must be cheap, since every command that
reads a run file does it: trainers and footprints are import paths, which are resolved where they are needed.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, get_args

from graphbox.config.models.section import ModelSection

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphbox.config.schema import RunConfig
    from graphbox.train.assignment import Assignment
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

TORCH_OPTIMIZERS = "torch._dynamo"
"""Module that the first torch optimizer imports, for :attr:`ModelKind.libraries`."""


class ModelKind:
    """A kind of model: its section of the run file, its trainers and its footprint.

    Tasks, budgets and refusals of settings are class attributes and class methods of the section, see
    :class:`graphbox.config.models.section.ModelSection`. Import paths are written ``package.module:name``.

    Args:
        section: class of the section; its field ``kind`` is a literal of one name, the name of the kind.
        trainer: import path of a class or function that is called with the section and a
            :class:`graphbox.train.Assignment` and returns a :class:`graphbox.train.Trainer`.
        streaming_trainer: the same for streams. None: models of the kind learn from whole graphs only.
        footprint: import path of a class derived from :class:`graphbox.train.plan.footprint.Footprint`. None:
            the memory of a training is unknown, so ``graphbox plan`` leaves it out.
        libraries: modules that a training imports later than its trainer; ``graphbox plan`` measures them.

    Raises:
        TypeError: ``section`` is no such class.
    """

    def __init__(
        self,
        section: type[ModelSection],
        trainer: str,
        *,
        streaming_trainer: str | None = None,
        footprint: str | None = None,
        libraries: tuple[str, ...] = (),
    ) -> None:
        if not (isinstance(section, type) and issubclass(section, ModelSection)):
            raise TypeError(
                f"expected a class derived from graphbox.config.ModelSection as the section of a ModelKind, "
                f"received {section!r}"
            )
        names = get_args(section.model_fields["kind"].annotation)
        if len(names) != 1 or not isinstance(names[0], str):
            raise TypeError(
                f"expected a field `kind: Literal[...]` with one name in {section.__name__}, received "
                f"{section.model_fields['kind'].annotation!r}"
            )
        self.section = section
        self.name: str = names[0]
        self.libraries = libraries
        self._trainer = trainer
        self._streaming_trainer = streaming_trainer
        self._footprint = footprint

    @property
    def streams(self) -> bool:
        """Whether models of the kind learn from streams."""
        return self._streaming_trainer is not None

    def trainer(self) -> Callable[[Any, Assignment], Trainer]:
        """Import and return the function or class that makes the trainer of a section."""
        made: Callable[[Any, Assignment], Trainer] = resolve_name(self._trainer)
        return made

    def streaming_trainer(self) -> Callable[[Any, Assignment], StreamingTrainer] | None:
        """Import and return the same for streams; None: models of the kind learn from whole graphs only."""
        return None if self._streaming_trainer is None else resolve_name(self._streaming_trainer)

    def footprint(
        self, config: ModelSection, counts: GraphCounts, run: RunConfig
    ) -> Footprint[ModelSection] | None:
        """Return the memory that a training takes; None: unknown.

        Args:
            config: the model's section of the run file.
            counts: sizes of the graph.
            run: the run file.
        """
        return None if self._footprint is None else resolve_name(self._footprint)(config, counts, run)
