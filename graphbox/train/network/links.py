"""Trains a graph neural network to find links, of a recommend task, or to tell them, of a predict_links task.

Each epoch holds out training links of its own, by the rule by which the task holds out its test links, and
learns to find them in the graph without them: in no edge type, direction or parallel edge does a link reach
its own prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphbox.config import GraphNetworkConfig, PredictLinksTaskConfig, RecommendTaskConfig
from graphbox.models.graph_network import LayerEdges
from graphbox.sample import Batch
from graphbox.sample.loader.assemble import as_torch
from graphbox.sample.sampled import HeteroSample
from graphbox.train.assignment import Assignment
from graphbox.train.losses import info_nce, sigmoid
from graphbox.train.network.link_batches import LinkBatch
from graphbox.train.network.link_trainer import BLOCK_LINKS, LinkTrainer
from graphbox.train.tasks import LinkSplit, RecommendSplit
from graphbox.train.tasks.recommend import blocks_of
from graphbox.train.transfer import moved, tensor_on

_HOLD_OUT_STREAM = 1
_RECOMMEND_EXPONENT = 0.5


class GraphLinkTrainer(LinkTrainer):
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
        task, exponent = assignment.task, config.links.negative_exponent
        if exponent is None:
            exponent = _RECOMMEND_EXPONENT
            if isinstance(task, PredictLinksTaskConfig):
                exponent = float(task.negative_distribution == "degree")
        super().__init__(config, assignment, split, negatives=config.links.negatives, exponent=exponent)
        ranks = isinstance(task, RecommendTaskConfig)
        self._loss_name = config.links.loss or ("sampled_softmax" if ranks else "sigmoid")
        self._epoch_whole: LayerEdges | None = None

    # ---------------------------------------------------------------------------- training

    def open_epoch(self, epoch: int) -> int:
        """Hold out this epoch's links, and return the number of batches of them."""
        generator = np.random.default_rng([self._seed, epoch, _HOLD_OUT_STREAM])
        pairs, edges = self._links.hold_out(self._config.links.holdout_fraction, generator)
        self._epoch_whole = None
        self._open_epoch_graph(self._view.without_pairs(self._split, pairs))
        self._epoch_degree = tensor_on(
            self._degree - self._in_degree(blocks_of(edges, BLOCK_LINKS)), self._device
        )
        self.epoch_links = self._links.shuffled(edges, self._seed, epoch)
        return math.ceil(len(edges) / self._config.batch_size)

    def draw(self, epoch: int, batch: int) -> Batch[Tensor]:
        """Return the links and candidates of a batch, and, unless all of the graph is used, a sample."""
        if self._config.num_neighbors is not None:
            return super().draw(epoch, batch)
        drawn, seeds = self.draws.draw(self._links_of(batch), epoch, batch)
        return as_torch(Batch(epoch, batch, _seeds_alone(seeds), {}, drawn))

    # ----------------------------------------------------------------------------- details

    def _loss_of(
        self, positive: Tensor, sources: Tensor, candidates: Tensor, links: LinkBatch[Tensor]
    ) -> Tensor:
        """See :meth:`LinkTrainer._loss_of`: the loss that the section names."""
        place, offset = links.row, self._head.offset
        assert offset is not None  # noqa: S101 - logits have the popularity of targets
        negative = (sources @ candidates.T).masked_fill(self._excluded(links), -math.inf) + offset
        positive = positive + offset
        if self._loss_name == "sampled_softmax":
            log_probability = self._candidates.log_probability[links.drawn]
            return info_nce(positive, negative, place, log_probability=log_probability)
        counts = negative.isfinite().sum(dim=1).clamp(min=1).to(negative.dtype)
        of_negatives = functional.softplus(negative).sum(dim=1) / counts
        of_positives = sigmoid(positive, positive.new_zeros(len(place), 0))
        return of_positives + of_negatives[place].mean()

    def _vectors(self, drawn: Batch[Tensor]) -> dict[str, Tensor]:
        """See :meth:`LinkTrainer._vectors`; without a sample they are taken from those of all nodes."""
        if self._config.num_neighbors is not None:
            return super()._vectors(drawn)
        clock = self._clock
        with clock.stage("sample"):
            if self._epoch_whole is None:
                self._epoch_whole = moved(self.epoch_graph.whole(), self._device)
            edges = [self._epoch_whole] * self._config.layers
        with clock.stage("fetch"):
            inputs = self._all_inputs()
            rows = self._rows(inputs)
        with clock.stage("compute"):
            found = self.network(inputs, rows, edges)
            return {name: found[name][moved(each, self._device)] for name, each in drawn.sample.nodes.items()}


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
