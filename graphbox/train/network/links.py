"""Trains a graph neural network to find links, of a recommend task, or to tell them, of a predict_links task.

Each epoch holds out training links of its own, by the rule by which the task holds out its test links, and
learns to find them in the graph without them: in no edge type, direction or parallel edge does a link reach
its own prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import GraphNetworkConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.graph_network import LayerEdges
from graphbox.models.link_scorer import LinkScorer
from graphbox.sample import Batch
from graphbox.sample.loader.assemble import as_torch
from graphbox.sample.sampled import HeteroSample
from graphbox.table import EmbeddingTable
from graphbox.train.assignment import Assignment
from graphbox.train.loader_batches import LoaderBatches
from graphbox.train.losses import info_nce, sigmoid
from graphbox.train.network.link_batches import LinkBatch, LinkDraws, LinkLoader
from graphbox.train.network.trained_network import LinkHead
from graphbox.train.network.trainer import NetworkTrainer
from graphbox.train.recommendation.candidates import Candidates, no_negatives
from graphbox.train.recommendation.held_out_links import HeldOutLinks
from graphbox.train.recommendation.known_links import KNOWN_LINKS_SHARE, known_links_of
from graphbox.train.recommendation.validation import TowerValidation
from graphbox.train.tasks import Fold, LinkSplit, RecommendSplit
from graphbox.train.tasks.recommend import blocks_of
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import moved, tensor_on
from graphbox.train.view import GraphView

_HOLD_OUT_STREAM = 1
_BLOCK_LINKS = 1 << 20
"""Links that are looked at together."""
_RECOMMEND_EXPONENT = 0.5


class GraphLinkTrainer(NetworkTrainer[Batch[Tensor]]):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for.
        split: the split of its task.

    Raises:
        UsageError: the layer, its options, the relations or the features do not fit the graph.
        DataError: there are no links to learn from.
    """

    _config: GraphNetworkConfig

    def __init__(
        self, config: GraphNetworkConfig, assignment: Assignment, split: RecommendSplit | LinkSplit
    ) -> None:
        task = assignment.task
        assert isinstance(task, RecommendTaskConfig | PredictLinksTaskConfig)  # noqa: S101 - as the split is
        ranks = isinstance(task, RecommendTaskConfig)
        self._split = split
        self._validation = TowerValidation(
            split,
            task,
            seed=assignment.seed,
            threads=assignment.threads,
            processes=assignment.processes,
        )
        super().__init__(
            config,
            assignment,
            ends=tuple(dict.fromkeys((split.node_type, split.target_type))),
            metric=self._validation.metric,
            head=LinkHead(split.node_type, split.target_type, split.relations),
        )
        self._links_to_hold_out = HeldOutLinks(split, self._memory)
        self._degree = self._in_degree(split.known_blocks("train", _BLOCK_LINKS))
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
        self.draws = LinkDraws(
            split,
            self._candidates,
            known_links_of(assignment.view, split, self._memory),
            _groups(split) if split.within_one_type else None,
            self._processes,
            self._threads,
        )
        self._epoch_degree = tensor_on(self._degree, self._device)
        self._epoch_whole: LayerEdges | None = None
        self._epoch_tiers: TieredGraph | None = None
        self._batches: LoaderBatches | None = None
        self.epoch_graph = self._graph
        self.epoch_links = self._links_to_hold_out.edges

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Hold out this epoch's links, and return the number of batches of them."""
        generator = np.random.default_rng([self._seed, epoch, _HOLD_OUT_STREAM])
        pairs, edges = self._links_to_hold_out.hold_out(self._config.links.holdout_fraction, generator)
        self._open_epoch_graph(self._view.without_pairs(self._split, pairs))
        self._epoch_degree = tensor_on(
            self._degree - self._in_degree(blocks_of(edges, _BLOCK_LINKS)), self._device
        )
        self.epoch_links = self._links_to_hold_out.shuffled(edges, self._seed, epoch)
        return math.ceil(len(edges) / self._config.batch_size)

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the links of a batch, and the candidates drawn for it."""
        links = self._links_of(batch)
        return {"links": links, "candidates": self._candidates.draw(epoch, batch, self._threads)}

    def set_tables(self, tables: Mapping[str, EmbeddingTable]) -> None:
        """Look rows up in other tables, in which the loader reads ahead."""
        super().set_tables(tables)
        self.close()
        self._batches = None

    def epoch_ends(self, epoch: int) -> None:
        """End a pass over a device's memory, and leave the loader, whose graph has the memory of the next."""
        super().epoch_ends(epoch)
        self.close()
        self._batches = None

    def close(self) -> None:
        """End the threads that make batches ahead."""
        if self._batches is not None:
            self._batches.close()

    def draw(self, epoch: int, batch: int) -> Batch[Tensor]:
        """Return the links and candidates of a batch, and, unless all of the graph is used, a sample."""
        if self._config.num_neighbors is None:
            drawn, seeds = self.draws.draw(self._links_of(batch), epoch, batch)
            return as_torch(Batch(epoch, batch, _seeds_alone(seeds), {}, drawn))
        if self._batches is None:
            self._batches = LoaderBatches(self._new_loader())
        made: Batch[Tensor] = self._batches.take(epoch, batch)
        return made

    def loss(self, drawn: Batch[Tensor], epoch: int, batch: int) -> tuple[Tensor, int]:  # noqa: ARG002
        """Return the loss of a batch, or this process's share of it.

        Each process embeds a slice of the candidates, and all processes get their vectors.
        """
        split, processes = self._split, self._processes
        links: LinkBatch[Tensor] = moved(drawn.seeds, self._device)
        vectors = self._vectors(drawn)
        source = self._head.sources(vectors[split.node_type][links.source_place])
        targets = vectors[split.target_type]
        answer = self._targets(targets[links.answer_place], links.answers)
        some = self._targets(targets[links.candidate_place], links.candidates)
        others = processes.gather_slices("candidates", some, len(links.drawn))
        excluded = no_negatives(
            (len(source), len(links.drawn)),
            (links.excluded_row, links.excluded_column),
            self._device,
            groups=None
            if links.source_group is None or links.drawn_group is None
            else (links.source_group, links.drawn_group),
        )
        place, offset = links.row, self._head.offset
        positive = (source[place] * answer).sum(dim=1) + offset
        negative = (source @ others.T + offset).masked_fill(excluded, -math.inf)
        if self._loss_name == "sampled_softmax":
            log_probability = self._candidates.log_probability[links.drawn]
            loss = info_nce(positive, negative, place, log_probability=log_probability)
        else:
            counts = (~excluded).sum(dim=1).clamp(min=1).to(negative.dtype)
            of_negatives = functional.softplus(negative).sum(dim=1) / counts
            of_positives = sigmoid(positive, positive.new_zeros(len(place), 0))
            loss = of_positives + of_negatives[place].mean()
        return processes.share(loss, len(place), links.num_links), links.num_links

    # --------------------------------------------------------------------------- inference

    def trained(self, name: str, view: GraphView) -> TrainedModel:
        """Return the vectors of sources and targets, whose inner products rank and tell links."""
        self.network.eval()
        with self._optimization.averaged(), torch.no_grad():
            sources, targets = self._towers(view, view.fold)
            network = self._kept()
        ends = (self._split.node_type, self._split.target_type)
        return TrainedModel.of_towers(name, self._config.task, ends, sources, targets, network)

    def measured(self) -> dict[str, float]:
        """Return ranking or classification figures of the validation part."""
        sources, targets = self._towers(None, "train")
        return self._validation.figures(self._view, self._degree.astype(np.int64), sources, targets)

    def _towers(self, view: GraphView | None, fold: Fold) -> tuple[Tensor, Tensor]:
        """Return the vectors of all sources and all targets, over a graph (None: as training sees it).

        They are where the network computes.
        """
        split = self._split
        view_or_own = self._graph.view if view is None else view
        ends = dict.fromkeys((split.node_type, split.target_type))
        nodes = {name: np.arange(view_or_own.num_nodes(name)) for name in ends}
        vectors = self._embedded(view, nodes)
        degree = self._in_degree(split.known_blocks(fold, _BLOCK_LINKS))
        width = self._config.dim + 1
        sources = self._block_by_block(self._head.sources, width, vectors[split.node_type])
        targets = self._block_by_block(self._head.targets, width, vectors[split.target_type], degree)
        return sources, targets

    # ----------------------------------------------------------------------------- details

    @property
    def _head(self) -> LinkScorer:
        head = self.network.head
        assert isinstance(head, LinkScorer)  # noqa: S101 - for the type checker
        return head

    def _vectors(self, drawn: Batch[Tensor]) -> dict[str, Tensor]:
        """Return the embeddings of a batch's seeds over the epoch's graph, by type, in their order."""
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
                return {
                    name: found[name][moved(each, self._device)] for name, each in drawn.sample.nodes.items()
                }
        with clock.stage("sample"):
            edges = graph.layers_of(moved(drawn.sample, self._device), layers)
        with clock.stage("fetch"):
            inputs = self._inputs(drawn.sample.nodes, drawn.features)
            rows = self._rows(inputs)
        with clock.stage("compute"):
            found = self.network(inputs, rows, edges)
            return {name: found[name] for name in {self._split.node_type, self._split.target_type}}

    def _end_pass(self) -> None:
        if self._sampled is not None and self._sampled[1] is not None:
            self._sampled[1].end_pass()
        super()._end_pass()

    @property
    def _fetches_ahead(self) -> bool:
        if self._config.num_neighbors is None or self._epoch_tiers is not None:
            return False
        return self._on_device(self.epoch_graph) is not None

    def _open_epoch_graph(self, view: GraphView) -> None:
        """Train on a graph from now on."""
        self.close()
        self._batches = self._epoch_whole = None
        self.epoch_graph = self._training_graph(view)
        seen = self.epoch_graph.view
        if self._tiered is not None and isinstance(seen, GraphView):
            budget = self._memory.topology_bytes(1.0 - KNOWN_LINKS_SHARE)
            self._epoch_tiers = seen.tiered_edges(self._tiered, budget)

    def _new_loader(self) -> LinkLoader:
        on_device = self._on_device(self.epoch_graph, self._epoch_tiers)
        return LinkLoader(
            on_device or self._epoch_tiers or self.epoch_graph.view,
            dict.fromkeys(self.epoch_graph.edge_types, self._config.num_neighbors or ()),
            self.epoch_links,
            self._config.batch_size,
            self.draws,
            **self._loader_options(self._epoch_tiers, on_device, shuffle=False),
        )

    def _targets(self, vectors: Tensor, nodes: Tensor) -> Tensor:
        return self._head.targets(vectors, self._epoch_degree[nodes])

    def _links_of(self, batch: int) -> NDArray[np.int64]:
        size = self._config.batch_size
        return self.epoch_links[batch * size : (batch + 1) * size]

    def _in_degree(self, blocks: Iterable[NDArray[np.int64]]) -> NDArray[np.float32]:
        """Return the links of each target: float32 [targets]; blocks of links are int64 [n, 2]."""
        count = self._graph.view.num_nodes(self._split.target_type)
        degree = np.zeros(count, np.int64)
        for links in blocks:
            degree += np.bincount(links[:, 1], minlength=count)
        return degree.astype(np.float32)


def _groups(split: RecommendSplit | LinkSplit) -> NDArray[np.int64]:
    """Return the group of each node, of whose own nodes none is a negative."""
    return split.group if isinstance(split, RecommendSplit) else np.arange(split.sources)


def _seeds_alone(seeds: Mapping[str, NDArray[np.int64]]) -> HeteroSample[Any]:
    """Return a sample of seeds without neighbours."""
    return HeteroSample(
        nodes=dict(seeds),
        row={},
        col={},
        edge_ids={},
        num_sampled_nodes={name: [len(each)] for name, each in seeds.items()},
        num_sampled_edges={},
    )
