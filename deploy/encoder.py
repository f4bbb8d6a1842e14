"""A model version ready to answer: original ids in, embeddings and nearest neighbours out."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, Ids, LookupForm, Manifest, PaddedBlockForm, TensorSpec
from graphbox.artifact.ids import Id
from graphbox.deploy.feeds import PaddedBlockFeeds
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.deploy.protocol import Feeds, Options
from graphbox.deploy.ranking import RANKING_MODEL, ExactRanking
from graphbox.deploy.select import choose
from graphbox.errors import FormatError, InvalidRequestError, NotFoundError, UnsupportedError, did_you_mean

__all__ = ["DeployedModel", "open_model"]


class DeployedModel:
    """Answers for one model version; safe to use from several threads. Use `open_model`.

    Attributes:
        artifact: the model version.
        manifest: what it is.
        effective: what really runs it: the adapter, and the program's `Effective`.
        inputs: of the bare ONNX part; empty when there is none.
        outputs: of the bare ONNX part; empty when there is none.
    """

    def __init__(
        self, artifact: Artifact, program: CheckedProgram | None, ranking: CheckedProgram, adapter: str
    ) -> None:
        self.artifact = artifact
        self.manifest: Manifest = artifact.manifest
        self.effective: dict[str, Any] = {"adapter": adapter, **(program or ranking).effective}
        self.inputs: tuple[TensorSpec, ...] = program.inputs if program else ()
        self.outputs: tuple[TensorSpec, ...] = program.outputs if program else ()
        self._program = program
        self._ranking_program = ranking
        form = artifact.preprocess
        self._feeds = PaddedBlockFeeds(artifact, form) if isinstance(form, PaddedBlockForm) else None
        self._rankings: dict[str, ExactRanking] = {}
        self._lock = threading.Lock()

    @property
    def query_types(self) -> tuple[str, ...]:
        """The node types whose ids can be asked for; the first is the default."""
        form = self.artifact.preprocess
        return tuple(dict.fromkeys((form.node_type, *form.query_types)))

    def target_type(self, node_type: str | None = None) -> str:
        """Return the node type of the neighbours that queries of ``node_type`` get."""
        return self.manifest.tables[self.manifest.targets[self._query_type(node_type)].table].node_type

    def id_index(self, node_type: str | None = None) -> Ids:
        """Return all original ids of a node type, to look up, to list by prefix, to suggest from."""
        return self.artifact.ids(node_type or self.artifact.preprocess.node_type)

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
        form = self.artifact.preprocess
        if isinstance(form, LookupForm):
            return self.artifact.table(form.tables[query_type]).rows(indices)
        result: npt.NDArray[np.float32] = self.run(self.feeds(indices))[self.outputs[0].name]
        return result

    def feeds(self, indices: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Return what the bare ONNX part is fed for node indices (int64 [n]).

        Raises:
            InvalidRequestError: when an index is out of range.
            UnsupportedError: when the model has no ONNX part.
        """
        if self._feeds is None:
            raise self._no_onnx()
        count = len(self.id_index())
        if len(indices) and (indices.min() < 0 or indices.max() >= count):
            raise InvalidRequestError(
                f"expected node indices in [0, {count}), received {indices.min()} to {indices.max()}"
            )
        return self._feeds.build(indices)

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
        """Do now what the first request would wait for: read ids, decode the rows to rank, run once."""
        for query_type in self.query_types:
            ids = self.id_index(query_type)
            if len(ids) > 1 and query_type in self.manifest.targets:
                self.neighbors([ids[0]], 1, node_type=query_type)
            else:
                self.encode([ids[index] for index in range(min(1, len(ids)))], query_type)

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the bare ONNX part; see `graphbox.deploy.program.CheckedProgram.run`.

        Raises:
            UnsupportedError: when the model has none.
        """
        if self._program is None:
            raise self._no_onnx()
        return self._program.run(feeds, out)

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        if self._program is not None:
            self._program.close()
        self._ranking_program.close()
        self._rankings.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _no_onnx(self) -> UnsupportedError:
        return UnsupportedError(
            "expected a model with an ONNX part, this one is tables only", where=str(self.artifact.path)
        )

    def _query_type(self, node_type: str | None) -> str:
        known = self.artifact.preprocess.query_types
        if node_type is None:
            return self.artifact.preprocess.node_type
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


def _check_tensors(artifact: Artifact, program: CheckedProgram) -> None:
    """Check that the ONNX file is the one the manifest describes."""
    declared = artifact.manifest.onnx
    if declared is None or (declared.inputs, declared.outputs) == (program.inputs, program.outputs):
        return
    received = [
        (tensor.name, tensor.datatype, tensor.shape) for tensor in (*program.inputs, *program.outputs)
    ]
    raise FormatError(
        f"expected the inputs and outputs that the manifest lists, received {received}",
        where=str(artifact.path / declared.path),
    )


def open_model(
    path: str | os.PathLike[str], target: str = "auto", threads: int = 1, verify: bool = True
) -> DeployedModel:
    """Open a model version and make it ready on a target.

    Args:
        path: the folder of the version.
        target: an adapter's name, ``adapter/device``, or ``auto``.
        threads: that one call may use.
        verify: check the digest of every file first.

    Raises:
        NotFoundError: when there is no such model or target.
        FormatError: when the model is damaged.
        BackendMissingError: when the target is not available.
        UnsupportedError: when it cannot run the model.
    """
    artifact = Artifact.open(Path(path), verify=verify)
    model = artifact.onnx_bytes() if artifact.manifest.onnx else None
    adapter, device = choose(target, model or RANKING_MODEL)
    options = Options(threads=threads)
    program = compile_model(adapter, model, device, options) if model else None
    if program:
        _check_tensors(artifact, program)
    ranking = compile_model(adapter, RANKING_MODEL, device, options)
    return DeployedModel(artifact, program, ranking, adapter.name)
