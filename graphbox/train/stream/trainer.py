"""Interface of the trainers of streams, between the loop and the kinds of models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphbox.errors import UsageError
from graphbox.train.stream.chunk import Chunk
from graphbox.train.trainer import Trainer


@dataclass(frozen=True, eq=False)
class ChunkScores:
    """Scores that a model gave a chunk before it learnt from it.

    Attributes:
        labels: bool [n], whether each is positive: rows with the label, or new edges beside drawn non-edges.
        scores: float [n], higher for positives; any scale that stays the same from chunk to chunk.
        groups: int64 [n], the group of each, such as the user, or None.
        ranks: float64 [m], of targets of new edges among a sample of candidates, see
            :func:`graphbox.train.stream.target_ranks.target_ranks`; None of models that do not rank.
    """

    labels: NDArray[np.bool_]
    scores: NDArray[np.floating]
    groups: NDArray[np.int64] | None = None
    ranks: NDArray[np.float64] | None = None


class StreamingTrainer(Trainer):
    """Trains one model chunk by chunk; made with the graph as it is after the last chunk that was committed.

    For each chunk, in this order: :meth:`score_chunk` (not for number 0), :meth:`open_chunk`,
    :meth:`train_batch` with ``epoch`` the number of the chunk for each batch from 0, :meth:`close_chunk`.

    What any of them does depends on the state (:meth:`dense` and :meth:`tables`), the chunk, and the number
    of the batch alone: a process that died goes on with a new trainer, made with a later graph, that has the
    last state restored; it may begin with ``score_chunk``, or with ``open_chunk`` and a batch in the middle.
    So nothing of the state may depend on the graph that the trainer is made with but the names and kinds of
    its types and features: numbers of nodes and of categories grow from chunk to chunk, and what grows with
    them belongs into tables. A stream has no split: the assignment has none, and the view hides nothing;
    what is to predict must not be read before it is scored.
    """

    @property
    def epochs(self) -> int:
        """Number of epochs over a whole graph, for those that learn from one as well."""
        return 0

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch over a whole graph, for those that learn from one as well."""
        raise UsageError(f"expected a stream to learn from, received epoch {epoch + 1} over a whole graph")

    @abstractmethod
    def score_chunk(self, chunk: Chunk) -> ChunkScores | None:
        """Return what the model as it is says of a chunk's rows or edges; None: nothing in it can be scored.

        Changes no state: rows that a table lacks are pulled with ``create=False``. An edge is scored without
        seeing it (``chunk.before()``), a row without its label.
        """

    @abstractmethod
    def open_chunk(self, chunk: Chunk) -> int:
        """Prepare to learn a chunk and return its number of batches, which may be 0. Changes no state."""

    def close_chunk(self, chunk: Chunk) -> Mapping[str, float]:  # noqa: ARG002 - for those that have figures
        """Do what is to be done once after the batches of a chunk; return figures to report."""
        return {}

    def keys_of(self, nodes: Mapping[str, NDArray[np.int64]]) -> Mapping[str, NDArray[np.int64]] | None:
        """Return the keys of the rows of nodes by table, so that they can be forgotten; None: it cannot tell.

        Args:
            nodes: indices by node type, which may be types that the model does not know.
        """
        rows = self.row_keys()
        return None if rows is None else {name: keys.of_all(nodes) for name, keys in rows.items()}

    def served_parameters(self) -> Mapping[str, Tensor]:
        """Return the parameters that serving needs besides the tables, by name."""
        return {}
