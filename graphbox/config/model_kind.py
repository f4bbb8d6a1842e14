"""Model kind: one object with all that graphbox knows about a kind of model.

A package adds a kind with an entry point of the group ``graphbox.models``, named as the kind::

    [project.entry-points."graphbox.models"]
    popularity = "my_package.kinds:popularity"

``graphbox.config.kinds`` finds them. Importing the module of a kind must be cheap: every command that reads a
run file does it. Imports of torch, trainers and footprints belong inside the methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, get_args

from graphbox.config.models.section import ModelSection

if TYPE_CHECKING:
    from graphbox.config.schema import RunConfig
    from graphbox.train.plan.counts import GraphCounts
    from graphbox.train.plan.footprint import Footprint
    from graphbox.train.registry import Assignment
    from graphbox.train.stream.trainer import StreamingTrainer
    from graphbox.train.trainer import Trainer

__all__ = ["TORCH_OPTIMIZERS", "ModelKind"]

TORCH_OPTIMIZERS = "torch._dynamo"
"""Module that the first torch optimizer imports, for :attr:`ModelKind.LIBRARIES`."""

SectionT = TypeVar("SectionT", bound=ModelSection)


class ModelKind(ABC, Generic[SectionT]):
    """A kind of model: its section of the run file, its trainers and its footprint.

    Tasks, budgets and refusals of settings are class attributes and class methods of the section, see
    :class:`graphbox.config.models.section.ModelSection`.

    Args:
        section: class of the section; its field ``kind`` is a literal of one name, the name of the kind.

    Raises:
        TypeError: ``section`` is no such class.
    """

    LIBRARIES: ClassVar[tuple[str, ...]] = ()
    """Modules that a training imports later than its trainer does; ``graphbox plan`` measures them."""

    def __init__(self, section: type[SectionT]) -> None:
        if not (isinstance(section, type) and issubclass(section, ModelSection)):
            raise TypeError(
                f"expected a class derived from graphbox.config.ModelSection as the section of "
                f"{type(self).__name__}, received {section!r}"
            )
        names = get_args(section.model_fields["kind"].annotation)
        if len(names) != 1 or not isinstance(names[0], str):
            raise TypeError(
                f"expected a field `kind: Literal[...]` with one name in {section.__name__}, received "
                f"{section.model_fields['kind'].annotation!r}"
            )
        self.section = section
        self.name: str = names[0]

    @abstractmethod
    def trainer(self) -> Callable[[SectionT, Assignment], Trainer]:
        """Import and return the function or class that makes the trainer of a section."""

    def streaming_trainer(self) -> Callable[[SectionT, Assignment], StreamingTrainer] | None:
        """Import and return the same for streams; None: models of the kind learn from whole graphs only."""
        return None

    def footprint(self, config: SectionT, counts: GraphCounts, run: RunConfig) -> Footprint[SectionT] | None:  # noqa: ARG002
        """Return the memory that a training takes; None: unknown, so ``graphbox plan`` leaves it out.

        Args:
            config: the model's section of the run file.
            counts: sizes of the graph.
            run: the run file.
        """
        return None
