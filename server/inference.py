"""The inference core: finds the model, checks in and out, runs calls and counts them. It has no transport."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from graphbox.artifact import check_name
from graphbox.deploy.signature import SUFFIXES, WHOLE, Signature
from graphbox.errors import InvalidRequestError, NotFoundError, UsageError
from graphbox.server.batching import Call, Outcome
from graphbox.server.executor import Executor
from graphbox.server.repository import Repository
from graphbox.server.settings import RequestLimits, Settings
from graphbox.server.slot import Endpoint, ServedModel, Slot
from graphbox.server.telemetry import InferenceTimes, ModelStatistics

__all__ = ["Inference", "Lease", "split_name"]


class Inference:
    """Calls of the models of a repository, by name and version.

    Args:
        repository: the models.
        executor: threads on which models are opened and long calls run.
        settings: of the server.
    """

    def __init__(self, repository: Repository, executor: Executor, settings: Settings) -> None:
        self._repository = repository
        self._executor = executor
        self._settings = settings

    def enter_now(self, name: str, version: str | None) -> Lease | None:
        """Return a lease of an open model version; None: `enter` has to look for it, or to open it.

        Args:
            name: of a model, with the suffix of one of its signatures.
            version: None: the one that answers for the name.

        Raises:
            NotFoundError: the version is no number, or the model has no such signature.
            BackendMissingError: the model was unloaded.
        """
        number = _version_number(name, version)
        slot, suffix = self._find(name, number)
        if slot is None:
            return None
        model = slot.try_enter()
        return None if model is None else self._lease(name, slot, model, suffix)

    async def enter(self, name: str, version: str | None) -> Lease:
        """Return a lease of a model version; it is opened first where needed.

        Raises:
            NotFoundError: there is no such model, version or signature.
            InvalidRequestError: the name is none that a model can have.
            BackendMissingError: the model was unloaded.
            GraphboxError: the version cannot be opened.
        """
        slot, suffix = await self.find(name, version)
        # Users are counted here: one that is counted on a thread would stay where this task is cancelled.
        while (model := slot.try_enter()) is None:
            await self._executor.run(slot.open)
        return self._lease(name, slot, model, suffix)

    async def find(self, name: str, version: str | None) -> tuple[Slot, str]:
        """Return a model version, open or not, and the suffix of a signature; raises as `enter` does."""
        number = _version_number(name, version)
        slot, suffix = self._find(name, number)
        if slot is not None:
            return slot, suffix
        check_model_name(name)
        return await self._executor.run(lambda: self._look_up(name, number))

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

    def _lease(self, name: str, slot: Slot, model: ServedModel, suffix: str) -> Lease:
        try:
            endpoint = model.endpoint(suffix, self._executor, self._settings)
        except BaseException:
            self._repository.leave(slot)
            raise
        limits = RequestLimits(self._settings.rows_limit(slot.name), self._settings.max_json_bytes)
        return Lease(self._repository, name, slot, endpoint, limits, slot.statistics[suffix])


class Lease:
    """One user of an open model version, which stays open until `leave`.

    Attributes:
        name: as the client wrote it.
        version: number of the version, as text.
        signature: inputs, outputs and parameters.
        limits: on one request.
        statistics: of the signature.
    """

    __slots__ = ("_endpoint", "_repository", "_slot", "limits", "name", "signature", "statistics", "version")

    def __init__(
        self,
        repository: Repository,
        name: str,
        slot: Slot,
        endpoint: Endpoint,
        limits: RequestLimits,
        statistics: ModelStatistics,
    ) -> None:
        self._repository = repository
        self._slot = slot
        self._endpoint = endpoint
        self.name = name
        self.version = slot.version_text
        self.signature: Signature = endpoint.signature
        self.limits = limits
        self.statistics = statistics

    @property
    def model_name(self) -> str:
        """Name of the model, without the suffix of a signature."""
        return self._slot.name

    @property
    def version_number(self) -> int:
        """Number of the version."""
        return self._slot.version

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
        """Count a call whose answer is encoded."""
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
