"""The methods of the protocol besides inference, and which method a call is for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from graphbox.errors import GraphboxError, NotFoundError, UsageError
from graphbox.server.access import Access, access_of_method
from graphbox.server.audit import client_name, plain_detail, plain_text, result_of_status
from graphbox.server.auth import TokenRule
from graphbox.server.grpc import inference_messages as messages
from graphbox.server.grpc.call import GrpcCall
from graphbox.server.grpc.codec import compress, parse, plain_message
from graphbox.server.grpc.extensions import extension_methods
from graphbox.server.grpc.health_messages import HealthCheckRequest, HealthCheckResponse
from graphbox.server.grpc.inferring import Inferring
from graphbox.server.grpc.status import Status
from graphbox.server.grpc.watches import HealthWatches
from graphbox.server.http.connection import REQUEST_ID, next_request_id
from graphbox.server.kserve.management import Management
from graphbox.server.logs import AccessEntry, access_logger, log_access
from graphbox.server.problem import PublicText, RefusedError
from graphbox.server.services import Services
from graphbox.workspace.audit import AuditRequest, AuditResult

__all__ = ["INFER_PATH", "MAX_SMALL_MESSAGE_BYTES", "STREAM_PATH", "WATCH_PATH", "GrpcService"]

logger = logging.getLogger("graphbox.server")

_PROTOCOL = "inference.GRPCInferenceService"
INFER_PATH = f"/{_PROTOCOL}/ModelInfer"
STREAM_PATH = f"/{_PROTOCOL}/ModelStreamInfer"
WATCH_PATH = "/grpc.health.v1.Health/Watch"
MAX_SMALL_MESSAGE_BYTES = 16 * 1024
"""Largest message that names a model or a setting, before and after decompression: as over REST."""
_PATHS_OF_THEIR_OWN = frozenset({INFER_PATH, STREAM_PATH, WATCH_PATH})
# Of larger requests, the size alone is noted in the audit log.
_MAX_DETAIL_BYTES = 2048
# Statuses of calls that failed for a reason of the server.
_FAILURES = frozenset(
    {Status.UNKNOWN, Status.INTERNAL, Status.UNAVAILABLE, Status.DATA_LOSS, Status.DEADLINE_EXCEEDED}
)

_Answer = Callable[[Any], Awaitable[Message]]


class GrpcService:
    """Answers the calls of all connections.

    Args:
        services: the parts of the server.

    Attributes:
        services: the same.
        needs_admission: whether calls are admitted before their messages: they have to present a token, or
            those of each client are limited, or some methods are restricted.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.needs_admission = (
            services.token_rule is not None
            or services.client_limits is not None
            or services.restrictions is not None
        )
        self._management = Management(services)
        self._watches = HealthWatches(self._health, services.stopping.is_set)
        self._tasks: set[asyncio.Task[None]] = set()
        of_protocol: dict[str, tuple[Callable[[bytes], Message], _Answer]] = {
            "ServerLive": (messages.ServerLiveRequest.FromString, self._live),
            "ServerReady": (messages.ServerReadyRequest.FromString, self._ready),
            "ModelReady": (messages.ModelReadyRequest.FromString, self._model_ready),
            "ServerMetadata": (messages.ServerMetadataRequest.FromString, self._server_metadata),
            "ModelMetadata": (messages.ModelMetadataRequest.FromString, self._metadata),
            "ModelConfig": (messages.ModelConfigRequest.FromString, self._configuration),
            "ModelStatistics": (messages.ModelStatisticsRequest.FromString, self._statistics),
            "RepositoryIndex": (messages.RepositoryIndexRequest.FromString, self._index),
            "RepositoryModelLoad": (messages.RepositoryModelLoadRequest.FromString, self._load),
            "RepositoryModelUnload": (messages.RepositoryModelUnloadRequest.FromString, self._unload),
            **extension_methods(services),
        }
        self._methods = {f"/{_PROTOCOL}/{name}": method for name, method in of_protocol.items()}
        self._methods["/grpc.health.v1.Health/Check"] = (HealthCheckRequest.FromString, self._check)

    async def stop(self) -> None:
        """Return once calls that change something have ended, and are in the audit log."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _method_of(self, path: str) -> str:
        """Return a path as a label of metrics: unknown ones, which clients choose, have one together."""
        return path if path in _PATHS_OF_THEIR_OWN or path in self._methods else "unknown"

    def count(self, call: GrpcCall, status: Status) -> None:
        """Count a call that was answered, or whose client has left: `Status.CANCELLED`."""
        method, seconds = self._method_of(call.method), call.seconds
        services = self.services
        services.telemetry.call(method, status.name, seconds)
        if call.waiting_state is not None and services.client_limits is not None:
            services.client_limits.end(call.waiting_state)
            call.waiting_state = None
        if call.trace is not None and services.tracing is not None:
            failed = status in _FAILURES
            attributes: dict[str, str | int] = {
                "rpc.system": "grpc",
                "rpc.method": method,
                "rpc.grpc.status_code": int(status),
            }
            services.tracing.end(call.trace, method, attributes, status.name if failed else None)
        if access_logger.isEnabledFor(logging.INFO):
            _log_call(call, method, status, seconds)

    def admit(self, call: GrpcCall) -> None:
        """Refuse a call whose token lacks the scope of its method, and calls of a client that sends too many.

        Where a method may read or change, the scope is checked once its message is there: see `_answer`.

        Raises:
            RefusedError: 401, 403, 429.
        """
        access, rule, limits = (
            access_of_method(call.method),
            self.services.token_rule,
            self.services.client_limits,
        )
        if self.services.restrictions is not None:
            self.services.restrictions.check_call(access.category, call.header)
        if access.scope is None:
            return
        if rule is not None:
            scope = access.scope if access.change is None else None
            call.principal = rule.check({b"authorization": call.header("authorization")}, scope)
        if limits is not None:
            call.client_state = limits.take(call.principal, call.address)

    def answer(self, call: GrpcCall, message: bytes) -> None:
        """Answer a call with one message, now or later."""
        if call.client_state is not None and not self._begin_waiting(call):
            return
        if self.services.tracing is not None:
            call.trace = self.services.tracing.begin(
                call.header("traceparent"), call.header("tracestate"), call.started_ns
            )
        if access_logger.isEnabledFor(logging.INFO):
            call.request_id = _request_id_of(call)
        if call.method == INFER_PATH:
            inferring = Inferring(self.services, call, call.started_ns, call.timeout_s, call.encoding)
            call.on_left = inferring.leave
            inferring.start(message)
            return
        if call.method == WATCH_PATH:
            self._watch(call, message)
            return
        if call.method not in self._methods:
            call.finish(
                Status.UNIMPLEMENTED, f"no method {call.method[:256]} in the protocols of this server"
            )
            return
        task = asyncio.get_running_loop().create_task(self._answer(call, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        access = access_of_method(call.method)
        if access.action or access.change:  # it ends, and is noted, whoever waits for it
            return
        call.on_left = task.cancel
        call.limit_time()

    def _begin_waiting(self, call: GrpcCall) -> bool:
        """Count a call among those of its client that wait; return whether it was not refused."""
        limits, state = self.services.client_limits, call.client_state
        if limits is None or state is None:
            return True
        try:
            limits.begin(state)
        except RefusedError as refusal:
            call.fail(refusal)
            return False
        call.waiting_state = state
        return True

    async def _answer(self, call: GrpcCall, message: bytes) -> None:
        kind, answer = self._methods[call.method]
        try:
            request = self._parsed(kind, call, message)
            action = _access_of(call, request).action
            answering = answer(request) if action is None else self._recorded(call, action, request, answer)
            response = (await answering).SerializeToString()
        except Exception as error:  # noqa: BLE001 - answered
            call.fail(error)
            return
        call.answer(*compress(response, call.encoding))

    async def _recorded(self, call: GrpcCall, action: str, request: Message, answer: _Answer) -> Message:
        """Await the answer to a call that changes something; note it before it begins, and before its answer.

        Raises:
            GraphboxError: of the call; or the audit log cannot be written, and nothing was changed.
        """
        audit, executor = self.services.audit, self.services.executor
        call.request_id = call.request_id or _request_id_of(call)
        noted = _audited_call(call, action, request)
        number = await executor.run(lambda: audit.begin(noted))
        error: Exception | None = None
        response: Message | None = None
        try:
            response = await answer(request)
        except Exception as caught:  # noqa: BLE001 - raised again
            error = caught
        result, message = _result_of(error, self.services.public_text)
        try:
            await executor.run(lambda: audit.end(number, noted, result, message))
        except (GraphboxError, RefusedError) as caught:  # its entry says that it was begun
            logger.error("the result of request %s is not in the audit log: %s", noted.request_id, caught)
        if error is not None:
            raise error
        assert response is not None  # noqa: S101 - for the type checker
        return response

    def _parsed(self, kind: Callable[[bytes], Message], call: GrpcCall, message: bytes) -> Message:
        if call.encoding:
            message = plain_message(message, call.encoding, MAX_SMALL_MESSAGE_BYTES)
        return parse(kind, message)

    # Health

    async def _live(self, _request: messages.ServerLiveRequest) -> Message:
        return messages.ServerLiveResponse(live=True)

    async def _ready(self, _request: messages.ServerReadyRequest) -> Message:
        return messages.ServerReadyResponse(ready=self._management.is_ready())

    async def _model_ready(self, request: messages.ModelReadyRequest) -> Message:
        try:
            await self._management.check_ready(request.name, request.version or None)
        except UsageError:  # there is no such model
            raise
        except GraphboxError:  # there is, but it was unloaded or cannot be opened
            return messages.ModelReadyResponse(ready=False)
        return messages.ModelReadyResponse(ready=True)

    async def _check(self, request: HealthCheckRequest) -> Message:
        if request.service not in {"", _PROTOCOL}:
            raise NotFoundError(f"this server has no service {request.service[:128]!r}")
        return HealthCheckResponse(status=self._health(request.service))

    def _health(self, service: str) -> HealthCheckResponse.ServingStatus:
        if service not in {"", _PROTOCOL}:
            return HealthCheckResponse.ServingStatus.SERVICE_UNKNOWN
        is_ready = self._management.is_ready() and not self.services.stopping.is_set()
        status = HealthCheckResponse.ServingStatus
        return status.SERVING if is_ready else status.NOT_SERVING

    def _watch(self, call: GrpcCall, message: bytes) -> None:
        """Send the health now and whenever it changes."""
        try:
            request = self._parsed(HealthCheckRequest.FromString, call, message)
            self._watches.add(call, request.service)  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - answered
            call.fail(error)

    # Metadata

    async def _server_metadata(self, _request: messages.ServerMetadataRequest) -> Message:
        return ParseDict(self._management.server_metadata(), messages.ServerMetadataResponse())

    async def _metadata(self, request: messages.ModelMetadataRequest) -> Message:
        found = await self._management.metadata(request.name, request.version or None)
        return ParseDict(found, messages.ModelMetadataResponse())

    async def _configuration(self, request: messages.ModelConfigRequest) -> Message:
        found = await self._management.configuration(request.name, request.version or None)
        return ParseDict({"config": found}, messages.ModelConfigResponse())

    async def _statistics(self, request: messages.ModelStatisticsRequest) -> Message:
        if request.name:
            found = await self._management.model_statistics(request.name, request.version or None)
        else:
            found = self._management.all_statistics()
        return ParseDict(found, messages.ModelStatisticsResponse())

    # Repository

    async def _index(self, request: messages.RepositoryIndexRequest) -> Message:
        found = await self._management.index(ready_only=request.ready)
        return ParseDict({"models": found}, messages.RepositoryIndexResponse())

    async def _load(self, request: messages.RepositoryModelLoadRequest) -> Message:
        await self._change(request.model_name, "load", request)
        return messages.RepositoryModelLoadResponse()

    async def _unload(self, request: messages.RepositoryModelUnloadRequest) -> Message:
        await self._change(request.model_name, "unload", request)
        return messages.RepositoryModelUnloadResponse()

    async def _change(
        self,
        name: str,
        verb: Literal["load", "unload"],
        request: messages.RepositoryModelLoadRequest | messages.RepositoryModelUnloadRequest,
    ) -> None:
        await self._management.change(name, verb, [*request.parameters])


def _access_of(call: GrpcCall, request: Any) -> Access:
    """Return the access to a method with this request, which may change something.

    Raises:
        RefusedError: 403, the token of the call lacks its scope, which `GrpcService.admit` could not check.
    """
    access = access_of_method(call.method)
    if access.change is None:
        return access
    if request.settings:
        access = access.change
    if call.principal is not None and access.scope is not None:
        TokenRule.check_scope(call.principal, access.scope)
    return access


def _request_id_of(call: GrpcCall) -> str:
    """Return the id that the client gave a call, else a new one."""
    given = call.header("x-request-id")
    return given.decode() if REQUEST_ID.fullmatch(given) else next_request_id().decode()


def _audited_call(call: GrpcCall, action: str, request: Message) -> AuditRequest:
    detail = MessageToDict(request, preserving_proto_field_name=True)
    model = detail.pop("model_name", None)
    if request.ByteSize() > _MAX_DETAIL_BYTES:
        detail = {"body_bytes": request.ByteSize()}
    return AuditRequest(
        client=client_name(call.principal),
        address=call.address,
        action=action,
        model=plain_text(model) if model else None,
        version=None,
        request_id=call.request_id,
        detail=plain_detail(detail),
    )


def _result_of(error: Exception | None, public_text: PublicText) -> tuple[AuditResult, str | None]:
    if error is None:
        return "ok", None
    if isinstance(error, GraphboxError):
        return result_of_status(error.http_status), public_text(error.message)
    if isinstance(error, RefusedError):
        return result_of_status(error.status), error.message
    return "failed", None


def _log_call(call: GrpcCall, method: str, status: Status, seconds: float) -> None:
    lease = call.lease
    log_access(
        AccessEntry(
            "gRPC",
            method,
            method,
            status.name,
            seconds,
            call.request_id,
            call.principal.name if call.principal is not None else call.address,
            None if lease is None else lease.name,
            None if lease is None else lease.version,
            call.sent_bytes,
        )
    )
