"""Trains the two-tower GraphSAGE to find the held-out edges of a recommend task.

Each epoch holds out pairs of groups of its own, by the rule by which the task holds out its test pairs. Their
edges are the epoch's positives, and the epoch's neighbourhoods come from the graph without them. So a
positive never sees itself, its siblings or its reverse among the neighbours, and a query in training has as
many known edges as one in test.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import RecommendTaskConfig, SageConfig
from graphbox.errors import UsageError
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.features import MISSING_CATEGORY, NodeFeatures
from graphbox.models.sage import TwoTowerSAGE
from graphbox.sample import HeteroSample, permutation
from graphbox.sample.device_arrays import RowBlocks
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.compressed import CompressedRows
from graphbox.train.losses import info_nce
from graphbox.train.optimization import OptimizerSettings, RunningAverage
from graphbox.train.recommendation.candidates import (
    Candidates,
    columns_among,
    log_probability_in_batch,
    no_negatives,
)
from graphbox.train.recommendation.held_out_links import HeldOutLinks
from graphbox.train.recommendation.known_links import known_links_of
from graphbox.train.recommendation.neighborhoods import Neighborhoods, neighbor_blocks
from graphbox.train.recommendation.pretrained import PretrainedTrainer
from graphbox.train.recommendation.queries import in_degree
from graphbox.train.recommendation.sage_encoder import NeighborTables, SageEncoder, encode_nodes
from graphbox.train.recommendation.validation import TowerValidation
from graphbox.train.row_keys import RowKeys
from graphbox.train.tasks import RecommendSplit
from graphbox.train.torch_trainer import TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import PretrainableTrainer
from graphbox.train.transfer import moved, tensor_on
from graphbox.train.view import GraphView
from graphbox.train.walks.skip_gram import make_metapath_trainer

_FEATURE_PARTS = ("codes", "numbers")
_BASE, _EPOCH_AVERAGE = "base.", "epoch_average."
_RESPLIT_STREAM, _ORDER_STREAM, _DROPOUT_STREAM = 1, 2, 3


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Sample of a batch; of several processes each draws the neighbours of its slices alone.

    Attributes:
        queries: int64 [queries], the slice of this process.
        of_queries: which of the batch's queries these are.
        num_queries: how many the batch has.
        num_positives: how many they have.
        candidates: int64 [candidates], all of the batch's, ascending.
        seeds: how many different nodes the slices of queries and of candidates are.
        place: int64 [queries + slice of candidates], which of these each is.
        sample: their neighbourhoods, where they were drawn.
    """

    queries: NDArray[np.int64]
    of_queries: slice
    num_queries: int
    num_positives: int
    candidates: NDArray[np.int64]
    seeds: int
    place: NDArray[np.int64]
    sample: HeteroSample[Tensor]


class SageTrainer(TorchTrainer[_Drawn], PretrainableTrainer):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``recommend``.

    Raises:
        UsageError: the task is of another kind, a relation does not arrive at its node type, or a feature may
            not be read.
        DataError: no pair of groups can be held out for training.
    """

    def __init__(self, config: SageConfig, assignment: Assignment) -> None:
        split, task = assignment.split, assignment.task
        if not isinstance(split, RecommendSplit) or not isinstance(task, RecommendTaskConfig):
            raise assignment.wrong_task(config)
        super().__init__(
            assignment,
            OptimizerSettings(config, config.table_learning_rate, config.learning_rate),
            epochs=config.epochs,
            validate_every=config.validate_every,
        )
        if not split.within_one_type:
            raise UsageError(
                f"expected a task within one node type for a model of kind sage, received one from "
                f"{split.node_type} to {split.target_type}",
                where="task",
                hint="models of kind lightgcn and matrix_factorization recommend nodes of another type",
            )
        self._view = assignment.view.with_reverse_edges()
        self._split = split
        self._config = config
        self._node_type = split.node_type
        self._relations = _relations(self._view, split.node_type, config.relations)
        self._features = _features(self._view, split.node_type, config.features)
        self._feature_rows = self._memory.features_on_device(
            {
                (name, part): RowBlocks.of(torch.from_numpy(array))
                for name, each in self._features.items()
                for part, array in zip(_FEATURE_PARTS, (each.codes, each.numbers), strict=True)
            }
        )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._seed)
            model = TwoTowerSAGE(
                split.node_type,
                self._relations,
                config.dim,
                {name: table.sizes for name, table in self._features.items()},
                initial_scale=config.initial_scale,
            )
        self._base: dict[str, Tensor] = {}
        self._average = RunningAverage()
        types = dict.fromkeys([split.node_type, *(relation[0] for relation in self._relations)])
        tables = self._new_tables(list(types), config.initial_row_scale)
        self._rows = {
            name: TableEmbedding(table).to(self._device) for name, table in self._memory.near(tables).items()
        }
        self._batches = BatchesAhead(self._draw, _keys, tables)
        self.network: TwoTowerSAGE = model
        self.set_network(model)
        self._positives = HeldOutLinks(split, self._memory)
        self._links = known_links_of(self._view, split, self._memory)
        degree = in_degree(self._view, split)
        live = LiveRows.of_graph(self._view, split.target_type)
        self._candidates = Candidates(degree, live, config.candidates, config.popularity_exponent, self._seed)
        self._degree = degree
        self._around: Neighborhoods | None = None
        self._validation = TowerValidation(split, task, threads=self._threads, processes=self._processes)
        self.epoch_view = self._view
        self.epoch_positives = self._links
        self._queries_of = self._degree
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def use_pretrained(self, embeddings: Mapping[str, NDArray[np.float32]]) -> None:
        """Let rows start from embeddings: the tables learn what is to be added to them.

        Args:
            embeddings: float32 [nodes, dim] by node type; types without any start at random. They are scaled
                to the root mean square, for each node, that random rows have.
        """
        scale = self._config.initial_row_scale / math.sqrt(3.0)
        for name in self._rows:
            if name in embeddings:
                rows = torch.from_numpy(embeddings[name])
                size = rows.square().mean(dim=1, keepdim=True).sqrt()
                self._base[name] = (rows * (scale / size.clamp(min=1e-12))).to(self._device)
        started = [name for name in self._rows if name in self._base]
        self._optimization.release_tables()
        self.set_tables(self._memory.near(self.tables() | self._new_tables(started, 0.0)))
        self._optimization.set_tables(list(self._rows.values()))

    # ---------------------------------------------------------------------------- training

    def places(self) -> Mapping[str, str]:
        """Return where neighbours are drawn."""
        return {"sampling": self._memory.sampling_place([self._config.num_neighbors])}

    def open_epoch(self, epoch: int) -> int:
        """Hold out this epoch's pairs, and return the number of batches of queries."""
        self._batches.close()
        held_pairs, edges = self._positives.hold_out(
            self._config.holdout_fraction, np.random.default_rng([self._seed, epoch, _RESPLIT_STREAM])
        )
        self._around = None
        self.epoch_view = self._view.without_pairs(self._split, held_pairs)
        self.epoch_positives = CompressedRows.build(edges, len(self._degree))
        self._queries_of = np.bincount(edges[:, 1], minlength=len(self._degree))
        queries = np.unique(edges[:, 0])
        self._order = queries[permutation(len(queries), self._seed, epoch)]
        return math.ceil(len(queries) / self._config.batch_size)

    def draw(self, epoch: int, batch: int) -> _Drawn:
        """Return this process's part of a batch of queries, with the neighbourhoods of its nodes."""
        return self._batches.take(epoch, batch, self._num_batches)

    def loss(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, int]:
        """Return the loss of a batch, or this process's share of it."""
        queries, candidates = drawn.queries, drawn.candidates
        row, positive = self.epoch_positives.take(queries)
        _, column = columns_among(candidates, row, positive)  # all of them are
        linked = columns_among(candidates, *self._links.take(queries))
        group = self._split.group
        excluded = no_negatives(
            (len(queries), len(candidates)),
            (np.concatenate([row, linked[0]]), np.concatenate([column, linked[1]])),
            self._device,
            groups=(group[queries], group[candidates]),
        )
        query_vectors, some_vectors = self._encode(drawn, epoch, batch)
        target_vectors = self._processes.gather_slices("candidates", some_vectors, len(candidates))
        logits = self.network.logits(query_vectors, target_vectors)
        asked = self._tensor(row)
        # A positive is corrected as well: had it not been that of its query, it could have been drawn.
        found = logits[asked, self._tensor(column)]
        loss = info_nce(
            found - self._log_probability(drawn.num_queries, positive, are_positive=True),
            logits.masked_fill(excluded, -math.inf),
            asked,
            log_probability=self._log_probability(drawn.num_queries, candidates, are_positive=False),
        )
        return self._processes.share(loss, len(positive), drawn.num_positives), drawn.num_positives

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return queries and candidates of a batch, and the pairs that are its positives."""
        queries, positive, candidates = self._seeds(epoch, batch)
        row, _ = self.epoch_positives.take(queries)
        pairs = np.stack([queries[row], positive], axis=1)
        return {"queries": queries, "candidates": candidates, "positives": pairs}

    def epoch_ends(self, epoch: int) -> None:
        """Add the state after an epoch to the average, and end a pass over a device's memory."""
        if epoch + 1 > self._config.average_after * self.epochs:
            rows = {f"rows.{name}": self._table_rows(name) for name in self._rows}
            self._average.add(rows | self.network.state_dict(prefix="model."))
        if self._feature_rows is not None:
            self._feature_rows.end_pass()

    def measures(self) -> bool:
        """Return whether there is a validation part: always."""
        return True

    def measured(self) -> Mapping[str, float]:
        """Return recall and ndcg on the validation part."""
        model, inputs = self._as_it_is()
        query, target = encode_nodes(model, inputs, self._neighborhoods(self._view))
        return self._validation.figures(self._view, self._degree, query, target)

    def extra_state(self) -> dict[str, Tensor]:
        """Return the rows that tables add to, and the average over epochs."""
        parts = {_BASE: self._base, _EPOCH_AVERAGE: self._average.state()}
        return {prefix + name: value for prefix, part in parts.items() for name, value in part.items()}

    def restore_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`extra_state` returned."""
        self._base = moved(_with_prefix(state, _BASE), self._device)
        self._average.restore(_with_prefix(state, _EPOCH_AVERAGE), self._device)

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of the table of each node type."""
        return {name: RowKeys.of_nodes({name: 0}) for name in self._rows}

    def inputs(self) -> dict[str, list[str]]:
        """Return the relations that are aggregated, and the features of the task's node type."""
        return {
            "relations": [edge_type_text(relation) for relation in self._relations],
            "features": list(self._config.features),
        }

    def weight_categories(self) -> dict[str, list[str]]:
        """Return the categories that rows of weights belong to."""
        specs = self._view.features(self._node_type)
        chosen = [
            specs[name].categories for name in self._config.features if specs[name].kind == "categorical"
        ]
        return {
            f"features.{self._node_type}.categories.{number}.weight": [MISSING_CATEGORY, *(categories or ())]
            for number, categories in enumerate(chosen)
        }

    def final_weights(self, earlier: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights that an earlier training ended with, or their averages over epochs."""
        return _with_prefix(earlier, f"{_EPOCH_AVERAGE}model.") or super().final_weights(earlier)

    def starting_rows(
        self, name: str, table: Table, earlier: Mapping[str, Tensor]
    ) -> NDArray[np.float32] | None:
        """Return averages over epochs plus pretrained rows, where an earlier training ended with these."""
        average, base = (earlier.get(prefix + name) for prefix in (f"{_EPOCH_AVERAGE}rows.", _BASE))
        if average is None and base is None:
            return None
        if average is None:
            assert base is not None  # noqa: S101 - for the type checker
            average = torch.from_numpy(table.pull(np.arange(len(base)), create=False))
        return np.asarray((average if base is None else average + base).numpy(), dtype=np.float32)

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of each node type."""
        return self._rows

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, module in self._rows.items():
            module.set_table(tables[name])
        self._batches = BatchesAhead(self._draw, _keys, self.tables())

    def close(self) -> None:
        """End the reading of rows ahead."""
        self._batches.close()

    # --------------------------------------------------------------------------- inference

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the encoder over the neighbourhoods of ``view`` as a trained model."""
        encoder = self.encoder(view)
        embeddings = {self._node_type: encoder.query}
        return TrainedModel(name, "encoder", self._config.task, self._node_type, embeddings, encoder)

    def encoder(self, view: GraphView) -> SageEncoder:
        """Return the encoder as it is now, over the neighbourhoods of ``view``.

        It is the average over the last epochs as soon as there is one. Every node keeps one sample of at most
        ``num_neighbors`` neighbours for each relation, drawn with the seed; what is served has the same.
        """
        model, inputs = self._as_it_is()
        drawn = NeighborTables()
        query, target = encode_nodes(model, inputs, self._neighborhoods(view.with_reverse_edges()), drawn)
        return SageEncoder(
            model.cpu(),
            {name: table.sizes for name, table in self._features.items()},
            {name: table.cpu().numpy() for name, table in inputs.items()},
            drawn.tables(),
            query.cpu().numpy(),
            target.cpu().numpy(),
        )

    @torch.no_grad()
    def _as_it_is(self) -> tuple[TwoTowerSAGE, dict[str, Tensor]]:
        """Return the model in evaluation mode, and the input rows of all nodes by node type."""
        model = copy.deepcopy(self.network).eval()
        if self._average.count:
            model.load_state_dict(_with_prefix(self._average.mean, "model."))
            rows = _with_prefix(self._average.mean, "rows.")
        else:
            rows = {name: self._table_rows(name) for name in self._rows}
        inputs = {
            name: self._input_rows(model, name, torch.arange(len(table), device=self._device), table)
            for name, table in rows.items()
        }
        return model, inputs

    def _table_rows(self, node_type: str) -> Tensor:
        nodes = torch.arange(self._view.num_nodes(node_type), device=self._device)
        with torch.no_grad():
            rows: Tensor = self._rows[node_type](nodes)
        return rows

    # ----------------------------------------------------------------------------- details

    def _seeds(
        self, epoch: int, batch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the queries of a batch, their positives, and its candidates: these and the nodes drawn."""
        size = self._config.batch_size
        queries = self._order[batch * size : (batch + 1) * size]
        _, positive = self.epoch_positives.take(queries)
        drawn = self._candidates.draw(epoch, batch, self._threads)
        return queries, positive, np.unique(np.concatenate([positive, drawn]))

    def _log_probability(self, num_queries: int, nodes: NDArray[np.int64], *, are_positive: bool) -> Tensor:
        """Return how likely nodes are in the batch, for a query that they are positives of or not."""
        found = log_probability_in_batch(
            self._candidates.log_probability[torch.from_numpy(nodes)],
            self._queries_of[nodes] - are_positive,
            len(self._order) - 1,
            num_queries - 1,
        )
        return moved(found, self._device)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return tensor_on(array, self._device)

    def _draw(self, epoch: int, batch: int) -> _Drawn:
        queries, positive, candidates = self._seeds(epoch, batch)
        own = self._processes.slice_of(len(queries))
        some = candidates[self._processes.slice_of(len(candidates))]
        seeds, place = np.unique(np.concatenate([queries[own], some]), return_inverse=True)
        if self._around is None:
            self._around = self._neighborhoods(self.epoch_view)
        sample = self._around.draw(seeds, epoch + 1, batch)
        return _Drawn(queries[own], own, len(queries), len(positive), candidates, len(seeds), place, sample)

    def _neighborhoods(self, view: GraphView) -> Neighborhoods:
        """Return the neighbourhoods of a graph, whose lists take the room of those of the epoch."""
        self._around = None
        return Neighborhoods(
            view,
            self._node_type,
            self._relations,
            self._config.num_neighbors,
            seed=self._seed,
            memory=self._memory,
            threads=self._threads,
        )

    def _encode(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, Tensor]:
        """Return the vectors of the slices of queries and candidates over one sample of neighbourhoods."""
        sample = drawn.sample
        with self._clock.stage("fetch"):
            rows = {
                name: self._rows[name].train()(moved(nodes, self._device))
                for name, nodes in sample.nodes.items()
                if name in self._rows
            }
        inputs = {
            name: self._input_rows(self.network, name, sample.nodes[name], each)
            for name, each in rows.items()
        }
        around = moved(neighbor_blocks(sample, drawn.seeds), self._device)
        aggregated = self.network.aggregate(inputs, around)
        own = inputs[self._node_type]  # of the seeds, which come first, and of others
        asked = len(drawn.queries)
        queries, targets = self._tensor(drawn.place[:asked]), self._tensor(drawn.place[asked:])
        generator = np.random.default_rng([self._seed, epoch, batch, _DROPOUT_STREAM])
        keep = generator.random(drawn.num_queries)[drawn.of_queries] >= self._config.own_row_dropout
        query_vectors = self.network.query(
            own.index_select(0, queries) * self._tensor(keep.astype(np.float32))[:, None],
            [each.index_select(0, queries) for each in aggregated],
        )
        target_vectors = self.network.target(
            own.index_select(0, targets), [each.index_select(0, targets) for each in aggregated]
        )
        return query_vectors, target_vectors

    def _input_rows(self, model: TwoTowerSAGE, node_type: str, nodes: Tensor, rows: Tensor) -> Tensor:
        """Return the input rows of nodes from their rows of the table."""
        if node_type in self._base:
            rows = rows + self._base[node_type][moved(nodes, self._device)]
        features = self._features.get(node_type)
        if features is None:
            return rows
        if self._feature_rows is not None:
            codes, numbers = (self._feature_rows.rows((node_type, part), nodes) for part in _FEATURE_PARTS)
        else:
            on_host = nodes.cpu().numpy()
            codes, numbers = self._tensor(features.codes[on_host]), self._tensor(features.numbers[on_host])
        return model.input_rows(node_type, rows, codes, numbers)

    def _new_tables(self, node_types: Sequence[str], scale: float) -> dict[str, Table]:
        return self._memory.new_tables(
            {name: self._view.num_nodes(name) for name in node_types},
            self._config.dim,
            "rowwise_adagrad",
            self._config.table_learning_rate,
            seeds={name: self._seed + self._view.node_types.index(name) for name in node_types},
            init_scale=scale,
            threads=self._threads,
        )


def _relations(view: GraphView, node_type: str, chosen: Sequence[EdgeType]) -> list[EdgeType]:
    arriving = [edge_type for edge_type in view.edge_types if edge_type[2] == node_type]
    for edge_type in chosen:
        if edge_type not in arriving:
            raise UsageError(
                f"expected an edge type that arrives at {node_type}, received {edge_type_text(edge_type)}",
                where="relations",
                hint=f"there are {', '.join(map(edge_type_text, arriving)) or 'none'}",
            )
    return list(chosen) or arriving


def _features(view: GraphView, node_type: str, names: Sequence[str]) -> dict[str, NodeFeatures]:
    if not names:
        return {}
    columns = {name: (view.feature(node_type, name), view.features(node_type)[name]) for name in names}
    read = {name: (spec, values) for name, (values, spec) in columns.items()}
    return {node_type: NodeFeatures.build(read, view.num_nodes(node_type))}


def _keys(drawn: _Drawn) -> dict[str, NDArray[np.int64]]:
    """Return what a batch reads of tables that have rows on disk; it was drawn on the CPU then."""
    return {name: nodes.numpy() for name, nodes in drawn.sample.nodes.items()}


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def make_sage_trainer(config: SageConfig, assignment: Assignment) -> SageTrainer | PretrainedTrainer:
    """Return the trainer of a section of kind ``sage``, with skip-gram before it where it asks for that.

    With ``start_from`` rows are those of an earlier run, and nothing is learnt before.

    Raises:
        UsageError: the model has no task of kind recommend.
    """
    trainer = SageTrainer(config, assignment)
    if config.pretrain is None or config.start_from is not None:
        return trainer
    assignment.memory.release()  # the rows are there again when they start from what is learnt first
    first = make_metapath_trainer(
        assignment.view,
        config.pretrain,
        dim=config.dim,
        seed=assignment.seed,
        threads=assignment.threads,
        clock=assignment.clock,
        memory=assignment.memory,
        device=assignment.kernel_device,
    )
    return PretrainedTrainer(first, trainer)
