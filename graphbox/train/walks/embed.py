"""From a graph in memory to embeddings by walks, in one call."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from graphbox.config import DeepWalkConfig, LineConfig, Metapath2VecConfig, Node2VecConfig
from graphbox.errors import GraphboxError
from graphbox.graph import Graph
from graphbox.train.registry import Assignment, make_trainer
from graphbox.train.view import GraphView

__all__ = ["embed"]


def embed(
    graph: Graph,
    config: DeepWalkConfig | Node2VecConfig | Metapath2VecConfig | LineConfig,
    *,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Learn embeddings of the nodes of a graph, without a run folder or checkpoints.

    ``embed(graph, DeepWalkConfig(kind="deepwalk"))`` is DeepWalk on all edges. The same seed gives the same
    embeddings for any number of threads, unless the model is ``lock_free``.

    Args:
        graph: the graph.
        config: the model, as in a run file.
        seed: seed of every random choice.
        threads: None: all CPUs of the process.

    Returns:
        float32 [nodes, dim] by node type, of those that walks visit.

    Raises:
        UsageError: the model and the graph do not fit together.
        DataError: there are no edges.
        GraphboxError: the loss is no longer a finite number.
    """
    trainer = make_trainer(config, Assignment(config.kind, GraphView(graph, None), None, None, seed, threads))
    for epoch in range(trainer.epochs):
        for batch in range(trainer.begin_epoch(epoch)):
            loss, _ = trainer.train_batch(epoch, batch)
            if not math.isfinite(loss):
                raise GraphboxError(
                    f"expected a finite loss, received {loss}",
                    where=f"{config.kind}, epoch {epoch + 1}",
                    hint="lower the learning rate",
                )
    return trainer.trained(config.kind, GraphView(graph, None)).embeddings
