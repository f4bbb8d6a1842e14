"""The methods of the protocol besides inference, and which method a call is for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Literal, NoReturn

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from graphbox.errors import GraphboxError, InvalidRequestError, NotFoundError, UsageError
from graphbox.server.grpc import inference_messages as messages
from graphbox.server.grpc.call import GrpcCall
from graphbox.server.grpc.codec import compress, parse, plain_message
from graphbox.server.grpc.health_messages import HealthCheckRequest, HealthCheckResponse
from graphbox.server.grpc.inferring import Inferring
from graphbox.server.grpc.status import Status
from graphbox.server.kserve import schema
from graphbox.server.kserve.management import Management
from graphbox.server.problem import RefusedError
from graphbox.server.services import Services

__all__ = ["INFER_PATH", "STREAM_PATH", "GrpcService"]

access_logger = logging.getLogger("graphbox.server.access")

_PROTOCOL = "inference.GRPCInferenceService"
INFER_PATH = f"/{_PROTOCOL}/ModelInfer"
STREAM_PATH = f"/{_PROTOCOL}/ModelStreamInfer"
_WATCH_PATH = "/grpc.health.v1.Health/Watch"
_INFER_PATHS = frozenset({INFER_PATH, STREAM_PATH, _WATCH_PATH})
_WATCH_INTERVAL_S = 0.5
# Probes have no token; these reveal nothing.
_OPEN_PATHS = frozenset(
    {
        f"/{_PROTOCOL}/ServerLive",
        f"/{_PROTOCOL}/ServerReady",
        "/grpc.health.v1.Health/Check",
        _WATCH_PATH,
    }
)

_Answer = Callable[[Any], Awaitable[Message]]


class GrpcService:
    """Answers the calls of all connections.

    Args:
        services: the parts of the server.

    Attributes:
        services: the same.
        needs_token: whether calls have to present the token of the server.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.needs_token = services.token_rule is not None
        self._management = Management(services)
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
            "SystemSharedMemoryStatus": _fixed(
                messages.SystemSharedMemoryStatusRequest.FromString,
                messages.SystemSharedMemoryStatusResponse(),
            ),
            "SystemSharedMemoryUnregister": _fixed(
                messages.SystemSharedMemoryUnregisterRequest.FromString,
                messages.SystemSharedMemoryUnregisterResponse(),
            ),
            "CudaSharedMemoryStatus": _fixed(
                messages.CudaSharedMemoryStatusRequest.FromString, messages.CudaSharedMemoryStatusResponse()
            ),
            "CudaSharedMemoryUnregister": _fixed(
                messages.CudaSharedMemoryUnregisterRequest.FromString,
                messages.CudaSharedMemoryUnregisterResponse(),
            ),
            "SystemSharedMemoryRegister": (
                messages.SystemSharedMemoryRegisterRequest.FromString,
                _refuse_registration,
            ),
            "CudaSharedMemoryRegister": (
                messages.CudaSharedMemoryRegisterRequest.FromString,
                _refuse_registration,
            ),
            "TraceSetting": (messages.TraceSettingRequest.FromString, _refuse_trace),
            "LogSettings": (messages.LogSettingsRequest.FromString, _refuse_logging),
        }
        self._methods = {f"/{_PROTOCOL}/{name}": method for name, method in of_protocol.items()}
        self._methods["/grpc.health.v1.Health/Check"] = (HealthCheckRequest.FromString, self._check)

    def _method_of(self, path: str) -> str:
        """Return a path as a label of metrics: unknown ones, which clients choose, have one together."""
        return path if path in _INFER_PATHS or path in self._methods else "unknown"

    def count(self, call: GrpcCall, status: Status) -> None:
        """Count a call that was answered, or whose client has left: `Status.CANCELLED`."""
        method, seconds = self._method_of(call.method), call.seconds
        self.services.telemetry.call(method, status.name, seconds)
        if access_logger.isEnabledFor(logging.INFO):
            access_logger.info("gRPC %s %s %.1f ms", method, status.name, seconds * 1e3)

    def admit(self, call: GrpcCall) -> None:
        """Refuse a call without the token of the server.

        Raises:
            RefusedError: 401.
        """
        rule = self.services.token_rule
        if rule is not None and call.method not in _OPEN_PATHS:
            rule.check({b"authorization": call.header("authorization")})

    def answer(self, call: GrpcCall, message: bytes) -> None:
        """Answer a call with one message, now or later."""
        if call.method == INFER_PATH:
            inferring = Inferring(self.services, call, call.started_ns, call.timeout_s, call.encoding)
            call.on_left = inferring.leave
            inferring.start(message)
            return
        if call.method == _WATCH_PATH:
            answering = self._watch(call, message)
        elif call.method in self._methods:
            answering = self._answer(call, message)
        else:
            call.finish(
                Status.UNIMPLEMENTED, f"no method {call.method[:256]} in the protocols of this server"
            )
            return
        task = asyncio.get_running_loop().create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        call.on_left = task.cancel
        call.limit_time()

    async def _answer(self, call: GrpcCall, message: bytes) -> None:
        kind, answer = self._methods[call.method]
        try:
            response = (await answer(self._parsed(kind, call, message))).SerializeToString()
        except Exception as error:  # noqa: BLE001 - answered
            call.fail(error)
            return
        call.answer(*compress(response, call.encoding))

    def _parsed(self, kind: Callable[[bytes], Message], call: GrpcCall, message: bytes) -> Message:
        if call.encoding:
            message = plain_message(message, call.encoding, self.services.settings.max_json_bytes)
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

    async def _watch(self, call: GrpcCall, message: bytes) -> None:
        """Send the health now and whenever it changes."""
        try:
            request = self._parsed(HealthCheckRequest.FromString, call, message)
            service = request.service  # type: ignore[attr-defined]
            last = None
            while not self.services.stopping.is_set():
                status = self._health(service)
                if status != last:
                    call.send(HealthCheckResponse(status=status).SerializeToString())
                    last = status
                await asyncio.sleep(_WATCH_INTERVAL_S)
        except Exception as error:  # noqa: BLE001 - answered
            call.fail(error)
            return
        call.finish(Status.UNAVAILABLE, "the server is stopping")

    # Metadata

    async def _server_metadata(self, _request: messages.ServerMetadataRequest) -> Message:
        return ParseDict(schema.server_metadata(), messages.ServerMetadataResponse())

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


def _fixed(kind: Callable[[bytes], Message], response: Message) -> tuple[Callable[[bytes], Message], _Answer]:
    """Return a method that always answers the same."""

    async def answer(_request: Message) -> Message:
        return response

    return kind, answer


async def _refuse_registration(_request: Message) -> NoReturn:
    raise InvalidRequestError("shared memory is not offered by this server", hint="send tensors in the body")


async def _refuse_trace(_request: Message) -> NoReturn:
    raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "unsupported", "the trace extension is not offered")


async def _refuse_logging(_request: Message) -> NoReturn:
    raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "unsupported", "the logging extension is not offered")
