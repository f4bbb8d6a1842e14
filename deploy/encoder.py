"""A model version ready to answer: original ids in, embeddings and nearest neighbours out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, Ids, LookupForm, PaddedBlockForm
from graphbox.artifact.ids import Id
from graphbox.deploy.cancellation import check_cancelled
from graphbox.deploy.fastest import Choice
from graphbox.deploy.feeds import PaddedBlockFeeds
from graphbox.deploy.model import DeployedModel, Operation
from graphbox.deploy.ranking import ExactRanking
from graphbox.deploy.unseen import UnseenFeeds, UnseenNode, UnseenReader
from graphbox.errors import (
    DoesNotFitError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    did_you_mean,
)

__all__ = ["DeployedEncoder"]


# As fast per query as larger chunks, whose memory grows with them.
_CHUNK_QUERIES = 256
_CHUNK_BYTES = 64 << 20
"""Most memory of the neighbours' vectors that are gathered at once for several queries."""
_QUERY_BYTES = 512 << 20
"""Most memory of those for one query."""


class DeployedEncoder(DeployedModel):
    """Original ids in, embeddings and nearest neighbours out."""

    OPERATIONS = ("encode", "neighbors", "program")

    def __init__(
        self,
        artifact: Artifact,
        form: LookupForm | PaddedBlockForm,
        main: Choice | None,
        ranking: Choice,
    ) -> None:
        super().__init__(artifact, main, ranking)
        self._form = form
        self._ranking_program = ranking.program
        self._feeds = PaddedBlockFeeds(artifact, form) if isinstance(form, PaddedBlockForm) else None
        if isinstance(form, PaddedBlockForm) and main is not None:
            main.program.bound_positions(form.row_counts)
        self._rankings: dict[str, ExactRanking] = {}
        self._lock = threading.Lock()

    @property
    def query_types(self) -> tuple[str, ...]:
        """The node types whose ids can be asked for; the first is the default."""
        return tuple(dict.fromkeys((self._form.node_type, *self._form.query_types)))

    def target_type(self, node_type: str | None = None) -> str:
        """Return the node type of the neighbours that queries of ``node_type`` get."""
        return self.manifest.tables[self.manifest.targets[self._query_type(node_type)].table].node_type

    def id_index(self, node_type: str | None = None) -> Ids:
        """Return all original ids of a node type, to look up, to list by prefix, to suggest from."""
        return self.artifact.ids(node_type or self._form.node_type)

    def index(self, ids: Sequence[Id], node_type: str | None = None) -> npt.NDArray[np.int64]:
        """Return the node index of each original id, int64 [n].

        Raises:
            NotFoundError: naming the ids that are not there.
        """
        return self.id_index(node_type).index(ids)

    def ids(self, index: npt.ArrayLike, node_type: str | None = None) -> list[Id]:
        """Return the original id of each node index."""
        return self.id_index(node_type).take(index)

    def encode(self, ids: Sequence[Id], node_type: str | None = None) -> npt.NDArray[np.float32]:
        """Return the embeddings of original ids, float32 [n, dim].

        Args:
            ids: any number of them, repeats allowed.
            node_type: of the ids; one of `query_types`.

        Raises:
            NotFoundError: naming the ids, or the node type, that are not there.
        """
        query_type = self._query_type(node_type)
        return self.encode_indices(self.index(ids, query_type), query_type)

    def encode_indices(
        self, indices: npt.NDArray[np.int64], node_type: str | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the embeddings of node indices (int64 [n]), float32 [n, dim].

        Raises:
            InvalidRequestError: when an index is out of range.
        """
        query_type = self._query_type(node_type)
        if isinstance(self._form, LookupForm):
            return self.artifact.table(self._form.tables[query_type]).rows(indices)
        self._check_range(indices, query_type)
        return self._computed(indices)[self.outputs[0].name]

    def classify(self, ids: Sequence[Id]) -> tuple[list[str], npt.NDArray[np.float32]]:
        """Return the likeliest class of each original id, and its probability float32 [n].

        Raises:
            NotFoundError: naming the ids that are not there.
            UnsupportedError: the model does not classify nodes.
        """
        _, probability = self.classify_indices(self.index(ids))
        names = [self.classes[number] for number in probability.argmax(axis=1)]
        return names, probability.max(axis=1, initial=0.0)

    def classify_indices(
        self, indices: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return embeddings float32 [n, dim] and probabilities of `classes` float32 [n, classes] of nodes.

        Raises:
            InvalidRequestError: an index is out of range.
            UnsupportedError: the model does not classify nodes.
        """
        self._check_classifies()
        self._check_range(indices, self._form.node_type)
        found = self._computed(indices)
        return found[self.outputs[0].name], found[self.outputs[1].name]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that nodes of the default type are given; none where it gives none."""
        return self._form.classes if isinstance(self._form, PaddedBlockForm) else ()

    def encode_unseen(self, nodes: Sequence[UnseenNode]) -> npt.NDArray[np.float32]:
        """Return the embeddings of nodes that the model was never given, float32 [n, dim].

        They are what training would have made of a node with these features and neighbours, whose neighbours
        know nothing of it. It enters without a row of a table.

        Args:
            nodes: of the default node type; their neighbours are nodes of the model.

        Raises:
            InvalidRequestError: a feature or relation is not what the model reads; it is named.
            NotFoundError: a neighbour is no node of the model.
            UnsupportedError: the model encodes the nodes of its graph alone.
        """
        return self._computed_unseen(nodes)[self.outputs[0].name]

    def classify_unseen(
        self, nodes: Sequence[UnseenNode]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return embeddings float32 [n, dim] and probabilities of `classes` float32 [n, classes] of nodes.

        Raises:
            See `encode_unseen` and `classify`.
        """
        self._check_classifies()
        found = self._computed_unseen(nodes)
        return found[self.outputs[0].name], found[self.outputs[1].name]

    @cached_property
    def unseen_reader(self) -> UnseenReader:
        """Reader of nodes that the model was never given.

        Raises:
            UnsupportedError: the model encodes the nodes of its graph alone.
        """
        if not isinstance(self._form, PaddedBlockForm):
            raise UnsupportedError(
                "expected an encoder, this model looks stored vectors up", where=str(self.artifact.path)
            )
        return UnseenReader(self.artifact, self._form)

    def _computed_unseen(self, nodes: Sequence[UnseenNode]) -> dict[str, npt.NDArray[np.float32]]:
        unseen = self.unseen_reader.read(nodes)
        count = len(self.id_index())
        return self._computed(np.arange(count, count + len(nodes)), unseen)

    def _check_classifies(self) -> None:
        if not self.classes:
            raise UnsupportedError(
                "expected an encoder that classifies nodes, this model has no classes",
                where=str(self.artifact.path),
            )

    def _computed(
        self, indices: npt.NDArray[np.int64], unseen: UnseenFeeds | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Return the outputs of the ONNX part for nodes, chunk by chunk, whose memory is bounded."""
        if len(indices) <= _CHUNK_QUERIES:
            return self._computed_at_once(indices, unseen)
        # Written into place: the memory of many small arrays would stay with the allocator.
        found: dict[str, npt.NDArray[np.float32]] = {}
        for start in range(0, len(indices), _CHUNK_QUERIES):
            part = self._computed_at_once(indices[start : start + _CHUNK_QUERIES], unseen)
            for name, values in part.items():
                if not start:
                    found[name] = np.empty((len(indices), values.shape[1]), np.float32)
                found[name][start : start + len(values)] = values
        return found

    def _computed_at_once(
        self, indices: npt.NDArray[np.int64], unseen: UnseenFeeds | None
    ) -> dict[str, npt.NDArray[np.float32]]:
        if self._feeds is None:
            raise self._no_onnx()
        check_cancelled()
        try:
            most_bytes = _CHUNK_BYTES if len(indices) > 1 else _QUERY_BYTES
            feeds = self._feeds.build(indices, most_bytes, unseen)
        except DoesNotFitError:
            if len(indices) <= 1:
                raise
            halves = [self._computed_at_once(part, unseen) for part in np.array_split(indices, 2)]
            return {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
        shapes = [(len(indices), self.manifest.dim), (len(indices), len(self.classes))]
        names = [tensor.name for tensor in self.outputs]
        wanted = shapes if self.classes else shapes[:1]
        return dict(zip(names, self._run_built(feeds, *wanted), strict=False))

    def feeds(self, indices: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return the feeds of the bare ONNX part for node indices (int64 [n]) of the first query type.

        Raises:
            InvalidRequestError: an index is out of range.
            UnsupportedError: the model has no ONNX part.
            DoesNotFitError: their neighbours take too much memory at once.
        """
        if self._feeds is None:
            raise self._no_onnx()
        self._check_range(indices, self._form.node_type)
        return self._feeds.build(indices, _QUERY_BYTES)

    def _check_range(self, indices: npt.NDArray[np.int64], node_type: str) -> None:
        count = len(self.id_index(node_type))
        if len(indices) and (indices.min() < 0 or indices.max() >= count):
            raise InvalidRequestError(
                f"expected node indices in [0, {count}), received {indices.min()} to {indices.max()}"
            )

    def neighbors(
        self, ids: Sequence[Id], k: int, exclude_self: bool = True, node_type: str | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the ``k`` best rows of the target table for each id, best first.

        Args:
            ids: original ids of the queries.
            k: from 1 to the number of candidates.
            exclude_self: leave the query out where it is of the targets' node type.
            node_type: of the ids; one of `query_types`.

        Returns:
            Node indices (of `target_type`) int64 [n, k] and scores float32 [n, k].

        Raises:
            NotFoundError: naming the ids that are not there.
            InvalidRequestError: when ``k`` is out of range.
        """
        query_type = self._query_type(node_type)
        return self.neighbors_of_indices(self.index(ids, query_type), k, exclude_self, query_type)

    def neighbors_of_indices(
        self, indices: npt.NDArray[np.int64], k: int, exclude_self: bool = True, node_type: str | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the same as `neighbors` for node indices, int64 [n]."""
        query_type = self._query_type(node_type)
        ranking = self._ranking(query_type)
        exclude = indices if exclude_self and self.target_type(query_type) == query_type else None
        candidates = len(ranking) - (exclude is not None)
        if not 1 <= k <= candidates:
            raise InvalidRequestError(f"expected k from 1 to {candidates}, received {k}")
        return ranking.top(self.encode_indices(indices, query_type), k, exclude)

    def warm_up(self) -> None:
        """Do now what the first request would wait for: read ids and rows, run once."""
        for query_type in self.query_types:
            ids = self.id_index(query_type)
            if len(ids) > 1 and query_type in self.manifest.targets:
                self.neighbors([ids[0]], 1, node_type=query_type)
            else:
                self.encode([ids[index] for index in range(min(1, len(ids)))], query_type)

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        super().close()
        self._rankings.clear()

    @property
    def num_queries(self) -> int:
        """How many nodes of the default type there are."""
        return len(self.id_index())

    def calls(self, operation: Operation, pool: npt.NDArray[np.int64], k: int) -> Callable[[int], object]:
        """Return a function that answers the i-th of a pool of nodes; see `DeployedModel.calls`."""
        if operation == "encode":
            return lambda number: self.encode_indices(pool[number % len(pool)])
        if operation == "neighbors":
            return lambda number: self.neighbors_of_indices(pool[number % len(pool)], k)
        feeds = [self.feeds(indices) for indices in pool]
        return lambda number: self.run(feeds[number % len(feeds)])

    def _query_type(self, node_type: str | None) -> str:
        known = self._form.query_types
        if node_type is None:
            return self._form.node_type
        if node_type not in known:
            raise NotFoundError(
                f"expected a query of one of the node types {list(known)}, received `{node_type}`",
                hint=did_you_mean(node_type, known),
            )
        return node_type

    def _ranking(self, query_type: str) -> ExactRanking:
        target = self.manifest.targets.get(query_type)
        if target is None:
            raise UnsupportedError(
                f"expected a table to rank for queries of type `{query_type}`, this model has none"
            )
        with self._lock:
            if query_type not in self._rankings:
                self._rankings[query_type] = ExactRanking(
                    self.artifact.table(target.table), target.score, self._ranking_program
                )
            return self._rankings[query_type]
