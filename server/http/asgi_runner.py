"""Runs an ASGI application for the exchanges of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from graphbox.server.asgi import ASGIApp, Message, Scope
from graphbox.server.http.exchange import Exchange

__all__ = ["AsgiRunner", "scope_of"]


class AsgiRunner:
    """An ASGI application: its life, and its answers to exchanges.

    Args:
        application: see the ASGI specification, version 3.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._to_lifespan: asyncio.Queue[Message] = asyncio.Queue()
        self._from_lifespan: asyncio.Queue[Message] = asyncio.Queue()
        self._lifespan: asyncio.Task[None] | None = None
        self._state: dict[str, Any] = {}

    async def start(self) -> None:
        """Start the application.

        Raises:
            RuntimeError: it reports that it cannot start.
        """
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        self._lifespan = asyncio.ensure_future(
            self._run_lifespan(scope, self._to_lifespan.get, self._from_lifespan.put)
        )
        await self._pass_on("startup")

    async def stop(self) -> None:
        """Stop the application."""
        await self._pass_on("shutdown")
        if self._lifespan is not None:
            await self._lifespan

    async def _run_lifespan(self, *arguments: Any) -> None:
        await self._application(*arguments)

    async def _pass_on(self, event: str) -> None:
        assert self._lifespan is not None  # noqa: S101 - `start` comes first
        await self._to_lifespan.put({"type": f"lifespan.{event}"})
        answer = asyncio.ensure_future(self._from_lifespan.get())
        await asyncio.wait({answer, self._lifespan}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            self._lifespan.result()  # raises what ended it
            raise RuntimeError(f"the application ended at its {event}")
        message = answer.result()
        if message["type"] != f"lifespan.{event}.complete":
            raise RuntimeError(f"the application failed at its {event}: {message.get('message', '')}")

    async def answer(self, exchange: Exchange, scope: Scope) -> None:
        """Answer an exchange.

        Args:
            exchange: its body is complete.
            scope: see `scope_of`.
        """
        call = _Call(exchange)
        scope["state"] = self._state.copy()
        try:
            await self._application(scope, call.receive, call.send)
        except BaseException:
            call.end()
            raise
        if not exchange.is_answered and (exchange.on_answer is None or not exchange.status):
            call.end()
            raise RuntimeError("the application returned before its answer was complete")


class _Call:
    """The two functions by which an application receives a request and sends the answer."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._is_received = False
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start: Message | None = None
        before: Callable[[], None] | None = exchange.on_left

        def leave() -> None:
            if not self._left.done():
                self._left.set_result(None)
            if before is not None:
                before()

        exchange.on_left = leave

    async def receive(self) -> Message:
        """Return the body, then wait for the end of the exchange."""
        if not self._is_received:
            self._is_received = True
            return {"type": "http.request", "body": bytes(self._exchange.body), "more_body": False}
        if not self._exchange.is_answered:
            await asyncio.shield(self._left)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        exchange = self._exchange
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] != "http.response.body":
            raise RuntimeError(f"expected a part of an answer, received {message['type']}")
        body, has_more = message.get("body", b""), message.get("more_body", False)
        start, self._start = self._start, None
        if start is not None:
            headers = [_checked(name, value) for name, value in start.get("headers", ())]
            if not has_more:
                headers = [(name, value) for name, value in headers if name != b"content-length"]
                exchange.respond(start["status"], headers, body)
                self._leave()
                return
            exchange.start(start["status"], headers)
        exchange.send(body)
        if has_more:
            await exchange.drain()
            return
        exchange.finish()
        self._leave()

    def end(self) -> None:
        """Close the connection if a part of the answer was sent."""
        exchange = self._exchange
        if exchange.status and not exchange.is_answered and exchange.on_answer is None:
            self._exchange.abort()
        self._leave()

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)


def _checked(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    if b"\n" in value or b"\r" in value:
        raise RuntimeError(f"the header {name!r} of an answer has a line end")
    return name.lower(), value


def scope_of(exchange: Exchange) -> Scope:
    """Return the ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": exchange.version,
        "scheme": exchange.scheme,
        "method": exchange.method,
        "path": exchange.decoded_path,
        "raw_path": exchange.path,
        "query_string": exchange.query,
        "root_path": "",
        "headers": exchange.header_list,
        "client": exchange.client,
        "server": None,
    }
