"""Section of a user's own ``torch.nn.Module``, named by its import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from graphbox.config.models.optimization import OptimizationSection
from graphbox.config.models.section import ModelSection
from graphbox.config.section import EdgeTypeList, Name, PositiveInt, TypeName

_Neighbors = Annotated[int, Field(ge=-1)]


class OwnModuleConfig(ModelSection, OptimizationSection):
    """Your own `torch.nn.Module` with a `loss(batch)`, trained on batches of sampled neighbours."""

    TASK_KINDS: ClassVar[tuple[str, ...]] = ("classify", "recommend", "predict_links")
    BUDGETS: ClassVar[tuple[str, ...]] = ("topology", "features", "tables")
    DIVIDES: ClassVar[bool] = True
    WARM_STARTS: ClassVar[bool] = True
    READS_KNOWN_LINKS: ClassVar[bool] = True
    TEACHES: ClassVar[tuple[str, ...]] = ("classify",)

    kind: Literal["module"]
    """Kind of model."""
    task: Name
    """Task of kind `classify`, `recommend` or `predict_links` that the module is trained and evaluated on."""
    model: str
    """Import path (`package.module:Class`) of the module's class. It is called with a
    `graphbox.train.ModuleInputs` and the options."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Keyword arguments of the class."""
    num_neighbors: Annotated[tuple[_Neighbors, ...], Field(min_length=1)] = (15, 10)
    """Neighbours that are drawn at each hop in training; -1: all."""
    evaluation_neighbors: Annotated[tuple[_Neighbors, ...], Field(min_length=1)] | None = None
    """Neighbours that are drawn at each hop where the module is measured and its vectors are computed; -1:
    all. Default: those of training."""
    relations: tuple[EdgeTypeList, ...] = ()
    """Edge types along which neighbours are drawn; none means all."""
    reverse: bool = True
    """Draw neighbours also against the edges, of those types that have no reverse type in the graph."""
    features: dict[TypeName, tuple[str, ...]] | None = None
    """Features in the batches, by node type. Default: all but the task's label and slots."""
    weight_attr: Literal["weight"] | None = None
    """`weight`: draw neighbours in proportion to the weights of their edges."""
    time_attr: str | None = None
    """Keep the future out of training batches. `timestamp`: of links, which must be events (a task of kind
    `predict_links` split by time); only edges that are not later than a link are drawn around it. Or an
    integer feature of nodes: only neighbours that are not later than their seed are."""
    temporal_strategy: Literal["uniform", "last"] = "uniform"
    """Choice among the edges that are not later: any, or the `last` ones."""
    disjoint: bool = False
    """A tree of its own for each seed or link; so it always is with times."""
    negatives: PositiveInt = 1
    """Negatives for each link, drawn uniformly, of tasks of kind `recommend` and `predict_links`."""

    @classmethod
    def undivided(cls, task_kind: str | None, values: Mapping[str, Any]) -> str | None:  # noqa: ARG003
        """See :meth:`ModelSection.undivided`."""
        if task_kind == "classify":
            return None
        return "batches of links are not divided among processes"

    @classmethod
    def import_paths(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """See :meth:`ModelSection.import_paths`."""
        path = values.get("model")
        return {"model": path} if isinstance(path, str) else {}
