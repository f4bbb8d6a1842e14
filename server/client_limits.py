"""Limits on the requests of one client: their rate, and how many of them wait for an answer."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from http import HTTPStatus

from graphbox.server.access import Principal
from graphbox.server.problem import RefusedError
from graphbox.server.settings import Settings

__all__ = ["TOO_MANY", "ClientLimits", "ClientState"]

TOO_MANY = "too_many_requests"
"""Code of the refusals."""
MOST_CLIENTS = 10_000
"""Clients that are remembered, apart from those with requests that wait; the others begin anew."""


class ClientState:
    """Rate and concurrency state of a client.

    Attributes:
        tokens: requests that it may send at once.
        at_s: time at which they were counted, by `time.monotonic`.
        pending: requests that wait for an answer.
    """

    __slots__ = ("at_s", "pending", "tokens")

    def __init__(self, tokens: float, at_s: float) -> None:
        self.tokens = tokens
        self.at_s = at_s
        self.pending = 0


class ClientLimits:
    """Token buckets and counts, one of each for each client. For one thread.

    Args:
        rate: requests per second of one client; None: any.
        burst: requests that a client may send at once, after it has sent none for a while.
        pending: requests of one client that wait for an answer; None: any number.
    """

    def __init__(self, rate: float | None, burst: int, pending: int | None) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._pending = pending
        self._clients: OrderedDict[str, ClientState] = OrderedDict()

    @classmethod
    def of(cls, settings: Settings) -> ClientLimits | None:
        """Return the limits of a server; None: it has none."""
        rate, pending = settings.max_client_rate, settings.max_client_pending
        if rate is None and pending is None:
            return None
        burst = settings.max_client_burst or math.ceil(rate or 1)
        return cls(rate, burst, pending)

    def take(self, principal: Principal | None, address: str) -> ClientState:
        """Count a request of a client, which its token names, else its address.

        Raises:
            RefusedError: 429, the client sends more than its rate.
        """
        now_s = time.monotonic()
        state = self._state(f"token {principal.name}" if principal is not None else address, now_s)
        rate = self._rate
        if rate is None:
            return state
        state.tokens = min(self._burst, state.tokens + (now_s - state.at_s) * rate)
        state.at_s = now_s
        if state.tokens < 1.0:
            wait_s = (1.0 - state.tokens) / rate
            raise _too_many(
                f"expected at most {rate:g} requests per second of one client, received more", wait_s
            )
        state.tokens -= 1.0
        return state

    def begin(self, state: ClientState) -> None:
        """Count a request that waits for its answer, until `end`.

        Raises:
            RefusedError: 429, too many of the client do.
        """
        if self._pending is not None and state.pending >= self._pending:
            raise _too_many(
                f"expected at most {self._pending} requests of one client that wait, received more",
                1.0,
            )
        state.pending += 1

    @staticmethod
    def end(state: ClientState) -> None:
        """Count a request that waited no more."""
        state.pending -= 1

    def _state(self, key: str, now_s: float) -> ClientState:
        state = self._clients.get(key)
        if state is not None:
            self._clients.move_to_end(key)
            return state
        state = self._clients[key] = ClientState(self._burst, now_s)
        if len(self._clients) > MOST_CLIENTS:
            self._forget_one()
        return state

    def _forget_one(self) -> None:
        """Forget the client that was silent longest, of those without requests that wait."""
        for _ in range(len(self._clients) - 1):
            oldest, forgotten = self._clients.popitem(last=False)
            if not forgotten.pending:
                return
            self._clients[oldest] = forgotten  # as many as connections, at most


def _too_many(message: str, wait_s: float) -> RefusedError:
    seconds = max(1, math.ceil(wait_s))
    return RefusedError(
        HTTPStatus.TOO_MANY_REQUESTS,
        TOO_MANY,
        message,
        hint=f"try again in {seconds} s",
        headers={"retry-after": str(seconds)},
    )
