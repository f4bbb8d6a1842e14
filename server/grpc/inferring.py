"""One request for inference, from the bytes of its message to those of its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

from graphbox.deploy.cancellation import Cancellation
from graphbox.errors import TimeLimitError
from graphbox.server.batching import Call, Outcome
from graphbox.server.grpc.codec import (
    InferRequest,
    compress,
    decode_request,
    encode_response,
    parse,
    plain_message,
    with_rows_sequence,
)
from graphbox.server.grpc.inference_messages import ModelInferRequest
from graphbox.server.inference import Lease
from graphbox.server.kserve.outputs import SMALL_DELIVERY_BYTES
from graphbox.server.kserve.shared_memory import names_region
from graphbox.server.kserve.tensors import Tensor
from graphbox.server.services import Services
from graphbox.server.tracing import RequestTrace
from graphbox.server.traffic import ROUTING_KEY_HEADER

__all__ = ["Inferring", "Receiver"]

# Larger messages are parsed, and larger outputs encoded, on threads.
_SMALL_MESSAGE_BYTES = 32 * 1024
_SMALL_ANSWER_BYTES = 1024 * 1024
_SMALL_COMPRESSED_BYTES = 64 * 1024


class Receiver(Protocol):
    """Gets the response to a request, or the error.

    Attributes:
        lease: of the model version that answers, once it is known.
        trace: of the request; None: requests are not traced.
    """

    lease: Lease | None
    trace: RequestTrace | None

    def answer(self, message: bytes, encoding: str) -> None:
        """Take the response; ``encoding`` names its compression, or is empty."""

    def fail(self, error: BaseException) -> None:
        """Take the error."""

    def header(self, name: str) -> bytes:
        """Return a header of the call, empty where it is missing."""

    def hold(self, more_bytes: int) -> None:
        """Count bytes that the message has grown by, until the call is answered.

        Raises:
            RefusedError: 503, the messages of all connections take too much.
        """


class Inferring:
    """A request for inference until it is answered, by exactly one call of its receiver. On the event loop.

    Small requests for open models need no task.

    Args:
        services: the parts of the server.
        receiver: gets the response.
        started_ns: when the request came in, by `time.perf_counter_ns`.
        timeout_s: time limit of the client from then on; None: no limit.
        encoding: compression of the request, and of the response where it is large; empty: none.

    Attributes:
        request_id: of the client; empty before it is known.
    """

    __slots__ = (
        "_call",
        "_encoding",
        "_lease",
        "_receiver",
        "_services",
        "_started_ns",
        "_task",
        "_timeout_s",
        "request_id",
    )

    def __init__(
        self,
        services: Services,
        receiver: Receiver,
        started_ns: int,
        timeout_s: float | None,
        encoding: str = "",
    ) -> None:
        self._services = services
        self._receiver = receiver
        self._started_ns = started_ns
        self._timeout_s = timeout_s
        self._encoding = encoding
        self._lease: Lease | None = None
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self.request_id = ""

    def start(self, message: bytes) -> None:
        """Begin to answer the request of a message."""
        reads_region = self._services.shared_memory is not None and names_region(message)
        if len(message) > _SMALL_MESSAGE_BYTES or self._encoding or reads_region:
            self._task = asyncio.get_running_loop().create_task(self._start_later(message, None))
            return
        try:
            wire = parse(ModelInferRequest.FromString, message)
            self.request_id = wire.id
            lease = self._services.inference.enter_now(*self._model_of(wire))
            if lease is None:
                self._task = asyncio.get_running_loop().create_task(self._start_later(message, wire))
                return
            self._lease = lease
            regions = self._services.shared_memory
            self._run(lease, decode_request(wire, lease.signature, lease.limits, regions))
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(error)

    def leave(self) -> None:
        """Give up: the client has left."""
        if self._call is not None:
            self._call.cancel()
        if self._task is not None:
            self._task.cancel()
        self._end_lease()

    async def _start_later(self, message: bytes, wire: ModelInferRequest | None) -> None:
        """Parse the message and open the model, on threads as far as needed, then run the request."""
        try:
            async with asyncio.timeout(self._timeout_s):
                lease, request = await self._prepare(message, wire)
            self._task = None
            self._run(lease, request)
        except TimeoutError:
            self._fail(
                TimeLimitError(f"expected an answer within {self._timeout_s:g} s, the limit of the call")
            )
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(error)

    async def _prepare(self, message: bytes, wire: ModelInferRequest | None) -> tuple[Lease, InferRequest]:
        executor, inference = self._services.executor, self._services.inference
        if wire is None:
            # From the first job to the last: else each message would be kept parsed until all are.
            async with executor.turns:
                parsed, grown_bytes = await executor.run(lambda: self._parse(message))
                self.request_id = parsed.id
                self._receiver.hold(grown_bytes)
                open_now = self._lease = inference.enter_now(*self._model_of(parsed))
                if open_now is not None:
                    return open_now, await self._decode(parsed, open_now)
            wire = parsed
        # A model that is opened first takes nobody's turn.
        lease = self._lease = await inference.enter(*self._model_of(wire))
        async with executor.turns:
            return lease, await self._decode(wire, lease)

    def _model_of(self, wire: ModelInferRequest) -> tuple[str, str | None, bytes | None]:
        """Return name, version and routing key of a request."""
        key = self._routing_key(wire) if self._services.inference.splits_requests else None
        return wire.model_name, wire.model_version or None, key

    async def _decode(self, wire: ModelInferRequest, lease: Lease) -> InferRequest:
        regions = self._services.shared_memory
        return await self._services.executor.run(
            lambda: decode_request(wire, lease.signature, lease.limits, regions)
        )

    def _routing_key(self, wire: ModelInferRequest) -> bytes | None:
        """Return the routing key of a request: that of the metadata, else of its parameters."""
        key = self._receiver.header(ROUTING_KEY_HEADER.decode())
        if not key and "routing_key" in wire.parameters:
            key = wire.parameters["routing_key"].string_param.encode()
        return key or None

    def _parse(self, message: bytes) -> tuple[ModelInferRequest, int]:
        """Return the request of a message, and by how many bytes the message has grown."""
        plain = message
        if self._encoding:
            plain = plain_message(message, self._encoding, self._services.settings.max_body_bytes)
        return parse(ModelInferRequest.FromString, plain), max(0, len(plain) - len(message))

    def _run(self, lease: Lease, request: InferRequest) -> None:
        self._receiver.lease = lease
        limits_s = [limit for limit in (request.timeout_s, self._timeout_s) if limit is not None]
        call = self._call = Call(
            request.inputs,
            request.parameters,
            min(limits_s) if limits_s else None,
            request.priority,
            self._started_ns,
            self._started_ns,
            time.perf_counter_ns(),
        )
        lease.submit(call, lambda outcome: self._finish(lease, request, call, outcome))

    def _finish(self, lease: Lease, request: InferRequest, call: Call, outcome: Outcome) -> None:
        """Encode the outcome of a call and pass it on."""
        outputs = outcome.outputs
        if outputs is None:
            self._fail(outcome.error or RuntimeError("a call has neither outputs nor an error"))
            return

        def encode() -> tuple[bytes, str]:
            response = encode_response(lease.name, lease.version, request, outputs)
            if outcome.rows_sequence:
                response = with_rows_sequence(response, outcome.rows_sequence)
            return compress(response, self._encoding)

        most = _SMALL_COMPRESSED_BYTES if self._encoding else _SMALL_ANSWER_BYTES
        if request.options:
            most = SMALL_DELIVERY_BYTES
        if sum(array.nbytes for array in outputs.values()) <= most:
            self._answer(lease, call, outcome, outputs, encode)
            return
        loop = asyncio.get_running_loop()
        try:
            encoding = self._services.executor.submit(encode, Cancellation())
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(error)
            return

        def encoded(done: Future[tuple[bytes, str]]) -> None:
            if self._lease is not None and not done.cancelled():
                self._answer(lease, call, outcome, outputs, done.result)

        encoding.add_done_callback(lambda done: loop.call_soon_threadsafe(encoded, done))

    def _answer(
        self,
        lease: Lease,
        call: Call,
        outcome: Outcome,
        outputs: Mapping[str, Tensor],
        encode: Callable[[], tuple[bytes, str]],
    ) -> None:
        try:
            message, encoding = encode()
        except Exception as error:  # noqa: BLE001 - answered
            self._fail(error)
            return
        shape = next(iter(outputs.values())).shape
        lease.answered(call, outcome, shape[0] if shape else 1)
        sampler = self._services.trace_settings.sampler
        if sampler is not None:
            sampler.answered(lease.name, lease.version, self.request_id, call, outcome)
        if self._receiver.trace is not None:
            self._receiver.trace.executed(
                lease.name, lease.version, call.decoded_ns, outcome.begun_ns, outcome.ended_ns
            )
        lease.leave()
        self._lease = self._call = None
        self._receiver.answer(message, encoding)

    def _fail(self, error: BaseException) -> None:
        self._task = None
        self._end_lease()
        self._receiver.fail(error)

    def _end_lease(self) -> None:
        """Count the request as failed where its model is known."""
        lease, self._lease = self._lease, None
        self._call = None
        if lease is not None:
            lease.failed(self._started_ns)
            lease.leave()
