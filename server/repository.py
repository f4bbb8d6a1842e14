"""The models a server answers for: which versions there are, which one a name means, and when each is opened.

A version is opened when it is first asked for, in the thread that asks, and closed when it is
replaced and its last user is done. A version that cannot be opened affects no other one.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from graphbox.artifact import Artifact, Manifest
from graphbox.artifact.ids import Id
from graphbox.deploy import (
    DeployedClick,
    DeployedEncoder,
    DeployedKnowledgeGraph,
    DeployedModel,
    open_model,
)
from graphbox.errors import (
    BackendMissingError,
    GraphboxError,
    InvalidRequestError,
    NotFoundError,
    did_you_mean,
)
from graphbox.server.examples import ExampleIds
from graphbox.server.kserve.endpoints import Endpoint, OnnxEndpoint, endpoint_of
from graphbox.server.telemetry import ModelStatistics
from graphbox.workspace import Workspace

__all__ = ["Known", "Repository", "ServedModel", "Slot"]

logger = logging.getLogger("graphbox.server")

State = Literal["LOADING", "READY", "UNAVAILABLE"]
_MOST_IDLE_VERSIONS = 2
_PATH_OF_KIND = {
    "encoder": "neighbors",
    "embedding": "neighbors",
    "click": "predict",
    "knowledge_graph": "answers",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A model version the repository knows.

    Attributes:
        current: requests that name no version go to it.
        has_onnx: it has an ONNX part.
        state: ``READY`` when open, ``LOADING`` when it opens with the first request, else ``UNAVAILABLE``.
        reason: why it is unavailable, else empty.
    """

    name: str
    version: int
    path: Path
    current: bool
    has_onnx: bool
    state: State
    reason: str

    @property
    def served(self) -> bool:
        """Whether requests that name no version are answered by it."""
        return self.current and self.state != "UNAVAILABLE"

    def manifest(self) -> Manifest:
        """Read the manifest."""
        return Artifact.open(self.path, verify=False).manifest


class ServedModel:
    """An open model version.

    Attributes:
        name: of the model.
        version: of the model.
        model: runs it.
        artifact: the files it consists of.
        query_types: node types whose ids it can be asked about; none of a model of clicks.
    """

    def __init__(self, name: str, version: int, model: DeployedModel) -> None:
        self.name = name
        self.version = version
        self.model = model
        self.artifact: Artifact = model.artifact
        self.query_types: tuple[str, ...] = _query_types(model)

    @cached_property
    def endpoint(self) -> Endpoint:
        """The model as KServe clients see it."""
        return endpoint_of(self.artifact, self.model)

    @property
    def encoder(self) -> DeployedEncoder:
        """The model, which has to give embeddings.

        Raises:
            InvalidRequestError: it gives none.
        """
        if isinstance(self.model, DeployedEncoder):
            return self.model
        raise self._other_kind("gives embeddings")

    @property
    def click(self) -> DeployedClick:
        """The model, which has to predict rows.

        Raises:
            InvalidRequestError: it does not.
        """
        if isinstance(self.model, DeployedClick):
            return self.model
        raise self._other_kind("predicts rows")

    @property
    def knowledge_graph(self) -> DeployedKnowledgeGraph:
        """The model, which has to answer questions about triples.

        Raises:
            InvalidRequestError: it does not.
        """
        if isinstance(self.model, DeployedKnowledgeGraph):
            return self.model
        raise self._other_kind("answers questions about triples")

    def _other_kind(self, wanted: str) -> InvalidRequestError:
        kind = self.artifact.manifest.kind
        return InvalidRequestError(
            f"expected a model that {wanted}, received `{self.name}` of kind {kind}",
            where="model",
            hint=f"of such a model, ask /api/v1/models/{self.name}/{_PATH_OF_KIND[kind]}",
        )

    @cached_property
    def onnx_endpoint(self) -> Endpoint:
        """Its bare ONNX part as KServe clients see it.

        Raises:
            NotFoundError: it has none.
        """
        return OnnxEndpoint(self.artifact, self.model)

    @cached_property
    def examples(self) -> ExampleIds:
        """Ids worth asking about."""
        return ExampleIds(self.artifact, self.query_types)

    def find(self, text: str, node_type: str | None) -> tuple[str, int]:
        """Return the node type and the node index of an original id written as text.

        Raises:
            NotFoundError: no query type, or not ``node_type``, has that id.
            InvalidRequestError: several have it and ``node_type`` is None.
        """
        if not self.query_types:
            raise self._other_kind("is asked about ids")
        if node_type is not None:
            self._check_query_type(node_type)
            ids = self.artifact.ids(node_type)
            return node_type, int(ids.index([ids.from_text(text)])[0])
        found: list[tuple[str, int]] = []
        for candidate in self.query_types:
            ids = self.artifact.ids(candidate)
            try:
                index = ids.find(ids.from_text(text))
            except InvalidRequestError:  # text that is no integer is none of the integer ids
                continue
            if index is not None:
                found.append((candidate, index))
        if len(found) > 1:
            raise InvalidRequestError(
                f"the id `{text}` exists in the node types {', '.join(name for name, _ in found)}",
                where="query parameter `type`",
                hint=f"add &type={found[0][0]}",
            )
        return found[0] if found else self.find(text, self.query_types[0])

    def ids_with_prefix(self, prefix: str, limit: int, node_type: str | None) -> list[tuple[str, Id]]:
        """Return at most ``limit`` pairs of node type and original id that starts so, shortest first.

        Of all ids, that is without a prefix, those worth asking about come first; see `ExampleIds`.

        Raises:
            NotFoundError: the model cannot be asked about ``node_type``.
        """
        if not self.query_types:
            raise self._other_kind("is asked about ids")
        if node_type is not None:
            self._check_query_type(node_type)
        first = [] if prefix else self.examples.first(limit, node_type)
        if len(first) == limit:
            return first
        matches: list[tuple[str, Id]] = []
        for candidate in self.query_types if node_type is None else (node_type,):
            ids = self.artifact.ids(candidate)
            matches += [(candidate, identifier) for identifier in ids.take(ids.with_prefix(prefix, limit))]
        matches.sort(key=lambda match: (len(str(match[1])), str(match[1])))
        return list(dict.fromkeys(first + matches))[:limit]

    def _check_query_type(self, node_type: str) -> None:
        if node_type not in self.query_types:
            raise NotFoundError(
                f"expected one of the node types {', '.join(self.query_types)}, received `{node_type}`",
                where="query parameter `type`",
                hint=did_you_mean(node_type, self.query_types),
            )


def _query_types(model: DeployedModel) -> tuple[str, ...]:
    if isinstance(model, DeployedEncoder):
        return model.query_types
    if isinstance(model, DeployedKnowledgeGraph):
        return tuple(dict.fromkeys((model.form.node_type, *model.form.entities)))
    return ()


class Slot:
    """The place of one model version: opened on demand, counted while used, closed when idle.

    Attributes:
        has_onnx: whether the model has an ONNX part.
        statistics: of the model that takes original ids.
        onnx_statistics: of its bare ONNX part.
    """

    def __init__(self, name: str, version: int, path: Path, kind: str, target: str, threads: int) -> None:
        self.name = name
        self.version = version
        self.path = path
        self.has_onnx = kind != "embedding"
        self.statistics = ModelStatistics()
        self.onnx_statistics = ModelStatistics()
        self._target = target
        self._threads = threads
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._model: ServedModel | None = None
        self._failure: GraphboxError | None = None
        self._users = 0
        self._close_when_idle = False

    def try_enter(self) -> ServedModel | None:
        """Return the model and count a user, or None when it is not open. Never waits."""
        with self._lock:
            if self._model is not None:
                self._users += 1
            return self._model

    def enter(self) -> ServedModel:
        """Return the model and count a user, opening it first where needed.

        Raises:
            GraphboxError: it cannot be opened; told again without a new attempt until `retry`.
        """
        model = self.try_enter()
        while model is None:
            self.open()
            model = self.try_enter()
        return model

    def leave(self) -> None:
        """Count a user less."""
        with self._lock:
            self._users -= 1
            model = self._take_if_idle()
        if model is not None:
            model.model.close()

    def open(self) -> None:
        """Open the model unless it is open.

        Raises:
            GraphboxError: it cannot be opened.
        """
        with self._opening:
            if self._model is not None:
                return
            if self._failure is not None:
                raise _again(self._failure)
            try:
                model = ServedModel(
                    self.name, self.version, open_model(self.path, self._target, self._threads)
                )
            except GraphboxError as error:
                self._failure = error
                logger.error("model %s version %d cannot be opened: %s", self.name, self.version, error)
                raise
            with self._lock:
                self._model = model
                self._close_when_idle = False

    def close(self) -> None:
        """Close the model once its last user is done."""
        with self._lock:
            self._close_when_idle = True
            model = self._take_if_idle()
        if model is not None:
            model.model.close()

    def retry(self) -> None:
        """Forget that opening failed."""
        with self._opening:
            self._failure = None

    def state(self) -> tuple[State, str]:
        """Return the state, and the reason where it is ``UNAVAILABLE``."""
        failure = self._failure
        if failure is not None:
            return "UNAVAILABLE", failure.message
        return ("READY" if self._model is not None else "LOADING"), ""

    def _take_if_idle(self) -> ServedModel | None:
        """Give the model away for closing, when that was asked for and nobody uses it."""
        if not self._close_when_idle or self._users:
            return None
        model, self._model = self._model, None
        self._close_when_idle = False
        return model


def _again(error: GraphboxError) -> GraphboxError:
    """Return an error that says the same, without the traceback of the first time."""
    same = type(error)(error.message, where=error.where, hint=error.hint)
    return same.with_traceback(None)


class Repository:
    """The models of a workspace and of explicitly named folders. Safe to use from any thread.

    Args:
        workspace: whose models are served, each in its active version; other versions on request.
        artifacts: folders of further model versions; such a version is the one its name means.
        target: adapter to run models on.
        threads: threads of one model execution.

    Raises:
        NotFoundError: a named folder is not there.
        FormatError: a named folder holds no model version.
    """

    def __init__(
        self,
        workspace: Workspace | None,
        artifacts: Sequence[Path] = (),
        target: str = "auto",
        threads: int = 1,
    ) -> None:
        self._workspace = workspace
        self._artifacts = [(Artifact.open(path, verify=False).manifest, path) for path in artifacts]
        self._target = target
        self._threads = threads
        self._lock = threading.RLock()
        self._slots: dict[str, dict[int, Slot]] = {}
        self._current: dict[str, int] = {}
        self._active: dict[str, int] = {}
        self._unloaded: set[str] = set()
        self._idle_versions: OrderedDict[tuple[str, int], Slot] = OrderedDict()
        self._discover()

    def names(self) -> set[str]:
        """Return the names of all models."""
        with self._lock:
            return set(self._slots)

    def has(self, name: str) -> bool:
        """Tell whether a model of that name is known."""
        with self._lock:
            return name in self._slots

    def slots(self) -> list[Slot]:
        """Return the places of all model versions that have been used."""
        with self._lock:
            slots = [slot for versions in self._slots.values() for slot in versions.values()]
        return [slot for slot in slots if slot.statistics.used or slot.onnx_statistics.used]

    def known(self) -> list[Known]:
        """Return every model version, by name and version."""
        self._discover()
        with self._lock:
            return [self._known(slot) for slots in self._slots.values() for _, slot in sorted(slots.items())]

    def _known(self, slot: Slot) -> Known:
        state, reason = slot.state()
        if slot.name in self._unloaded:
            state, reason = "UNAVAILABLE", "unloaded"
        current = self._current[slot.name] == slot.version
        return Known(slot.name, slot.version, slot.path, current, slot.has_onnx, state, reason)

    def versions(self, name: str) -> list[int]:
        """Return the versions of a model, ascending.

        Raises:
            NotFoundError: there is no such model.
        """
        with self._lock:
            self.slot(name)
            return sorted(self._slots[name])

    def slot(self, name: str, version: int | None = None) -> Slot:
        """Return the place of a model version.

        Raises:
            NotFoundError: there is no such model or version.
            BackendMissingError: it was unloaded.
        """
        with self._lock:
            found = self._find(name, version)
        if found is None:
            # It may have been made since: the workspace is read again before saying no.
            self._discover()
            with self._lock:
                found = self._find(name, version)
                if found is None:
                    raise self._unknown(name, version)
        return found

    def find(self, name: str, version: int | None = None) -> Slot | None:
        """Return the place of a model version that is known already, or None. Never waits."""
        with self._lock:
            return self._find(name, version)

    def _find(self, name: str, version: int | None) -> Slot | None:
        slots = self._slots.get(name)
        if slots is None:
            return None
        if name in self._unloaded:
            raise BackendMissingError(
                f"the model `{name}` was unloaded",
                hint=f"POST /v2/repository/models/{name}/load serves it again",
            )
        return slots.get(self._current[name] if version is None else version)

    def _unknown(self, name: str, version: int | None) -> NotFoundError:
        slots = self._slots.get(name)
        if slots is None:
            hint = did_you_mean(name, self._slots) or (
                f"there are: {', '.join(sorted(self._slots)[:20])}"
                if self._slots
                else "there are no models yet"
            )
            return NotFoundError(f"there is no model `{name}`", hint=hint)
        return NotFoundError(
            f"the model `{name}` has no version {version}",
            hint=f"its versions: {', '.join(str(number) for number in sorted(slots)[-20:])}",
        )

    @contextmanager
    def use(self, name: str, version: int | None = None) -> Iterator[ServedModel]:
        """Give an open model version; it stays open for the time of the block.

        Raises:
            NotFoundError: there is no such model or version.
            GraphboxError: it cannot be opened.
        """
        slot = self.slot(name, version)
        model = slot.enter()
        try:
            yield model
        finally:
            self.leave(slot)

    def leave(self, slot: Slot) -> None:
        """Count a user of ``slot`` less; besides the served versions, only the last few used stay open."""
        slot.leave()
        key = slot.name, slot.version
        with self._lock:
            if self._current.get(slot.name) == slot.version:
                self._idle_versions.pop(key, None)
                return
            self._idle_versions[key] = slot
            self._idle_versions.move_to_end(key)
            excess = [
                self._idle_versions.popitem(last=False)[1]
                for _ in range(len(self._idle_versions) - _MOST_IDLE_VERSIONS)
            ]
        for oldest in excess:
            oldest.close()

    def load(self, name: str) -> None:
        """Serve the active version of a model from now on; until it is open the one before it answers.

        Raises:
            NotFoundError: there is no such model.
            GraphboxError: the version cannot be opened; the one before it keeps answering.
        """
        self._discover()
        with self._lock:
            if name not in self._slots:
                raise self._unknown(name, None)
            version = self._active_version(name)
            slot = self._slots[name][version]
        slot.retry()
        slot.open()
        with self._lock:
            self._unloaded.discard(name)
            before = self._slots[name].get(self._current[name])
            self._current[name] = version
        if before is not None and before is not slot:
            before.close()

    def unload(self, name: str) -> None:
        """Stop answering for a model; requests that run are finished.

        Raises:
            NotFoundError: there is no such model.
        """
        with self._lock:
            if name not in self._slots:
                raise self._unknown(name, None)
            self._unloaded.add(name)
            slots = list(self._slots[name].values())
        for slot in slots:
            slot.close()

    def reload(self) -> None:
        """Load the active version of every model; what cannot be opened is logged and stays as it was."""
        self._discover()
        for name in sorted(self.names() - self._unloaded):
            try:
                self.load(name)
            except GraphboxError as error:
                logger.error("model %s stays as it was: %s", name, error)

    def close(self) -> None:
        """Close every model whose users are done."""
        with self._lock:
            slots = [slot for slots in self._slots.values() for slot in slots.values()]
        for slot in slots:
            slot.close()

    def _active_version(self, name: str) -> int:
        versions = self._slots[name]
        return self._active.get(name, max(versions))

    def _discover(self) -> None:
        """Learn of versions made and removed since the last time; what is served does not change."""
        records = self._workspace.models() if self._workspace is not None else []
        listed = [(record.name, record.version, record.path, record.kind) for record in records]
        listed += [
            (manifest.name, manifest.version, path, manifest.kind) for manifest, path in self._artifacts
        ]
        active = {record.name: record.version for record in records if record.active}
        active |= {manifest.name: manifest.version for manifest, _ in self._artifacts}
        gone: list[Slot] = []
        with self._lock:
            self._active = active
            for name, version, path, kind in listed:
                slots = self._slots.setdefault(name, {})
                if version not in slots:
                    slots[version] = Slot(name, version, path, kind, self._target, self._threads)
            present = {(name, version) for name, version, *_ in listed}
            for name in list(self._slots):
                slots = self._slots[name]
                gone += [slots.pop(version) for version in list(slots) if (name, version) not in present]
                if not slots:
                    del self._slots[name]
                    self._current.pop(name, None)
                    self._unloaded.discard(name)
                elif self._current.get(name) not in slots:
                    self._current[name] = self._active_version(name)
        for slot in gone:
            slot.close()
