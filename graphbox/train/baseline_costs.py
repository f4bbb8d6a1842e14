"""Estimated time and memory of baselines, from counts, so that a report does not wait for slow ones.

Counts of operations are divided by rates that one slow core reached (`docs/guides/tasks.md`): estimates are
meant to be too long rather than too short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from graphbox.config import RecommendTaskConfig, TaskConfig
from graphbox.graph.live_rows import LiveRows
from graphbox.train.closed_forms import EASE_PENALTIES
from graphbox.train.node_baselines import SGC_STEPS, SGC_STRENGTHS
from graphbox.train.node_classifier import MOST_ITERATIONS
from graphbox.train.recommendation.queries import known_answers
from graphbox.train.tasks import ClassifySplit, Fold, RecommendSplit, Split
from graphbox.train.view import GraphView
from graphbox.words import byte_size

LONGEST_BASELINE_S = 60.0
"""A baseline that would take longer runs only where the task names it."""

_MATRIX_FLOPS = 2.0e10
"""Floating-point operations a second of products and inverses of large float32 matrices."""
_SMALL_MATRIX_FLOPS = 5.0e9
_ITERATION_FLOPS = 4.0e9
"""Of the iteration for singular vectors, whose vectors leave the CPU's cache."""
_SPARSE_S = 4.0e-9
"""A multiplication of a product of two sparse matrices."""
_COLUMN_S = 1.0e-9
"""A multiplication of a sparse matrix with a few dense columns."""
_ROW_S = 8.0e-5
"""iALS's solution of a row, beside its products."""
_FLOAT_BYTES, _ENTRY_BYTES = 4, 8

_GFCF_COMPONENTS = 256
_SVD_RESTARTS = 5
_IALS_DIM, _IALS_EPOCHS = 64, 15
_PAGERANK_STEPS = 10
_PROPAGATION_STEPS = 50


@dataclass(frozen=True)
class BaselineCost:
    """Estimated cost of a baseline.

    Attributes:
        seconds: run time, rather over- than underestimated.
        memory_bytes: peak memory, beside the graph and the libraries.
    """

    seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class RankingSizes:
    """Sizes that the costs of baselines of a `recommend` task depend on.

    Attributes:
        queries: number of nodes that can ask.
        targets: number of candidates.
        answers: known answers.
        measured: queries that a baseline is measured on.
        three_hops: multiplications of finding the candidates of all that the measured queries have targets in
            common with.
        links: entries of the undirected graph that walks follow.
    """

    queries: int
    targets: int
    answers: int
    measured: int
    three_hops: float
    links: int

    @classmethod
    def of(cls, view: GraphView, split: RecommendSplit, queries: NDArray[np.int64]) -> Self:
        """Return the sizes of a task for the queries that are measured, int64 [n]."""
        known = known_answers(view, split)
        degree = np.diff(known.indptr).astype(np.float64)
        ways = np.asarray(known[queries] @ (known.T @ degree))
        links = known.nnz
        if split.within_one_type:
            links = sum(
                int(view.in_degree(each).sum())
                for each in view.edge_types
                if each[0] == each[2] == split.node_type and not view.is_reverse(each)
            )
        return cls(
            queries=len(LiveRows.of_graph(view, split.node_type)),
            targets=len(LiveRows.of_graph(view, split.target_type)),
            answers=known.nnz,
            measured=len(queries),
            # However many ways there are to a user, its answers are added once.
            three_hops=float(np.minimum(ways, known.nnz).sum()),
            links=2 * links,
        )

    @classmethod
    def at_most(cls, queries: int, targets: int, answers: int, measured: int) -> Self:
        """Return the largest sizes that a graph with these counts can have."""
        three_hops = float(measured) * answers
        return cls(queries, targets, answers, measured, three_hops, 2 * answers)


def ranking_costs(sizes: RankingSizes) -> dict[str, BaselineCost]:
    """Return what each baseline of a `recommend` task costs; those that only count are left out."""
    blocks = 4 * 64 * sizes.targets * _FLOAT_BYTES  # scores that are ranked, in two threads
    matrix = sizes.answers * _ENTRY_BYTES
    walked = sizes.links * _ENTRY_BYTES
    over_common = sizes.three_hops * _SPARSE_S
    over_targets = 2.0 * sizes.measured * sizes.targets
    return {
        "adamic_adar": BaselineCost(over_common, round(3 * walked + blocks)),
        "personalized_pagerank": BaselineCost(
            sizes.measured * _PAGERANK_STEPS * sizes.links * _COLUMN_S,
            round(3 * walked + blocks + 6 * 16 * (sizes.queries + sizes.targets) * _FLOAT_BYTES),
        ),
        "user_knn": BaselineCost(over_common, round(5 * matrix + blocks)),
        "gfcf": _gfcf(sizes, over_common + over_targets * _GFCF_COMPONENTS / _MATRIX_FLOPS, matrix, blocks),
        "ials": _ials(sizes, over_targets * _IALS_DIM / _MATRIX_FLOPS, matrix, blocks),
        "ease": _ease(sizes, matrix, blocks),
    }


def _gfcf(sizes: RankingSizes, scoring_s: float, matrix: int, blocks: int) -> BaselineCost:
    shorter = min(sizes.queries, sizes.targets)
    components = min(_GFCF_COMPONENTS, shorter)
    basis = 2 * components + 1
    restart = components * (6.0 * basis * shorter + 4.0 * sizes.answers)
    vectors = 2 * components * sizes.targets + (basis + components) * shorter
    return BaselineCost(
        _SVD_RESTARTS * restart / _ITERATION_FLOPS + scoring_s,
        round(4 * matrix + _FLOAT_BYTES * vectors + blocks),
    )


def _ials(sizes: RankingSizes, scoring_s: float, matrix: int, blocks: int) -> BaselineCost:
    rows = sizes.queries + sizes.targets
    products = 4.0 * sizes.answers * _IALS_DIM**2 / _SMALL_MATRIX_FLOPS
    return BaselineCost(
        _IALS_EPOCHS * (products + _ROW_S * rows) + scoring_s,
        round(3 * matrix + _FLOAT_BYTES * (rows * _IALS_DIM + 3 * 1024 * _IALS_DIM**2) + blocks),
    )


def _ease(sizes: RankingSizes, matrix: int, blocks: int) -> BaselineCost:
    square = float(sizes.targets) ** 2
    inverses = (len(EASE_PENALTIES) + 1) * square * sizes.targets / _MATRIX_FLOPS
    of_query = sizes.answers / max(sizes.queries, 1)
    asked = sizes.measured + len(EASE_PENALTIES) * min(1_000, sizes.queries)
    scoring = asked * of_query * sizes.targets * _COLUMN_S
    # The products, their copy that is inverted, and the sparse products of which they are made.
    memory = 2 * _FLOAT_BYTES * square + min(square, of_query * sizes.answers) * _ENTRY_BYTES
    return BaselineCost(inverses + scoring, round(3 * matrix + memory + blocks))


@dataclass(frozen=True)
class NodeSizes:
    """Sizes that the costs of baselines of a `classify` task depend on.

    Attributes:
        nodes: number of nodes of all types.
        links: entries of the undirected graph of all types.
        classes: number of classes.
        train: training nodes.
        width: columns of features, of all types together.
        values: feature values that are not zero, of all nodes.
        num_classified: nodes of the task's type.
    """

    nodes: int
    links: int
    classes: int
    train: int
    width: int
    values: int
    num_classified: int

    @classmethod
    def of(cls, view: GraphView, split: ClassifySplit) -> Self:
        """Return the sizes of a task."""
        width, values = 0, 0
        for node_type in view.node_types:
            count = view.num_nodes(node_type)
            for name, spec in view.features(node_type).items():
                if spec.kind == "slots":
                    slots = view.slot_lists(node_type, name)[1]
                    width, values = width + len(np.unique(slots)), values + len(slots)
                else:
                    width += len(spec.categories or ()) or spec.dim or 1
                    values += count * (spec.dim or 1)
        edges = sum(int(view.in_degree(each).sum()) for each in view.edge_types if not view.is_reverse(each))
        return cls(
            nodes=sum(view.num_nodes(name) for name in view.node_types),
            links=2 * edges,
            classes=len(split.classes),
            train=len(split.nodes("train")),
            width=width,
            values=values,
            num_classified=view.num_nodes(split.node_type),
        )


def node_costs(sizes: NodeSizes) -> dict[str, BaselineCost]:
    """Return what each baseline of a `classify` task costs; those that only count are left out."""
    columns = sizes.nodes * sizes.classes
    propagation = BaselineCost(
        _PROPAGATION_STEPS * sizes.links * sizes.classes * _COLUMN_S + 20.0 * _SPARSE_S * sizes.links,
        round(5 * sizes.links * _ENTRY_BYTES + 4 * columns * _FLOAT_BYTES),
    )
    return {"label_propagation": propagation, "sgc": _sgc(sizes)}


def _sgc(sizes: NodeSizes) -> BaselineCost:
    degree = (sizes.links + sizes.nodes) / max(sizes.nodes, 1)
    entries, most, multiplied = float(sizes.values), float(sizes.nodes) * sizes.width, 0.0
    for _ in range(SGC_STEPS):
        multiplied += entries * degree
        entries = min(entries * degree, most)
    per_node = entries / max(sizes.nodes, 1)
    passes = len(SGC_STRENGTHS) * (MOST_ITERATIONS * sizes.train + sizes.num_classified)
    return BaselineCost(
        multiplied * _SPARSE_S + 2.0 * passes * per_node * sizes.classes * _COLUMN_S,
        round(
            5 * sizes.links * _ENTRY_BYTES
            + 3 * _ENTRY_BYTES * entries
            + _FLOAT_BYTES * sizes.classes * (4 * sizes.num_classified + 30 * sizes.width)
        ),
    )


def left_out(costs: Mapping[str, BaselineCost], names: Iterable[str], room_bytes: int) -> dict[str, str]:
    """Return why baselines do not run by default, by name, those that run left out.

    Args:
        costs: of baselines by name; those without one run in any case.
        names: the baselines in question.
        room_bytes: memory that one may take.
    """
    reasons = {}
    for name in names:
        cost = costs.get(name)
        if cost is None:
            continue
        too_much = []
        if cost.seconds > LONGEST_BASELINE_S:
            too_much.append(f"about {_time(cost.seconds)}")
        if cost.memory_bytes > room_bytes:
            too_much.append(f"about {byte_size(cost.memory_bytes)} of memory")
        if too_much:
            reasons[name] = (
                f"left out, {' and '.join(too_much)} on this graph; name it under `baselines` to run it"
            )
    return reasons


def baselines_left_out(
    view: GraphView, split: Split, task: TaskConfig, names: Iterable[str], fold: Fold, room_bytes: int
) -> dict[str, str]:
    """Return why baselines of a task do not run, by name: none of those that the task names.

    Args:
        view: the graph as the baselines know it.
        split: the split of the task.
        task: the task's section of the run file.
        names: the baselines that the task allows.
        fold: what is predicted.
        room_bytes: memory that one may take.
    """
    if task.baselines is not None:
        return {}
    costs: dict[str, BaselineCost] = {}
    if isinstance(split, RecommendSplit) and isinstance(task, RecommendTaskConfig):
        queries = np.unique(split.edges(fold)[:, 0])
        if task.baseline_queries != "all" and len(queries) > task.baseline_queries:
            queries = queries[np.linspace(0, len(queries) - 1, task.baseline_queries).astype(np.int64)]
        costs = ranking_costs(RankingSizes.of(view, split, queries))
    elif isinstance(split, ClassifySplit):
        costs = node_costs(NodeSizes.of(view, split))
    return left_out(costs, names, room_bytes)


def _time(seconds: float) -> str:
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
