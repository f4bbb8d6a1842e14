"""Plans of the trainings of a run file in host memory, and errors where one does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphbox.config import ModelSection, RunConfig
from graphbox.errors import DoesNotFitError
from graphbox.graph import Graph
from graphbox.memory import available_bytes
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.footprint import footprint_of, part_of_batches
from graphbox.train.plan.libraries import Libraries, load_libraries, measured_libraries
from graphbox.train.plan.table_budget import table_budget_problem
from graphbox.words import counted_bytes

_LEAST_DIM = 8
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class TrainingPlan:
    """Host memory of one training.

    Attributes:
        model: its name in the run file.
        kind: its kind.
        libraries_bytes: what a process holds before it trains.
        nodes_bytes: what grows with the nodes: rows, vectors, scores of candidates; and what is fixed. Of
            several processes that of rank 0, which has all rows in the end.
        edges_bytes: what grows with the edges, in each process.
        pinned_bytes: what is pinned for a GPU, beside that.
        processes: how many train.
        rows_bytes: of ``nodes_bytes``, what they divide among them.
        common_bytes: of ``libraries_bytes``, what they have in common.
    """

    model: str
    kind: str
    libraries_bytes: int
    nodes_bytes: int
    edges_bytes: int
    pinned_bytes: int = 0
    processes: int = 1
    rows_bytes: int = 0
    common_bytes: int = 0

    @property
    def process_bytes(self) -> int:
        """The most resident memory of a process while all train."""
        return self._alone_bytes - (self.rows_bytes - self.rows_bytes // self.processes)

    @property
    def peak_bytes(self) -> int:
        """The most resident memory; of several processes, with that which started them, all together."""
        if self.processes == 1:
            return self._alone_bytes
        # The others are gone when rank 0 takes up all rows.
        together = self.processes * (self.process_bytes - self.common_bytes)
        return self.libraries_bytes + max(together, self._alone_bytes - self.common_bytes)

    @property
    def _alone_bytes(self) -> int:
        return self.libraries_bytes + self.nodes_bytes + self.edges_bytes + self.pinned_bytes

    def as_dict(self) -> dict[str, int | str]:
        """Return plain values for ``--json``."""
        return {
            "kind": self.kind,
            "processes": self.processes,
            "peak_bytes": self.peak_bytes,
            "process_bytes": self.process_bytes,
            "libraries_bytes": self.libraries_bytes,
            "nodes_bytes": self.nodes_bytes,
            "edges_bytes": self.edges_bytes,
            "pinned_bytes": self.pinned_bytes,
        }


def plan_trainings(
    config: RunConfig,
    counts: GraphCounts,
    *,
    libraries: Libraries | None = None,
    pinned: Mapping[str, int] | None = None,
) -> dict[str, TrainingPlan | None]:
    """Return the plan of each model of a run file by name; None where its kind has none.

    Args:
        config: the run file.
        counts: how large its graph is.
        libraries: what a process holds before it trains; without it one is started that imports what the
            trainings do.
        pinned: bytes that each pins for a GPU, by name; those that are left out pin none.

    Raises:
        BackendMissingError: what they import is not there.
        TimeLimitError: importing it does not end.
    """
    if libraries is None:
        libraries = measured_libraries({model.kind for model in config.models.values()})
    return {
        name: _plan(name, model, counts, config, libraries, (pinned or {}).get(name, 0))
        for name, model in config.models.items()
    }


def check_room(config: RunConfig, graph: Graph, pinned: Mapping[str, int] | None = None) -> None:
    """Refuse trainings that, by plan, take more memory than there is for them: before any begins.

    That is what is available now beside what the process holds, or ``memory.total`` of the run file.

    Args:
        config: the run file.
        graph: what is trained on.
        pinned: bytes that each training pins for a GPU, by the model's name.

    Raises:
        DoesNotFitError: one takes more.
    """
    load_libraries({model.kind for model in config.models.values()})
    libraries = Libraries.of_this_process()
    counts = GraphCounts.of(graph)
    plans = plan_trainings(config, counts, libraries=libraries, pinned=pinned)
    found = problems(config, counts, plans, available_bytes() + libraries.resident_bytes)
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
    for name, model in config.models.items():
        footprint, plan = footprint_of(model, counts, config), plans[name]
        too_small = None if footprint is None else table_budget_problem(name, footprint)
        if too_small is not None:
            found.append((name, *too_small))
        if plan is not None and plan.peak_bytes > room:
            in_processes = "" if plan.processes == 1 else f" in {plan.processes} processes"
            message = (
                f"expected {counted_bytes(plan.peak_bytes)} of memory to train `{name}`{in_processes}, "
                f"received {counted_bytes(room)}, which {of_whom}"
            )
            found.append((name, message, "; ".join(_ways(config, counts, plan, room))))
    return found


def _plan(
    name: str, model: ModelSection, counts: GraphCounts, config: RunConfig, libraries: Libraries, pinned: int
) -> TrainingPlan | None:
    footprint = footprint_of(part_of_batches(model, config.processes), counts, _part_of_budgets(config))
    demand = None if footprint is None else footprint.demand()
    if demand is None:
        return None
    return TrainingPlan(
        name,
        model.kind,
        libraries.resident_bytes,
        round(demand.nodes_bytes),
        round(demand.edges_bytes),
        pinned,
        config.processes,
        max(0, round(demand.rows_bytes)),
        libraries.mapped_bytes,
    )


def _part_of_budgets(config: RunConfig) -> RunConfig:
    """Return a run file with the part of a budget of features that each process has."""
    features = config.memory.features
    if config.processes == 1 or features is None:
        return config
    memory = config.memory.model_copy(update={"features": features // config.processes})
    return config.model_copy(update={"memory": memory})


def _ways(config: RunConfig, counts: GraphCounts, plan: TrainingPlan, room: int) -> Iterator[str]:
    """Yield what makes a training fit, or lets it begin in any case."""
    model = config.models[plan.model]
    libraries = Libraries(plan.libraries_bytes, plan.common_bytes)
    for processes in range(plan.processes - 1, 0, -1):
        of_fewer = config.model_copy(update={"processes": processes})
        fewer = _plan(plan.model, model, counts, of_fewer, libraries, plan.pinned_bytes)
        if fewer is not None and fewer.peak_bytes <= room:
            yield f"with `processes={processes}` it takes {counted_bytes(fewer.peak_bytes)}"
            break
    dim = getattr(model, "dim", 0) // 2
    while dim >= _LEAST_DIM:
        section = model.model_copy(update={"dim": dim})
        smaller = _plan(plan.model, section, counts, config, libraries, plan.pinned_bytes)
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
