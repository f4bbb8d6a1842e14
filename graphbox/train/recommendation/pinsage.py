"""Trains PinSAGE (Ying et al., KDD 2018) for a recommend task.

"Graph Convolutional Neural Networks for Web-Scale Recommender Systems", arXiv 1806.01973.

The neighbours of a node are the nodes that walks with restarts from it visit most; their shares of the visits
weigh them in the pooling. Walks follow edges in both directions and take nodes of all types for one, as the
paper does with pins and boards: so queries and candidates of two types get their vectors by the same
convolutions, each type from rows and features of its own.

Each epoch holds out training links, walks over the graph without them and learns to find them: no walk of a
query passes the link it is to find. The loss is a max-margin loss over negatives that the batch shares and
hard negatives of each query: nodes that its own walks visit, but rarely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from graphbox.config import RecommendTaskConfig
from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import edge_type_text
from graphbox.models.graph_inputs import NodeBatch, NodeInputs, input_modules
from graphbox.models.node_keys import NodeKeys
from graphbox.sample import ppr_neighbors
from graphbox.table import Table, TableEmbedding
from graphbox.train.assignment import Assignment
from graphbox.train.batches_ahead import BatchesAhead
from graphbox.train.losses import hinge
from graphbox.train.network.learnt_names import feature_categories, feature_inputs
from graphbox.train.network.node_data import node_data
from graphbox.train.optimization import OptimizerSettings
from graphbox.train.recommendation.candidates import Candidates, Cells, columns_among, no_negatives
from graphbox.train.recommendation.held_out_links import HeldOutLinks
from graphbox.train.recommendation.queries import in_degree, known_links
from graphbox.train.recommendation.validation import TowerValidation
from graphbox.train.row_keys import RowKeys
from graphbox.train.seeded import seed_of, seeded
from graphbox.train.tasks import RecommendSplit
from graphbox.train.torch_trainer import START_STREAM, TorchTrainer
from graphbox.train.trained import TrainedModel
from graphbox.train.trainer import Selection
from graphbox.train.transfer import moved
from graphbox.train.view import GraphView
from graphbox.train.walks.one_type import OneTypeGraph, ends_of, followed_types, one_type_graph

if TYPE_CHECKING:
    from graphbox.kinds.pinsage import PinSageConfig

_ROW_SCALE = 0.5
_BLOCK_NODES = 8192
"""Nodes whose walks, or vectors, are computed together."""
_HOLD_OUT_STREAM, _HARD_STREAM = 1, 2


class Neighborhoods(NamedTuple):
    """The neighbours of n nodes and how important they are.

    Attributes:
        nodes: int [n, num_neighbors], keys or places of neighbours, the most important first; -1: none.
        weights: float32 [n, num_neighbors], shares of the visits, with a sum of 1; 0: no neighbour.
    """

    nodes: NDArray[Any]
    weights: NDArray[np.float32]


class ImportanceConvolution(nn.Module):
    """Convolution with importance pooling: algorithm 1 of the paper.

    Args:
        dim: length of vectors.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.message = _linear(dim, dim)
        self.update = _linear(2 * dim, dim)

    def forward(self, vectors: Tensor, neighbors: Tensor, weights: Tensor) -> Tensor:
        """Return the next vectors of the first m of n nodes: float32 [m, dim], of length 1 or 0.

        Args:
            vectors: float32 [n, dim].
            neighbors: int64 [m, num_neighbors], rows of ``vectors``.
            weights: float32 [m, num_neighbors], weight of each neighbour; 0: there is none.
        """
        own, messages = vectors[: len(neighbors)], functional.relu(self.message(vectors))
        offsets = torch.arange(0, neighbors.numel() + 1, neighbors.shape[1], device=neighbors.device)
        pooled = functional.embedding_bag(
            neighbors.flatten(),
            messages,
            offsets,
            mode="sum",
            per_sample_weights=weights.flatten(),
            include_last_offset=True,
        )
        return functional.normalize(functional.relu(self.update(torch.cat([own, pooled], dim=1))), dim=1)


class PinSage(nn.Module):
    """Inputs of each node type, convolutions, and two dense layers: algorithm 2 of the paper.

    Args:
        inputs: maps nodes of each type to vectors, by type.
        dim: length of vectors.
        layers: number of convolutions.
    """

    def __init__(self, inputs: nn.ModuleDict, dim: int, layers: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.convolutions = nn.ModuleList(ImportanceConvolution(dim) for _ in range(layers))
        self.output = nn.Sequential(_linear(dim, dim), nn.ReLU(), _linear(dim, dim, bias=False))

    def input_module(self, node_type: str) -> NodeInputs:
        """Return the inputs of a node type."""
        module = self.inputs[node_type]
        assert isinstance(module, NodeInputs)  # noqa: S101 - for the type checker
        return module

    def input_vectors(self, batch: Mapping[str, NodeBatch]) -> Tensor:
        """Return the vectors before the first convolution, type after type: float32 [n, dim]."""
        modules = {name: self.input_module(name) for name in batch}
        return torch.cat([modules[name](each, modules[name].fetch(each)) for name, each in batch.items()])

    def forward(self, vectors: Tensor, hops: tuple[tuple[Tensor, Tensor], ...]) -> Tensor:
        """Return the embeddings of seeds: float32 [seeds, dim].

        Args:
            vectors: float32 [n, dim], of all nodes within reach, in the order of the first hop.
            hops: for each convolution ``neighbors`` and ``weights`` of :class:`ImportanceConvolution`. Its
                nodes are the first ones of the convolution before it; those of the last are the seeds.
        """
        for convolution, (neighbors, weights) in zip(self.convolutions, hops, strict=True):
            vectors = convolution(vectors, neighbors, weights)
        embeddings: Tensor = self.output(vectors)
        return embeddings


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Return a map without a bias at the start, which would make all nodes alike where rows are small."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Links of a batch, their negatives and neighbourhoods; in several processes with slices of this process.

    Attributes:
        num_links: how many the batch has in all processes.
        num_negatives: shared negatives of all processes.
        nodes: int64 by node type, the nodes whose inputs are read.
        place: int64 [n], place of each node of the first hop among ``nodes``, type after type.
        hops: see :class:`PinSage`; places among the nodes of the hop before.
        row: int64 [links], the source of each link, as a row of ``sources``.
        sources: int64 [sources], places among the seeds.
        targets: int64 [links], the same.
        some: int64, the same of this process's slice of the shared negatives.
        hard: int64 [sources, hard negatives], the same.
        found: bool [sources, hard negatives], whether there is a hard negative.
        excluded: cells of shared negatives that a source is linked to.
        groups: groups of sources and of shared negatives; None: queries and candidates are of two types.
    """

    num_links: int
    num_negatives: int
    nodes: dict[str, Tensor]
    place: Tensor
    hops: tuple[tuple[Tensor, Tensor], ...]
    row: Tensor
    sources: Tensor
    targets: Tensor
    some: Tensor
    hard: Tensor
    found: Tensor
    excluded: Cells
    groups: tuple[NDArray[np.int64], NDArray[np.int64]] | None


class PinSageTrainer(TorchTrainer[_Drawn]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for, a task of kind ``recommend``.

    Raises:
        UsageError: the task is of another kind, or edge types, features or embeddings do not fit the graph.
        DataError: there are no links to learn from, or no edges to walk along.
    """

    def __init__(self, config: PinSageConfig, assignment: Assignment) -> None:
        split, task = assignment.split, assignment.task
        if not isinstance(split, RecommendSplit) or not isinstance(task, RecommendTaskConfig):
            raise assignment.wrong_task(config)
        super().__init__(
            assignment,
            OptimizerSettings.of(config),
            epochs=config.epochs,
            validate_every=config.validate_every,
            selection=Selection(f"validation_ndcg@{task.k}", config.patience),
        )
        self._config, self._split, self._view = config, split, assignment.view
        self._validation = TowerValidation(
            split, task, seed=self._seed, threads=self._threads, processes=self._processes
        )
        self._keys = NodeKeys({name: self._view.num_nodes(name) for name in self._visited_types()})
        self._data = node_data(
            self._view,
            list(self._keys.num_nodes),
            config.features,
            on_device=self._memory.features_on_device,
        )
        tables = self._new_tables()
        with seeded(self._seed, START_STREAM, device=self._device):
            sizes = {name: data.sizes for name, data in self._data.items()}
            inputs = input_modules(sizes, config.dim, self._memory.near(tables), 0.0, 0.0)
            self.network: PinSage = PinSage(inputs, config.dim, config.layers)
        self.set_network(self.network)
        self._batches = BatchesAhead(self._draw, self._rows_of, tables)
        self._links_to_hold_out = HeldOutLinks(split, self._memory)
        self._known = known_links(self._view, split)
        self._degree = in_degree(self._view, split)
        live = LiveRows.of_graph(self._view, split.target_type)
        self._candidates = Candidates(
            self._degree, live, config.negatives, config.negative_exponent, self._seed
        )
        self._place = np.zeros(self._keys.total, np.int64)  # of nodes among those of a hop
        self.epoch_links = self._links_to_hold_out.edges
        self.epoch_graph: OneTypeGraph | None = None
        self.epoch_neighborhoods: Neighborhoods | None = None

    # ---------------------------------------------------------------------------- training

    def places(self) -> Mapping[str, str]:
        """Return where neighbours are found, and where features are."""
        return {"sampling": "cpu: walks with restarts are made there", "features": self._data.place}

    def open_epoch(self, epoch: int) -> int:
        """Hold out this epoch's links, find neighbours without them, and return the number of batches."""
        self._batches.close()
        generator = np.random.default_rng([self._seed, epoch, _HOLD_OUT_STREAM])
        pairs, edges = self._links_to_hold_out.hold_out(self._config.holdout_fraction, generator)
        with self._clock.stage("sample"):
            self.epoch_graph = self._graph(self._view.without_pairs(self._split, pairs))
            self.epoch_neighborhoods = self._neighborhoods(self.epoch_graph, epoch + 1)
        self.epoch_links = self._links_to_hold_out.shuffled(edges, self._seed, epoch)
        return math.ceil(len(edges) / self._config.batch_size)

    def draw(self, epoch: int, batch: int) -> _Drawn:
        """Return this process's part of a batch of links, with the neighbourhoods of their nodes."""
        return self._batches.take(epoch, batch, self._num_batches)

    def loss(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the max-margin loss of a batch, or this process's share of it.

        A negative that may be none, because its query is linked to it, counts as one without loss. Each
        process embeds a slice of the shared negatives, and all processes get their vectors.
        """
        here = moved(drawn, self._device)
        with self._clock.stage("fetch"):
            inputs = moved(self._data.inputs(here.nodes), self._device)
        vectors = self.network(self.network.input_vectors(inputs)[here.place], here.hops)
        queries, found = vectors[here.sources], here.found
        others = self._processes.gather_slices("negatives", vectors[here.some], drawn.num_negatives)
        excluded = no_negatives(
            (len(queries), drawn.num_negatives), drawn.excluded, self._device, groups=drawn.groups
        )
        positive = (queries[here.row] * vectors[here.targets]).sum(dim=1)
        shared = (queries @ others.T).masked_fill(excluded, -torch.inf)
        hard = (queries[:, None] * vectors[here.hard]).sum(dim=2).masked_fill(~found, -torch.inf)
        loss = hinge(positive, torch.cat([shared, hard], dim=1)[here.row], self._config.margin)
        return self._processes.share(loss, len(positive), drawn.num_links), drawn.num_links

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the links of a batch, and the negatives that they share."""
        return {"links": self._links_of(batch), "negatives": self._negatives(epoch, batch)}

    def table_modules(self) -> dict[str, TableEmbedding]:
        """Return the rows of each node type that has a table."""
        modules = {name: self.network.input_module(name).rows for name in self._data}
        return {name: rows for name, rows in modules.items() if rows is not None}

    def row_keys(self) -> dict[str, RowKeys]:
        """Return the keys of the table of each node type that has one."""
        return {name: RowKeys.of_nodes({name: 0}) for name in self.table_modules()}

    def inputs(self) -> dict[str, list[str]]:
        """Return the features of each node type."""
        return feature_inputs({name: data.learnt for name, data in self._data.items()})

    def weight_categories(self) -> dict[str, list[str]]:
        """Return categories and values of slots, which rows of weights belong to."""
        return feature_categories({name: data.learnt for name, data in self._data.items()})

    def set_tables(self, tables: Mapping[str, Table]) -> None:
        """Look rows up in other tables."""
        for name, table in tables.items():
            self.network.input_module(name).set_table(table)
        self._batches = BatchesAhead(self._draw, self._rows_of, self.tables())

    def close(self) -> None:
        """End the reading of rows ahead."""
        self._batches.close()

    def epoch_ends(self, epoch: int) -> None:  # noqa: ARG002 - each epoch alike
        """End a pass over a device's memory."""
        self._data.end_pass()

    # --------------------------------------------------------------------------- inference

    def measured(self) -> dict[str, float]:
        """Return recall and ndcg on the validation part."""
        return self._validation.figures(self._view, self._degree, *self._vectors(self._view))

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the vectors of queries and candidates over the neighbourhoods of ``view``."""
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            queries, targets = self._vectors(view)
        ends = (self._split.node_type, self._split.target_type)
        return TrainedModel.of_towers(name, self._config.task, ends, queries, targets)

    def _vectors(self, view: GraphView) -> tuple[Tensor, Tensor]:
        """Return the vectors of all queries and all candidates, of which each layer computes each once."""
        around = self._neighborhoods(self._graph(view), 0)
        vectors = torch.cat(
            [
                self.network.input_vectors(moved({name: data.take(nodes)}, self._device))
                for name, data in self._data.items()
                for nodes in _blocks(self._keys.num_nodes[name])
            ]
        )
        hop = (
            torch.from_numpy(np.maximum(around.nodes, 0).astype(np.int64)),
            torch.from_numpy(around.weights),
        )
        found = self.network(vectors, (moved(hop, self._device),) * self._config.layers)
        queries, targets = (
            found[self._keys.start(name) :][: self._keys.num_nodes[name]]
            for name in (self._split.node_type, self._split.target_type)
        )
        return queries, targets

    # ----------------------------------------------------------------------------- details

    def _visited_types(self) -> tuple[str, ...]:
        """Return the node types at the ends of the edge types that walks follow.

        Raises:
            UsageError: an edge type is not there, or none touches the queries or the candidates.
        """
        followed = followed_types(self._view, self._config.edge_types)
        types = ends_of(followed)
        for name in (self._split.node_type, self._split.target_type):
            if name not in types:
                raise UsageError(
                    f"expected edge types that touch {name}, which the task is about, received "
                    f"{', '.join(map(edge_type_text, followed)) or 'none'}",
                    where="edge_types",
                )
        return types

    def _graph(self, view: GraphView) -> OneTypeGraph:
        return one_type_graph(view, self._config.edge_types, weighted=False, keys=self._keys)

    def _neighborhoods(self, graph: OneTypeGraph, epoch: int) -> Neighborhoods:
        """Return the neighbours of all nodes by their keys, walked to in blocks."""
        shape = (self._keys.total, self._config.num_neighbors)
        nodes, weights = np.empty(shape, np.int32), np.empty(shape, np.float32)
        for number, some in enumerate(each.numpy() for each in _blocks(len(nodes))):
            visited, visits = self._walk(graph, some, shape[1], self._seed, epoch, number)
            nodes[some] = visited
            weights[some] = visits / np.maximum(visits.sum(axis=1, keepdims=True), 1)
        return Neighborhoods(nodes, weights)

    def _walk(
        self, graph: OneTypeGraph, keys: NDArray[np.int64], count: int, seed: int, epoch: int, batch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return ppr_neighbors(
            graph,
            keys,
            count,
            num_walks=self._config.walks_per_node,
            walk_length=self._config.walk_length,
            restart_probability=self._config.restart_probability,
            seed=seed,
            epoch=epoch,
            batch=batch,
            num_threads=self._threads,
        )

    def _draw(self, epoch: int, batch: int) -> _Drawn:
        split, keys = self._split, self._keys
        every_link, negatives = self._links_of(batch), self._negatives(epoch, batch)
        links = every_link[self._processes.slice_of(len(every_link))]
        some = negatives[self._processes.slice_of(len(negatives))]
        sources, row = np.unique(links[:, 0], return_inverse=True)
        every_source = np.unique(every_link[:, 0])  # whose walks depend on no slice
        hard = self._hard_negatives(every_source, epoch, batch)[np.searchsorted(every_source, sources)]
        groups = (split.group[sources], split.group[negatives]) if split.within_one_type else None
        wanted = [
            keys.of(split.node_type, sources),
            *(keys.of(split.target_type, each) for each in (links[:, 1], some, np.maximum(hard, 0).ravel())),
        ]
        seeds, place = np.unique(np.concatenate(wanted), return_inverse=True)
        of_each = np.split(place, np.cumsum([len(each) for each in wanted])[:-1])
        of_sources, of_targets, of_some, of_hard = (torch.from_numpy(each) for each in of_each)
        nodes, in_order, hops = self._around(seeds)
        return _Drawn(
            len(every_link),
            len(negatives),
            nodes,
            in_order,
            hops,
            torch.from_numpy(row),
            of_sources,
            of_targets,
            of_some,
            of_hard.view(hard.shape),
            torch.from_numpy(hard >= 0),
            columns_among(negatives, *self._known.take(sources)),
            groups,
        )

    def _around(
        self, seeds: NDArray[np.int64]
    ) -> tuple[dict[str, Tensor], Tensor, tuple[tuple[Tensor, Tensor], ...]]:
        """Return the nodes within reach of seeds, by type, their order, and the hops to the seeds."""
        assert self.epoch_neighborhoods is not None  # noqa: S101 - for the type checker
        reached, hops = seeds, []
        for _ in range(self._config.layers):
            around = self.epoch_neighborhoods.nodes[reached].astype(np.int64)
            weights = self.epoch_neighborhoods.weights[reached]
            present = around >= 0
            everything = np.concatenate([reached, np.setdiff1d(around[present], reached)])
            place = np.zeros(around.shape, np.int64)
            self._place[everything] = np.arange(len(everything))
            place[present] = self._place[around[present]]
            hops.append((torch.from_numpy(place), torch.from_numpy(weights)))
            reached = everything
        order = np.argsort(reached)  # keys ascend type after type
        in_order = np.empty_like(order)
        in_order[order] = np.arange(len(order))
        ascending = reached[order]
        nodes = {}
        for name, count in self._keys.num_nodes.items():
            first = self._keys.start(name)
            start, stop = np.searchsorted(ascending, [first, first + count])
            nodes[name] = torch.from_numpy(ascending[start:stop] - first)
        return nodes, torch.from_numpy(in_order), tuple(reversed(hops))

    def _hard_negatives(self, sources: NDArray[np.int64], epoch: int, batch: int) -> NDArray[np.int64]:
        """Return candidates that are somewhat near to each source: int64 [sources, hard negatives], -1: none.

        They are drawn from the candidates among the visited nodes of the ranks that the section names; those
        that the source is linked to, or that are of its group, are none.
        """
        assert self.epoch_graph is not None  # noqa: S101 - for the type checker
        config, split, keys = self._config, self._split, self._keys
        count = min(epoch, config.hard_negatives)
        first, last = config.hard_negative_ranks
        count = min(count, last - first + 1)
        if not count:
            return np.zeros((len(sources), 0), np.int64)
        of_sources = keys.of(split.node_type, sources)
        seed = seed_of(self._seed, _HARD_STREAM)
        visited, _ = self._walk(self.epoch_graph, of_sources, last, seed, epoch, batch)
        nodes = visited[:, first - 1 :] - keys.start(split.target_type)
        possible = (visited[:, first - 1 :] >= 0) & (nodes >= 0) & (nodes < len(self._degree))
        row, column = np.nonzero(possible)
        linked_row, linked = self._known.take(sources)
        cells = row * len(self._degree) + nodes[row, column]
        possible[row, column] = ~np.isin(cells, linked_row * len(self._degree) + linked)
        if split.within_one_type:
            own = split.group[sources][:, None]
            possible &= split.group[np.where(possible, nodes, 0)] != own
        generator = np.random.default_rng([self._seed, epoch, batch, _HARD_STREAM])
        drawn = np.where(possible, generator.random(possible.shape), 2.0)
        chosen = np.argpartition(drawn, count - 1, axis=1)[:, :count]
        is_found = np.take_along_axis(possible, chosen, axis=1)
        return np.where(is_found, np.take_along_axis(nodes, chosen, axis=1), -1)

    def _links_of(self, batch: int) -> NDArray[np.int64]:
        size = self._config.batch_size
        return self.epoch_links[batch * size : (batch + 1) * size]

    def _negatives(self, epoch: int, batch: int) -> NDArray[np.int64]:
        return self._candidates.draw(epoch, batch, self._threads)

    def _rows_of(self, drawn: _Drawn) -> dict[str, NDArray[np.int64]]:
        """Return what a batch reads of each table."""
        return {name: drawn.nodes[name].numpy() for name in self.table_modules()}

    def _new_tables(self) -> dict[str, Table]:
        chosen = self._keys.num_nodes if self._config.embeddings is None else self._config.embeddings
        for name in chosen:
            if name not in self._keys.num_nodes:
                raise UsageError(
                    f"there is no node type `{name}` at an end of the edge types that walks follow",
                    where="embeddings",
                    hint=did_you_mean(name, self._keys.num_nodes)
                    or f"there are: {', '.join(self._keys.num_nodes)}",
                )
        return self._memory.new_tables(
            {name: count for name, count in self._keys.num_nodes.items() if name in chosen},
            self._config.dim,
            "rowwise_adagrad",
            self._config.table_learning_rate,
            seeds={name: self._seed + number for number, name in enumerate(self._keys.num_nodes)},
            init_scale=_ROW_SCALE,
            threads=self._threads,
        )


def _blocks(count: int) -> list[Tensor]:
    """Return the numbers below ``count``, in blocks."""
    return [torch.arange(first, min(first + _BLOCK_NODES, count)) for first in range(0, count, _BLOCK_NODES)]
