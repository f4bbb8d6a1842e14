"""The inference core: finds the model, checks in and out, runs calls and counts them. It has no transport."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from graphbox.artifact import check_name
from graphbox.deploy.signature import SUFFIXES, WHOLE, Signature
from graphbox.errors import InvalidRequestError, NotFoundError, UsageError
from graphbox.server.announced import Announcement
from graphbox.server.batching import Call, Outcome
from graphbox.server.executor import Executor
from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.server.shadow import Shadows
from graphbox.server.slot import Endpoint, ServedModel, Slot
from graphbox.server.telemetry import InferenceTimes, ModelStatistics
from graphbox.server.traffic import Route, ShadowRoute

__all__ = ["Inference", "Lease", "split_name"]


class Inference:
    """Calls of the models of a repository, by name and version.

    Args:
        repository: the models.
        executor: threads on which models are opened and long calls run.
        settings: of the server.

    Attributes:
        shadows: repeats calls on shadows.
    """

    def __init__(self, repository: Repository, executor: Executor, settings: Settings) -> None:
        self._repository = repository
        self._executor = executor
        self._settings = settings
        self.shadows = Shadows(repository, executor, repository.add_shadow_sums)

    @property
    def splits_requests(self) -> bool:
        """Whether a model may have a canary, so that routing keys of requests matter."""
        return bool(self._repository.routes)

    def enter_now(self, name: str, version: str | None, routing_key: bytes | None = None) -> Lease | None:
        """Return a lease of an open model version; None: `enter` has to look for it, or to open it.

        Args:
            name: of a model, with the suffix of one of its signatures.
            version: None: the one that answers for the name, or the canary for its share of the requests.
            routing_key: requests with the same one go to the same version.

        Raises:
            NotFoundError: the version is no number, or the model has no such signature.
            BackendMissingError: the model was unloaded.
        """
        number = _version_number(name, version)
        slot, suffix = self._find(name, number)
        if slot is None:
            return None
        route = None
        if self._repository.routes and number is None:
            route = self._repository.routes.get(slot.name)
            lease = None if route is None else self._enter_canary(route, name, slot, suffix, routing_key)
            if lease is not None:
                return lease
        model = slot.try_enter()
        return None if model is None else self._lease(name, slot, model, suffix, route)

    async def enter(
        self, name: str, version: str | None, routing_key: bytes | None = None, *, split: bool = True
    ) -> Lease:
        """Return a lease of a model version; it is opened first where needed. See `enter_now`.

        Args:
            name: see `enter_now`.
            version: see `enter_now`.
            routing_key: see `enter_now`.
            split: whether the canary gets its share; documents are of the version that answers for the name.

        Raises:
            NotFoundError: there is no such model, version or signature.
            InvalidRequestError: the name is none that a model can have.
            BackendMissingError: the model was unloaded.
            GraphboxError: the version cannot be opened.
        """
        slot, suffix = await self.find(name, version)
        route = self._repository.routes.get(slot.name) if version is None and split else None
        if route is not None:
            lease = self._enter_canary(route, name, slot, suffix, routing_key)
            if lease is not None:
                return lease
        # Users are counted here: one that is counted on a thread would stay where this task is cancelled.
        while (model := slot.try_enter()) is None:
            await self._executor.run(slot.open)
        return self._lease(name, slot, model, suffix, route)

    @contextmanager
    def use(
        self, name: str, version: int | None = None, routing_key: str | None = None
    ) -> Iterator[ServedModel]:
        """Yield an open model version; it stays open for the duration of the block. On any thread.

        Args:
            name: of the model.
            version: see `enter_now`.
            routing_key: text of the header, its bytes as Latin-1.

        Raises:
            NotFoundError: the model or the version does not exist.
            GraphboxError: it cannot be opened.
        """
        entered = None
        route = self._repository.routes.get(name) if version is None else None
        if route is not None:
            key = routing_key.encode("latin-1") if routing_key else None  # as it was sent
            entered = self._open_canary(route, self._repository.slot(name), key)
        if entered is None:
            with self._repository.use(name, version) as model:
                yield model
            return
        slot, model = entered
        try:
            yield model
        finally:
            self._repository.leave(slot)

    async def find(self, name: str, version: str | None) -> tuple[Slot, str]:
        """Return a model version, open or not, and the suffix of a signature; raises as `enter` does."""
        number = _version_number(name, version)
        slot, suffix = self._find(name, number)
        if slot is not None:
            return slot, suffix
        check_model_name(name)
        return await self._executor.run(lambda: self._look_up(name, number))

    def announce(self, name: str, version: str | None, size_bytes: int) -> Announcement | None:
        """Count the body of a large request that is about to be received; None: its model is not open.

        Raises:
            NotFoundError: the version is no number, or the model has no such signature.
            BackendMissingError: the model was unloaded.
            RefusedError: 503, too much waits for the model.
        """
        slot, suffix = self._find(name, _version_number(name, version))
        model = None if slot is None else slot.try_enter()
        if slot is None or model is None:
            return None
        try:
            return model.endpoint(suffix, self._executor, self._settings).announced.announce(size_bytes)
        finally:
            self._repository.leave(slot)

    def _find(self, name: str, number: int | None) -> tuple[Slot | None, str]:
        slot = self._repository.find(name, number)
        if slot is not None:
            return slot, WHOLE
        base, suffix = split_name(name)
        if suffix and not self._repository.has(name):
            return self._repository.find(base, number), suffix
        return None, WHOLE

    def _look_up(self, name: str, number: int | None) -> tuple[Slot, str]:
        try:
            return self._repository.slot(name, number), WHOLE
        except NotFoundError:
            base, suffix = split_name(name)
            if not suffix or self._repository.has(name):
                raise
            return self._repository.slot(base, number), suffix

    def _enter_canary(
        self, route: Route, name: str, active: Slot, suffix: str, routing_key: bytes | None
    ) -> Lease | None:
        """Return a lease of the canary if it gets this request; None: the active version gets it."""
        entered = self._open_canary(route, active, routing_key)
        if entered is None:
            return None
        try:
            return self._lease(name, *entered, suffix)
        except NotFoundError:  # the canary lacks the signature
            if route.canary is not None:
                route.canary.count_unavailable()
            return None

    def _open_canary(
        self, route: Route, active: Slot, routing_key: bytes | None
    ) -> tuple[Slot, ServedModel] | None:
        """Return the canary, with a user counted, if it gets this request and is open."""
        canary = route.canary
        if canary is None or canary.version == active.version or not canary.share.takes(routing_key):
            return None
        slot = self._repository.find(active.name, canary.version)
        model = None if slot is None else slot.try_enter()
        if slot is None or model is None:
            canary.count_unavailable()
            return None
        return slot, model

    def _lease(
        self, name: str, slot: Slot, model: ServedModel, suffix: str, route: Route | None = None
    ) -> Lease:
        try:
            endpoint = model.endpoint(suffix, self._executor, self._settings)
        except BaseException:
            self._repository.leave(slot)
            raise
        lease = Lease(self._repository, name, slot, endpoint, slot.statistics[suffix])
        if route is not None and route.shadow is not None and route.shadow.shadow.version != slot.version:
            lease.repeat = partial(self._repeat, route.shadow, suffix)
        return lease

    def _repeat(self, shadow: ShadowRoute, suffix: str, call: Call, outcome: Outcome) -> None:
        """Repeat an answered call on a shadow."""
        if outcome.outputs is not None:
            active_ns = outcome.ended_ns - outcome.begun_ns
            self.shadows.offer(shadow, suffix, call.inputs, call.parameters, outcome.outputs, active_ns)


class Lease:
    """One user of an open model version, which stays open until `leave`.

    Attributes:
        name: as the client wrote it.
        version: number of the version, as text.
        signature: inputs, outputs and parameters.
        limits: on one request.
        heads: see `Endpoint.heads`.
        statistics: of the signature.
        repeat: called with each answered call, to repeat it on a shadow; None: it is not repeated.
    """

    __slots__ = (
        "_endpoint",
        "_repository",
        "_slot",
        "heads",
        "limits",
        "name",
        "repeat",
        "signature",
        "statistics",
        "version",
    )

    def __init__(
        self,
        repository: Repository,
        name: str,
        slot: Slot,
        endpoint: Endpoint,
        statistics: ModelStatistics,
    ) -> None:
        self._repository = repository
        self._slot = slot
        self._endpoint = endpoint
        self.name = name
        self.version = slot.version_text
        self.signature: Signature = endpoint.signature
        self.limits = endpoint.limits
        self.heads = endpoint.heads
        self.statistics = statistics
        self.repeat: Callable[[Call, Outcome], None] | None = None

    @property
    def model_name(self) -> str:
        """Name of the model, without the suffix of a signature."""
        return self._slot.name

    @property
    def version_number(self) -> int:
        """Number of the version."""
        return self._slot.version

    def work_ns(self, call: Call) -> float:
        """Return the estimated time of a call, at least; 0: it is not known."""
        return self._endpoint.batcher.cost.at_least_ns(self.signature.work(call.inputs))

    def submit(self, call: Call, done: Callable[[Outcome], None]) -> None:
        """Run a call; see `Batcher.submit`. On the event loop's thread."""
        self._endpoint.batcher.submit(call, done)

    async def infer(self, call: Call) -> Outcome:
        """Return the outcome of a call; cancelled, it cancels the call.

        Raises:
            RefusedError: 503, too much waits.
            TimeLimitError: the time limit has passed.
        """
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit(call, lambda found: None if outcome.done() else outcome.set_result(found))
        try:
            return await outcome
        except asyncio.CancelledError:
            call.cancel()
            raise

    def answered(self, call: Call, outcome: Outcome, rows: int) -> None:
        """Count a call whose answer is encoded; repeat it on a shadow where there is one."""
        if self.repeat is not None:
            self.repeat(call, outcome)
        now = time.perf_counter_ns()
        self.statistics.succeeded(
            rows,
            InferenceTimes(
                total_ns=now - call.started_ns,
                queue_ns=outcome.begun_ns - call.decoded_ns,
                input_ns=call.decoded_ns - call.received_ns,
                infer_ns=outcome.ended_ns - outcome.begun_ns,
                output_ns=now - outcome.ended_ns,
            ),
            outcome.executions,
        )

    def failed(self, started_ns: int) -> None:
        """Count a call that was refused or failed."""
        self.statistics.failed(time.perf_counter_ns() - started_ns)

    def leave(self) -> None:
        """End the use; a version that was replaced closes with its last user."""
        self._repository.leave(self._slot)


def split_name(name: str) -> tuple[str, str]:
    """Return a model's name and the suffix of a signature; the suffix is empty where there is none."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return name, WHOLE


def check_model_name(name: str) -> None:
    """Refuse a name that no model can have.

    Raises:
        InvalidRequestError: it is one.
    """
    try:
        check_name(name, "model name")
    except UsageError as error:
        raise InvalidRequestError(error.message) from error


def _version_number(name: str, version: str | None) -> int | None:
    if version is None:
        return None
    if not (version.isascii() and version.isdigit() and len(version) < 10):
        raise NotFoundError(f"the model `{name[:128]}` has no version {version[:64]!r}: versions are numbers")
    return int(version)
