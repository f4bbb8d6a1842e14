"""Refusals of requests that break HTTP, or come when the server takes no more."""

from __future__ import annotations

from http import HTTPStatus

from graphbox.server.http.exchange import Exchange
from graphbox.server.problem import RefusedError

__all__ = ["body_timeout", "refuse_repeated", "stopping", "too_many_bodies"]

_SINGLE_HEADERS = frozenset(
    {b"authorization", b"content-encoding", b"content-length", b"host", b"inference-header-content-length"}
)
_OVERLOADED = {"retry-after": "1"}


def refuse_repeated(header_list: list[tuple[bytes, bytes]]) -> None:
    """Refuse headers that say twice what two readers of the request could understand differently.

    Raises:
        RefusedError: 400, one of `_SINGLE_HEADERS` is there twice.
    """
    names = [name for name, _ in header_list]
    repeated = sorted(name.decode() for name in _SINGLE_HEADERS if names.count(name) > 1)
    if repeated:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST,
            "repeated_header",
            f"expected the header {repeated[0]} once, received it {names.count(repeated[0].encode())} times",
        )


def body_timeout(limit_s: float, received_bytes: int) -> RefusedError:
    """Return the refusal of a request whose body does not come in time."""
    return RefusedError(
        HTTPStatus.REQUEST_TIMEOUT,
        "body_timeout",
        f"expected the whole body within {limit_s:g} s, received {received_bytes} bytes",
    )


def stopping(exchange: Exchange) -> RefusedError:
    """Return the refusal of a request that a stopping server does not finish."""
    if exchange.access is not None and exchange.access.action is not None and exchange.received_ns:
        return RefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "stopping",
            "the server is stopping before this change has ended: it may still be made, and the audit log "
            "will say whether it was",
            hint="look at the audit log, or at the model, before sending it again",
            headers=_OVERLOADED,
        )
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "stopping",
        "the server is stopping and this request was not finished",
        hint="send it again",
        headers=_OVERLOADED,
    )


def too_many_bodies() -> RefusedError:
    """Return the refusal of a body for which there is no memory."""
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "overloaded",
        "the bodies of requests that are being received take all the memory this server gives them",
        hint="try again in a second",
        headers=_OVERLOADED,
    )
