"""Memory and time of the baselines of a run file, from the sizes of a graph that need not exist yet."""

from __future__ import annotations

from collections.abc import Mapping

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig, RunConfig
from graphbox.train.baseline_costs import (
    BaselineCost,
    NodeSizes,
    RankingSizes,
    left_out,
    node_costs,
    ranking_costs,
)
from graphbox.train.plan.counts import GraphCounts
from graphbox.words import counted_bytes

_FEATURE_BYTES = 4
"""Least bytes of a value of a feature on disk, but of booleans, which count as four."""


def plan_baselines(config: RunConfig, counts: GraphCounts) -> dict[str, dict[str, BaselineCost]]:
    """Return the most that the baselines of each task take, by task and baseline.

    Those that only count are not there; of a task that names baselines the others are not. How long one runs
    depends on how edges are spread, which is known only of a graph that is there: seconds are a bound.

    Args:
        config: the run file.
        counts: how large its graph is.
    """
    found: dict[str, dict[str, BaselineCost]] = {}
    for name, task in config.tasks.items():
        if isinstance(task, RecommendTaskConfig):
            costs = ranking_costs(_ranking_sizes(task, counts))
            if task.node_type != task.candidate_type:
                del costs["adamic_adar"]
        elif isinstance(task, ClassifyTaskConfig):
            costs = node_costs(_node_sizes(task, counts))
        else:
            continue
        found[name] = {
            each: cost for each, cost in costs.items() if task.baselines is None or each in task.baselines
        }
    return found


def baseline_problems(
    config: RunConfig, plans: Mapping[str, Mapping[str, BaselineCost]], room_bytes: int
) -> list[tuple[str, str]]:
    """Return what does not fit of the baselines that tasks name, and what would.

    Args:
        config: the run file.
        plans: of :func:`plan_baselines`.
        room_bytes: memory that there is.
    """
    found = []
    for task, costs in plans.items():
        for name, cost in costs.items():
            if config.tasks[task].baselines is None or cost.memory_bytes <= room_bytes:
                continue
            message = (
                f"expected {counted_bytes(cost.memory_bytes)} of memory for the baseline `{name}` of "
                f"`{task}`, received {counted_bytes(room_bytes)}"
            )
            found.append((message, f"take `{name}` out of `tasks.{task}.baselines`"))
    return found


def baselines_without_room(
    config: RunConfig, plans: Mapping[str, Mapping[str, BaselineCost]], room_bytes: int
) -> dict[str, dict[str, str]]:
    """Return why baselines that no task names may not run, by task and baseline; see :func:`left_out`."""
    return {
        task: {} if config.tasks[task].baselines is not None else left_out(costs, costs, room_bytes // 2)
        for task, costs in plans.items()
    }


def _ranking_sizes(task: RecommendTaskConfig, counts: GraphCounts) -> RankingSizes:
    queries = counts.nodes.get(task.node_type, 0)
    targets = counts.nodes.get(task.candidate_type, 0)
    answers = sum(
        counts.edges.get((task.node_type, relation, task.candidate_type), 0) for relation in task.relations
    )
    most = task.baseline_queries
    measured = queries if most == "all" else min(queries, most)
    return RankingSizes.at_most(queries, targets, answers, measured)


def _node_sizes(task: ClassifyTaskConfig, counts: GraphCounts) -> NodeSizes:
    label = task.label or task.labels
    classes = counts.values.get(task.node_type, {}).get(label or "", 0)
    if task.memberships is not None:
        classes = counts.nodes.get(task.memberships[2], 0)
    nodes = counts.nodes.get(task.node_type, 0)
    width, values = 0, 0
    for name, size in counts.feature_bytes.items():
        looked_up = sum(count for each, count in counts.values.get(name, {}).items() if each != label)
        width += looked_up + size // (_FEATURE_BYTES * max(counts.nodes.get(name, 0), 1))
        values += size // _FEATURE_BYTES
    return NodeSizes(
        nodes=sum(counts.nodes.values()),
        links=2 * sum(counts.edges.values()),
        classes=classes,
        train=round(nodes * (1.0 - task.test_fraction) * (1.0 - task.validation_fraction)),
        width=width,
        values=values,
        num_classified=nodes,
    )
