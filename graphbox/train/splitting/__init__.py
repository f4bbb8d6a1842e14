"""Decides what a task holds out: at random, by time, the last of each query, or as the data says.

What is random is a function of the original ids, the task and the seed alone: a keyed hash of each group's id
(or of a pair of ids) falls into test, validation or train. Adding nodes or reordering files moves nothing
else.
"""

from __future__ import annotations

from pathlib import Path

from graphbox.config import TaskConfig
from graphbox.config.tasks import TASK_KINDS
from graphbox.graph import Graph
from graphbox.train.splitting.parts import unit_hash
from graphbox.train.tasks import Split

__all__ = ["make_split", "unit_hash"]


def make_split(graph: Graph, task: TaskConfig, seed: int, folder: Path | None = None) -> Split:
    """Split the nodes or edges of a task into train, validation and test.

    Args:
        graph: the imported graph.
        task: the task's section of the run file.
        seed: seed of the hash.
        folder: where the links of a `recommend` task that is split at random are sorted and mapped from, so
            that memory has those that are held out alone; None: all are in memory, as those of other splits.

    Raises:
        UsageError: the task names a feature or edge type that the graph does not have.
        DataError: a node has several groups, a value names no part, or a fold stays empty.
    """
    return TASK_KINDS[task.kind].split()(graph, task, seed, folder)
