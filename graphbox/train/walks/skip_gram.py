"""Trains skip-gram embeddings on walks, natively or on a device: DeepWalk, node2vec, metapath2vec."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox import _core
from graphbox.config import DeepWalkConfig, Metapath2VecConfig, Node2VecConfig, SkipGramSection
from graphbox.config.models.walks import NegativeSamplingSection
from graphbox.errors import DoesNotFitError
from graphbox.native import seed_number, thread_count
from graphbox.sample import NegativeSampler, keep_probability
from graphbox.skip_gram.group_size import batches_of_group
from graphbox.skip_gram.row_bytes import ROOM_FOR_ROWS, RowRoom, rows_without_room
from graphbox.skip_gram.walkers import WalkBatches
from graphbox.table import EmbeddingTable, Table
from graphbox.table.host_table import host_table
from graphbox.train.assignment import Assignment
from graphbox.train.memory import TrainingMemory
from graphbox.train.row_keys import RowKeys
from graphbox.train.stage_clock import StageClock
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import EmbeddingTrainer
from graphbox.train.transfer import CPU
from graphbox.train.view import GraphView
from graphbox.train.walks.on_disk import ListFolder, OneTypeOnDisk, WalksAhead, one_type_on_disk
from graphbox.train.walks.one_type import OneTypeGraph, one_type_graph
from graphbox.train.walks.sources import MetapathSource, OneTypeSource, WalkSource

if TYPE_CHECKING:
    from graphbox.skip_gram.device import DeviceSkipGram

_CENTER, _CONTEXT = "center", "context"
_PURPOSE = "learning from walks"


class SkipGramTrainer(EmbeddingTrainer):
    """See the module.

    Reads edges only, no feature. A batch is updated as :class:`graphbox.models.SkipGram` would, with pairs
    of :func:`graphbox.sample.walk_pairs` for the same seed, epoch and batch.

    Args:
        source: the walks.
        config: how to learn from them.
        dim: length of an embedding.
        epochs: number of epochs.
        seed: seed of every random choice.
        subsample: share of all visits above which a node's are thinned out; 0: none are.
        dynamic_window: draw each centre's window from 1 to that of the source.
        one_table: nodes have one row, as centres and as contexts.
        context_share: embeddings are rows of centres plus this share of those of contexts (Levy, Goldberg,
            Dagan, TACL 3, 2015, section 3.3).
        task: name of the task the embeddings are for, or None.
        node_type: node type of the task; None: the first that walks visit.
        threads: threads of walks and tables.
        clock: measures the stages.
        memory: where the tables are kept.
        place: begins the names of their folders.
        share: the part of the budget of tables that they have.
        device: where kernels train; None: the native core does, on the CPU. Walks, pairs and negatives are
            the same bits, rows agree to float tolerance and are the same on each run, unless it is
            ``lock_free``.
        row_bytes: the most of the memory of the device for rows; None: what ``memory`` says, or what is free.

    Raises:
        UnsupportedError: rows that are too long for kernels.
        DoesNotFitError: host memory has no room for the rows that the device has none for.
    """

    def __init__(
        self,
        source: WalkSource,
        config: NegativeSamplingSection,
        *,
        dim: int,
        epochs: int,
        seed: int,
        subsample: float = 0.0,
        dynamic_window: bool = False,
        one_table: bool = False,
        context_share: float = 0.0,
        task: str | None = None,
        node_type: str | None = None,
        threads: int | None = None,
        clock: StageClock | None = None,
        memory: TrainingMemory | None = None,
        place: str = "",
        share: float = 1.0,
        device: torch.device | None = None,
        row_bytes: int | None = None,
    ) -> None:
        self._memory = memory or TrainingMemory()
        self._device = device
        self._clock = clock or StageClock()
        self._place = place
        if row_bytes is None:
            row_bytes = row_budget(self._memory, device)
        budget = self._memory.config.tables
        self._room = RowRoom(
            source.keys.total,
            1 if one_table else 2,
            dim,
            row_bytes,
            None if budget is None else int(budget * share),
        )
        self._share = share / self._room.tables if device is None else _share_of_tables(self._room, share)
        self._source = source
        self._config = config
        self._dim = dim
        self._epochs = epochs
        self._seed = seed_number(seed)
        self._dynamic_window = dynamic_window
        self._context_share = context_share
        self._task = task
        self._node_type = node_type
        self._threads = thread_count(threads)
        visits = source.visits()
        self._keep = keep_probability(visits, subsample) if subsample else None
        # Nodes without edges get no row, and their keys no place in the index.
        self._num_rows = int(np.count_nonzero(visits)) if source.has_all_visits else source.keys.total
        kept = visits if self._keep is None else visits * self._keep
        self._visits = kept
        if config.negative_exponent == 0 and not kept.all():  # removed nodes are visited by no walk
            self._negatives = NegativeSampler((kept > 0).astype(np.float64), 1.0, seed)
        else:
            self._negatives = NegativeSampler(kept, config.negative_exponent, seed)
        self._batches: WalkBatches | None = None
        self._ahead: WalksAhead | None = None
        if source.walker is not None and source.folder is not None:
            self._ahead = WalksAhead(source.walker, source.folder, self._seed)
        self._group = 1
        center = self._new_table(_CENTER)
        tables = {_CENTER: center} if one_table else {_CENTER: center, _CONTEXT: self._new_table(_CONTEXT)}
        self._tables: dict[str, EmbeddingTable] = {}
        self._native: _core.SkipGramTrainer | None = None
        self._on_device: DeviceSkipGram | None = None
        self._take_up(tables)

    @property
    def device(self) -> torch.device:
        """Where rows are trained."""
        return self._device or CPU

    def places(self) -> Mapping[str, str]:
        """Return where rows and neighbours are that are not on the device that trains."""
        return {} if self._on_device is None else self._on_device.places()

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return self._epochs

    def begin_epoch(self, epoch: int) -> int:
        """Put the starts in a new order and return the number of groups of batches."""
        self._batches = self._source.batches(epoch)
        batches = len(self._batches.offsets) - 1
        self._group = batches_of_group(len(self._batches.start), batches)
        if self._on_device is not None:
            self._on_device.begin_epoch(self._batches, self._group)
        if self._ahead is not None:
            self._ahead.begin_epoch(epoch, self._batches, self._group)
        return -(-batches // self._group)

    def train_batch(self, epoch: int, batch: int) -> tuple[float, int]:
        """Train on the next group of batches, up to one whose loss is not finite."""
        if self._batches is None or (self._native is None and self._on_device is None):
            raise RuntimeError("begin_epoch comes first, and nothing after close")
        loss, pairs = 0.0, 0
        with self._clock.stage("compute"):
            if self._on_device is not None:
                loss, pairs = self._on_device.train(epoch, batch)
            elif self._native is not None:
                loss, pairs = self._train_natively(self._native, self._batches, epoch, batch)
        return (loss / pairs, pairs) if pairs else (0.0, 0)

    def _train_natively(
        self, native: _core.SkipGramTrainer, batches: WalkBatches, epoch: int, batch: int
    ) -> tuple[float, int]:
        first = batch * self._group
        offsets = batches.offsets[first : first + self._group + 1]
        last = first + len(offsets) - 1
        return native.train(
            batches.walkers(first, last),
            offsets - offsets[0],
            (self._seed, epoch, first),
            self._seed,
            self._config.learning_rate,
            self._config.lock_free,
            self._threads,
            None if self._ahead is None else self._ahead.take(first, last),
        )

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:  # noqa: ARG002 - of this epoch
        """Return where the walks of a group of batches start."""
        if self._batches is None:
            raise RuntimeError("begin_epoch comes first")
        offsets = self._batches.offsets[batch * self._group : (batch + 1) * self._group + 1]
        return {"start": self._batches.start[offsets[0] : offsets[-1]]}

    def dense(self) -> dict[str, Tensor]:
        """Return no parameters: the model has rows alone."""
        return {}

    def tables(self) -> dict[str, EmbeddingTable]:
        """Return the tables of centres and contexts; one, where they are the same."""
        self._store()
        return dict(self._tables)

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of centres and contexts: nodes of all types that walks visit."""
        keys = RowKeys.of_nodes({name: self._source.keys.start(name) for name in self._source.types})
        return dict.fromkeys(self._tables, keys)

    def restore(self, dense: Mapping[str, Tensor], tables: Mapping[str, Table]) -> None:  # noqa: ARG002
        """Take up the state that :meth:`tables` returned."""
        self._take_up({name: host_table(table, _PURPOSE) for name, table in tables.items()})

    def embeddings(self) -> dict[str, NDArray[np.float32]]:
        """Return the embeddings of the node types that walks visit: float32 [nodes, dim] each."""
        self._store()
        return {name: self._rows(self._source.keys.keys(name)) for name in self._source.types}

    def _rows(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = np.asarray(self._tables[_CENTER].pull(keys, create=False), dtype=np.float32)
        if self._context_share:
            contexts = np.asarray(self._tables[_CONTEXT].pull(keys, create=False), dtype=np.float32)
            rows += np.float32(self._context_share) * contexts
        return rows

    def close(self) -> None:
        """Let the tables go, so that they can be closed; they have the rows of the last look at them."""
        self._native, self._on_device = None, None
        if self._ahead is not None:
            self._ahead.close()

    def trained(self, name: str, view: GraphView) -> TrainedModel:  # noqa: ARG002 - rows know their nodes alone
        """Return the embeddings as a trained model."""
        embeddings = self.embeddings()
        node_type = self._node_type or next(iter(embeddings))
        return TrainedModel(name, "embedding", self._task, node_type, embeddings)

    def _store(self) -> None:
        """Bring rows that were trained elsewhere back to the tables."""
        if self._on_device is not None:
            self._on_device.store()

    def _take_up(self, tables: Mapping[str, EmbeddingTable]) -> None:
        self._tables = dict(tables)
        if self._device is None:
            self._native = self._native_trainer()
        else:
            self._on_device = None  # its rows leave before others come
            self._on_device = self._device_trainer(self._device)

    def _native_trainer(self) -> _core.SkipGramTrainer:
        center = self._tables[_CENTER]
        config, source = self._config, self._source
        pairs = (source.window, source.column_offsets, self._dynamic_window, self._keep)
        return _core.SkipGramTrainer(
            source.plan.native,
            pairs,
            self._negatives.native,
            center._current,
            self._tables.get(_CONTEXT, center)._current,
            source.keys.total,
            config.negatives,
            config.negative_weight,
        )

    def _device_trainer(self, device: torch.device) -> DeviceSkipGram:
        from graphbox.sample.pairs_gpu import DeviceWindows, keep_thresholds  # Triton, where it is used
        from graphbox.skip_gram.device import DeviceSkipGram, SkipGramSettings

        config, source, hbm = self._config, self._source, self._memory.hbm
        offsets = source.column_offsets
        windows = DeviceWindows(
            source.window,
            None if offsets is None else torch.from_numpy(offsets).to(device),
            self._dynamic_window,
            None if self._keep is None else keep_thresholds(self._keep).to(device),
        )
        settings = SkipGramSettings(
            source.keys.total,
            config.negatives,
            config.negative_weight,
            config.learning_rate,
            config.lock_free,
            self._seed,
        )
        return DeviceSkipGram(
            self._tables,
            partial(source.on_device, device, hbm.topology),
            windows,
            self._negatives.on_device(device),
            settings,
            device,
            visits=self._visits,
            row_bytes=self._room.device_budget_bytes,
        )

    def _new_table(self, name: str) -> EmbeddingTable:
        # Contexts start at nothing, as in word2vec: then centres are apart only where the walks say so.
        context = name == _CONTEXT
        table = self._memory.new_table(
            f"{self._place}{name}",
            self._dim,
            "rowwise_adagrad",
            self._config.learning_rate,
            share=self._share,
            rows=self._num_rows,
            init_scale=0.0 if context else None,
            seed=self._seed + context,
            threads=self._threads,
        )
        return host_table(table, _PURPOSE)


def row_budget(memory: TrainingMemory, device: torch.device | None) -> int | None:
    """Return the memory of a device for the rows of a model: its budget, else what is free; None: any."""
    if device is None or memory.hbm.tables is not None:
        return memory.hbm.tables
    from graphbox.skip_gram.device import row_budget_bytes  # Triton, where it is used

    return row_budget_bytes(device)


def _share_of_tables(room: RowRoom, share: float) -> float:
    """Return which part of the budget of tables each has, beside rows that are pinned.

    Raises:
        DoesNotFitError: it has no room for those and the least that tables take.
    """
    if room.host_budget_bytes is None:
        return share / room.tables
    if room.lacking_bytes:
        raise DoesNotFitError(rows_without_room(room), where="memory.tables", hint=ROOM_FOR_ROWS)
    left = room.host_budget_bytes - room.pinned_bytes
    return share / room.tables * left / max(1, room.host_budget_bytes)


def make_metapath_trainer(
    view: GraphView,
    config: SkipGramSection,
    *,
    dim: int,
    seed: int,
    task: str | None = None,
    node_type: str | None = None,
    threads: int | None = None,
    clock: StageClock | None = None,
    memory: TrainingMemory | None = None,
    device: torch.device | None = None,
) -> SkipGramTrainer:
    """Return the trainer of embeddings on metapath walks.

    Args:
        view: the graph as training sees it.
        config: how to walk and to learn.
        dim: length of an embedding.
        seed: seed of every random choice.
        task: see :class:`SkipGramTrainer`, as for ``node_type`` and ``threads``.
        node_type: node type of the task.
        threads: threads of walks and tables.
        clock: measures the stages.
        memory: where the tables are kept.
        device: where kernels train; None: the native core does, on the CPU.

    Raises:
        UsageError: the graph lacks an edge type of a metapath or its weights, or the steps do not meet.
        UnsupportedError: see :class:`SkipGramTrainer`, as for DoesNotFitError.
    """
    source = MetapathSource(
        view,
        config.metapaths,
        walks_per_node=config.walks_per_node,
        walk_length=config.walk_length,
        window=config.window,
        batch_size=config.batch_size,
        weighted=config.weighted,
        seed=seed,
        threads=threads,
        folder=_list_folder(memory, threads),
    )
    return SkipGramTrainer(
        source,
        config,
        dim=dim,
        epochs=config.epochs,
        seed=seed,
        subsample=config.subsample,
        task=task,
        node_type=node_type,
        threads=threads,
        clock=clock,
        memory=memory,
        device=device,
    )


def _list_folder(memory: TrainingMemory | None, threads: int | None) -> ListFolder | None:
    """Return where to write the lists that walks follow; None: they stay in memory."""
    if memory is None or memory.config.topology is None:
        return None
    return ListFolder(memory, threads)


def make_skip_gram_trainer(config: Metapath2VecConfig, assignment: Assignment) -> SkipGramTrainer:
    """Return the trainer of a section of kind ``metapath2vec``."""
    return make_metapath_trainer(
        assignment.view,
        config,
        dim=config.dim,
        seed=assignment.seed,
        task=config.task,
        node_type=None if assignment.split is None else assignment.split.node_type,
        threads=assignment.threads,
        clock=assignment.clock,
        memory=assignment.memory,
        device=assignment.kernel_device,
    )


def make_deepwalk_trainer(config: DeepWalkConfig, assignment: Assignment) -> SkipGramTrainer:
    """Return the trainer of a section of kind ``deepwalk`` or ``node2vec``."""
    view, followed, weighted = assignment.view, config.edge_types, config.weighted
    folder = _list_folder(assignment.memory, assignment.threads)
    graph: OneTypeGraph | OneTypeOnDisk
    if folder is None:
        graph = one_type_graph(view, followed, weighted=weighted)
    else:
        graph = one_type_on_disk(view, followed, weighted=weighted, folder=folder)
    looks_back = {"p": config.p, "q": config.q} if isinstance(config, Node2VecConfig) else {}
    source = OneTypeSource(
        graph,
        walks_per_node=config.walks_per_node,
        walk_length=config.walk_length,
        window=config.window,
        batch_size=config.batch_size,
        seed=assignment.seed,
        threads=assignment.threads,
        **looks_back,
    )
    return SkipGramTrainer(
        source,
        config,
        dim=config.dim,
        epochs=config.epochs,
        seed=assignment.seed,
        subsample=config.subsample,
        dynamic_window=config.dynamic_window,
        context_share=config.context_share,
        task=config.task,
        node_type=None if assignment.split is None else assignment.split.node_type,
        threads=assignment.threads,
        clock=assignment.clock,
        memory=assignment.memory,
        device=assignment.kernel_device,
    )
