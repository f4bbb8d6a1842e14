"""Trainings of small models in forked processes, each with its part of every batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from graphbox.config import MemoryConfig, TaskConfig, model_kind
from graphbox.errors import InterruptedRunError
from graphbox.graph import Graph
from graphbox.table import ProcessGroup
from graphbox.table.host_table import host_table
from graphbox.train import GraphView, load_split
from graphbox.train.assignment import Assignment, make_trainer
from graphbox.train.fit import fit_in_process
from graphbox.train.launch import TrainingOptions
from graphbox.train.memory import TrainingMemory
from graphbox.train.network.inference import embed_graph
from graphbox.train.processes import ALONE, TrainingProcesses
from tests.table.distributed_processes import serve_checks

Learnt = dict[str, NDArray[Any]]


def section_of(settings: Mapping[str, Any]) -> Any:
    """Return the section of a model, of settings as JSON has them."""
    section = model_kind(settings["kind"]).section
    return section.model_validate_json(json.dumps({"task": "task", **settings}))


def task_of(settings: Mapping[str, Any]) -> Any:
    """Return the section of a task, of settings as JSON has them."""
    return TypeAdapter[Any](TaskConfig).validate_json(json.dumps(settings))


def trainer_of(
    graph: Graph,
    split: Any,
    config: Mapping[str, Any],
    task: Mapping[str, Any],
    processes: TrainingProcesses = ALONE,
) -> Any:
    """Return the trainer of a model, of settings as JSON has them."""
    return make_trainer(
        section_of(config),
        Assignment(
            "model",
            GraphView(graph, split),
            split,
            task_of(task),
            3,
            1,
            memory=TrainingMemory(processes=processes),
            processes=processes,
        ),
    )


def trainer_of_job(model: Mapping[str, Any], processes: TrainingProcesses = ALONE) -> Any:
    """Return the trainer of a model that files have: its graph and its split are named by their paths."""
    graph, split = Graph.open(model["graph"]), load_split(Path(model["split"]))
    return trainer_of(graph, split, model["config"], model["task"], processes)


def measured_log(
    model: Mapping[str, Any], processes: TrainingProcesses = ALONE
) -> tuple[NDArray[np.float32], NDArray[np.float32], list[int]]:
    """Return probabilities of a log's validation part, those of none of its rows, and what was looked up.

    Windows and batches are small. What was looked up: the number of rows, each time.
    """
    with (
        mock.patch("graphbox.train.click.rows.BLOCK_ROWS", 32),
        mock.patch("graphbox.train.click.rows._MEASURED_ROWS", 12),
        mock.patch("graphbox.train.click.model._BATCH_ROWS", 8),
    ):
        trainer = trainer_of_job(model, processes)
        trainer._find_scale()
        fetch, looked_up = trainer.network.fetch, list[int]()

        def noted(batch: Any) -> Any:
            looked_up.append(len(batch))
            return fetch(batch)

        with mock.patch.object(trainer.network, "fetch", noted):
            clicks, log = trainer._model(trainer._scale), trainer._validation
            found = clicks.predict_log(log, processes)
            nothing = replace(log, chosen=np.zeros_like(log.chosen))
            return found, clicks.predict_log(nothing, processes), looked_up


def measured_nodes(
    model: Mapping[str, Any], processes: TrainingProcesses = ALONE
) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of a network's validation part, of small blocks."""
    trainer = trainer_of_job(model, processes)
    trainer.network.eval()
    split: Any = load_split(Path(model["split"]))
    return embed_graph(
        trainer.network,
        trainer._graph,
        trainer._data,
        nodes={split.node_type: split.nodes("validation")},
        block_nodes=40,
        threads=1,
        processes=processes,
    )


def learnt(
    graph: Graph,
    split: Any,
    config: Mapping[str, Any],
    task: Mapping[str, Any],
    processes: TrainingProcesses = ALONE,
) -> Learnt:
    """Return losses and figures of a training, and the rows and parameters that this process ends with."""
    trainer = trainer_of(graph, split, config, task, processes)
    losses: list[tuple[float, int]] = []
    figures: list[float] = []
    for epoch in range(trainer.epochs):
        losses += [trainer.train_batch(epoch, batch) for batch in range(trainer.begin_epoch(epoch))]
        figures += trainer.end_epoch(epoch).values()
    found: Learnt = {"losses": np.array(losses), "figures": np.array(figures)}
    for name, value in trainer.dense().items():
        found[f"dense.{name}"] = value.cpu().numpy()
    for name, table in trainer.tables().items():
        assert table.is_collective == (processes.size > 1), name
        local = host_table(table, "comparing")
        keys = np.sort(local.keys())
        found[f"keys.{name}"], found[f"rows.{name}"] = keys, local.pull(keys, create=False)
    trainer.close()
    return found


def trains(group: ProcessGroup, folder: Path, *, models: str) -> None:
    """Train models, each told of in a file as JSON, one after the other."""
    for name, model in json.loads(Path(models).read_text()).items():
        graph, split = Graph.open(model["graph"]), load_split(Path(model["split"]))
        found = learnt(graph, split, model["config"], model["task"], TrainingProcesses(group))
        np.savez(folder / f"{name}-{group.rank}.npz", **found)  # type: ignore[arg-type]  # of its stub for allow_pickle


def fits(group: ProcessGroup, folder: Path, *, model: Mapping[str, Any], run: str, stop_after: int) -> bool:
    """Train a model by the loop, on from a checkpoint if there is one; return whether it was stopped.

    Args:
        group: the processes, which are no group any more then.
        folder: nothing is written there.
        model: what it is.
        run: folder of the run.
        stop_after: batches after which rank 0 asks to stop.
    """
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return group.is_first and asked >= stop_after

    graph, split = Graph.open(model["graph"]), load_split(Path(model["split"]))
    options = TrainingOptions("model", Path(run), 3, 1, True, 1e9, MemoryConfig(), "cpu")
    config, task = section_of(model["config"]), task_of(model["task"])
    try:
        fit_in_process(graph, split, config, task, options, (), None, stop, TrainingProcesses(group))
    except InterruptedRunError:
        return True
    return False


def measures_log(group: ProcessGroup, folder: Path, *, model: Mapping[str, Any]) -> list[int]:
    """Measure a log in several processes; return how many rows this one looked up, each time."""
    found, nothing, looked_up = measured_log(model, TrainingProcesses(group))
    np.savez(folder / f"{group.rank}.npz", found=found, nothing=nothing)
    return looked_up


def measures_nodes(group: ProcessGroup, folder: Path, *, model: Mapping[str, Any]) -> None:
    """Embed nodes in several processes."""
    found = measured_nodes(model, TrainingProcesses(group))
    np.savez(folder / f"{group.rank}.npz", **found)  # type: ignore[arg-type]  # of its stub for allow_pickle


if __name__ == "__main__":
    serve_checks(
        {"trains": trains, "fits": fits, "measures_log": measures_log, "measures_nodes": measures_nodes}
    )
