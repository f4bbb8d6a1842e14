"""Decides what a task holds out: at random, by time, the last of each query, or as the data says.

What is random is a function of the original ids, the task and the seed alone: a keyed hash of each group's id
(or of a pair of ids) falls into test, validation or train. Adding nodes or reordering files moves nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphbox.config import TaskConfig
from graphbox.graph import Graph
from graphbox.train.splitting.classify import split_classify
from graphbox.train.splitting.click import split_click
from graphbox.train.splitting.complete import split_complete
from graphbox.train.splitting.parts import unit_hash
from graphbox.train.splitting.predict_links import split_links
from graphbox.train.splitting.recommend import split_recommend
from graphbox.train.tasks import Split

__all__ = ["make_split", "unit_hash"]

SPLIT_FUNCTIONS: Mapping[str, Callable[..., Split]] = {
    "classify": split_classify,
    "click": split_click,
    "complete": split_complete,
    "predict_links": split_links,
    "recommend": split_recommend,
}
"""What splits, ``(graph, task, seed) -> Split``, by kind of task."""


def make_split(graph: Graph, task: TaskConfig, seed: int) -> Split:
    """Split the nodes or edges of a task into train, validation and test.

    Args:
        graph: the imported graph.
        task: the task's section of the run file.
        seed: seed of the hash.

    Raises:
        UsageError: the task names a feature or edge type that the graph does not have.
        DataError: a node has several groups, a value names no part, or a fold stays empty.
    """
    return SPLIT_FUNCTIONS[task.kind](graph, task, seed)
