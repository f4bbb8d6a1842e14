"""A model version ready to answer: original ids in, embeddings and nearest neighbours out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, Ids, LookupForm, PaddedBlockForm
from graphbox.artifact.ids import Id
from graphbox.deploy.cancellation import check_cancelled
from graphbox.deploy.fastest import Choice
from graphbox.deploy.feeds import PaddedBlockFeeds
from graphbox.deploy.lookup_counter import LookupCounter
from graphbox.deploy.model import DeployedModel, Operation
from graphbox.deploy.nearest.nodes import NearestMode, NearestNodes
from graphbox.deploy.nearest.signatures import nearest_signatures
from graphbox.deploy.protocol import DTYPE_OF, Feeds
from graphbox.deploy.signature import (
    UNSEEN_SUFFIX,
    WHOLE,
    Outputs,
    Parameters,
    Signature,
    by_name,
    node_indices,
)
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
    """Original ids in, embeddings and nearest neighbours out.

    Attributes:
        lookups: counts the rows of `encode` and `encode_known`; a server sets its own, which outlives the
            open model.
        nearest: ranks nodes for vectors, with filters.
    """

    OPERATIONS = ("encode", "neighbors", "program")

    def __init__(
        self,
        artifact: Artifact,
        form: LookupForm | PaddedBlockForm,
        main: Choice | None,
        ranking: Choice,
        nearest: NearestMode = "exact",
    ) -> None:
        super().__init__(artifact, main, ranking)
        self._form = form
        self._feeds = PaddedBlockFeeds(artifact, form) if isinstance(form, PaddedBlockForm) else None
        if isinstance(form, PaddedBlockForm) and main is not None:
            main.program.bound_positions(form.row_counts)
        self._default_rows = {name: artifact.default_row(name) for name in form.query_types}
        self._output_names = tuple(each.name for each in self.manifest.outputs)
        self._widths = (self.manifest.dim, len(self.classes)) if self.classes else (self.manifest.dim,)
        self._onnx_names = tuple(each.name for each in self.outputs[: len(self._widths)])
        self.lookups = LookupCounter()
        self.nearest = NearestNodes(artifact, ranking.program, self.encode_indices, nearest)
        self.effective["nearest"] = self.nearest.states

    def _use_rows(self) -> None:
        if self._feeds is not None:
            self._feeds = self._feeds.with_rows(self.artifact)
        reader = self.__dict__.get("unseen_reader")
        if reader is not None:
            self.__dict__["unseen_reader"] = reader.with_rows(self.artifact)
        self.nearest = self.nearest.with_rows(self.artifact)

    def _form_signatures(self) -> dict[str, Signature]:
        """Return the signature of original ids, and that of unseen nodes where the model encodes these.

        Ids, BYTES or INT64 [n], are of the node type that the parameter ``node_type`` names, by default the
        first; outputs are embeddings FP32 [n, dim] and, of a model that classifies nodes, probabilities FP32
        [n, classes], of one with default rows whether each id is known, BOOL [n]. Of unseen nodes see
        `graphbox.deploy.unseen.UnseenReader.inputs`.
        """
        outputs = by_name(self.manifest.outputs)
        labels = {self._output_names[1]: self.classes} if self.classes else {}
        signatures = {
            WHOLE: Signature(
                platform="graphbox",
                inputs=by_name(self.manifest.inputs),
                outputs=outputs,
                answer=self._answer_ids,
                work=lambda inputs: len(next(iter(inputs.values()))),
                parameters=frozenset({"node_type"}),
                joinable=self._has_independent_rows,
                labels=labels,
            )
        }
        if self.encodes_unseen and self.unseen_reader.inputs:
            signatures[UNSEEN_SUFFIX] = Signature(
                platform="graphbox",
                inputs=self.unseen_reader.inputs,
                outputs=outputs,
                answer=self._answer_unseen,
                work=lambda inputs: sum(len(array) for array in inputs.values()),
                lists=self.unseen_reader.lists,
                joinable=self._has_independent_rows,
                labels=labels,
            )
        signatures |= nearest_signatures(
            self.artifact, self.nearest, self.encode_indices, joinable=self._has_independent_rows
        )
        return signatures

    def _answer_ids(self, inputs: Feeds, parameters: Parameters) -> Outputs:
        node_type = parameters.get("node_type")
        if node_type is not None and node_type not in self.query_types:
            raise InvalidRequestError(
                f"expected one of the node types {', '.join(self.query_types)}, received {node_type!r:.64}",
                where="parameters.node_type",
            )
        ((name, tensor),) = inputs.items()
        if not len(tensor):
            return {
                each.name: np.empty((0, *each.shape[1:]), DTYPE_OF[each.datatype])
                for each in self.manifest.outputs
            }
        query_type = self._query_type(node_type)
        ids = self.id_index(query_type)
        if self.classes:
            return self._outputs(self._computed(node_indices(tensor, ids, name)))
        indices = node_indices(tensor, ids, name, self._missing(query_type))
        # `known` is an output of models that declare a default row.
        return dict(zip(self._output_names, self._vectors_known(indices, query_type), strict=False))

    def _answer_unseen(self, inputs: Feeds, parameters: Parameters) -> Outputs:  # noqa: ARG002
        return self._outputs(self._computed_unseen(self.unseen_reader.read_tensors(inputs)))

    def _outputs(self, computed: dict[str, npt.NDArray[np.float32]]) -> Outputs:
        """Return what the ONNX part computed under the names of the model's outputs."""
        return dict(zip(self._output_names, computed.values(), strict=False))

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
            NotFoundError: naming the node type that is not there, or the ids, unless the model has a default
                row for unknown ids.
        """
        return self.encode_known(ids, node_type)[0]

    def encode_known(
        self, ids: Sequence[Id], node_type: str | None = None
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Return the embeddings of original ids, float32 [n, dim], and whether each id is known, bool [n].

        An unknown id has the default row that the model declares (`graphbox.artifact.LookupForm`).

        Raises:
            See `encode`.
        """
        query_type = self._query_type(node_type)
        indices = self.id_index(query_type).index(ids, self._missing(query_type))
        return self._vectors_known(indices, query_type)

    def _missing(self, query_type: str) -> Literal["raise", -1]:
        """Return the treatment of unknown ids: refused, or answered by the default row."""
        return "raise" if self._default_rows.get(query_type) is None else -1

    def _vectors_known(
        self, indices: npt.NDArray[np.int64], query_type: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Return the embeddings of node indices that ids were found at, and whether each was (else -1)."""
        known = indices >= 0
        if isinstance(self._form, LookupForm):
            table = self.artifact.table(self._form.tables[query_type])
            vectors = table.rows(indices, default_row=self._default_rows.get(query_type))
        else:
            vectors = self._computed(indices)[self._onnx_names[0]]
        self.lookups.add(len(known), len(known) - int(np.count_nonzero(known)))
        return vectors, known

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

        Where nodes can have several classes `classify_indices` has the probabilities of all.

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
        return self._computed_unseen(self.unseen_reader.read(nodes))[self.outputs[0].name]

    def classify_unseen(
        self, nodes: Sequence[UnseenNode]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return embeddings float32 [n, dim] and probabilities of `classes` float32 [n, classes] of nodes.

        Raises:
            See `encode_unseen` and `classify`.
        """
        self._check_classifies()
        found = self._computed_unseen(self.unseen_reader.read(nodes))
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

    def unseen_example(self) -> UnseenNode:
        """Return a node that `encode_unseen` accepts; see `UnseenReader.example`.

        Raises:
            UnsupportedError: the model encodes the nodes of its graph alone.
        """
        reader = self.unseen_reader
        return reader.example(self._feeds.lists if self._feeds is not None else {})

    @property
    def encodes_unseen(self) -> bool:
        """Whether `encode_unseen` answers."""
        return isinstance(self._form, PaddedBlockForm) and self._form.unseen is not None

    def neighbors_of_unseen(
        self,
        nodes: Sequence[UnseenNode],
        vectors: npt.NDArray[np.float32],
        k: int,
        exclude_given: bool = False,
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Return the ``k`` best rows of the target table for each node, best first.

        Args:
            nodes: those that were encoded.
            vectors: their embeddings, float32 [n, dim], finite, of `encode_unseen`.
            k: at least 1; a node has fewer neighbours where fewer rows are left.
            exclude_given: leave out the neighbours that the node was given with, as for recommendations.

        Returns:
            For each node its neighbours' indices (of `target_type`) int64 [k] and scores float32 [k].

        Raises:
            InvalidRequestError: ``k`` is not positive.
            NotFoundError: a neighbour is no node of the model.
            UnsupportedError: the model encodes the nodes of its graph alone, or ranks nothing.
        """
        query_type = self._form.node_type
        filters = None
        if exclude_given:
            given = self.unseen_reader.neighbors_of_type(nodes, self.target_type())
            filters = [self.nearest.row_filter(query_type, denied=each) for each in given]
        return self.nearest.nearest(vectors, k, query_type, filters)

    def _computed_unseen(self, unseen: UnseenFeeds) -> dict[str, npt.NDArray[np.float32]]:
        count = len(self.id_index())
        found = self._computed(np.arange(count, count + len(unseen.rows)), unseen)
        for values in found.values():
            if not np.isfinite(values).all():
                row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
                raise InvalidRequestError(
                    "expected features and weights from which the model computes numbers, it returned others",
                    where=f"node {row}",
                )
        return found

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
        if not len(indices):  # of nothing ONNX Runtime's recurrent layers abort the process
            return {
                name: np.empty((0, width), np.float32)
                for name, width in zip(self._onnx_names, self._widths, strict=True)
            }
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
        shapes = [(len(indices), width) for width in self._widths]
        return dict(zip(self._onnx_names, self._run_built(feeds, *shapes), strict=True))

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
        ranking = self.nearest.ranking(query_type)
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
        self.nearest.close()  # its threads run programs
        super().close()

    @property
    def num_queries(self) -> int:
        """Number of nodes of the default type."""
        return len(self.id_index())

    def calls(self, operation: Operation, pool: npt.NDArray[np.int64], k: int) -> Callable[[int], object]:
        """Return a function that answers the i-th of a pool of nodes; see `DeployedModel.calls`."""
        if operation == "encode":
            return lambda number: self.encode_indices(pool[number % len(pool)])
        if operation == "neighbors":
            return lambda number: self.neighbors_of_indices(pool[number % len(pool)], k)
        feeds = [self.program_feeds(indices) for indices in pool]
        return lambda number: self.run(feeds[number % len(feeds)])

    def program_feeds(self, queries: npt.NDArray[np.int64]) -> Feeds:
        """Return the feeds of nodes; see `DeployedModel.program_feeds`."""
        return self.feeds(queries)

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
