"""Trains models of clicks: over the rows of a task, epoch by epoch, or over a stream, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import ClickModelSection, ClickTaskConfig, GivenSplitConfig, RowTimeSplitConfig
from graphbox.errors import UsageError, did_you_mean
from graphbox.fields import Lists, NumberScale, Rows, row_count
from graphbox.models.click_fields import FieldBatch, choose_fields, scale_from_tensors, scale_tensors
from graphbox.models.click_network import ClickNetwork
from graphbox.table import Table
from graphbox.table.module import TableModule
from graphbox.train.assignment import Assignment
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.click.labels import UNKNOWN, labels_report, read_labels
from graphbox.train.click.model import (
    ClickModel,
    make_fields,
    make_network,
    network_values,
    set_network_values,
    table_dims,
)
from graphbox.train.click.rows import LogRows, ShuffledBatches
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seeded
from graphbox.train.stream import Chunk, ChunkScores, StreamingTrainer
from graphbox.train.tasks import ClickSplit
from graphbox.train.torch_trainer import START_STREAM, TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.transfer import moved
from graphbox.train.view import GraphView

_MANY_EVENTS = 1000
_SCALE = "scale."
_MODEL = "model."
"""Prefix of the parameters among those that serving needs."""


ClickBatch = tuple[FieldBatch, Tensor]
"""The fields of rows, and their labels: float32 [rows, labels], -1 where one is unknown."""


class ClickTrainer(TorchTrainer[ClickBatch], StreamingTrainer):
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
        measures = split is not None and not config.sees_validation
        lower_is_better = config.select_by == "log_loss"
        super().__init__(
            assignment,
            OptimizerSettings.of(config),
            epochs=config.epochs,
            validate_every=config.validate_every,
            # A model that learns from the validation part ends in its last state.
            selection=Selection(
                f"validation_{config.select_by}", config.patience, smaller_is_better=lower_is_better
            )
            if measures
            else None,
        )
        self._config = config
        self._task = task
        specs = assignment.view.features(task.node_type)
        section = f"models.{assignment.name}"
        where = f"{section}.features"
        read = [label for label in task.labels if label in (config.features or ())]
        if read:
            raise UsageError(
                "expected a model that does not read what it is to predict, received one that reads "
                f"`{read[0]}`",
                where=where,
                hint="leave it out: models of the task read no label",
            )
        self._labels = task.labels if config.LEARNS_ALL_LABELS else task.labels[:1]
        self._label_weights = torch.tensor([config.label_weights.get(name, 1.0) for name in self._labels])
        unknown = [name for name in config.label_weights if name not in self._labels]
        if unknown:
            raise UsageError(
                f"expected weights of the labels {', '.join(self._labels)}, received one of `{unknown[0]}`",
                where=f"{section}.loss_weights",
                hint=did_you_mean(unknown[0], self._labels),
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
        with seeded(self._seed, START_STREAM):
            network = make_network(config, self._fields, self._memory.near(tables), len(self._labels))
        self.network: ClickNetwork = network
        self.set_network(network, lambda: [(list(network.parameters()), config.weight_decay)])
        self._scale: NumberScale | None = None
        self._validation: LogRows | None = None
        self._log: LogRows | None = None
        if split is not None:
            folds = ("train", "validation") if config.sees_validation else ("train",)
            labels = split.all_labels()
            self._log = self._rows(assignment.view, split.is_in(*folds), labels)
            if measures:
                self._validation = self._rows(assignment.view, split.is_in("validation"), labels)
        self._is_stream = split is None
        self._batches: ShuffledBatches | None = None
        self._ahead = self._batches_ahead()

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Return the number of batches."""
        return len(self._shuffled(epoch))

    def draw(self, epoch: int, batch: int) -> ClickBatch:
        """Return this process's part of a batch of rows, on the device."""
        if self._scale is None:
            self._find_scale()
        batches = self._shuffled(epoch) if self._batches is None else self._batches
        return moved(self._ahead.take(epoch, batch, len(batches)), self._device)

    def loss(self, drawn: ClickBatch, epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the binary cross-entropy of a batch's rows: the sum over their known labels.

        A label that few rows have bears on the loss as little as these rows are part of the batch, and the
        parts of a batch that several processes have add up to it.
        """
        fields, labels = drawn
        with self._clock.stage("fetch"):
            vectors = self.network.fetch(fields)
        logits = self.network(vectors, fields.numbers)
        weights = (labels != UNKNOWN) * self._label_weights.to(labels.device)
        loss = functional.binary_cross_entropy_with_logits(
            logits, labels.clamp(min=0), weights, reduction="sum"
        ) / max(len(labels), 1)
        if self._config.row_decay:
            squares = self.network.decayed(vectors).square().sum()
            loss = loss + self._config.row_decay * squares / max(len(labels), 1)
        assert self._batches is not None  # noqa: S101 - drawn from
        count = self._batches.size_of(batch)
        return self._processes.share(loss, len(labels), count), count

    def done(self, epoch: int, batch: int) -> float:
        """Return the share of the training that is over; a stream has no end, and stays after the warm-up."""
        if self._is_stream or self._batches is None:
            return self._config.warmup
        return (epoch + batch / len(self._batches)) / self.epochs

    def epoch_ends(self, epoch: int) -> None:  # noqa: ARG002 - each epoch alike
        """End the threads that make batches ahead."""
        self._close_batches()

    def measures(self) -> bool:
        """Return whether there is a validation part, and the scale of numbers is known."""
        return self._validation is not None and self._scale is not None

    def measured(self) -> dict[str, float]:
        """Return AUC and log loss on the validation part, of each label that is learnt."""
        assert self._validation is not None  # noqa: S101 - see measures
        assert self._scale is not None  # noqa: S101 - see measures
        probabilities = self._model(self._scale).predict_log(self._validation, self._processes)
        report = labels_report(self._labels, self._validation.chosen_labels(), probabilities)
        return {
            f"validation_{figure}": float(value)
            for figure, value in report.items()
            if figure.partition(".")[0] in {"auc", "log_loss"}
        }

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the fields of a batch, with the labels."""
        fields, labels = self._batch(epoch, batch)
        return {name: value.numpy() for name, value in vars(fields).items()} | {"labels": labels.numpy()}

    # ------------------------------------------------------------------------------ streams

    def score_chunk(self, chunk: Chunk) -> ChunkScores | None:
        """Return the probabilities of the new rows of a chunk that have a label, the first one."""
        log = self._rows_of_chunk(chunk)
        if log is None or self._scale is None:
            return None
        with self._optimization.averaged():
            probabilities = self._model(self._scale).predict_log(log)
        return ChunkScores(
            log.chosen_labels()[:, 0] == 1,
            probabilities[:, 0],
            row_groups(chunk.view, self._task, log.chosen, log.first),
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
        labels = read_labels(
            self._task,
            chunk.view.features(node_type),
            lambda name: chunk.view.feature_rows(node_type, name, first, last),
        )
        chosen = np.zeros(last - first, bool)
        chosen[nodes - first] = True
        chosen &= labels[:, 0] != UNKNOWN
        return LogRows(chunk.view, node_type, self._fields, chosen, labels, first) if chosen.any() else None

    # -------------------------------------------------------------------------------- state

    def extra_state(self) -> dict[str, Tensor]:
        """Return the scale of numbers by name."""
        scale = {} if self._scale is None else scale_tensors(self._scale)
        return {_SCALE + name: each for name, each in scale.items()}

    def restore_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the scale of numbers."""
        scale = {name.removeprefix(_SCALE): each for name, each in state.items() if name.startswith(_SCALE)}
        self._scale = scale_from_tensors(scale) if scale else None

    def served_parameters(self) -> dict[str, Tensor]:
        """Return the parameters, their moving averages where these are kept, and the scale of numbers."""
        with self._optimization.averaged():
            values = {_MODEL + name: value.clone() for name, value in network_values(self.network).items()}
        return values | self.extra_state()

    def table_modules(self) -> dict[str, TableModule]:
        """Return the lookups of the tables by name."""
        return self.network.table_modules()

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        self.network.set_tables(tables)
        self._ahead = self._batches_ahead()

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of values, which no single node has."""
        return dict.fromkeys(self.table_modules(), RowKeys.of_values())

    def inputs(self) -> dict[str, list[str]]:
        """Return the features that are read, and how."""
        return {
            "features": [
                f"{field.name} ({field.kind}{'' if field.items is None else f' of {field.items}'})"
                for field in self._fields.fields
            ],
            "crosses": [" x ".join(cross) for cross in self._config.combinations],
            "knots": [str(self._config.knots)],
        }

    def starting_state(
        self, earlier: Mapping[str, Tensor], categories: Mapping[str, Sequence[str]]
    ) -> dict[str, Tensor]:
        """Return the state before training with earlier weights, and the scale of numbers that they read."""
        scale = {name: value for name, value in earlier.items() if name.startswith(_SCALE)}
        return super().starting_state(earlier, categories) | scale

    def close(self) -> None:
        """End the threads that make batches ahead."""
        self._close_batches()

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - rows have no vectors
        """Return the model."""
        if self._scale is None:
            self._find_scale()
        assert self._scale is not None  # noqa: S101 - for the type checker
        network = make_network(self._config, self._fields, self.tables(), len(self._labels))
        with self._optimization.averaged():
            set_network_values(network, network_values(self.network))  # on the CPU, where models are kept
        labels = self._labels if len(self._labels) > 1 else ()
        model = ClickModel(self._config, self._fields, self._scale, network, labels)
        return TrainedModel(name, "click", self._config.task, self._task.node_type, {}, click=model)

    # ------------------------------------------------------------------------------ details

    def _model(self, scale: NumberScale) -> ClickModel:
        return ClickModel(self._config, self._fields, scale, self.network)

    def _rows(self, view: GraphView, chosen: NDArray[np.bool_], labels: NDArray[np.int8]) -> LogRows:
        return LogRows(view, self._task.node_type, self._fields, chosen, labels)

    def _find_scale(self) -> None:
        assert self._log is not None  # noqa: S101 - there is a log when batches are trained
        self._check_histories(next(self._log.windows())[0])
        self._scale = self._fields.scale_of(self._log.windows(), len(self._log))
        labels = self._log.chosen_labels()[:, : len(self._labels)]
        positives, known = (labels == 1).sum(axis=0), (labels != UNKNOWN).sum(axis=0)
        rates = np.where(known > 0, positives / np.maximum(known, 1), 0.5)
        log_odds = torch.logit(torch.from_numpy(rates).clamp(1e-6, 1 - 1e-6))
        with torch.no_grad():
            self.network.bias.copy_(log_odds.reshape(self.network.bias.shape))

    def _check_histories(self, rows: Rows) -> None:
        """Refuse histories that name things otherwise than their targets: nothing would be learnt of either.

        Raises:
            UsageError: many events, and none is a target of any of the rows.
        """
        for interest in self._config.histories:
            events, targets = rows[interest.history], np.asarray(rows[interest.target])
            assert isinstance(events, Lists)  # noqa: S101 - for the type checker
            if len(events.values) >= _MANY_EVENTS and not np.isin(targets, events.values).any():
                raise UsageError(
                    f"expected a history `{interest.history}` of what `{interest.target}` names, received "
                    f"{len(events.values):,} events, none of which is one of {row_count(rows):,} targets",
                    where=f"node type {self._task.node_type}",
                    hint="name things alike in both columns: where they are integers, as integers in lists "
                    "of typed tables too",
                )

    def _shuffled(self, epoch: int) -> ShuffledBatches:
        assert self._log is not None  # noqa: S101 - there is a log when batches are asked for
        self._close_batches()
        self._batches = ShuffledBatches(self._log, self._config.batch_size, self._seed, epoch)
        return self._batches

    def _batches_ahead(self) -> BatchesAhead[ClickBatch]:
        return BatchesAhead(self._part_of_batch, lambda made: self.network.keys(made[0]), self.tables())

    def _close_batches(self) -> None:
        self._ahead.close()
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _part_of_batch(self, epoch: int, batch: int) -> ClickBatch:
        return self._batch(epoch, batch, self._processes)

    def _batch(self, epoch: int, batch: int, processes: TrainingProcesses = ALONE) -> ClickBatch:
        batches = self._shuffled(epoch) if self._batches is None else self._batches
        rows, labels = batches.batch(batch, processes.shard)
        if self._scale is None:
            self._find_scale()
        assert self._scale is not None  # noqa: S101 - for the type checker
        learnt = labels[:, : len(self._labels)].astype(np.float32)
        return self._fields.batch(rows, self._scale), torch.from_numpy(learnt)


def _row_bytes(dim: int) -> int:
    """Return what a row takes with the state of its optimizer and its place in the index."""
    return 2 * 4 * dim + 20


def unread_features(task: ClickTaskConfig) -> list[str]:
    """Return the features that models read only if they are named."""
    split = task.split
    told_by = split.feature if isinstance(split, GivenSplitConfig | RowTimeSplitConfig) else None
    return [*task.labels, *([] if told_by is None else [told_by])]


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
