"""The served models: which versions exist, which one answers for a name, and how new versions take over."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from graphbox.artifact import Artifact, Manifest
from graphbox.deploy.nearest.nodes import NearestMode
from graphbox.errors import (
    BackendMissingError,
    GraphboxError,
    NotFoundError,
)
from graphbox.server.counters import Counters
from graphbox.server.owned_sources import OwnedSources
from graphbox.server.readiness import Readiness
from graphbox.server.serving_state import ServingState
from graphbox.server.settings import MAX_UPDATED_BYTES
from graphbox.server.slot import ServedModel, Slot, State
from graphbox.server.sources import Source, VersionFolder, WorkspaceModels, open_folder
from graphbox.server.traffic import Route, routes_of
from graphbox.workspace import Workspace
from graphbox.workspace.traffic import ShadowSums

__all__ = ["Known", "Repository"]

logger = logging.getLogger("graphbox.server")

_MOST_IDLE_VERSIONS = 2


@dataclass(frozen=True, slots=True)
class Known:
    """A model version of the repository.

    Attributes:
        current: requests without a version go to it.
        suffixes: of the names of its signatures in the KServe protocol.
        state: ``READY`` when open, ``UNAVAILABLE`` when it failed to open or was unloaded, else ``LOADING``.
        reason: why it is unavailable, else empty.
        effective: what runs it, see `DeployedModel.effective`; None: it is not open.
    """

    name: str
    version: int
    path: Path
    current: bool
    suffixes: tuple[str, ...]
    state: State
    reason: str
    effective: Mapping[str, Any] | None
    listed_manifest: Manifest | None = field(default=None, repr=False)

    @property
    def served(self) -> bool:
        """Whether it answers requests without a version."""
        return self.current and self.state != "UNAVAILABLE"

    def manifest(self) -> Manifest:
        """Return the manifest; reads it if the version is in a workspace."""
        return self.listed_manifest or Artifact.open(self.path, verify=False).manifest


class Repository:
    """The models of a workspace and of folders. Safe to use from any thread.

    A version is opened by `preload`, by `poll` when it becomes active, or by its first request. The
    previous version answers until the new one is open. A version that cannot be opened affects no other.

    Args:
        workspace: its models are served in their active versions; other versions on request.
        folders: folders of models, or of one model version; see `graphbox.server.sources`.
        target: adapter to run models on.
        threads: threads of one model execution.
        counters: of the server; None: this process alone serves.
        state: requests about models; None: those noted in the workspace, else of this process alone.
        nearest: whether nearest nodes are found by an index.
        requires_model: whether it is ready only once there is a model.
        max_updated_bytes: most bytes of changed rows of a model version.

    Attributes:
        counters: counters of the server.
        routes: by model name, where requests go besides the active version; replaced, never changed.

    Raises:
        NotFoundError: a folder does not exist.
        FormatError: a folder holds a damaged or misplaced manifest.
        UsageError: two sources hold a model of the same name.
    """

    def __init__(
        self,
        workspace: Workspace | None,
        folders: Sequence[Path] = (),
        target: str = "auto",
        threads: int = 1,
        counters: Counters | None = None,
        state: ServingState | None = None,
        nearest: NearestMode = "exact",
        requires_model: bool = False,
        max_updated_bytes: int = MAX_UPDATED_BYTES,
    ) -> None:
        self.counters = counters or Counters.of_one_process()
        self._state = state or ServingState(workspace.serving_records() if workspace is not None else None)
        sources: list[Source] = [WorkspaceModels(workspace)] if workspace is not None else []
        sources += [open_folder(path) for path in folders]
        self._sources = OwnedSources(sources)
        self._target = target
        self._threads = threads
        self._nearest = nearest
        self._requires_model = requires_model
        self._max_updated_bytes = max_updated_bytes
        self._lock = threading.RLock()
        self._slots: dict[str, dict[int, Slot]] = {}
        self._manifests: dict[Path, Manifest | None] = {}
        self._active: dict[str, int] = {}
        self._current: dict[str, int] = {}
        self._followed: dict[str, Slot] = {}
        self._idle_versions: OrderedDict[tuple[str, int], Slot] = OrderedDict()
        self._preloaded = False
        self.routes: Mapping[str, Route] = {}
        self._routed_traffic: object = None
        self._kept: frozenset[tuple[str, int]] = frozenset()
        self._apply_listings()
        self.apply_traffic()

    # Queries

    def names(self) -> set[str]:
        """Return the names of all models."""
        with self._lock:
            return set(self._slots)

    def has(self, name: str) -> bool:
        """Return whether a model of that name is known."""
        with self._lock:
            return name in self._slots

    def slots(self) -> list[Slot]:
        """Return the slots of all model versions that have received requests."""
        with self._lock:
            slots = self._all_slots()
        return [slot for slot in slots if any(each.used for each in slot.statistics.values())]

    def known(self) -> list[Known]:
        """Return every model version, by name and version."""
        self._discover()
        with self._lock:
            return [
                self._known(slot)
                for _, versions in sorted(self._slots.items())
                for _, slot in sorted(versions.items())
            ]

    def _known(self, slot: Slot) -> Known:
        state, reason = slot.state()
        if self._state.is_unloaded(slot.name):
            state, reason = "UNAVAILABLE", "unloaded"
        current = self._current[slot.name] == slot.version
        manifest = self._manifests.get(slot.path)
        effective = slot.effective()
        return Known(
            slot.name, slot.version, slot.path, current, slot.suffixes(), state, reason, effective, manifest
        )

    def readiness(self) -> Readiness:
        """Return whether every model that should be served answers in some version. Never blocks."""
        with self._lock:
            current = [
                self._slots[name][version]
                for name, version in sorted(self._current.items())
                if not self._state.is_unloaded(name)
            ]
            preloaded, has_models = self._preloaded, bool(self._current)
        available: list[str] = []
        loading: list[str] = []
        failed: dict[str, str] = {}
        for slot in current:
            state, reason = slot.state()
            if state == "UNAVAILABLE":
                failed[slot.name] = f"version {slot.version}: {reason}"
            else:
                (available if state == "READY" else loading).append(slot.name)
        is_ready = preloaded and not failed
        if self._requires_model and not available:
            is_ready = is_ready and has_models and not current  # all of them were unloaded
        return Readiness(is_ready, available, loading, failed)

    def versions(self, name: str) -> list[int]:
        """Return the versions of a model, ascending.

        Raises:
            NotFoundError: the model does not exist.
        """
        with self._lock:
            self.slot(name)
            return sorted(self._slots[name])

    def slot(self, name: str, version: int | None = None) -> Slot:
        """Return the slot of a model version.

        Raises:
            NotFoundError: the model or the version does not exist.
            BackendMissingError: the model was unloaded.
        """
        found = self.find(name, version)
        if found is None:
            # It may be newer than the last listing.
            self._discover()
            with self._lock:
                found = self.find(name, version)
                if found is None:
                    raise self._unknown(name, version)
        return found

    def find(self, name: str, version: int | None = None) -> Slot | None:
        """Return the slot of a model version of the last listing, or None. Never blocks.

        Raises:
            BackendMissingError: the model was unloaded.
        """
        with self._lock:
            versions = self._slots.get(name)
            if versions is None:
                return None
            if self._state.is_unloaded(name):
                raise BackendMissingError(
                    f"the model `{name}` was unloaded",
                    hint=f"POST /v2/repository/models/{name}/load serves it again",
                )
            return versions.get(self._current[name] if version is None else version)

    def _unknown(self, name: str, version: int | None) -> NotFoundError:
        versions = self._slots.get(name)
        if versions is not None:
            return NotFoundError(
                f"the model `{name}` has no version {version}",
                hint=f"its versions: {', '.join(str(number) for number in sorted(versions)[-20:])}",
            )
        # It does not name others: a client that may infer need not be one that may list them.
        return NotFoundError(f"there is no model `{name}`", hint="GET /api/v1/models lists what there is")

    # Use

    @contextmanager
    def use(self, name: str, version: int | None = None) -> Iterator[ServedModel]:
        """Yield an open model version; it stays open for the duration of the block.

        Raises:
            NotFoundError: the model or the version does not exist.
            GraphboxError: it cannot be opened.
        """
        slot = self.slot(name, version)
        model = slot.enter()
        try:
            yield model
        finally:
            self.leave(slot)

    def leave(self, slot: Slot) -> None:
        """Count one user of ``slot`` less; of versions that are not current, only the last used stay open."""
        slot.leave()
        key = slot.name, slot.version
        with self._lock:
            if self._current.get(slot.name) == slot.version or key in self._kept:
                return
            self._idle_versions[key] = slot
            self._idle_versions.move_to_end(key)
            excess = [
                self._idle_versions.popitem(last=False)[1]
                for _ in range(len(self._idle_versions) - _MOST_IDLE_VERSIONS)
            ]
        for oldest in excess:
            oldest.close()

    # Changes

    def load(self, name: str) -> None:
        """Open the active version of a model and serve it; the previous one answers until it is open.

        Its canary and its shadow are opened, too; one that cannot be opened is logged.

        Raises:
            NotFoundError: the model does not exist.
            GraphboxError: the version cannot be opened, or the request not be noted; the previous one keeps
                answering.
        """
        self._discover()
        with self._lock:
            if name not in self._slots:
                raise self._unknown(name, None)
            slot = self._slots[name][self._active[name]]
        slot.retry()
        slot.open()
        try:
            self._state.write(name, unloaded=False)
        finally:
            self._switch_to(slot)
        self._follow_route(name, retry=True)

    def unload(self, name: str) -> None:
        """Stop serving a model; running requests are completed.

        Raises:
            NotFoundError: the model does not exist.
            GraphboxError: the request cannot be noted; the model is still served.
        """
        with self._lock:
            if name not in self._slots:
                raise self._unknown(name, None)
        self._state.write(name, unloaded=True)
        self._close_unloaded({name})

    def poll_requests(self) -> frozenset[str]:
        """Follow requests that other workers answered: stop serving what was unloaded.

        Returns:
            Names of the models that were loaded, for `follow_loads`.
        """
        names = self._state.poll()
        unloaded = {name for name in names if self._state.is_unloaded(name)}
        self._close_unloaded(unloaded)
        return names - unloaded

    def follow_loads(self, names: Iterable[str], stop: Callable[[], bool] = lambda: False) -> None:
        """Do what `load` did in another worker; a version that cannot be opened is logged.

        Raises:
            GraphboxError: a source cannot be read.
        """
        self._discover()
        for name in names:
            if stop():
                return
            with self._lock:
                slot = self._slots[name][self._active[name]] if name in self._slots else None
            if slot is not None:
                slot.retry()
                self._follow_model(name)
                self._follow_route(name, retry=True)

    def follow_row_updates(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Apply the active row update of each open version, as `poll_requests` found it; raises nothing."""
        with self._lock:
            slots = self._all_slots()
        for slot in slots:
            if stop():
                return
            try:
                slot.follow_rows()
            except Exception:  # the other models must still be followed
                logger.exception("model %s version %d: rows cannot be updated", slot.name, slot.version)

    def apply_traffic(self) -> frozenset[str]:
        """Route requests to canaries and shadows as `poll_requests` found them; never opens one.

        Returns:
            Names of the models whose canary or shadow changed, for `follow_traffic`.
        """
        traffic, before = self._state.traffic, self.routes
        if traffic is self._routed_traffic:
            return frozenset()
        routes = routes_of(traffic, before, self.counters)
        with self._lock:
            self._routed_traffic, self.routes = traffic, routes
            self._kept = frozenset(
                (name, version) for name, route in routes.items() for _, version in route.versions
            )
            for key in self._kept:  # a version that was asked for by its number before is idle no more
                self._idle_versions.pop(key, None)
        return frozenset(name for name in routes.keys() | before if routes.get(name) is not before.get(name))

    def follow_traffic(self, names: Iterable[str], stop: Callable[[], bool] = lambda: False) -> None:
        """Open canaries and shadows, and close versions that were one and get no requests any more.

        A version that cannot be opened is logged.

        Raises:
            GraphboxError: a source cannot be read.
        """
        self._discover()
        for name in names:
            if stop():
                return
            self._follow_route(name, retry=True)
            with self._lock:
                used = {self._current.get(name), self._active.get(name)}
                slots = [
                    slot
                    for version, slot in self._slots.get(name, {}).items()
                    if version not in used and (name, version) not in self._kept
                ]
            for slot in slots:
                slot.close()

    def add_shadow_sums(self, name: str, change: int, sums: ShadowSums) -> None:
        """Add to the sums of a shadow that all servers share, unless it has ended.

        Raises:
            GraphboxError: the database cannot be written; nothing changes.
        """
        self._state.add_shadow_sums(name, change, sums)

    def _close_unloaded(self, names: Iterable[str]) -> None:
        with self._lock:
            slots = [slot for name in names for slot in self._slots.get(name, {}).values()]
        for slot in slots:
            slot.close()

    def preload(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Open the active version of every model; ends early when ``stop`` returns True."""
        self._follow(stop)
        with self._lock:
            self._preloaded = True

    def poll(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Follow the sources: serve new active versions, and drop versions that are gone.

        A source that cannot be read keeps its last listing; the error is logged once.
        """
        if self._sources.poll():
            self._apply_listings()
        self._follow(stop)

    def reload(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Read every source again and retry every version that failed to open.

        Raises:
            GraphboxError: a source cannot be read; nothing changes.
        """
        self._discover()
        with self._lock:
            slots = self._all_slots()
        for slot in slots:
            slot.retry()
        self._follow(stop)

    def close(self) -> None:
        """Close every model as soon as it has no users."""
        with self._lock:
            slots = self._all_slots()
        for slot in slots:
            slot.close()

    def _follow(self, stop: Callable[[], bool]) -> None:
        """Open and switch to each active version that does not answer yet and has not failed."""
        for name in sorted(self.names()):
            if stop():
                return
            self._follow_model(name)
            self._follow_route(name)

    def _follow_model(self, name: str) -> None:
        with self._lock:
            if name not in self._slots or self._state.is_unloaded(name):
                return
            slot = self._slots[name][self._active[name]]
            is_new = self._followed.get(name) is not slot
            self._followed[name] = slot
            is_current = self._current[name] == slot.version
        if is_new:
            slot.retry()  # it failed when it was active before
        state, _ = slot.state()
        if state == "UNAVAILABLE" or (state == "READY" and is_current):
            return
        try:
            slot.open()
        except GraphboxError:
            self._log_survivor(name, slot)
            return
        self._switch_to(slot)

    def _follow_route(self, name: str, *, retry: bool = False) -> None:
        """Open the canary and the shadow of a model; one that fails is retried where ``retry`` is set."""
        route = self.routes.get(name)
        for role, version in [] if route is None else route.versions:
            with self._lock:
                slot = self._slots.get(name, {}).get(version)
            if slot is None or self._state.is_unloaded(name):
                continue
            if retry:
                slot.retry()
            if slot.state()[0] != "LOADING":
                continue
            try:
                slot.open()
            except GraphboxError:
                logger.warning("model %s: the %s, version %d, gets no requests", name, role, version)

    def _log_survivor(self, name: str, failed: Slot) -> None:
        """Log which version keeps answering; the slot has logged why it could not be opened."""
        current = self.find(name)
        if current is not None and current is not failed and current.state()[0] == "READY":
            logger.warning("model %s: version %d keeps answering", name, current.version)

    def _switch_to(self, slot: Slot) -> None:
        """Let an open version answer for its name, unless it was removed, replaced or unloaded meanwhile."""
        name = slot.name
        with self._lock:
            versions = self._slots.get(name, {})
            if versions.get(slot.version) is not slot or self._state.is_unloaded(name):
                replaced: Slot | None = slot
            elif self._active[name] != slot.version:
                replaced = None if self._current[name] == slot.version else slot
            else:
                before = versions.get(self._current[name])
                replaced = None if before is slot else before
                self._make_current(name, slot.version)
            if replaced is not None and (name, replaced.version) in self._kept:
                replaced = None
        if replaced is slot:
            logger.info("model %s version %d was superseded while it was opened", name, slot.version)
        elif replaced is not None:
            logger.info("model %s: version %d replaces version %d", name, slot.version, replaced.version)
        if replaced is not None:
            replaced.close()

    # Listings

    def _discover(self) -> None:
        """Read the listings of all sources; what answers changes only where its version is gone."""
        try:
            self._sources.read()
        finally:  # those before the one that cannot be read
            self._apply_listings()

    def _apply_listings(self) -> None:
        """Make and drop slots so that they match the listings."""
        with self._lock:
            self._sources.assign_owners()
            owners = self._sources.owners
            owned = {name: owner.listing for name, owner in owners.items()}
            listed = {
                (name, version.version): version
                for name, listing in owned.items()
                for version in listing.versions
                if version.name == name
            }
            gone = self._drop_unlisted(listed)
            for (name, number), version in listed.items():
                versions = self._slots.setdefault(name, {})
                if number not in versions:
                    versions[number] = self._slot_of(version, owners[name].is_workspace)
            self._manifests = {version.path: version.manifest for version in listed.values()}
            for name, versions in self._slots.items():
                self._active[name] = owned[name].active.get(name, max(versions))
                if self._current.get(name) not in versions:
                    self._make_current(name, self._active[name])
        for slot in gone:
            slot.close()

    def _slot_of(self, version: VersionFolder, in_workspace: bool) -> Slot:
        """Return the slot of a new version; of a folder the newest row update is active."""
        noted = partial(self._state.row_sequence, version.name, version.version)
        return Slot(
            version,
            self._target,
            self._threads,
            self.counters,
            self._nearest,
            wanted_rows=noted if in_workspace else None,
            max_updated_bytes=self._max_updated_bytes,
        )

    def _drop_unlisted(self, listed: Mapping[tuple[str, int], VersionFolder]) -> list[Slot]:
        """Remove and return the slots whose version is gone, has moved or was rewritten."""
        gone: list[Slot] = []
        for slot in self._all_slots():
            found = listed.get((slot.name, slot.version))
            # One that is listed and whose files are away for now stays open.
            if found is None or found.path != slot.path or found.stamp not in {slot.stamp, None}:
                gone.append(self._slots[slot.name].pop(slot.version))
                self._idle_versions.pop((slot.name, slot.version), None)
        for name in self._slots.keys() - {name for name, _ in listed}:
            del self._slots[name], self._active[name], self._current[name]
            self._followed.pop(name, None)
        return gone

    def _make_current(self, name: str, version: int) -> None:
        self._current[name] = version
        self._idle_versions.pop((name, version), None)

    def _all_slots(self) -> list[Slot]:
        return [slot for versions in self._slots.values() for slot in versions.values()]
