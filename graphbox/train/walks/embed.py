"""From a graph in memory to embeddings by walks, in one call."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from graphbox.config import DeepWalkConfig, LineConfig, Metapath2VecConfig, Node2VecConfig
from graphbox.device import chosen_device
from graphbox.errors import GraphboxError
from graphbox.graph import Graph
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.choosing.facts import facts_of
from graphbox.train.view import GraphView


def embed(
    graph: Graph,
    config: DeepWalkConfig | Node2VecConfig | Metapath2VecConfig | LineConfig,
    *,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
) -> dict[str, NDArray[np.float32]]:
    """Learn embeddings of the nodes of a graph, without a run folder or checkpoints.

    ``embed(graph, DeepWalkConfig(kind="deepwalk"))`` is DeepWalk on all edges. The same seed gives the same
    embeddings for any number of threads, unless the model is ``lock_free``.

    Args:
        graph: the graph.
        config: the model, as in a run file.
        seed: seed of every random choice.
        threads: None: all CPUs of the process.
        device: where to train: ``cpu``, ``cuda``, ``cuda:1``, or ``auto``, a GPU where there is one. All walk
            alike, and their embeddings agree to float tolerance.

    Returns:
        float32 [nodes, dim] by node type, of those that walks visit.

    Raises:
        UsageError: the model and the graph do not fit together, or there is no such device.
        BackendMissingError: the GPU is not there, or Triton.
        DoesNotFitError: the GPU has no room for all rows.
        DataError: there are no edges.
        GraphboxError: the loss is no longer a finite number.
    """
    view = GraphView(graph, None)
    touched = () if isinstance(config, Metapath2VecConfig) else config.edge_types
    for first in config.suggestions(facts_of(graph, None, touched))[:1]:
        config = config.settled(first.settings)
    assignment = Assignment(config.kind, view, None, None, seed, threads, device=chosen_device(device))
    trainer = make_trainer(config, assignment)
    for epoch in range(trainer.epochs):
        for batch in range(trainer.begin_epoch(epoch)):
            loss, _ = trainer.train_batch(epoch, batch)
            if not math.isfinite(loss):
                raise GraphboxError(
                    f"expected a finite loss, received {loss}",
                    where=f"{config.kind}, epoch {epoch + 1}",
                    hint="lower the learning rate",
                )
    return trainer.trained(config.kind, view).embeddings
