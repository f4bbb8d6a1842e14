"""Plans of the trainings of a run file, and what is said where one does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphbox.config import ModelConfig, RunConfig
from graphbox.errors import DoesNotFitError
from graphbox.graph import Graph
from graphbox.memory import available_bytes, resident_bytes
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.demand import demand_of
from graphbox.train.plan.libraries import libraries_bytes, load_libraries
from graphbox.words import counted_bytes

__all__ = ["TrainingPlan", "check_room", "plan_trainings", "problems"]

_LEAST_DIM = 8
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class TrainingPlan:
    """What the training of a model takes.

    Attributes:
        model: its name in the run file.
        kind: its kind.
        libraries_bytes: what the process holds before it trains.
        nodes_bytes: what grows with the nodes: rows, vectors, scores of candidates; and what is fixed.
        edges_bytes: what grows with the edges.
        pinned_bytes: what is pinned for a GPU, beside that.
    """

    model: str
    kind: str
    libraries_bytes: int
    nodes_bytes: int
    edges_bytes: int
    pinned_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """The most resident memory."""
        return self.libraries_bytes + self.nodes_bytes + self.edges_bytes + self.pinned_bytes

    def as_dict(self) -> dict[str, int | str]:
        """Return plain values for ``--json``."""
        return {
            "kind": self.kind,
            "peak_bytes": self.peak_bytes,
            "libraries_bytes": self.libraries_bytes,
            "nodes_bytes": self.nodes_bytes,
            "edges_bytes": self.edges_bytes,
            "pinned_bytes": self.pinned_bytes,
        }


def plan_trainings(
    config: RunConfig,
    counts: GraphCounts,
    *,
    libraries: int | None = None,
    pinned: Mapping[str, int] | None = None,
) -> dict[str, TrainingPlan | None]:
    """Return the plan of each model of a run file by name; None where its kind has none.

    Args:
        config: the run file.
        counts: how large its graph is.
        libraries: bytes that the process holds before it trains; without it a process is started that
            imports what the trainings do.
        pinned: bytes that each pins for a GPU, by name; those that are left out pin none.

    Raises:
        BackendMissingError: what they import is not there.
        TimeLimitError: importing it does not end.
    """
    if libraries is None:
        libraries = libraries_bytes({model.kind for model in config.models.values()})
    return {
        name: _plan(name, model, counts, config, libraries, (pinned or {}).get(name, 0))
        for name, model in config.models.items()
    }


def check_room(config: RunConfig, graph: Graph, pinned: Mapping[str, int] | None = None) -> None:
    """Refuse trainings that, by plan, take more memory than this process may: before any begins.

    That is what is available now beside what the process holds, or ``memory.total`` of the run file.

    Args:
        config: the run file.
        graph: what is trained on.
        pinned: bytes that each training pins for a GPU, by the model's name.

    Raises:
        DoesNotFitError: one takes more.
    """
    load_libraries({model.kind for model in config.models.values()})
    resident = resident_bytes()
    counts = GraphCounts.of(graph)
    plans = plan_trainings(config, counts, libraries=resident, pinned=pinned)
    found = problems(config, counts, plans, available_bytes() + resident)
    if found:
        model, message, hint = found[0]
        raise DoesNotFitError(message, where=f"models.{model}", hint=hint)


def problems(
    config: RunConfig, counts: GraphCounts, plans: Mapping[str, TrainingPlan | None], available: int
) -> list[tuple[str, str, str]]:
    """Return the trainings that do not fit: each model's name, what does not, and what would.

    Args:
        config: the run file.
        counts: how large its graph is.
        plans: of its models.
        available: bytes of memory that there are; ``memory.total`` of the run file stands before it.
    """
    total = config.memory.total
    room = available if total is None else total
    of_whom = "are available" if total is None else "`memory.total` allows"
    found = []
    for name, plan in plans.items():
        if plan is not None and plan.peak_bytes > room:
            message = (
                f"expected {counted_bytes(plan.peak_bytes)} of memory to train `{name}`, received "
                f"{counted_bytes(room)}, which "
                f"{of_whom}"
            )
            found.append((name, message, "; ".join(_ways(config, counts, plan, room))))
    return found


def _plan(
    name: str, model: ModelConfig, counts: GraphCounts, config: RunConfig, libraries: int, pinned: int
) -> TrainingPlan | None:
    demand = demand_of(model, counts, config)
    if demand is None:
        return None
    nodes, edges = round(demand.nodes_bytes), round(demand.edges_bytes)
    return TrainingPlan(name, model.kind, libraries, nodes, edges, pinned)


def _ways(config: RunConfig, counts: GraphCounts, plan: TrainingPlan, room: int) -> Iterator[str]:
    """Yield what makes a training fit, or lets it begin in any case."""
    model = config.models[plan.model]
    dim = getattr(model, "dim", 0) // 2
    while dim >= _LEAST_DIM:
        section = model.model_copy(update={"dim": dim})
        smaller = _plan(plan.model, section, counts, config, plan.libraries_bytes, plan.pinned_bytes)
        if smaller is not None and smaller.peak_bytes <= room:
            yield f"with `models.{plan.model}.dim={dim}` it takes {counted_bytes(smaller.peak_bytes)}"
            break
        dim //= 2
    beyond_libraries = plan.libraries_bytes < room  # else nothing of the model decides
    if model.BUDGETS and beyond_libraries:
        keys = ", ".join(f"`memory.{name}`" for name in model.BUDGETS)
        yield f"{keys} {'keeps' if len(model.BUDGETS) == 1 else 'keep'} part of it on disk"
    if getattr(model, "num_neighbors", 0) is None and beyond_libraries:
        yield f"`models.{plan.model}.num_neighbors=[10,10]` trains on parts of the graph"
    mebibytes = -(-plan.peak_bytes // _MEBIBYTE)
    if not beyond_libraries:
        yield f"the libraries alone take {counted_bytes(plan.libraries_bytes)}"
    yield f"`memory.total={mebibytes}MiB` lets it begin in any case"
