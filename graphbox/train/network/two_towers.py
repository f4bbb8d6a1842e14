"""Trains two towers over features and ids to find the links of a recommend task.

Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", RecSys 2019. The
negatives of a batch are the answers of its links, each once, so that a query is never contrasted with an
answer of its own. From every logit, that of the answer too, the logarithm of the probability is subtracted
that a batch has the candidate (log-Q): frequent ones are in more batches, and would be pushed down for it.
The paper estimates that probability from a stream; here all links are known, so it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn import functional

from graphbox.config import RecommendTaskConfig, TwoTowerConfig
from graphbox.errors import UsageError
from graphbox.train.assignment import Assignment
from graphbox.train.network.link_batches import LinkBatch
from graphbox.train.network.link_trainer import LinkTrainer
from graphbox.train.recommendation.candidates import log_probability_in_batch
from graphbox.train.shared_softmax import shared_log_sum
from graphbox.train.tasks import RecommendSplit


class TwoTowerTrainer(LinkTrainer):
    """See the module.

    Args:
        config: the model's section of the run file.
        assignment: what it is trained for.
        split: the split of its task.

    Raises:
        UsageError: features or embeddings do not fit the graph, or a tower would have no input.
        DataError: there are no links to learn from.
    """

    _config: TwoTowerConfig

    def __init__(self, config: TwoTowerConfig, assignment: Assignment, split: RecommendSplit) -> None:
        super().__init__(
            config,
            assignment,
            split,
            negatives=config.negatives,
            exponent=config.negative_exponent,
            in_batch=True,
        )
        self._log_probabilities: dict[int, Tensor] = {}
        for name in self._ends:
            refusal = config.input_refusal(name, not self._data[name].sizes.is_empty, config.embeddings)
            if refusal is not None:
                message, hint = refusal
                raise UsageError(message, where=f"models.{assignment.name}", hint=hint)

    def open_epoch(self, epoch: int) -> int:
        """Shuffle the links and return the number of batches."""
        self._open_epoch_graph(self._view)
        self.epoch_links = self._links.shuffled(self._links.edges, self._seed, epoch)
        return math.ceil(len(self.epoch_links) / self._config.batch_size)

    def log_probability(self, num_links: int) -> Tensor:
        """Return how likely a batch of so many links has each candidate: float32 [candidates], logarithms.

        It does when it is drawn, or when it is the answer of one of the links, which are taken from all
        without replacement.
        """
        if num_links not in self._log_probabilities:  # of all batches but the last one they are the same
            links = self._links.edges
            answers = np.bincount(links[:, 1], minlength=len(self._degree)).astype(np.int64)
            drawn = self._candidates.log_probability.cpu()
            found = log_probability_in_batch(drawn, answers, len(links), num_links)
            self._log_probabilities[num_links] = found.to(self._device)
        return self._log_probabilities[num_links]

    def _types_with_rows(self) -> Sequence[str]:
        return self._ends if self._config.embeddings is None else self._config.embeddings

    def _loss_of(
        self, positive: Tensor, sources: Tensor, candidates: Tensor, links: LinkBatch[Tensor]
    ) -> Tensor:
        """See :meth:`LinkTrainer._loss_of`: the softmax over the batch, corrected for its sampling."""
        log_probability = self.log_probability(links.num_links)
        cells = (links.excluded_row, links.excluded_column)
        excluded = cells if links.source_group is None else self._excluded(links)
        against = shared_log_sum(sources, candidates, excluded, log_probability[links.drawn])
        return functional.softplus(against[links.row] - positive + log_probability[links.answers]).mean()


def make_two_tower_trainer(config: TwoTowerConfig, assignment: Assignment) -> TwoTowerTrainer:
    """Return the trainer of a section of kind ``two_tower``.

    Raises:
        UsageError: the model has no task of kind recommend.
    """
    split = assignment.split
    if not isinstance(split, RecommendSplit) or not isinstance(assignment.task, RecommendTaskConfig):
        raise assignment.wrong_task(config)
    return TwoTowerTrainer(config, assignment, split)
