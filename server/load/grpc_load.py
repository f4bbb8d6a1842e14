"""Closed and open loop over gRPC, by grpcio."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from graphbox.errors import BackendMissingError
from graphbox.server.load.pacing import ArrivalProcess
from graphbox.server.load.plan import LoadPlan, Tally

__all__ = ["INFER_METHOD", "GrpcLoad"]

INFER_METHOD = "/inference.GRPCInferenceService/ModelInfer"
# A busy server refuses by it. UNAVAILABLE is an error: of a server that stops, and of one that is not there.
_REFUSAL = "RESOURCE_EXHAUSTED"
_CONNECT_TIMEOUT_S = 10.0


class GrpcLoad:
    """One process's part of a load test over gRPC.

    A client of grpcio sends some thousand requests per second: for more, use several processes.

    Args:
        plan: the load test; rate and requests are those of this process.
        offset: first request to send, by position.

    Raises:
        BackendMissingError: grpcio is not installed.
    """

    def __init__(self, plan: LoadPlan, offset: int = 0) -> None:
        try:
            import grpc
        except ImportError as error:
            raise BackendMissingError(
                "expected the package grpcio for gRPC, which is not installed", hint="pip install grpcio"
            ) from error
        self._grpc: Any = grpc
        self._plan = plan
        self._next = offset
        self._tally = Tally()
        self._channels: list[Any] = []
        self._metadata = () if plan.token is None else (("authorization", f"Bearer {plan.token}"),)
        self._counted_from_ns = 0
        self._end_ns = 0

    async def connect(self) -> None:
        """Open the connections.

        Raises:
            BackendMissingError: the server cannot be reached.
        """
        address = f"{self._plan.host}:{self._plan.port}"
        # Channels share connections unless each has a pool of its own.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        for _ in range(self._plan.connections):
            if self._plan.tls:
                credentials = self._grpc.ssl_channel_credentials()
                channel = self._grpc.aio.secure_channel(address, credentials, options)
            else:
                channel = self._grpc.aio.insecure_channel(address, options)
            self._channels.append(channel)
        ready = asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        try:
            await asyncio.wait_for(ready, _CONNECT_TIMEOUT_S)
        except TimeoutError as error:
            raise BackendMissingError(
                f"expected a gRPC server on {address}, none answered within {_CONNECT_TIMEOUT_S:g} s",
                where="--url",
            ) from error

    async def run(self) -> Tally:
        """Send requests for the time of the plan, and wait for the last answers.

        An error of the client ends the test; it is raised as it is.
        """
        now = time.monotonic_ns()
        self._counted_from_ns = self._tally.begun_ns = now + int(self._plan.warm_up_s * 1e9)
        self._end_ns = self._counted_from_ns + int(self._plan.seconds * 1e9)
        calls = [channel.unary_unary(INFER_METHOD) for channel in self._channels]
        try:
            if self._plan.rate is None:
                await asyncio.gather(*(self._repeat(call) for call in calls))
            else:
                await self._open_loop(calls, self._plan.rate)
        finally:
            await asyncio.gather(*(channel.close() for channel in self._channels))
        return self._tally

    async def _repeat(self, call: Any) -> None:
        while (now := time.monotonic_ns()) < self._end_ns:
            await self._send(call, now)

    async def _open_loop(self, calls: list[Any], rate: float) -> None:
        plan = self._plan
        waiting: asyncio.Queue[int] = asyncio.Queue()

        async def answer(call: Any) -> None:
            while True:
                due = await waiting.get()
                try:
                    if time.monotonic_ns() < self._end_ns:
                        await self._send(call, due)
                    else:
                        self._tally.unsent += 1
                finally:
                    waiting.task_done()

        async def drain() -> None:
            await asyncio.sleep((self._end_ns - time.monotonic_ns()) / 1e9)
            await waiting.join()

        arrivals = ArrivalProcess(rate, plan.arrivals, plan.seed, self._end_ns, waiting.put_nowait)
        tasks = [asyncio.create_task(work) for work in (drain(), *(answer(call) for call in calls))]
        try:
            # Senders end by an error alone.
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            arrivals.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, call: Any, due: int) -> None:
        message = self._plan.requests[self._next % len(self._plan.requests)]
        self._next += 1
        failure, sent = "", time.monotonic_ns()
        try:
            await call(message, timeout=self._plan.timeout_s, metadata=self._metadata)
        except self._grpc.aio.AioRpcError as error:
            failure = error.code().name
        if due < self._counted_from_ns:
            return
        now = time.monotonic_ns()
        self._tally.sent += 1
        self._tally.ended_ns = now
        if not failure:
            self._tally.latency.record(now - due)
            self._tally.service.record(now - sent)
        elif failure == _REFUSAL:
            self._tally.refusal.record(now - sent)
        else:
            self._tally.fail("timeout" if failure == "DEADLINE_EXCEEDED" else failure)
