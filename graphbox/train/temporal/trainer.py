"""Trains the temporal model of streams: each batch of events is scored, learnt, then remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import PredictLinksTaskConfig, TemporalConfig
from graphbox.errors import DataError, UsageError
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.metrics import binary_report
from graphbox.models.temporal import PairInputs, TemporalLinkScorer
from graphbox.native import seed_number
from graphbox.table import EmbeddingTable, Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.losses import sigmoid
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seeded
from graphbox.train.stage_clock import StageClock
from graphbox.train.stream import Chunk, ChunkScores, StreamingTrainer
from graphbox.train.tasks import FOLDS, LinkPart, LinkSplit, Split
from graphbox.train.temporal.event_memory import EventMemory, Events
from graphbox.train.torch_trainer import START_STREAM, TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.transfer import moved
from graphbox.train.view import GraphView

_METRIC = "validation_average_precision"
_ROW_SCALE = 0.1
_VECTORS_PER_CALL = 4096
_MEMORY, _MODEL, _EPOCH = "memory.", "model.", "epoch"
_ROWS = "rows"
_DRAWN, _SCORED = 0, 2
"""Purposes of negatives: those that are learnt from, and those of what is only scored."""
_TEST_BATCH = 1 << 30
"""Number of the first batch of the test part among those that are learnt after the last epoch, which begin
with the validation part: far beyond its last."""


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A batch of events.

    Attributes:
        events: the events.
        inputs: what the network reads of their pairs, then of those with negatives.
        negatives: how many negatives each event has.
    """

    events: Events
    inputs: PairInputs
    negatives: int


class TemporalTrainer(TorchTrainer[_Drawn], StreamingTrainer):
    """See the module.

    A batch changes first the parameters, then the memory; so a score knows the events before its batch
    alone. Each epoch begins with an empty memory and goes through the training part in the order of time.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for: a task of kind ``predict_links`` over events, or nothing.

    Raises:
        UsageError: the edge types have no times, join different types, or the task's parts are not one after
            the other in time.
        DataError: there are no two targets.
    """

    def __init__(self, config: TemporalConfig, assignment: Assignment) -> None:
        self._split = _checked_split(assignment.split, assignment)
        super().__init__(
            assignment,
            OptimizerSettings.of(config),
            epochs=config.epochs,
            validate_every=config.validate_every,
            selection=None if self._split is None else Selection(_METRIC, config.patience),
        )
        self._config = config
        self._seed = seed_number(assignment.seed)
        self._view = assignment.view
        self._edge_types = _chosen_edge_types(config, assignment)
        source_type, _, target_type = self._edge_types[0]
        self._ends = (source_type, target_type)
        self._one_relation = self._split is not None and bool(self._split.held_out_relations)
        task = assignment.task
        self._events_per_batch = (
            task.events_per_batch if isinstance(task, PredictLinksTaskConfig) else config.batch_size
        )
        self._epoch = -1
        self._events_so_far = self._new_memory()
        table: Table | None = None
        if config.row_dim:
            table = EmbeddingTable(
                config.row_dim,
                "rowwise_adagrad",
                config.table_learning_rate,
                init_scale=_ROW_SCALE,
                seed=self._seed,
                threads=assignment.threads,
            )
            table = self._memory.near({_ROWS: table})[_ROWS]
        with seeded(self._seed, START_STREAM):
            network = TemporalLinkScorer(2 * len(self._edge_types), config.dim, config.dropout, table)
        self.network: TemporalLinkScorer = network
        self.set_network(network)
        self._events: Events | None = None
        self._is_streamed = False

    # -------------------------------------------------------------------------- in epochs

    def open_epoch(self, epoch: int) -> int:
        """Forget all events, unless the epoch has begun before, and return the number of batches."""
        if epoch != self._epoch:
            self._events_so_far, self._epoch = self._new_memory(), epoch
        return -(-len(self._training_events()) // self._config.batch_size)

    def done(self, epoch: int, batch: int) -> float:
        """Return the share of the training that is over; a chunk is learnt at the rate of its end."""
        return 1.0 if self._is_streamed else super().done(epoch, batch)

    def draw(self, epoch: int, batch: int) -> _Drawn:
        """Return a batch of events beside drawn negatives."""
        return self._drawn(self._batch(batch), (epoch, batch))

    def _drawn(self, events: Events, key: tuple[int, int]) -> _Drawn:
        negatives = self._draw(events, (_DRAWN, *key))
        repeated = np.repeat(np.arange(len(events)), negatives.shape[1])
        inputs = self._events_so_far.inputs(
            np.concatenate([events.source, events.source[repeated]]),
            np.concatenate([events.target, negatives.ravel()]),
            np.concatenate([events.time, events.time[repeated]]),
        )
        return _Drawn(events, inputs, negatives.shape[1])

    def loss(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the logistic loss of a batch's events and negatives."""
        count = len(drawn.events)
        logits = self.network(moved(drawn.inputs, self._device))
        positive, negative = logits[:count], logits[count:]
        return sigmoid(positive, negative.view(count, -1), 1.0 / drawn.negatives), count

    def learnt(self, drawn: _Drawn) -> None:
        """Remember the events of a batch."""
        self._remember(drawn.events)

    def measured(self) -> dict[str, float]:
        """Return figures of the validation part, of which the memory learns as it goes by."""
        assert self._split is not None  # noqa: S101 - without one nothing is measured
        memory = self._events_so_far
        self._events_so_far = EventMemory.restore(memory.tensors())
        part = self._split.part("validation")
        positive, negative = self._pass(part, learn=False)
        self._events_so_far = memory
        labels = np.repeat([True, False], [len(positive), len(negative)])
        report = binary_report(labels, np.concatenate([positive, negative]))
        return {_METRIC: report["average_precision"], "validation_auc": report["auc"]}

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the events of a batch and the targets drawn beside them."""
        events = self._batch(batch)
        return {**vars(events), "negatives": self._draw(events, (_DRAWN, epoch, batch))}

    # -------------------------------------------------------------------------- in chunks

    def score_chunk(self, chunk: Chunk) -> ChunkScores | None:
        """Score a chunk's events and as many other targets, none of them known."""
        events = self._events_of_chunk(chunk)
        if not len(events):
            return None
        other = self._draw(events, (_SCORED, chunk.number, 0), chunk.view)[:, 0]
        positive = self._scores(events.source, events.target, events.time)
        negative = self._scores(events.source, other, events.time)
        return ChunkScores(
            np.repeat([True, False], len(events)),
            np.concatenate([positive, negative]),
            np.tile(events.source, 2),
        )

    def open_chunk(self, chunk: Chunk) -> int:
        """Return the number of batches of a chunk's events."""
        self._view, self._is_streamed = chunk.view, True
        self._events = self._events_of_chunk(chunk)
        return -(-len(self._events) // self._config.batch_size)

    # ------------------------------------------------------------------------------ state

    def extra_state(self) -> dict[str, Tensor]:
        """Return the events so far, and the epoch that they are of."""
        events = {_MEMORY + name: value for name, value in self._events_so_far.tensors().items()}
        return {**events, _EPOCH: torch.tensor(self._epoch)}

    def restore_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the events so far."""
        self._events_so_far = EventMemory.restore(
            {name.removeprefix(_MEMORY): value for name, value in state.items() if name.startswith(_MEMORY)}
        )
        self._epoch = int(state[_EPOCH])

    def served_parameters(self) -> dict[str, Tensor]:
        """Return the network's parameters, or their moving averages; not what nodes did last."""
        with self._optimization.averaged():
            return {_MODEL + name: value.detach().clone() for name, value in self.network.named_parameters()}

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of nodes, whose last bit is the end of an event that they are at."""
        keys = RowKeys.of_nodes({name: end for end, name in enumerate(dict.fromkeys(self._ends))}, 2)
        return dict.fromkeys(self.table_modules(), keys)

    def inputs(self) -> dict[str, list[str]]:
        """Return the relations of the events."""
        return {"relations": [edge_type_text(each) for each in self._edge_types]}

    def keys_of(self, nodes: Mapping[str, NDArray[np.int64]]) -> None:  # noqa: ARG002
        """Return None: the memory of events names nodes as well, so rows alone cannot be forgotten."""
        return

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the lookup of rows, if there is a table."""
        return {} if self.network.rows is None else {_ROWS: self.network.rows}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in another table."""
        if _ROWS in tables:
            self.network.set_table(tables[_ROWS])

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Go through the held-out parts in the order of time; return embeddings as of before the test part.

        The test part's scores are what the model said of each event before it learnt its batch.
        """
        scores = None
        self._clock = StageClock()  # that of the loop ended with it
        if self._split is not None:
            self._pass(self._split.part("validation"), learn=self._config.learn_online)
        embeddings = self._embeddings(view)
        if self._split is not None:
            test = self._pass(
                self._split.part("test"), learn=self._config.learn_online, first_batch=_TEST_BATCH
            )
            scores = np.concatenate(test).astype(np.float32)
        return TrainedModel(
            name, "embedding", self._config.task, self._ends[0], embeddings, link_scores=scores
        )

    # ---------------------------------------------------------------------------- details

    def _pass(
        self, part: LinkPart, *, learn: bool, first_batch: int = 0
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Score a part batch by batch, each before it is learnt and remembered; return both sides' scores."""
        positive = np.empty(len(part.edges), dtype=np.float32)
        negative = np.empty(len(part.negatives), dtype=np.float32)
        events = self._events_of_part(part)
        for number, (rows, others) in enumerate(part.batches(self._events_per_batch)):
            batch = events[rows]
            positive[rows] = self._scores(batch.source, batch.target, batch.time)
            pairs = part.negatives[others]
            negative[others] = self._scores(pairs[:, 0], pairs[:, 1], part.negative_time[others])
            if learn and len(batch):
                key = (self.epochs, first_batch + number)
                self._learn(self._drawn(batch, key), *key, done=1.0)
            else:
                self._remember(batch)
        return positive, negative

    @torch.no_grad()
    def _scores(
        self, source: NDArray[np.int64], target: NDArray[np.int64], time: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        self.network.eval()
        scores = np.empty(len(source), dtype=np.float32)
        with self._optimization.averaged():
            for start in range(0, len(source), _VECTORS_PER_CALL):
                rows = slice(start, start + _VECTORS_PER_CALL)
                inputs = self._events_so_far.inputs(source[rows], target[rows], time[rows])
                scores[rows] = self.network(moved(inputs, self._device)).cpu().numpy()
        return scores

    def _draw(
        self, events: Events, key: tuple[int, int, int], view: GraphView | None = None
    ) -> NDArray[np.int64]:
        """Return other targets for each event: int64 [n, negatives].

        All live nodes alike, or for a share of them one of the source's latest partners; never the event's
        own target.
        """
        view = view or self._view
        live = LiveRows.of_graph(view, self._ends[1])
        count = len(live)
        if count < 2:
            raise DataError(
                f"expected at least two nodes to draw other targets from, received {count}",
                where=f"node type {self._ends[1]}",
            )
        generator = np.random.default_rng([self._seed, *key])
        shape = (len(events), self._config.negatives)
        drawn = generator.integers(0, count - 1, shape)
        drawn += drawn >= live.rows(events.target)[:, None]
        drawn = live.nodes(drawn)
        if self._config.historical_negatives:
            partners = self._events_so_far.ends[0].view(events.source, self._events_so_far.events).partner
            place = generator.integers(0, partners.shape[1], shape)
            known = np.take_along_axis(partners, place, axis=1)
            usable = (known >= 0) & (known != events.target[:, None])
            usable &= ~np.isin(known, view.removed_nodes(self._ends[1]))
            chosen = generator.random(shape) < self._config.historical_negatives
            drawn = np.where(chosen & usable, known, drawn)
        return drawn

    @torch.no_grad()
    def _embeddings(self, view: GraphView) -> dict[str, NDArray[np.float32]]:
        self.network.eval()
        found = {}
        with self._optimization.averaged():
            for end, node_type in enumerate(dict.fromkeys(self._ends)):
                nodes = np.arange(view.num_nodes(node_type))
                parts = [
                    self._vectors(end, nodes[start : start + _VECTORS_PER_CALL])
                    for start in range(0, len(nodes), _VECTORS_PER_CALL)
                ]
                found[node_type] = np.concatenate(parts)
        return found

    def _vectors(self, end: int, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        events = moved(self._events_so_far.node_events(end, nodes), self._device)
        vectors: NDArray[np.float32] = self.network.encode(events).cpu().numpy()
        return vectors

    def _new_memory(self) -> EventMemory:
        # Without room: it grows with the nodes of the stream, not with those of the graph as it is today.
        return EventMemory(0, 0, self._config.recent, one_type=self._ends[0] == self._ends[1])

    def _remember(self, events: Events) -> None:
        self._events_so_far.grow(*(self._view.num_nodes(end) for end in self._ends))
        self._events_so_far.add(events)

    # ----------------------------------------------------------------------------- events

    def _batch(self, batch: int) -> Events:
        size = self._config.batch_size
        return self._training_events()[batch * size : (batch + 1) * size]

    def _training_events(self) -> Events:
        """Return the events of the training part, or of the chunk that is open."""
        if self._events is None:
            if self._split is not None:
                self._events = self._events_of_part(self._split.part("train"))
            else:
                self._events = Events.merged(
                    [_events_of(self._view, each, n) for n, each in enumerate(self._edge_types)]
                )
        return self._events

    def _events_of_part(self, part: LinkPart) -> Events:
        # What relations that are held out as a whole are like, nothing could have told before.
        relation = np.zeros_like(part.time) if self._one_relation else part.origin[:, 0]
        return Events(part.edges[:, 0], part.edges[:, 1], relation, part.time)

    def _events_of_chunk(self, chunk: Chunk) -> Events:
        parts = []
        for number, edge_type in enumerate(self._edge_types):
            edges = chunk.edges.get(edge_type)
            if edges is not None and edges.timestamp is not None:
                relation = np.full(len(edges), number)
                parts.append(Events(edges.source, edges.target, relation, edges.timestamp))
        return Events.merged(parts) if parts else _NONE


_NONE = Events(*(np.empty(0, dtype=np.int64) for _ in range(4)))


def _events_of(view: GraphView, edge_type: EdgeType, number: int) -> Events:
    csc = view.csc(edge_type)
    source, target = csc.coo()
    time = np.zeros(len(source), dtype=np.int64) if csc.timestamp is None else csc.timestamp
    return Events(source, target, np.full(len(source), number), time)


def _chosen_edge_types(config: TemporalConfig, assignment: Assignment) -> list[EdgeType]:
    """Return the edge types whose edges are the events.

    Raises:
        UsageError: they have no times, or join different types.
    """
    where = f"models.{assignment.name}.relations"
    task, view = assignment.task, assignment.view
    if isinstance(task, PredictLinksTaskConfig):
        if config.relations:
            raise UsageError(
                "expected no relations beside a task, which has its own",
                where=where,
                hint="leave `relations` out: the events are the edges of the task",
            )
        of_task = [(task.node_type, relation, task.candidate_type) for relation in task.relations]
        _check_timed(of_task, view, where)
        return of_task
    known = [each for each in view.edge_types if not view.is_reverse(each)]
    _check_timed(config.relations, view, where)
    timed = [each for each in known if view.csc(each).timestamp is not None]
    chosen = list(config.relations) or timed
    if len({(each[0], each[2]) for each in chosen}) != 1:
        raise UsageError(
            "expected edge types with a timestamp between the same two node types, received "
            f"{', '.join(map(edge_type_text, chosen)) or 'none'}",
            where=where,
            hint="name those whose events are to be learnt",
        )
    return chosen


def _check_timed(edge_types: Iterable[EdgeType], view: GraphView, where: str) -> None:
    """Refuse edge types that are not there or have no times.

    Raises:
        UsageError: there is one.
    """
    known = view.edge_types
    for edge_type in edge_types:
        if edge_type not in known or view.csc(edge_type).timestamp is None:
            raise UsageError(
                f"expected an edge type with a timestamp, received {edge_type_text(edge_type)}",
                where=where,
                hint="name the column: `timestamp: ...` at the edge type under graph.edges",
            )


def _checked_split(split: Split | None, assignment: Assignment) -> LinkSplit | None:
    """Return a split of events, each part after the one before.

    Raises:
        UsageError: it is none.
    """
    if split is None:
        return None
    where = f"models.{assignment.name}.task"
    if not isinstance(split, LinkSplit) or not split.is_stream:
        raise UsageError(
            f"expected a task of kind predict_links over events, received one of kind {split.KIND}"
            f"{' that holds pairs out whole' if isinstance(split, LinkSplit) else ''}",
            where=where,
            hint="a split of kind time, over edges with a timestamp, holds events out",
        )
    times = [split.part(fold).time for fold in FOLDS]
    for before, after, fold in zip(times, times[1:], FOLDS[1:], strict=False):
        if before.max() > after.min():
            raise UsageError(
                f"expected events of one part after the other, received some of {fold} before others",
                where=where,
                hint="a model of streams learns in the order of time: take a split of kind time, without "
                "exclude_relations",
            )
    return split
