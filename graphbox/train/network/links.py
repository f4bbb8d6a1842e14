"""Trains a graph neural network to find links, of a recommend task, or to tell them, of a predict_links task.

Each epoch holds out training links of its own, by the rule by which the task holds out its test links, and
learns to find them in the graph without them: in no edge type, direction or parallel edge does a link reach
its own prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import GraphNetworkConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.errors import UsageError
from graphbox.graph.live_rows import LiveRows
from graphbox.metrics import RankingQueries
from graphbox.models.graph_network import LayerEdges
from graphbox.models.link_scorer import LinkScorer
from graphbox.sample import permutation, sample_heterogeneous
from graphbox.train.compressed import CompressedRows
from graphbox.train.links.evaluation import evaluate_pairs, inner_products
from graphbox.train.losses import info_nce, sigmoid
from graphbox.train.network.trained_network import LinkHead
from graphbox.train.network.trainer import NetworkTrainer
from graphbox.train.recommendation.candidates import CandidateColumns, Candidates, no_negatives
from graphbox.train.recommendation.held_out_links import HeldOutLinks
from graphbox.train.recommendation.queries import known_links, ranking_queries
from graphbox.train.recommendation.validation import validation_figures
from graphbox.train.registry import Assignment
from graphbox.train.scores import product_scores
from graphbox.train.splitting.predict_links import known_targets
from graphbox.train.tasks import Fold, LinkSplit, RecommendSplit
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import CPU, moved, tensor_on
from graphbox.train.view import GraphView

__all__ = ["GraphLinkTrainer"]

_HOLD_OUT_STREAM = 1
_VALIDATION_QUERIES = 4096
"""Queries of the validation part that are ranked for after some epochs, at most."""

_RECOMMEND_EXPONENT = 0.5

Nodes = dict[str, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Links of a batch and their negatives; in several processes with this process's slices.

    Attributes:
        num_links: how many the batch has in all processes.
        links: int64 [links, 2], source and target, of this process.
        sources: int64 [sources], the sources of the links, ascending.
        row: int64 [links], the source of each link.
        drawn: int64 [candidates], the negatives of the batch, ascending.
        some: int64, this process's slice of them.
        seeds: int64 by node type, the nodes whose vectors are needed, ascending.
    """

    num_links: int
    links: NDArray[np.int64]
    sources: NDArray[np.int64]
    row: NDArray[np.int64]
    drawn: NDArray[np.int64]
    some: NDArray[np.int64]
    seeds: Nodes


class GraphLinkTrainer(NetworkTrainer[_Drawn]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for.
        split: the split of its task.

    Raises:
        UsageError: the layer, its options, the relations or the features do not fit the graph; or that is to
            be read from disk.
        DataError: there are no links to learn from.
    """

    def __init__(
        self, config: GraphNetworkConfig, assignment: Assignment, split: RecommendSplit | LinkSplit
    ) -> None:
        if assignment.memory.graph_on_disk:
            raise UsageError(
                f"expected a task of kind classify for a graph on disk, received one of kind {split.KIND}, "
                "of which each epoch holds out other edges",
                where=f"models.{assignment.name}.task",
                hint="leave `memory.topology` and `memory.features` out",
            )
        self._split, self._task = split, assignment.task
        task = self._task
        ranks = isinstance(task, RecommendTaskConfig)
        self._k = task.k if isinstance(task, RecommendTaskConfig) else 0
        super().__init__(
            config,
            assignment,
            ends=tuple(dict.fromkeys((split.node_type, split.target_type))),
            metric=f"validation_ndcg@{self._k}" if ranks else "validation_average_precision",
            head=LinkHead(split.node_type, split.target_type, split.relations),
        )
        self._links_to_hold_out = HeldOutLinks(split)
        self._known = _known(assignment.view, split)
        self._degree = self._in_degree(split.known("train"))
        self._loss_name = config.links.loss or ("sampled_softmax" if ranks else "sigmoid")
        exponent = config.links.negative_exponent
        if exponent is None:
            exponent = _RECOMMEND_EXPONENT
            if isinstance(task, PredictLinksTaskConfig):
                exponent = float(task.negative_distribution == "degree")
        live = LiveRows.of_graph(assignment.view, split.target_type)
        self._candidates = Candidates(
            self._degree, live, config.links.negatives, exponent, assignment.seed, self._device
        )
        self._columns = CandidateColumns(len(self._degree))
        self._queries: RankingQueries | None = None
        self._epoch_degree = self._degree
        self._epoch_whole: LayerEdges | None = None
        self.epoch_graph = self._graph
        self.epoch_links = self._links_to_hold_out.edges

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Hold out this epoch's links, and return the number of batches of them."""
        generator = np.random.default_rng([self._seed, epoch, _HOLD_OUT_STREAM])
        pairs, edges = self._links_to_hold_out.hold_out(self._config.links.holdout_fraction, generator)
        self.epoch_graph = self._network_graph(self._view.without_pairs(self._split, pairs))
        rest = self._split.known("train")
        rest = rest[~np.isin(self._split.pair_keys(rest[:, 0], rest[:, 1]), pairs)]
        self._epoch_degree = self._in_degree(rest)
        self._epoch_whole = None
        self.epoch_links = edges[permutation(len(edges), self._seed, epoch)]
        return math.ceil(len(edges) / self._config.batch_size)

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the links of a batch, and the candidates drawn for it."""
        return {"links": self._links_of(batch), "candidates": self._drawn(epoch, batch)}

    def draw(self, epoch: int, batch: int) -> _Drawn:
        """Return the links of a batch, and the candidates drawn for all of them."""
        split, processes = self._split, self._processes
        every_link, drawn = self._links_of(batch), self._drawn(epoch, batch)
        links = every_link[processes.slice_of(len(every_link))]
        some = drawn[processes.slice_of(len(drawn))]
        sources, row = np.unique(links[:, 0], return_inverse=True)
        seeds = _seeds(split, sources, np.concatenate([links[:, 1], some]))
        return _Drawn(len(every_link), links, sources, row, drawn, some, seeds)

    def loss(self, drawn: _Drawn, epoch: int, batch: int) -> tuple[Tensor, int]:
        """Return the loss of a batch, or this process's share of it.

        Each process embeds a slice of the candidates, and all processes get their vectors.
        """
        split, processes = self._split, self._processes
        vectors = self._vectors(drawn.seeds, epoch, batch)
        source = self._head.sources(self._at(vectors, drawn.seeds, split.node_type, drawn.sources))
        answer = self._targets(vectors, drawn.seeds, drawn.links[:, 1])
        others = processes.gather_slices(
            "candidates", self._targets(vectors, drawn.seeds, drawn.some), len(drawn.drawn)
        )
        excluded = self._no_negatives(drawn.sources, drawn.drawn)
        place, offset = tensor_on(drawn.row, self._device), self._head.offset
        positive = (source[place] * answer).sum(dim=1) + offset
        negative = (source @ others.T + offset).masked_fill(excluded, -math.inf)
        if self._loss_name == "sampled_softmax":
            log_probability = self._candidates.log_probability[tensor_on(drawn.drawn, self._device)]
            loss = info_nce(positive, negative, place, log_probability=log_probability)
        else:
            counts = (~excluded).sum(dim=1).clamp(min=1).to(negative.dtype)
            of_negatives = functional.softplus(negative).sum(dim=1) / counts
            of_positives = sigmoid(positive, positive.new_zeros(len(drawn.links), 0))
            loss = of_positives + of_negatives[place].mean()
        return processes.share(loss, len(drawn.links), drawn.num_links), drawn.num_links

    # --------------------------------------------------------------------------- inference

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the vectors of sources and targets, whose inner products rank and tell links."""
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            sources, targets = self._towers(view, view.fold)
            network = self._kept()
        split = self._split
        return TrainedModel(
            name,
            "two_tower",
            self._config.task,
            split.node_type,
            {split.node_type: sources.cpu().numpy()},
            target_type=split.target_type,
            target=targets.cpu().numpy(),
            network=network,
        )

    def measured(self) -> dict[str, float]:
        """Return ranking or classification figures of the validation part."""
        sources, targets = self._towers(None, "train")
        if isinstance(self._split, LinkSplit) and isinstance(self._task, PredictLinksTaskConfig):
            score = inner_products(sources.cpu().numpy(), targets.cpu().numpy())
            report = evaluate_pairs(self._split, self._task, score, "validation")
            return {f"validation_{name}": float(report[name]) for name in ("average_precision", "auc")}
        return validation_figures(
            product_scores(sources, targets),
            self._validation_queries(),
            self._degree.astype(np.int64),
            k=self._k,
            threads=self._threads,
            processes=self._processes,
        )

    def _towers(self, view: GraphView | None, fold: Fold) -> tuple[Tensor, Tensor]:
        """Return the vectors of all sources and all targets, over a graph (None: as training sees it).

        They are where the network computes.
        """
        split = self._split
        view_or_own = self._graph.view if view is None else view
        ends = dict.fromkeys((split.node_type, split.target_type))
        nodes = {name: np.arange(view_or_own.num_nodes(name)) for name in ends}
        vectors = self._embedded(view, nodes)
        degree = tensor_on(self._in_degree(split.known(fold)), self._device)
        sources = self._head.sources(tensor_on(vectors[split.node_type], self._device))
        targets = self._head.targets(tensor_on(vectors[split.target_type], self._device), degree)
        return sources, targets

    # ----------------------------------------------------------------------------- details

    @property
    def _head(self) -> LinkScorer:
        head = self.network.head
        assert isinstance(head, LinkScorer)  # noqa: S101 - for the type checker
        return head

    def _vectors(self, seeds: Nodes, epoch: int, batch: int) -> dict[str, Tensor]:
        """Return the embeddings of seeds over the epoch's graph, in the order of each type's seeds."""
        clock, graph, layers = self._clock, self.epoch_graph, self._config.layers
        if self._config.num_neighbors is None:
            with clock.stage("sample"):
                if self._epoch_whole is None:
                    self._epoch_whole = moved(graph.whole(), self._device)
                edges = [self._epoch_whole] * layers
            with clock.stage("fetch"):
                inputs = self._all_inputs()
                rows = self._rows(inputs)
            with clock.stage("compute"):
                found = self.network(inputs, rows, edges)
                return {name: found[name][tensor_on(each, self._device)] for name, each in seeds.items()}
        with clock.stage("sample"):
            sampled = self._on_device(graph)
            place = CPU if sampled is None else self._device
            sample = sample_heterogeneous(
                graph.view if sampled is None else sampled,
                {name: tensor_on(each, place) for name, each in seeds.items()},
                {edge_type: list(self._config.num_neighbors) for edge_type in graph.edge_types},
                edge_attributes=graph.edge_attributes,
                seed=self._seed,
                epoch=epoch,
                batch=batch,
                num_threads=self._threads,
            )
            edges = graph.layers_of(moved(sample, self._device), layers)
        with clock.stage("fetch"):
            inputs = self._inputs(sample.nodes)
            rows = self._rows(inputs)
        with clock.stage("compute"):
            found = self.network(inputs, rows, edges)
            return {name: found[name][: len(each)] for name, each in seeds.items()}

    def _end_pass(self) -> None:
        if self._sampled is not None and self._sampled[1] is not None:
            self._sampled[1].end_pass()
        super()._end_pass()

    def _targets(self, vectors: dict[str, Tensor], seeds: Nodes, nodes: NDArray[np.int64]) -> Tensor:
        degree = tensor_on(self._epoch_degree[nodes], self._device)
        return self._head.targets(self._at(vectors, seeds, self._split.target_type, nodes), degree)

    def _at(
        self, vectors: dict[str, Tensor], seeds: Nodes, node_type: str, nodes: NDArray[np.int64]
    ) -> Tensor:
        """Return the vectors of nodes that are among the seeds."""
        return vectors[node_type][tensor_on(np.searchsorted(seeds[node_type], nodes), self._device)]

    def _links_of(self, batch: int) -> NDArray[np.int64]:
        size = self._config.batch_size
        return self.epoch_links[batch * size : (batch + 1) * size]

    def _drawn(self, epoch: int, batch: int) -> NDArray[np.int64]:
        return self._candidates.draw(epoch, batch, self._threads)

    def _no_negatives(self, sources: NDArray[np.int64], drawn: NDArray[np.int64]) -> Tensor:
        """Return which of the drawn candidates are no negatives of which sources: bool [sources, drawn]."""
        split = self._split
        groups = None
        if split.within_one_type:
            group = split.group if isinstance(split, RecommendSplit) else np.arange(len(self._degree))
            groups = group[sources], group[drawn]
        return no_negatives(
            (len(sources), len(drawn)),
            self._columns.among(drawn, *self._known.take(sources)),
            self._device,
            groups=groups,
        )

    def _in_degree(self, links: NDArray[np.int64]) -> NDArray[np.float32]:
        count = self._graph.view.num_nodes(self._split.target_type)
        return np.bincount(links[:, 1], minlength=count).astype(np.float32)

    def _validation_queries(self) -> RankingQueries:
        if self._queries is None:
            assert isinstance(self._split, RecommendSplit)  # noqa: S101 - for the type checker
            queries = ranking_queries(self._view, self._split, "validation")
            self._queries = queries.sample(_VALIDATION_QUERIES, self._seed)
        return self._queries


def _known(view: GraphView, split: RecommendSplit | LinkSplit) -> CompressedRows:
    """Return which candidates are no negatives of each source, because a known link joins them."""
    if isinstance(split, RecommendSplit):
        return known_links(view, split)
    edges = split.known("train")
    known = known_targets(edges, split.sources, split.targets, within_one_type=split.within_one_type)
    return CompressedRows(known.indptr.astype(np.int64), known.indices.astype(np.int64))


def _seeds(
    split: RecommendSplit | LinkSplit, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> Nodes:
    """Return the nodes of a batch by type, each once and ascending."""
    if split.within_one_type:
        return {split.node_type: np.unique(np.concatenate([sources, targets]))}
    return {split.node_type: np.unique(sources), split.target_type: np.unique(targets)}
