"""Takes the rows of nodes out of the last checkpoint of a stream, so that the stream goes on without them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox.graph import Graph
from graphbox.table import TablePublisher
from graphbox.table.host_table import host_table
from graphbox.table.manifest import ServingValues
from graphbox.train.assignment import Assignment, make_streaming_trainer
from graphbox.train.checkpoint import Checkpoint, CheckpointStore
from graphbox.train.stream.epochs import STREAM_STATE
from graphbox.train.stream.follow import FollowedModel
from graphbox.train.view import GraphView


def forget_in_stream(
    run_folder: Path,
    model: FollowedModel,
    graph: Graph,
    nodes: Mapping[str, NDArray[np.int64]],
    serving: Path,
    values: ServingValues,
    base_every: int,
) -> bool:
    """Erase the rows of nodes from the last checkpoint of a stream and from what was published for serving.

    Older checkpoints are removed; the folder of publications has one base of the last version afterwards, and
    readers take that up. Where it is killed, it can be done again.

    Args:
        run_folder: folder of the run, whose lock is held.
        model: the model that learns from the stream.
        graph: the graph after the last chunk, with or without the nodes.
        nodes: their indices, by node type.
        serving: folder of publications; removed where the checkpoint has learnt no chunk yet.
        values: what rows are published as.
        base_every: see :class:`graphbox.table.TablePublisher`.

    Returns:
        Whether the stream can go on. False: there is no checkpoint, or the model cannot tell which rows are
        of which nodes; nothing was changed.

    Raises:
        FormatError: the checkpoint is damaged.
        ConflictError: it was made with other settings.
    """
    store = CheckpointStore(run_folder / "checkpoints" / model.name, model.settings)
    checkpoint = store.load()
    if checkpoint is None:
        return False
    assignment = Assignment(
        model.name, GraphView(graph, None), None, model.task, model.seed, None, expiry=model.expiry
    )
    trainer = make_streaming_trainer(model.config, assignment)
    try:
        keys = trainer.keys_of(nodes)
        if keys is None:
            return False
        for name, table in checkpoint.tables.items():
            table.erase(keys.get(name, np.zeros(0, np.int64)))
        own = {name: value for name, value in checkpoint.dense.items() if not name.startswith("stream.")}
        trainer.restore(own, checkpoint.tables)
        state = json.loads(checkpoint.dense[STREAM_STATE].numpy().tobytes())
        if serving.exists():
            shutil.rmtree(serving)
        publisher = TablePublisher(serving, values=values, base_every=base_every)
        if state["learnt"] >= 0:
            parameters = trainer.served_parameters()
            rows = {name: host_table(table, "publishing") for name, table in checkpoint.tables.items()}
            publisher.write(state["learnt"], rows, parameters)
            publisher.publish(state["name"], rows, parameters)
        state["publication"] = astuple(publisher.state)
        text = np.frombuffer(json.dumps(state).encode(), np.uint8).copy()
        dense = {**checkpoint.dense, STREAM_STATE: torch.from_numpy(text)}
        store.save(Checkpoint(checkpoint.step, checkpoint.state, dense, checkpoint.tables))
        store.keep_last()
    finally:
        trainer.close()
    return True
