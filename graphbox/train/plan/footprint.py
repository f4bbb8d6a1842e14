"""Footprint: the memory that training one model takes, computed from its section and the sizes of the graph.

Each kind of model has a class of its own, next to its trainer. The bytes for each node, edge, number of a
vector and value of a feature are those of the code's peak. They were measured on graphs of other sizes than
those that ``benchmarks/plan_training.py`` compares plans with.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from graphbox.config import DataFacts, ModelSection, RunConfig, TaskConfig, model_kind
from graphbox.graph.schema import EdgeType
from graphbox.metrics.blocks import rows_and_threads
from graphbox.metrics.ranking import DEVICE_ROWS, RANKED_ROWS
from graphbox.table.arguments import Optimizer
from graphbox.train.plan.accesses import DegreeModel
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.placement import DataPart

MEGABYTE = 1_000_000
VECTOR_COPIES = 6.0
"""Copies of a batch's vectors on a GPU: themselves, outputs of layers, gradients, batches ahead."""

_CONTEXT_BYTES = 1 << 30
"""Memory of a GPU for CUDA, its libraries and the caches of PyTorch's allocator, about."""
_TRANSPORT_BYTES = 1 << 30
"""Memory of each GPU for NCCL where several processes train, about."""
_RANKED_NUMBERS = 7.0
"""A score of a block that is ranked, its bits, its sort key, and the sort's workspace."""


@dataclass(frozen=True)
class Demand:
    """Host memory of a training beyond libraries.

    Attributes:
        nodes_bytes: bytes that grow with the nodes, and fixed ones.
        edges_bytes: bytes that grow with the edges.
        rows_bytes: part of ``nodes_bytes`` that several processes divide among them.
    """

    nodes_bytes: float
    edges_bytes: float
    rows_bytes: float = 0.0


@dataclass(frozen=True)
class TableRows:
    """A table whose rows may be on SSD, under the budget of tables.

    Attributes:
        rows: how many it has.
        dim: length of a row.
        optimizer: the table's.
        batch_rows: about the rows that a batch reads, which must be in memory at once.
        are_certain: whether the table has a place for each of ``rows`` from the start; else for some of them.
    """

    rows: int
    dim: int
    optimizer: Optimizer
    batch_rows: float
    are_certain: bool = True


SectionT_co = TypeVar("SectionT_co", bound=ModelSection, covariant=True)


class Footprint(ABC, Generic[SectionT_co]):
    """Memory of a training: in the host, in a GPU, and what can be placed in either.

    Args:
        model: the model's section of the run file; of several processes, with their part of a batch.
        counts: sizes of the graph.
        run: the run file.
    """

    def __init__(self, model: SectionT_co, counts: GraphCounts, run: RunConfig) -> None:
        self.model = model
        self.counts = counts
        self.run = run
        self.memory = run.memory
        self.task: Any = None if model.task is None else run.tasks[model.task]

    @abstractmethod
    def demand(self) -> Demand | None:
        """Return the host memory beyond libraries; None: unknown for these settings."""

    @abstractmethod
    def device_bytes(self) -> int:
        """Return the memory of a GPU that computing takes, beside graph and tables that may be kept there."""

    @abstractmethod
    def parts(self, degrees: DegreeModel) -> list[DataPart]:
        """Return the parts of graph and tables that a training reads, and how often, for their placement."""

    def table_rows(self) -> list[TableRows]:
        """Return the tables that share the budget of tables; none where the kind has no such budget."""
        return []

    def pinned_row_budget(self) -> int | None:
        """Return the budget in bytes of rows in pinned memory; None: unlimited."""
        return self.memory.tables

    def pinned_row_bytes(self, device_bytes: int) -> int:  # noqa: ARG002
        """Return the bytes of pinned rows that :meth:`demand` does not count.

        Args:
            device_bytes: budget of rows in the GPU's memory.
        """
        return 0

    def row_problem(self, device_bytes: int) -> tuple[str, str] | None:  # noqa: ARG002
        """Return why the rows cannot be trained on a GPU, and what would help; None: they can.

        Args:
            device_bytes: budget of rows in the GPU's memory.
        """
        return None

    @property
    def ends(self) -> tuple[str, str]:
        """Node types of the task's queries and candidates; empty names without a task."""
        query_type = getattr(self.task, "node_type", "")
        return query_type, getattr(self.task, "candidate_type", query_type)

    def nodes_of(self, edge_types: Sequence[EdgeType]) -> int:
        """Return the number of nodes of the types at the ends of some edge types; of all if none is given."""
        types = {end for each in edge_types or self.counts.edges for end in (each[0], each[2])}
        return sum(self.counts.nodes.get(name, 0) for name in types)

    def edges_of(self, edge_types: Sequence[EdgeType]) -> int:
        """Return the number of edges of some types, of all if none is given; reverse types do not count."""
        return sum(self.counts.edges.get(each, 0) for each in set(edge_types) or set(self.counts.edges))

    def scores_bytes(self) -> float:
        """Return the host bytes of scores of all candidates for blocks of queries, and of their ranking."""
        candidates = self.counts.nodes.get(self.ends[1], 0)
        rows, side_by_side = rows_and_threads(RANKED_ROWS, candidates, self.run.threads)
        return 2.0 * 4.0 * rows * candidates * side_by_side

    def bytes_on_disk(self, rows: float, dim: int) -> float:
        """Return the bytes of rows of ``dim`` numbers that exceed the budget of tables."""
        budget = self.memory.tables
        return 0.0 if budget is None else max(0.0, 4.0 * rows * dim - budget)

    def device_bytes_of(self, numbers: float) -> int:
        """Return the GPU bytes of some float32 numbers, and of the libraries there."""
        fixed = _CONTEXT_BYTES + (_TRANSPORT_BYTES if self.run.processes > 1 else 0)
        return round(fixed + 4.0 * numbers)


def footprint_of(model: ModelSection, counts: GraphCounts, run: RunConfig) -> Footprint[ModelSection] | None:
    """Return the footprint of a model; None: its kind has none.

    Of settings that the data will choose it is the footprint of those that take the most memory.

    Args:
        model: the model's section of the run file.
        counts: sizes of the graph.
        run: the run file.
    """
    kind = model_kind(model.kind)
    task = None if model.task is None else run.tasks[model.task]
    found = [kind.footprint(each, counts, run) for each in _possible(model, counts, task)]
    return max((each for each in found if each is not None), key=_host_bytes, default=None)


def _possible(model: ModelSection, counts: GraphCounts, task: TaskConfig | None) -> list[ModelSection]:
    """Return the sections that may be trained where the data chooses settings."""
    if not model.auto:
        return [model]
    types = {end for edge_type in counts.edges for end in (edge_type[0], edge_type[2])}
    kind = None if task is None else task.kind
    facts = DataFacts(
        nodes=sum(counts.nodes.get(name, 0) for name in types),
        edges=sum(counts.edges.values()),
        pairs=sum(counts.edges.values()),
        node_types=len(types),
        features=any(counts.feature_bytes.values()),
        labels=int(kind == "classify"),
        links=int(kind in ("predict_links", "recommend")),
        validation=sum(counts.nodes.values()),
        histories=sum(counts.nodes.values()),
    )
    found = [model.settled(each.settings) for each in model.suggestions(facts)]
    if model.tune is not None:  # sizes are lists of numbers
        largest = {
            name: max(values)
            for name, values in model.SPACE.items()
            if isinstance(values, tuple) and all(isinstance(each, int) for each in values)
        }
        found += [each.settled(largest) for each in (model, *found)]
    return found or [model]


def _host_bytes(footprint: Footprint[ModelSection]) -> float:
    demand = footprint.demand()
    return math.inf if demand is None else sum(asdict(demand).values())


def part_of_batches(model: ModelSection, processes: int) -> ModelSection:
    """Return the section of a model with the part of a batch that each of several processes has."""
    whole = getattr(model, "batch_size", None)
    if processes == 1 or whole is None:
        return model
    return model.model_copy(update={"batch_size": -(-whole // processes)})


def ranking_numbers(candidates: int) -> float:
    """Return the numbers that ranking a block of queries takes on a GPU."""
    rows, _ = rows_and_threads(DEVICE_ROWS, candidates, 1)
    return _RANKED_NUMBERS * rows * candidates
