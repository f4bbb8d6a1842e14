"""Nearest nodes of an encoder: for each node type that can be asked for, the rows that are ranked."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, Ids, TargetSpec
from graphbox.artifact.ids import Id
from graphbox.artifact.updated_rows import UpdatedTable
from graphbox.deploy.nearest.background import Background
from graphbox.deploy.nearest.exact import ExactRanking, Float32, Found, Int64
from graphbox.deploy.nearest.graph_index import BuildStoppedError, faiss_library
from graphbox.deploy.nearest.recall import RecallCounter
from graphbox.deploy.nearest.row_filter import ALL_ROWS, RowFilter
from graphbox.deploy.nearest.rows import EXACT_ROWS, NearestRows, Tuned, tuned
from graphbox.deploy.nearest.several_vectors import RankedRows, SeveralVectors
from graphbox.deploy.nearest.stored_index import stored_index
from graphbox.deploy.nearest.updated_rows import UpdatedNearestRows
from graphbox.deploy.program import CheckedProgram
from graphbox.errors import BackendMissingError, GraphboxError, InvalidRequestError, UnsupportedError

__all__ = ["NearestMode", "NearestNodes"]

NearestMode: TypeAlias = Literal["auto", "exact", "index"]
"""``exact``: no index. ``auto``: an index of tables of more than `EXACT_ROWS` rows where faiss is installed.
``index``: an index of every table; opening fails without faiss."""

logger = logging.getLogger("graphbox.deploy")

_NONE = np.empty(0, np.int64)
_MOST_SAMPLES = 200
_LEAST_SAMPLES = 50
# Products of one sample query with one row, of all of them: 1 s.
_SAMPLED_PRODUCTS = 100_000_000


class NearestNodes:
    """Ranks nodes for vectors of queries. Safe to use from several threads.

    Args:
        artifact: the model version.
        program: `graphbox.deploy.nearest.exact.RANKING_MODEL`, compiled.
        encode: returns the embeddings of node indices (int64 [n]) of a query type, float32 [n, dim].
        mode: see `NearestMode`.

    Attributes:
        recall: counts sampled answers of indexes; a server sets its own, which outlives the open model.
        states: by node type of queries that were asked for, what ranks: ``exact``, ``index``, or ``building``
            while exact ranking answers until the index is ready.

    Raises:
        BackendMissingError: mode is ``index`` and faiss is not installed.
    """

    def __init__(
        self,
        artifact: Artifact,
        program: CheckedProgram,
        encode: Callable[[Int64, str], Float32],
        mode: NearestMode,
    ) -> None:
        self._artifact = artifact
        self._program = program
        self._encode = encode
        self._mode = mode
        self.recall = RecallCounter()
        self.states: dict[str, str] = {}
        self._background = Background()
        self._lock = threading.Lock()
        self._exact: dict[TargetSpec, ExactRanking] = {}
        self._rankings: dict[str, NearestRows] = {}
        self._original: NearestNodes | None = None
        self._updated: dict[str, UpdatedNearestRows] = {}
        if mode == "index":
            faiss_library()

    def with_rows(self, artifact: Artifact) -> NearestNodes:
        """Return the same for the model version with row updates; rows that none has changed are shared.

        It is not closed, and is of use until the original is.
        """
        view = copy.copy(self)
        view._artifact = artifact
        view._original = self
        view._updated = {}
        for query_type in list(self._rankings):
            view.ranking(query_type)  # now, and not in a request
        return view

    def ranking(self, query_type: str) -> RankedRows:
        """Return the rows that are ranked for queries of a node type; starts to build their index.

        Raises:
            UnsupportedError: the model ranks nothing for them.
        """
        found = self._ranking(query_type)
        vectors = self._artifact.manifest.vectors(query_type)
        return found if vectors == 1 else SeveralVectors(found, vectors)

    def _ranking(self, query_type: str) -> NearestRows | UpdatedNearestRows:
        """Return the rows that are ranked for single vectors."""
        if self._original is None:
            return self._stored_ranking(query_type)
        found = self._updated.get(query_type)
        if found is not None:
            return found
        stored, target = self._original._stored_ranking(query_type), self._target(query_type)
        table = self._artifact.table(target.table)
        if not isinstance(table, UpdatedTable):
            return stored
        return self._updated.setdefault(
            query_type, UpdatedNearestRows(stored, table, target.row_score, self._program)
        )

    def _stored_ranking(self, query_type: str) -> NearestRows:
        found = self._rankings.get(query_type)
        if found is not None:
            return found
        target = self._target(query_type)
        with self._lock:
            if query_type not in self._rankings:
                if target not in self._exact:
                    table = self._artifact.table(target.table)
                    self._exact[target] = ExactRanking(table, target.row_score, self._program)
                exact = self._exact[target]
                self._rankings[query_type] = NearestRows(exact, self._add_recall, self._background)
                self._start_index(query_type, target, exact)
            return self._rankings[query_type]

    def target_ids(self, query_type: str) -> Ids:
        """Return the original ids of the nodes that are ranked for queries of a node type.

        Raises:
            UnsupportedError: the model ranks nothing for them.
        """
        return self._artifact.ids(self._artifact.manifest.tables[self._target(query_type).table].node_type)

    def dim(self, query_type: str) -> int:
        """Return the length of embeddings of a node type, of all their vectors.

        Raises:
            UnsupportedError: the model ranks nothing for them.
        """
        manifest = self._artifact.manifest
        return manifest.tables[self._target(query_type).table].dim * manifest.vectors(query_type)

    def rows_of(self, ids: Sequence[Id], query_type: str) -> Int64:
        """Return the node indices of original ids of an allow-list or a deny-list, int64 [at most n].

        Ids that the model lacks are left out: they are in no answer.

        Raises:
            InvalidRequestError: an id is of another kind than those of the node type.
        """
        found = self.target_ids(query_type).index(ids, missing=-1)
        return found[found >= 0]

    def row_filter(
        self,
        query_type: str,
        node: int | None = None,
        allowed: Int64 | None = None,
        denied: Int64 = _NONE,
        *,
        with_self: bool = False,
        linked: bool = True,
    ) -> RowFilter:
        """Return the filter of one query.

        Args:
            query_type: node type of the query.
            node: its index; None: the query is a vector.
            allowed: int64 node indices of the target type; None: all.
            denied: int64 node indices of the target type.
            with_self: keep the node itself where it is of the target type.
            linked: keep nodes that a known link joins to it.
        """
        lists = [denied]
        if node is not None:
            ids = self.target_ids(query_type)
            if not with_self and ids.node_type == query_type:
                lists.append(np.array([node], np.int64))
            if not linked:
                lists.append(self._artifact.links.linked_to(query_type, node, ids.node_type))
        return RowFilter.of(allowed, np.concatenate(lists))

    def nearest(
        self, vectors: Float32, k: int, query_type: str, filters: Sequence[RowFilter] | None = None
    ) -> list[Found]:
        """Return the ``k`` best nodes for each embedding, best first; fewer where fewer pass its filter.

        Args:
            vectors: float32 [n, dim], see `dim`.
            k: at least 1.
            query_type: node type that the vectors stand for.
            filters: one for each vector; None: all nodes pass.

        Returns:
            For each vector node indices (of the target type) int64 [at most k] and scores float32 [the same].

        Raises:
            InvalidRequestError: ``k`` is not positive, or a vector has another length or a number that is not
                finite.
            UnsupportedError: the model ranks nothing for queries of this type.
        """
        if k < 1:
            raise InvalidRequestError(f"expected k of at least 1, received {k}")
        ranking = self.ranking(query_type)
        self._check_vectors(vectors, query_type)
        k = min(k, len(ranking))
        if not k:
            return [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in vectors]
        if filters is None or all(each is ALL_ROWS for each in filters):
            return list(zip(*ranking.top(vectors, k), strict=True))
        return ranking.filtered(vectors, k, filters)

    @property
    def is_busy(self) -> bool:
        """Whether `close` would wait, for a part of the building of an index or a check of its recall."""
        return self._background.is_busy

    def close(self) -> None:
        """End the building of indexes and free the memory; a second call does nothing."""
        self._background.close()
        self._rankings.clear()
        self._exact.clear()

    def _target(self, query_type: str) -> TargetSpec:
        target = self._artifact.manifest.targets.get(query_type)
        if target is None:
            raise UnsupportedError(
                f"expected a table to rank for queries of type `{query_type}`, this model has none"
            )
        return target

    def _add_recall(self, wanted: int, found: int) -> None:
        self.recall.add(wanted, found)  # the counter at this time: a server exchanges it

    def _check_vectors(self, vectors: npt.NDArray[np.float32], query_type: str) -> None:
        dim = self.dim(query_type)
        if vectors.ndim != 2 or vectors.shape[1] != dim:
            raise InvalidRequestError(
                f"expected vectors [n, {dim}], received {list(vectors.shape)}", where="vectors"
            )
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            row = int(np.flatnonzero(~is_finite)[0])
            raise InvalidRequestError(
                "expected finite numbers, received NaN or infinity", where=f"vector {row}"
            )

    def _start_index(self, query_type: str, target: TargetSpec, exact: ExactRanking) -> None:
        self.states[query_type] = "exact"
        if self._mode == "exact" or (self._mode == "auto" and len(exact) <= EXACT_ROWS):
            return
        try:
            faiss_library()
        except BackendMissingError as error:
            logger.warning(
                "model %s: %d rows are ranked exactly: %s; %s",
                self._artifact.manifest.name,
                len(exact),
                error.message,
                error.hint,
            )
            return

        def build() -> None:
            found = self._index(query_type, target, exact)
            self._rankings[query_type].use(found)
            self.states[query_type] = "exact" if found is None else "index"

        self.states[query_type] = "building"
        if not self._background.start(build):
            self.states[query_type] = "exact"

    def _index(self, query_type: str, target: TargetSpec, exact: ExactRanking) -> Tuned | None:
        """Return the index of a table, built or loaded; None: it is ranked exactly."""
        name, count = self._artifact.manifest.name, len(exact)
        try:
            index = stored_index(self._artifact, target.table, target.row_score, self._background)
            found = tuned(index, exact, self._sample(query_type, count))
        except BuildStoppedError:
            return None
        except Exception as error:  # whatever happens, exact ranking answers
            message = "model %s: %d rows are ranked exactly: %s"
            logger.error(message, name, count, error, exc_info=not isinstance(error, GraphboxError))
            return None
        if found is None:
            logger.info(
                "model %s: %d rows are ranked exactly, their index was not shown to be better", name, count
            )
        else:
            logger.info("model %s: index of %d rows, recall %.4f", name, count, found.recall)
        return found

    def _sample(self, query_type: str, rows: int) -> Float32:
        """Return single vectors of nodes of a query type, float32 [n, dim]."""
        nodes, of_node = len(self._artifact.ids(query_type)), self._artifact.manifest.vectors(query_type)
        wanted = min(max(_LEAST_SAMPLES, _SAMPLED_PRODUCTS // max(1, rows)), _MOST_SAMPLES)
        drawn = np.random.default_rng(0).choice(nodes, min(-(-wanted // of_node), nodes), replace=False)
        vectors = self._encode(np.sort(drawn), query_type)
        vectors = vectors.reshape(len(drawn) * of_node, vectors.shape[1] // of_node)
        return vectors[np.isfinite(vectors).all(axis=1)]
