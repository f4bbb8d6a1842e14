"""Starts a training from the rows and weights of an earlier one, matched by original ids and names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from graphbox.errors import FormatError, NotFoundError, UsageError
from graphbox.table import EmbeddingTable, shard_of
from graphbox.table.host_table import host_table
from graphbox.table.row_copy import check_same_rows, copy_rows
from graphbox.train.checkpoint import NODES, Checkpoint, CheckpointStore
from graphbox.train.memory import TrainingMemory, discard_table
from graphbox.train.model_description import ModelDescription
from graphbox.train.processes import TrainingProcesses
from graphbox.train.row_keys import RowKeys
from graphbox.train.trainer import Trainer
from graphbox.words import counted

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodesTakenOver:
    """Number of nodes of a type that start from an earlier training.

    Attributes:
        nodes: number of nodes, without removed ones.
        taken_over: those whose rows are those of the earlier model.
        new: those that the earlier graph did not have.
    """

    nodes: int
    taken_over: int
    new: int


@dataclass(frozen=True)
class WarmStart:
    """Initial state of a training, taken from an earlier one.

    Attributes:
        run: folder name of the earlier run.
        model: name of the earlier model.
        nodes: by node type, of tables whose rows belong to nodes.
        rows: rows of other tables that were taken over, by table.
        weights: number of parameter tensors that were taken over.
    """

    run: str
    model: str
    nodes: Mapping[str, NodesTakenOver] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    weights: int = 0

    def text(self) -> str:
        """Return it as a sentence without its subject."""
        parts = [
            f"rows of {each.taken_over:,} of {each.nodes:,} nodes of {name} taken over, {each.new:,} new"
            for name, each in self.nodes.items()
        ]
        parts += [f"{counted(count, 'row')} of the table `{name}`" for name, count in self.rows.items()]
        if self.weights:
            parts.append(counted(self.weights, "weight"))
        return f"started from `{self.model}` of run {self.run}: {'; '.join(parts) or 'nothing'}"


def start_from(
    folder: Path,
    trainer: Trainer,
    description: ModelDescription,
    *,
    model: str,
    memory: TrainingMemory,
    threads: int | None = None,
) -> WarmStart:
    """Give a trainer the rows and weights that an earlier training of the same kind of model ended with.

    Rows are matched by node type and original id, rows of relations by name, weights by name and shape. Nodes
    that the earlier graph did not have keep the initial rows of the trainer. Optimizer state of rows is part
    of them; that of weights starts anew.

    Args:
        folder: checkpoints of the earlier model.
        trainer: before its first batch.
        description: of what ``trainer`` trains.
        model: name of the new model, for messages.
        memory: of the new training.
        threads: of the earlier tables.

    Raises:
        NotFoundError: the folder has no checkpoint of a finished training.
        UsageError: kind, task, features, relations, rows or weights differ; the message names what.
        FormatError: the checkpoint is damaged.
        DoesNotFitError: memory has no room for the earlier rows.
    """
    where = f"models.{model}.start_from"
    memory.release()  # rows on a GPU are copied there again from the tables below
    checkpoint = CheckpointStore(folder, None).load_final(threads, instead_of=trainer.tables())
    if checkpoint is None:
        raise NotFoundError(
            "expected checkpoints of a finished training, received none",
            where=where,
            hint=f"looked in {folder}",
        )
    try:
        earlier = _described(checkpoint, folder)
        try:
            _check(description, earlier, folder)
            start = _take_over(trainer, description, earlier, checkpoint, memory.processes, folder)
        except UsageError as error:
            error.where = where
            error.hint = error.hint or (
                f"give the model the settings of {_name(folder)}, or leave `start_from` out"
            )
            raise
    finally:
        for table in checkpoint.tables.values():
            discard_table(table)
    _log.info("%s %s", model, start.text())
    return start


def _described(checkpoint: Checkpoint, folder: Path) -> ModelDescription:
    if checkpoint.model is None:
        raise FormatError(
            "expected a checkpoint that names the nodes of its rows, received one without",
            where=str(folder),
            hint="train that run again",
        )
    return ModelDescription.load(checkpoint.model, folder / NODES)


def _name(folder: Path) -> str:
    """Return what messages call an earlier model."""
    return f"`{folder.name}` of run {folder.parent.parent.name}"


def _check(new: ModelDescription, earlier: ModelDescription, folder: Path) -> None:
    """Refuse models of another kind, other inputs, or that have seen what the new one is measured on.

    Raises:
        UsageError: there is such a difference.
    """
    if new.kind != earlier.kind:
        raise UsageError(
            f"expected a model of kind {new.kind}, received {_name(folder)} of kind {earlier.kind}"
        )
    if new.rows is None or earlier.rows is None:
        raise UsageError(
            f"expected a kind of model that says whose its rows are, received {new.kind}",
            hint="its trainer has to implement `row_keys`",
        )
    for name in (*new.inputs, *earlier.inputs):
        expected, received = (list(each.inputs.get(name, ())) for each in (new, earlier))
        if expected != received:
            raise UsageError(
                f"expected a model with {name} {_listed(expected)}, received {_name(folder)} with "
                f"{_listed(received)}"
            )
    _check_held_out(new.held_out, earlier.held_out, folder)


def _check_held_out(new: Mapping[str, Any] | None, earlier: Mapping[str, Any] | None, folder: Path) -> None:
    if new is None:
        return
    hint = "start from a run of the same task and seed: any other has learnt what this one is measured on"
    if earlier is None:
        raise UsageError(
            f"expected a model that held out what the task holds out, received {_name(folder)}, which saw "
            "the whole graph",
            hint=hint,
        )
    for what in ("task", "seed"):
        if new[what] != earlier[what]:
            raise UsageError(
                f"expected a model that was trained with the same {what}, received {_name(folder)}, which "
                "held out other data",
                hint=hint,
            )
    if new["fold"] == "train" and earlier["fold"] != "train":
        raise UsageError(
            f"expected a model that held out the validation part, received {_name(folder)}, which learnt it",
            hint=hint,
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _take_over(
    trainer: Trainer,
    new: ModelDescription,
    earlier: ModelDescription,
    checkpoint: Checkpoint,
    processes: TrainingProcesses,
    folder: Path,
) -> WarmStart:
    assert new.rows is not None  # noqa: S101 - checked
    assert earlier.rows is not None  # noqa: S101 - checked
    tables = trainer.tables()
    if tables.keys() != checkpoint.tables.keys():
        expected, received = (_listed(sorted(each)) for each in (tables, checkpoint.tables))
        raise UsageError(
            f"expected a model with rows of {expected}, received {_name(folder)} with {received}"
        )
    purpose = "copying rows of an earlier training"
    targets = {name: host_table(table, purpose) for name, table in tables.items()}
    sources = {name: host_table(table, purpose) for name, table in checkpoint.tables.items()}
    for name, target in targets.items():
        check_same_rows(sources[name], target, name)
    categories = {name: values.to_pylist() for name, values in earlier.categories.items()}
    dense = trainer.starting_state(checkpoint.dense, categories)
    matches = {
        name: _matches(ids, earlier.nodes[name]) for name, ids in new.nodes.items() if name in earlier.nodes
    }
    copied = {name: np.zeros(len(index), np.bool_) for name, index in matches.items()}
    rows: dict[str, int] = {}
    for name, target in targets.items():
        source = sources[name]
        values = trainer.starting_rows(name, source, checkpoint.dense)
        for node_type, keys, earlier_keys in new.rows[name].pairs(
            earlier.rows[name], matches, _value_keys(earlier.rows[name], source)
        ):
            there = _copy(source, earlier_keys, target, keys, values, processes)
            if node_type:
                copied[node_type][np.flatnonzero(matches[node_type] >= 0)[there]] = True
            else:
                rows[name] = rows.get(name, 0) + int(there.sum())
    trainer.restore(dense, tables)
    return WarmStart(
        folder.parent.parent.name,
        folder.name,
        {name: _counted(ids, matches.get(name), copied.get(name)) for name, ids in new.nodes.items()},
        rows,
        sum(name.startswith("model.") for name in dense),
    )


def _matches(ids: pa.Array, earlier: pa.Array) -> NDArray[np.int64]:
    """Return the earlier index of each id, -1 for new and removed nodes: int64 [nodes]."""
    if ids.type != earlier.type:  # integers became text when ids that are no numbers came
        ids, earlier = ids.cast(pa.large_string()), earlier.cast(pa.large_string())
    found = pc.index_in(ids, value_set=earlier, skip_nulls=True)
    index: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return index


def _value_keys(keys: RowKeys, table: EmbeddingTable) -> NDArray[np.int64]:
    return table.keys() if keys.are_values else np.zeros(0, np.int64)


def _copy(
    source: EmbeddingTable,
    earlier_keys: NDArray[np.int64],
    target: EmbeddingTable,
    keys: NDArray[np.int64],
    values: NDArray[np.float32] | None,
    processes: TrainingProcesses,
) -> NDArray[np.bool_]:
    """Copy rows, those of this process; return which have one in the earlier table: bool [n]."""
    own = slice(None) if processes.size == 1 else shard_of(keys, processes.size) == processes.rank
    there = source.contains(earlier_keys)
    copy_rows(
        source,
        earlier_keys[own],
        target,
        keys[own],
        None if values is None else values[earlier_keys[own]],
    )
    return np.asarray(there, dtype=np.bool_)


def _counted(
    ids: pa.Array, index: NDArray[np.int64] | None, copied: NDArray[np.bool_] | None
) -> NodesTakenOver:
    live = len(ids) - ids.null_count
    if index is None or copied is None:
        return NodesTakenOver(live, 0, live)
    return NodesTakenOver(live, int(copied.sum()), live - int((index >= 0).sum()))
