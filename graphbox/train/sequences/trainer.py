"""Trains networks of sequences to predict the next event.

A batch is some windows of histories, in blocks in which little is padding, and each of their events predicts
the one after it. Rows of items are read and ranked alike. Candidates are drawn once for the batch; the
softmax over all items is estimated from them, by the probability with which each was drawn. With as many
candidates as items it is the softmax over all. Of several vectors of an event the closest to the next item
predicts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import NextTaskConfig, SequenceSection
from graphbox.graph.live_rows import LiveRows
from graphbox.metrics import DeviceScores, RankingQueries, ScoreBlock, evaluate_ranking
from graphbox.models.sequence_blocks import closest_vectors
from graphbox.sample import permutation
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.recommendation.candidates import Candidates, columns_among
from graphbox.train.row_keys import RowKeys
from graphbox.train.scores import largest_products
from graphbox.train.seeded import seeded
from graphbox.train.sequences.encoder import SequenceEncoder, encode_histories, make_network
from graphbox.train.sequences.evaluation import next_queries, scores_of
from graphbox.train.sequences.windows import PackedWindows, Windows
from graphbox.train.shared_softmax import shared_softmax
from graphbox.train.tasks import NextSplit
from graphbox.train.torch_trainer import START_STREAM, TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.transfer import tensor_on
from graphbox.train.view import GraphView

_ITEMS = "items"
"""Name of the table."""

_VALIDATION_EVENTS = 4096
"""Events of the validation part that are ranked for after some epochs, at most."""

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Part:
    """Part of a batch that one process learns: all of it alone.

    Attributes:
        windows: its windows.
        num_targets: events that the whole batch predicts.
        candidates: int64 [candidates], of the whole batch, ascending.
    """

    windows: PackedWindows
    num_targets: int
    candidates: Numbers


class SequenceTrainer(TorchTrainer[_Part]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``next``.

    Raises:
        UsageError: the task is of another kind.
    """

    def __init__(self, config: SequenceSection, assignment: Assignment) -> None:
        split, task, view = assignment.split, assignment.task, assignment.view
        if not isinstance(split, NextSplit) or not isinstance(task, NextTaskConfig):
            raise assignment.wrong_task(config)
        metric = f"validation_{task.deciding_metric}"
        super().__init__(
            assignment,
            OptimizerSettings.of(config),
            epochs=config.epochs,
            validate_every=config.validate_every,
            selection=None if config.sees_validation else Selection(metric, config.patience),
        )
        self._view, self._split, self._task, self._config = view, split, task, config
        histories = split.known(view.fold)
        self._windows = Windows.of(histories, config.window)
        items = view.num_nodes(split.target_type)
        self._degree = np.bincount(histories.values, minlength=items)
        live = LiveRows.of_graph(view, split.target_type)
        self._candidates: Candidates | None = None  # all items
        self._every_item = live.nodes(np.arange(len(live)))
        if config.candidates < len(live):
            exponent = config.popularity_exponent
            self._candidates = Candidates(
                self._degree, live, config.candidates, exponent, self._seed, self._device
            )
        self._order = np.arange(len(self._windows))
        self._queries: RankingQueries | None = None
        tables = self._memory.new_tables(
            {_ITEMS: items},
            config.dim,
            "adam",
            config.table_learning_rate,
            seeds={_ITEMS: self._seed},
            init_scale=config.initial_row_scale,
            threads=self._threads,
        )
        self._rows = {
            name: TableEmbedding(table).to(self._device) for name, table in self._memory.near(tables).items()
        }
        self._batches = BatchesAhead(self._draw, self._keys, tables)
        with seeded(self._seed, START_STREAM):
            self._encoder = make_network(config)
        self.set_network(self._encoder)

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Shuffle the windows and return the number of batches."""
        self._order = permutation(len(self._windows), self._seed, epoch)
        self._batches.close()
        return math.ceil(len(self._order) / self._config.batch_size)

    def draw(self, epoch: int, batch: int) -> _Part:
        """Return this process's part of a batch of windows."""
        return self._batches.take(epoch, batch, self._num_batches)

    def batch_arrays(self, epoch: int, batch: int) -> Mapping[str, NDArray[Any]]:
        """Return the items of the events of a batch, what follows each, and the drawn candidates."""
        part = self._draw(epoch, batch)
        windows = part.windows
        return {
            "items": windows.events.items[windows.events.events],
            "targets": windows.targets,
            "candidates": part.candidates,
        }

    def loss(self, drawn: _Part, epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the loss of a batch, or this process's share of it.

        Each process looks up a slice of the candidates, and all processes get their vectors.
        """
        windows, candidates = drawn.windows, drawn.candidates
        of_candidates = self._processes.slice_of(len(candidates))
        events, targets, some = torch.split(
            self._rows[_ITEMS](self._tensor(_keys_of(drawn, of_candidates))),
            [len(windows.events.items), len(windows.targets), of_candidates.stop - of_candidates.start],
        )
        negative = self._processes.gather_slices("candidates", some, len(candidates))
        # A slice of one process may be empty: its share of the loss is nothing then.
        made = self._encoder(events, windows.events.shapes) if len(events) else events
        vectors = closest_vectors(made[self._tensor(windows.events.events)], targets)
        row, column = columns_among(candidates, np.arange(len(vectors)), windows.targets)
        own = self._tensor(row), self._tensor(column)
        loss = shared_softmax(vectors, targets, negative, own, self.log_probability(candidates))
        return self._processes.share(loss, len(vectors), drawn.num_targets), drawn.num_targets

    def measured(self) -> Mapping[str, float]:
        """Return recall and ndcg on the validation part."""
        split, processes = self._split, self._processes
        if self._queries is None:
            removed = self._view.removed_nodes(split.target_type)
            every = next_queries(split, self._task, "validation", removed)
            self._queries = every.sample(_VALIDATION_EVENTS, self._seed)
        own = processes.slice_of(len(self._queries.queries))
        part = self._queries.take(np.arange(own.start, own.stop))
        k, found = self._task.k, {}
        items = self.item_rows()
        if len(part.queries):
            vectors = encode_histories(
                self._encoder, items, split.histories(part.queries), self._config.window
            )
            score = _scores(vectors, part.queries, items)
            found = evaluate_ranking(score, part, self._degree, k=k, buckets=(), threads=self._threads)
        figures = {f"validation_{name}": float(found.get(name, 0.0)) for name in (f"recall@{k}", f"ndcg@{k}")}
        return processes.mean("validation figures", figures, len(part.queries))

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of items."""
        return self._rows

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, module in self._rows.items():
            module.set_table(tables[name])
        self._batches = BatchesAhead(self._draw, self._keys, self.tables())

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of items."""
        return {_ITEMS: RowKeys.of_nodes({self._split.target_type: 0})}

    def close(self) -> None:
        """End the reading of rows ahead."""
        self._batches.close()

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the network, the rows of items, and the vectors of all nodes by the events in ``view``."""
        self._encoder.eval()
        items = self.item_rows()
        known = self._split.known(view.fold)
        vectors = encode_histories(self._encoder, items, known, self._config.window)
        ends = (self._split.node_type, self._split.target_type)
        sequence = SequenceEncoder(self._config, self._encoder.cpu())
        return TrainedModel.of_towers(name, self._config.task, ends, vectors, items, sequence=sequence)

    # ----------------------------------------------------------------------------- details

    def _draw(self, epoch: int, batch: int) -> _Part:
        """Return this process's part of a batch."""
        size = self._config.batch_size
        rows = self._order[batch * size : (batch + 1) * size]
        own = rows[self._processes.slice_of(len(rows))]
        candidates = self._every_item
        if self._candidates is not None:
            candidates = self._candidates.draw(epoch, batch, self._threads)
        num_targets = int(self._windows.length[rows].sum())
        return _Part(self._windows.pack(own), num_targets, candidates)

    def _keys(self, drawn: _Part) -> dict[str, Numbers]:
        """Return the keys of the rows that a batch reads, by table."""
        return {_ITEMS: _keys_of(drawn, slice(0, len(drawn.candidates)))}

    def log_probability(self, candidates: Numbers) -> Tensor | None:
        """Return the logarithm of the probability that each candidate is in a batch; None: all are."""
        if self._candidates is None:
            return None
        return self._candidates.log_probability[self._tensor(candidates)]

    @torch.no_grad()
    def item_rows(self) -> Tensor:
        """Return the rows of all items: float32 [items, dim]; of removed ones those before training."""
        keys = np.arange(self._view.num_nodes(self._split.target_type))
        rows: Tensor = self._rows[_ITEMS].eval()(self._tensor(keys))
        self._rows[_ITEMS].train()
        return rows

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return tensor_on(array, self._device)


def _keys_of(part: _Part, of_candidates: slice) -> Numbers:
    """Return the keys of the rows of a batch: of events, of what follows them, and of candidates."""
    windows = part.windows
    return np.concatenate([windows.events.items, windows.targets, part.candidates[of_candidates]])


def _scores(vectors: Tensor, events: Numbers, items: Tensor) -> ScoreBlock | DeviceScores:
    """Return the function that scores all items for events, given by their numbers, where the rows are."""
    if items.device.type == "cpu":
        return scores_of(vectors.numpy(), events, items.numpy())
    device = items.device
    return DeviceScores(
        lambda asked: largest_products(vectors[tensor_on(np.searchsorted(events, asked), device)], items)
    )
