"""One model version in the server: the open model, and the slot that opens, counts and closes it."""

from __future__ import annotations

import copy
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from graphbox.artifact import Artifact
from graphbox.artifact.ids import Id
from graphbox.artifact.updated_rows import UpdatedRows
from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    open_model,
)
from graphbox.deploy.cancellation import Cancellation, cancellable
from graphbox.deploy.nearest.nodes import NearestMode
from graphbox.deploy.signature import ONNX_SUFFIX, SUFFIXES, WHOLE, Signature
from graphbox.errors import FormatError, GraphboxError, InvalidRequestError, NotFoundError, did_you_mean
from graphbox.memory import release_free_pages
from graphbox.server.announced import AnnouncedBodies
from graphbox.server.batching import Batcher
from graphbox.server.counters import Counters
from graphbox.server.examples import ExampleIds
from graphbox.server.executor import Executor
from graphbox.server.live_rows import LiveRows, RowsState
from graphbox.server.problem import AmbiguousIdError
from graphbox.server.settings import MAX_UPDATED_BYTES, RequestLimits, Settings
from graphbox.server.sources import VersionFolder
from graphbox.server.telemetry import ModelStatistics

__all__ = ["Endpoint", "ServedModel", "Slot", "State"]

logger = logging.getLogger("graphbox.server")

State = Literal["LOADING", "READY", "UNAVAILABLE"]
_COLLECTION_WAITS_S = (0.0, 0.01, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0)
_PATH_OF_KIND = {
    "encoder": "/api/v1/models/{}/neighbors",
    "embedding": "/api/v1/models/{}/neighbors",
    "click": "/api/v1/models/{}/predict",
    "knowledge_graph": "/api/v1/models/{}/answers",
    "tensors": "/v2/models/{}/infer",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A signature of an open model, and what runs its calls.

    Attributes:
        signature: inputs, outputs and parameters.
        batcher: runs its calls.
        limits: on one request.
        announced: large requests whose bodies are on their way.
        heads: parts of valid requests that a transport keeps to decode equal ones faster.
    """

    signature: Signature
    batcher: Batcher
    limits: RequestLimits
    announced: AnnouncedBodies
    heads: dict[bytes, Any] = field(default_factory=dict)


class ServedModel:
    """An open model version with one state of its rows.

    Attributes:
        name: model name.
        version: version number.
        model: the deployed model that answers.
        original: the deployed model as it was opened, which is to be closed.
        rows: row updates that ``model`` has.
        artifact: the files of the version.
        query_types: node types whose ids the model accepts as queries; empty for models that take no ids.
        other_types: node types that an encoder reads as neighbours or ranks, but accepts no queries of.
    """

    def __init__(self, name: str, version: int, model: DeployedModel) -> None:
        self.name = name
        self.version = version
        self.model = model
        self.original = model
        self.rows = UpdatedRows.of(model.artifact)
        self.artifact: Artifact = model.artifact
        self.query_types: tuple[str, ...] = _query_types(model)
        self._endpoints: dict[str, Endpoint] = {}
        self.other_types: tuple[str, ...] = _other_types(model)

    def endpoint(self, suffix: str, executor: Executor, settings: Settings) -> Endpoint:
        """Return what runs the calls of a signature; see `DeployedModel.signatures`.

        Raises:
            NotFoundError: the model has no such signature.
        """
        found = self._endpoints.get(suffix)
        if found is None:
            signature = self.model.signature(suffix)
            batcher = Batcher(
                signature,
                executor,
                max_wait_s=settings.max_batch_wait_ms / 1e3,
                max_rows=settings.max_batch_rows,
                max_queue_s=settings.max_queue_ms / 1e3,
            )
            limits = RequestLimits(settings.rows_limit(self.name), settings.max_json_bytes)
            announced = AnnouncedBodies(batcher, settings.max_queue_ms / 1e3)
            found = self._endpoints[suffix] = Endpoint(signature, batcher, limits, announced)
        return found

    def with_rows(self, rows: UpdatedRows) -> ServedModel:
        """Return the same model version with other rows; `take_calls` makes it answer calls."""
        sequence, model = rows.point.sequence, self.original
        if sequence:
            model = model.with_rows(rows.artifact, sequence)
        found = copy.copy(self)
        found.model, found.rows, found.artifact = model, rows, model.artifact
        found._endpoints = {
            suffix: replace(endpoint, signature=model.signature(suffix))
            for suffix, endpoint in dict(self._endpoints).items()
        }
        return found

    def take_calls(self) -> None:
        """Let the executions that begin from now on have the rows of this state."""
        for endpoint in list(self._endpoints.values()):  # the event loop may add one meanwhile
            endpoint.batcher.use(endpoint.signature)

    @property
    def rows_sequence(self) -> int | None:
        """Number of the last row update that answers have; None: none was applied."""
        return self.rows.point.sequence or None

    @property
    def encoder(self) -> DeployedEncoder:
        """The model as an encoder.

        Raises:
            InvalidRequestError: the model does not return embeddings.
        """
        if isinstance(self.model, DeployedEncoder):
            return self.model
        raise self._other_kind("returns embeddings")

    @property
    def click(self) -> DeployedClick:
        """The model as a click model.

        Raises:
            InvalidRequestError: the model does not predict rows.
        """
        if isinstance(self.model, DeployedClick):
            return self.model
        raise self._other_kind("predicts rows")

    @property
    def knowledge_graph(self) -> DeployedKnowledgeGraph:
        """The model as a knowledge graph model.

        Raises:
            InvalidRequestError: the model does not complete triples.
        """
        if isinstance(self.model, DeployedKnowledgeGraph):
            return self.model
        raise self._other_kind("completes triples")

    def _other_kind(self, wanted: str) -> InvalidRequestError:
        kind = self.artifact.manifest.kind
        return InvalidRequestError(
            f"expected a model that {wanted}, received `{self.name}` of kind {kind}",
            where="model",
            hint=f"use {_PATH_OF_KIND[kind].format(self.name)} for this model",
        )

    @cached_property
    def examples(self) -> ExampleIds:
        """Suggested query ids."""
        return ExampleIds(self.artifact, self.query_types, self.other_types)

    def find(self, text: str, node_type: str | None) -> tuple[str, int]:
        """Return the node type and the node index of an original id written as text.

        Raises:
            NotFoundError: the id does not exist in ``node_type``, or in any query type.
            AmbiguousIdError: several query types have the id and ``node_type`` is None.
        """
        if not self.query_types:
            raise self._other_kind("takes ids")
        if node_type is not None:
            _check_type(node_type, self.query_types)
            ids = self.artifact.ids(node_type)
            return node_type, int(ids.index([ids.from_text(text)])[0])
        found = self._occurrences(text)
        if len(found) > 1:
            raise AmbiguousIdError(text, [name for name, _ in found])
        return found[0] if found else self.find(text, self.query_types[0])

    def types_of(self, text: str) -> list[str]:
        """Return the query types that have an original id written as text."""
        return [name for name, _ in self._occurrences(text)]

    def _occurrences(self, text: str) -> list[tuple[str, int]]:
        """Return node type and node index of each node with an original id written as text."""
        found: list[tuple[str, int]] = []
        for candidate in self.query_types:
            ids = self.artifact.ids(candidate)
            try:
                index = ids.find(ids.from_text(text))
            except InvalidRequestError:  # not an integer, where all ids are integers
                continue
            if index is not None:
                found.append((candidate, index))
        return found

    def ids_with_prefix(self, prefix: str, limit: int, node_type: str | None) -> list[tuple[str, Id]]:
        """Return at most ``limit`` pairs of node type and matching original id, shortest first.

        Without a prefix, the suggested ids come first; see `ExampleIds`. Without a node type they are of the
        query types.

        Raises:
            NotFoundError: the model has no ids of ``node_type``.
        """
        if not self.query_types:
            raise self._other_kind("takes ids")
        if node_type is not None:
            _check_type(node_type, self.query_types + self.other_types)
        first = [] if prefix else self.examples.first(limit, node_type)
        if len(first) == limit:
            return first
        matches: list[tuple[str, Id]] = []
        for candidate in self.query_types if node_type is None else (node_type,):
            ids = self.artifact.ids(candidate)
            matches += [(candidate, identifier) for identifier in ids.take(ids.with_prefix(prefix, limit))]
        matches.sort(key=lambda match: (len(str(match[1])), str(match[1])))
        return list(dict.fromkeys(first + matches))[:limit]


def _check_type(node_type: str, known: Sequence[str]) -> None:
    if node_type not in known:
        raise NotFoundError(
            f"expected one of the node types {', '.join(known)}, received `{node_type}`",
            where="query parameter `type`",
            hint=did_you_mean(node_type, known),
        )


def _query_types(model: DeployedModel) -> tuple[str, ...]:
    if isinstance(model, DeployedEncoder):
        return model.query_types
    if isinstance(model, DeployedKnowledgeGraph):
        return tuple(dict.fromkeys((model.form.node_type, *model.form.entities)))
    return ()


def _other_types(model: DeployedModel) -> tuple[str, ...]:
    if not isinstance(model, DeployedEncoder):
        return ()
    return tuple(name for name in model.artifact.node_types if name not in model.query_types)


class Slot:
    """A model version: opened on demand, reference-counted while in use, closed when idle.

    Attributes:
        name: model name.
        version: version number.
        version_text: the same as text.
        path: folder of the version.
        stamp: changes when the version is rewritten.
        statistics: request statistics, by the suffix of a signature.

    Args:
        folder: the version on disk.
        target: adapter to run it on.
        threads: of one execution.
        counters: of the server.
        nearest: whether nearest nodes are found by an index.
        wanted_rows: returns the number of the active row update; None: the newest of the folder is.
        max_updated_bytes: most bytes of changed rows.
    """

    def __init__(
        self,
        folder: VersionFolder,
        target: str,
        threads: int,
        counters: Counters,
        nearest: NearestMode = "exact",
        wanted_rows: Callable[[], int] | None = None,
        max_updated_bytes: int = MAX_UPDATED_BYTES,
    ) -> None:
        self.name = folder.name
        self.version = folder.version
        self.version_text = str(folder.version)
        self.path = folder.path
        self.stamp = folder.stamp
        self._has_onnx = folder.kind != "embedding"
        self.statistics = {
            suffix: ModelStatistics(
                counters,
                folder.name,
                folder.version,
                suffix,
                has_lookups=suffix == WHOLE and not self._has_onnx,
            )
            for suffix in (WHOLE, *SUFFIXES)
        }
        self._target = target
        self._threads = threads
        self._nearest = nearest
        self._rows = LiveRows(
            folder.name, folder.version, folder.path, counters, wanted_rows, max_updated_bytes
        )
        self._opening = threading.Lock()
        self._updating = threading.Lock()
        self._lock = threading.Lock()
        self._model: ServedModel | None = None
        self._failure: GraphboxError | None = None
        self._users = 0
        self._close_when_idle = False

    def try_enter(self) -> ServedModel | None:
        """Return the model and count a user, or None when the model is not open. Never blocks."""
        with self._lock:
            if self._model is not None:
                self._users += 1
            return self._model

    def enter(self) -> ServedModel:
        """Return the model and count a user; opens the model first if needed.

        Raises:
            GraphboxError: the model cannot be opened; repeated without a new attempt until `retry`.
        """
        model = self.try_enter()
        while model is None:
            self.open()
            model = self.try_enter()
        return model

    def leave(self) -> None:
        """Count one user less."""
        with self._lock:
            self._users -= 1
            model = self._take_if_idle()
        if model is not None:
            _close(model.original)

    def open(self) -> None:
        """Open and warm up the model unless it is open.

        Raises:
            GraphboxError: the model cannot be opened; repeated without a new attempt until `retry`.
        """
        with self._opening:
            if self._model is not None:
                return
            if self._failure is not None:
                raise _copy(self._failure)
            try:
                # Whoever asked first may leave: others wait for the model, and its failure would be kept.
                with self._typed_errors(), cancellable(Cancellation()):
                    model = self._open_model()
            except GraphboxError as error:
                self._failure = error
                logger.error("model %s version %d cannot be opened: %s", self.name, self.version, error)
                raise
            with self._lock:
                self._model = model
                self._close_when_idle = False

    def follow_rows(self) -> None:
        """Apply the active row update, if the model is open; calls that run end with the rows before.

        One that cannot be applied is logged, and changes nothing.
        """
        with self._updating:
            served = self._model
            if served is None or not self._rows.is_due(served.rows):
                return
            rows = self._rows.advance(served.rows)
            updated = served if rows is served.rows else served.with_rows(rows)
            with self._lock:
                is_open = self._model is served
                if is_open:
                    self._model = updated
            if not is_open:  # closed meanwhile, and its rows were reported all the same
                self._rows.close()
            if not is_open or updated is served:
                return
            updated.take_calls()
        if served.model is not served.original:
            served.model.release_rows()

    def wanted_rows(self) -> int:
        """Return the number of the active row update; 0: none is."""
        return self._rows.wanted()

    @property
    def rows_state(self) -> RowsState:
        """Row updates of the version in this worker. Never blocks."""
        return self._rows.state

    def close(self) -> None:
        """Close the model as soon as it has no users."""
        with self._lock:
            self._close_when_idle = True
            model = self._take_if_idle()
        if model is not None:
            _close(model.original)

    def retry(self) -> None:
        """Clear the error of a failed `open`, so that the next one tries again."""
        with self._opening:
            self._failure = None

    def state(self) -> tuple[State, str]:
        """Return the state, and the reason when it is ``UNAVAILABLE``. Never blocks."""
        failure = self._failure
        if failure is not None:
            # Clients see the reason; absolute paths of this machine stay in the log.
            return "UNAVAILABLE", failure.message.replace(str(self.path), f"{self.name}/{self.version}")
        return ("READY" if self._model is not None else "LOADING"), ""

    def suffixes(self) -> tuple[str, ...]:
        """Return the suffixes of the model's signatures; of one that is not open, the known ones.

        Never blocks.
        """
        model = self._model
        if model is not None:
            return tuple(model.model.signatures)
        return (WHOLE, ONNX_SUFFIX) if self._has_onnx else (WHOLE,)

    def effective(self) -> Mapping[str, Any] | None:
        """Return `DeployedModel.effective` of the open model; None: it is not open. Never blocks."""
        model = self._model
        return None if model is None else model.model.effective

    def _open_model(self) -> ServedModel:
        """Return the model, warmed up, with the rows that are active."""
        model = open_model(self.path, self._target, self._threads, True, self._nearest)
        try:
            _warm_up(model)
            lookups = self.statistics[WHOLE].lookups
            if isinstance(model, DeployedEncoder):
                model.nearest.recall = self.statistics[WHOLE].recall
                if lookups is not None:
                    model.lookups = lookups
            served = ServedModel(self.name, self.version, model)
            with self._updating:
                rows = self._rows.advance(served.rows)
                return served if rows is served.rows else served.with_rows(rows)
        except BaseException:
            self._rows.close()
            model.close()
            raise

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Turn errors of opening into ours: one broken version must not stop the loading of others."""
        try:
            yield
        except GraphboxError:
            raise
        except OSError as error:
            raise FormatError(
                f"expected a readable model version, received: {error.strerror or error}",
                where=str(error.filename or self.path),
            ) from error
        except Exception as error:
            logger.exception("model %s version %d: opening failed", self.name, self.version)
            raise GraphboxError(
                f"opening the model failed with {type(error).__name__}: {error}", where=str(self.path)
            ) from error

    def _take_if_idle(self) -> ServedModel | None:
        """Take the model out for closing if closing was requested and it has no users."""
        if not self._close_when_idle or self._users:
            return None
        model, self._model = self._model, None
        self._close_when_idle = False
        if model is not None:
            self._rows.close()
        return model


def _warm_up(model: DeployedModel) -> None:
    """Run the model once and read the links, so that damage shows now and not at a later request.

    A model that rejects the query made up for this, such as one without an example request, is not damaged.
    """
    try:
        model.warm_up()
    except InvalidRequestError as error:
        logger.info("model %s was not warmed up: %s", model.manifest.name, error)
    _ = model.artifact.links, model.signatures


def _close(model: DeployedModel) -> None:
    """Close a model and free its memory, on a thread: this one may be the event loop's."""
    threading.Thread(target=_close_and_free, args=([model],), name="graphbox-close").start()


def _close_and_free(models: list[DeployedModel]) -> None:
    """Close the model in a list, which is emptied: a thread keeps its arguments until it ends."""
    model = models.pop()
    closed = weakref.ref(model)
    model.close()
    del model
    # Its signatures refer to it and it to them; the collector does not know that arrays are large. The call
    # that was its last user may still be about to return, and may refer to it longer than one collection.
    for wait_s in _COLLECTION_WAITS_S:
        gc.collect()
        if closed() is None or not threading.main_thread().is_alive():
            break
        time.sleep(wait_s)
        # Opened at the start, it is among the objects that `gc.freeze` has kept from collections.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    if closed() is not None:
        logger.debug("a closed model is still referred to; its memory is given back later")
    release_free_pages()


def _copy(error: GraphboxError) -> GraphboxError:
    """Return a new error with the same content and no traceback."""
    return type(error)(error.message, where=error.where, hint=error.hint)
