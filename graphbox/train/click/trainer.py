"""Trains models of clicks: over the rows of a task, epoch by epoch, or over a stream, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import ClickModelSection, ClickTaskConfig, GivenSplitConfig, RowTimeSplitConfig
from graphbox.errors import UsageError
from graphbox.fields import NumberScale
from graphbox.metrics import click_report
from graphbox.models.click_fields import FieldBatch, choose_fields, scale_from_tensors, scale_tensors
from graphbox.table import EmbeddingTable
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.click.labels import ClickLabel
from graphbox.train.click.model import (
    ClickModel,
    make_fields,
    make_network,
    network_values,
    set_network_values,
    table_dims,
)
from graphbox.train.click.rows import LogRows, ShuffledBatches
from graphbox.train.memory import table_below
from graphbox.train.optimization import Optimization
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.registry import Assignment
from graphbox.train.seeded import seeded
from graphbox.train.stream import Chunk, ChunkScores, StreamingTrainer
from graphbox.train.tasks import ClickSplit
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.transfer import moved
from graphbox.train.view import GraphView

__all__ = ["ClickTrainer", "make_click_trainer"]

_MODEL, _SCALE = "model.", "scale."
_START_STREAM, _BATCH_STREAM = 1, 2


class ClickTrainer(StreamingTrainer):
    """See the module.

    The scale of numbers is that of the rows that are learnt from; of a stream, that of the first chunk.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``click``; without a split it learns a stream.

    Raises:
        UsageError: the features do not fit the graph, or the model has no task of kind ``click``.
    """

    def __init__(self, config: ClickModelSection, assignment: Assignment) -> None:
        task, split = assignment.task, assignment.split
        if not isinstance(task, ClickTaskConfig) or not isinstance(split, ClickSplit | None):
            raise assignment.wrong_task(config)
        self._config = config
        self._task = task
        self._seed = assignment.seed
        self._threads = assignment.threads
        self._clock = assignment.clock
        specs = assignment.view.features(task.node_type)
        section = f"models.{assignment.name}"
        where = f"{section}.features"
        if config.features is not None and task.label in config.features:
            raise UsageError(
                f"expected a model that does not read what it is to predict, received one that reads "
                f"{task.label}",
                where=where,
            )
        fields = choose_fields(specs, config.features, unread_features(task), where)
        self._fields = make_fields(config, fields, section)
        dims = table_dims(config, self._fields)
        shares = assignment.memory.shares({name: _row_bytes(dim) for name, dim in dims.items()})
        tables = {
            name: assignment.memory.new_table(
                name,
                dim,
                "adagrad",
                config.table_learning_rate,
                share=shares[name],
                init_scale=config.initial_row_scale if name == "fields" else 0.0,
                seed=assignment.seed + number,
                expiry=assignment.expiry,
                threads=assignment.threads,
            )
            for number, (name, dim) in enumerate(dims.items())
        }
        self._device, self._memory = assignment.device, assignment.memory
        with seeded(self._seed, _START_STREAM):
            network = make_network(config, self._fields, self._memory.near(tables))
        self.network = network.to(self._device)
        self._processes = assignment.processes
        self._optimization = Optimization(
            self.network,
            config,
            [(list(self.network.parameters()), config.weight_decay)],
            self._processes,
        )
        self._scale: NumberScale | None = None
        self._validation: LogRows | None = None
        self._log: LogRows | None = None
        if split is not None:
            folds = ("train", "validation") if config.sees_validation else ("train",)
            self._log = self._rows(assignment.view, split.is_in(*folds), split.labels)
            if not config.sees_validation:
                self._validation = self._rows(assignment.view, split.is_in("validation"), split.labels)
        self._is_stream = split is None
        self._batches: ShuffledBatches | None = None
        self._ahead = self._batches_ahead()

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self._device

    # ---------------------------------------------------------------------------- training

    @property
    def epochs(self) -> int:
        """Most epochs."""
        return self._config.epochs

    @property
    def selection(self) -> Selection | None:
        """The model ends as it was at its best on the validation part, if it does not learn from it."""
        if self._validation is None:
            return None
        name = self._config.select_by
        return Selection(f"validation_{name}", self._config.patience, smaller_is_better=name == "log_loss")

    def begin_epoch(self, epoch: int) -> int:
        """Return the number of batches."""
        return len(self._shuffled(epoch))

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on a batch of rows."""
        clock, seeds = self._clock, (self._seed, _BATCH_STREAM, epoch, batch, *self._processes.seeds())
        with clock.stage("sample"):
            if self._scale is None:
                self._find_scale()
            batches = self._shuffled(epoch) if self._batches is None else self._batches
            fields, labels = moved(self._ahead.take(epoch, batch, len(batches)), self._device)
        self.network.train()
        with clock.stage("compute"), seeded(*seeds, device=self._device):
            with clock.stage("fetch"):
                vectors = self.network.fetch(fields)
            logits = self.network(vectors, fields.numbers)
            loss = functional.binary_cross_entropy_with_logits(logits, labels)
            if self._config.row_decay:
                loss = loss + self._config.row_decay * vectors["fields"].square().sum() / max(len(labels), 1)
            count = batches.size_of(batch)
            loss = self._processes.share(loss, len(labels), count)
            value = self._optimization.backward(loss)
        if math.isfinite(value):  # the loop stops at any other, before anything takes it up
            with clock.stage("push"):
                self._optimization.step(self._done(epoch, batch))
        return value, count

    def end_epoch(self, epoch: int) -> Mapping[str, float]:
        """Return figures on the validation part, every few epochs and after the last."""
        self._close_batches()
        if self._validation is None or self._scale is None:
            return {}
        if (epoch + 1) % self._config.validate_every and epoch + 1 != self.epochs:
            return {}
        with self._optimization.averaged():
            probabilities = self._model(self._scale).predict_log(self._validation, self._processes)
        report = click_report(self._validation.labels[self._validation.chosen], probabilities)
        return {f"validation_{name}": float(report[name]) for name in ("auc", "log_loss")}

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the fields of a batch, with the labels."""
        fields, labels = self._batch(epoch, batch)
        return {name: value.numpy() for name, value in vars(fields).items()} | {"labels": labels.numpy()}

    # ------------------------------------------------------------------------------ streams

    def score_chunk(self, chunk: Chunk) -> ChunkScores | None:
        """Return the probabilities of the new rows of a chunk that have a label."""
        log = self._rows_of_chunk(chunk)
        if log is None or self._scale is None:
            return None
        with self._optimization.averaged():
            probabilities = self._model(self._scale).predict_log(log)
        return ChunkScores(
            log.labels[log.chosen], probabilities, row_groups(chunk.view, self._task, log.chosen, log.first)
        )

    def open_chunk(self, chunk: Chunk) -> int:
        """Return the number of batches of the new rows of a chunk that have a label."""
        self._close_batches()
        self._log = self._rows_of_chunk(chunk)
        return 0 if self._log is None else len(self._shuffled(chunk.number))

    def _rows_of_chunk(self, chunk: Chunk) -> LogRows | None:
        nodes = chunk.nodes.get(self._task.node_type)
        if nodes is None or not len(nodes):
            return None
        node_type, first, last = self._task.node_type, int(nodes[0]), int(nodes[-1]) + 1
        # Anew for each chunk, as it may bring a further category.
        label = ClickLabel.of(self._task, chunk.view.features(node_type).get(self._task.label))
        labels, known = label.read(chunk.view.feature_rows(node_type, self._task.label, first, last))
        chosen = np.zeros(last - first, bool)
        chosen[nodes - first] = True
        chosen &= known
        return LogRows(chunk.view, node_type, self._fields, chosen, labels, first) if chosen.any() else None

    # -------------------------------------------------------------------------------- state

    def dense(self) -> dict[str, Tensor]:
        """Return parameters, optimizer state, moving averages and the scale of numbers by name."""
        values = {_MODEL + name: value for name, value in network_values(self.network).items()}
        scale = {} if self._scale is None else scale_tensors(self._scale)
        return values | self._optimization.tensors() | {_SCALE + name: each for name, each in scale.items()}

    def served_parameters(self) -> dict[str, Tensor]:
        """Return the parameters, their moving averages where these are kept, and the scale of numbers."""
        with self._optimization.averaged():
            values = {_MODEL + name: value.clone() for name, value in network_values(self.network).items()}
        scale = {} if self._scale is None else scale_tensors(self._scale)
        return values | {_SCALE + name: each for name, each in scale.items()}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the embedding tables by name."""
        return {name: table_below(table) for name, table in self.network.tables().items()}

    def keys_of(self, nodes: Mapping[str, NDArray[np.int64]]) -> Mapping[str, NDArray[np.int64]]:  # noqa: ARG002
        """Return no keys: rows are those of values, which no single node has."""
        return {}

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, EmbeddingTable]) -> None:
        """Take up the state that :meth:`dense` and :meth:`tables` returned."""
        parts: dict[str, dict[str, Tensor]] = {_MODEL: {}, _SCALE: {}, "": {}}
        for name, value in dense.items():
            prefix = next(each for each in parts if name.startswith(each))
            parts[prefix][name.removeprefix(prefix)] = value
        set_network_values(self.network, parts[_MODEL])
        self._ahead.close()
        self.network.set_tables(self._memory.near(tables))
        self._ahead = self._batches_ahead()
        self._optimization.restore(parts[""])
        self._scale = scale_from_tensors(parts[_SCALE]) if parts[_SCALE] else None
        self._close_batches()

    def close(self) -> None:
        """End the threads that make batches ahead."""
        self._close_batches()

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - rows have no vectors
        """Return the model."""
        if self._scale is None:
            self._find_scale()
        assert self._scale is not None  # noqa: S101 - for the type checker
        network = make_network(self._config, self._fields, self.tables())
        with self._optimization.averaged():
            set_network_values(network, network_values(self.network))  # on the CPU, where models are kept
        model = ClickModel(self._config, self._fields, self._scale, network)
        return TrainedModel(name, "click", self._config.task, self._task.node_type, {}, click=model)

    # ------------------------------------------------------------------------------ details

    def _model(self, scale: NumberScale) -> ClickModel:
        return ClickModel(self._config, self._fields, scale, self.network)

    def _rows(self, view: GraphView, chosen: NDArray[np.bool_], labels: NDArray[np.bool_]) -> LogRows:
        return LogRows(view, self._task.node_type, self._fields, chosen, labels)

    def _find_scale(self) -> None:
        assert self._log is not None  # noqa: S101 - there is a log when batches are trained
        self._scale = self._fields.scale_of(self._log.windows(), len(self._log))
        rate = min(max(self._scale.positive_rate, 1e-6), 1 - 1e-6)
        with torch.no_grad():
            self.network.bias.fill_(math.log(rate / (1 - rate)))

    def _shuffled(self, epoch: int) -> ShuffledBatches:
        assert self._log is not None  # noqa: S101 - there is a log when batches are asked for
        self._close_batches()
        self._batches = ShuffledBatches(self._log, self._config.batch_size, self._seed, epoch)
        return self._batches

    def _batches_ahead(self) -> BatchesAhead[tuple[FieldBatch, Tensor]]:
        return BatchesAhead(self._part_of_batch, lambda made: self.network.keys(made[0]), self.tables())

    def _close_batches(self) -> None:
        self._ahead.close()
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _part_of_batch(self, epoch: int, batch: int) -> tuple[FieldBatch, Tensor]:
        return self._batch(epoch, batch, self._processes)

    def _batch(
        self, epoch: int, batch: int, processes: TrainingProcesses = ALONE
    ) -> tuple[FieldBatch, Tensor]:
        batches = self._shuffled(epoch) if self._batches is None else self._batches
        rows, labels = batches.batch(batch, processes.shard)
        if self._scale is None:
            self._find_scale()
        assert self._scale is not None  # noqa: S101 - for the type checker
        return self._fields.batch(rows, self._scale), torch.from_numpy(labels.astype(np.float32))

    def _done(self, epoch: int, batch: int) -> float:
        if self._is_stream or self._batches is None:  # a stream has no end: what comes after the warm-up
            return self._config.warmup
        return (epoch + batch / len(self._batches)) / self.epochs


def _row_bytes(dim: int) -> int:
    """Return what a row takes with the state of its optimizer and its place in the index."""
    return 2 * 4 * dim + 20


def unread_features(task: ClickTaskConfig) -> list[str]:
    """Return the features that models read only if they are named."""
    split = task.split
    told_by = split.feature if isinstance(split, GivenSplitConfig | RowTimeSplitConfig) else None
    return [task.label, *([] if told_by is None else [told_by])]


def row_groups(
    view: GraphView, task: ClickTaskConfig, chosen: NDArray[np.bool_], first: int = 0
) -> NDArray[np.int64] | None:
    """Return whose each of the chosen rows is: int64 [n]; None where the task does not ask.

    A row without a value is a group of its own, which says nothing within groups.

    Raises:
        UsageError: the feature is none that can say it.
    """
    if task.group is None:
        return None
    spec = view.features(task.node_type).get(task.group)
    if spec is None or spec.kind not in {"categorical", "integer"}:
        raise UsageError(
            f"expected a categorical or integer feature that says whose a row is, received `{task.group}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where=f"node type {task.node_type}",
            hint=f"write `{task.group}: categorical` under its `features`",
        )
    column = view.feature_rows(task.node_type, task.group, first, first + len(chosen))
    groups = column.values[chosen].astype(np.int64)
    if spec.kind == "categorical":
        unknown = np.flatnonzero(groups < 0)
        groups[unknown] = -1 - unknown
    return groups


def make_click_trainer(config: ClickModelSection, assignment: Assignment) -> ClickTrainer:
    """Return the trainer of a section of a model of clicks."""
    return ClickTrainer(config, assignment)
