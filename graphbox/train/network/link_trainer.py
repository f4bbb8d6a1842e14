"""Trains networks of nodes by batches of links: what is common to those over edges and to two towers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config import NetworkConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.models.link_scorer import LinkScorer
from graphbox.sample import Batch
from graphbox.table import Table
from graphbox.train.assignment import Assignment
from graphbox.train.loader_batches import LoaderBatches
from graphbox.train.network.link_batches import LinkBatch, LinkDraws, LinkLoader
from graphbox.train.network.trained_network import LinkHead
from graphbox.train.network.trainer import NetworkTrainer
from graphbox.train.recommendation.candidates import Candidates, no_negatives
from graphbox.train.recommendation.held_out_links import HeldOutLinks
from graphbox.train.recommendation.known_links import KNOWN_LINKS_SHARE, known_links_of
from graphbox.train.recommendation.validation import TowerValidation
from graphbox.train.tasks import Fold, LinkSplit, RecommendSplit
from graphbox.train.trained import TrainedModel
from graphbox.train.transfer import moved, tensor_on
from graphbox.train.view import GraphView

BLOCK_LINKS = 1 << 20
"""Links that are looked at together."""


class LinkTrainer(NetworkTrainer[Batch[Tensor]]):
    """A network whose batches are links and candidates that their sources share.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for.
        split: the split of its task.
        negatives: candidates drawn for each batch.
        exponent: they are drawn by in-degree to this power.
        in_batch: whether the targets of a batch's links are candidates as well.

    Attributes:
        epoch_links: int64 [n, 2], the links that an epoch learns, in its order.

    Raises:
        UsageError: the layer, its options, the relations or the features do not fit the graph.
        DataError: there are no links to learn from.
    """

    def __init__(
        self,
        config: NetworkConfig,
        assignment: Assignment,
        split: RecommendSplit | LinkSplit,
        *,
        negatives: int,
        exponent: float,
        in_batch: bool = False,
    ) -> None:
        task = assignment.task
        assert isinstance(task, RecommendTaskConfig | PredictLinksTaskConfig)  # noqa: S101 - as the split is
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
        self._links = HeldOutLinks(split, self._memory)
        self._degree = self._in_degree(split.known_blocks("train", BLOCK_LINKS))
        live = LiveRows.of_graph(assignment.view, split.target_type)
        self._candidates = Candidates(self._degree, live, negatives, exponent, assignment.seed, self._device)
        self.draws = LinkDraws(
            split,
            self._candidates,
            known_links_of(assignment.view, split, self._memory),
            _groups(split) if split.within_one_type else None,
            self._processes,
            self._threads,
            in_batch=in_batch,
        )
        self._epoch_degree = tensor_on(self._degree, self._device)
        self._epoch_tiers: TieredGraph | None = None
        self._batches: LoaderBatches | None = None
        self.epoch_graph = self._graph
        self.epoch_links = self._links.edges

    @abstractmethod
    def _loss_of(
        self, positive: Tensor, sources: Tensor, candidates: Tensor, links: LinkBatch[Tensor]
    ) -> Tensor:
        """Return the loss of the links of a batch, their mean.

        Args:
            positive: float32 [links], the logit of each.
            sources: float32 [sources, width].
            candidates: float32 [candidates, width]; which are no negatives, :meth:`_excluded` says.
            links: of the batch, where the logits are.
        """

    # ---------------------------------------------------------------------------- training

    def batch_arrays(self, epoch: int, batch: int) -> dict[str, NDArray[Any]]:
        """Return the links of a batch, and the candidates that their sources share."""
        links = self._links_of(batch)
        return {"links": links, "candidates": self.draws.candidates(links, epoch, batch)}

    def set_tables(self, tables: Mapping[str, Table]) -> None:
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
        """Return the links and candidates of a batch, and a sample around them."""
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
        positive = (source[links.row] * answer).sum(dim=1)
        loss = self._loss_of(positive, source, others, links)
        return processes.share(loss, len(links.row), links.num_links), links.num_links

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
        degree = self._in_degree(split.known_blocks(fold, BLOCK_LINKS))
        width = self._head.width
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
        clock = self._clock
        with clock.stage("sample"):
            edges = self.epoch_graph.layers_of(moved(drawn.sample, self._device), self._config.layers)
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
        self._batches = None
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

    def _excluded(self, links: LinkBatch[Tensor]) -> Tensor:
        """Return which candidates are no negatives of a source: bool [sources, candidates]."""
        return no_negatives(
            (len(links.source_place), len(links.drawn)),
            (links.excluded_row, links.excluded_column),
            self._device,
            groups=None
            if links.source_group is None or links.drawn_group is None
            else (links.source_group, links.drawn_group),
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
