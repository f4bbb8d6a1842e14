"""Admission of requests: the Host header, the origin of a browser's request, and the token."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from graphbox.server.access import Principal, Scope
from graphbox.server.problem import RefusedError
from graphbox.server.settings import Settings, resolve
from graphbox.server.tokens import Tokens, session_key

__all__ = ["CHALLENGE", "HostRule", "TokenRule", "refuse_foreign_origin"]

CHALLENGE = 'Bearer realm="graphbox"'
"""``WWW-Authenticate`` of answers that require the token."""

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HostRule:
    """Accepts requests whose ``Host`` names this server.

    A page of another site can point its own name at a loopback address (DNS rebinding); the browser then
    treats both as one origin and lets the page read responses. The ``Host`` header still holds that name,
    so unknown names are rejected.
    """

    def __init__(self, settings: Settings) -> None:
        address = ipaddress.ip_address(resolve(settings.host))
        names = {settings.host.lower(), str(address), *(name.lower() for name in settings.allowed_hosts)}
        if address.is_loopback or address.is_unspecified:
            names |= _LOOPBACK_NAMES
        if address.is_unspecified:
            # Not `getfqdn`, which sends the name to a DNS server.
            names.add(socket.gethostname().lower())
        self._names = frozenset(names)
        # The addresses of the machine are unknown if it listens on all of them; rebinding needs a name.
        self._any_address = address.is_unspecified
        self._accepted: set[bytes] = set()

    def check(self, host: bytes | None) -> None:
        """Reject a ``Host`` header that does not name this server.

        Raises:
            RefusedError: 400, the header is missing or malformed; 403, it names another server.
        """
        if host in self._accepted:
            return
        match = _HOST.fullmatch(host.decode("latin-1")) if host else None
        if host is None or match is None:
            raise RefusedError(
                HTTPStatus.BAD_REQUEST,
                "invalid_host",
                f"expected a Host header with a host name, received {host!r}",
            )
        name = match["name"].strip("[]").lower()
        if name not in self._names and not (self._any_address and _is_address(name)):
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "host_not_allowed",
                f"this server does not answer for the host name {name!r}",
                hint=f"start it with --allow-host {name} if that name is meant to reach it",
            )
        if len(self._accepted) < 1024:
            self._accepted.add(host)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def refuse_foreign_origin(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Reject requests with effects that a page of another site makes a browser send.

    Raises:
        RefusedError: 403, ``Origin`` or ``Sec-Fetch-Site`` is foreign.
    """
    if method in _SAFE_METHODS:
        return
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site", b"none")
    foreign = site not in {b"none", b"same-origin"}
    if origin is not None and site != b"same-origin":
        foreign |= _host_of(origin) != headers.get(b"host", b"").decode("latin-1").lower()
    if foreign:
        raise RefusedError(
            HTTPStatus.FORBIDDEN,
            "foreign_origin",
            f"{method} from a page of another origin ({(origin or site).decode('latin-1')!r}) is refused",
        )


def _host_of(origin: bytes) -> str | None:
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower()
    except ValueError:  # such as an IPv6 address without its bracket
        return None


class TokenRule:
    """Accepts requests that present a token, as a bearer token or as the page's cookie.

    The cookie holds a keyed hash of the token: it is valid for this server only and does not reveal the
    token to readers of the browser's profile. Its name contains the port, since all servers of a host
    share cookies.

    Args:
        tokens: that are accepted.
        port: of the server.
        is_encrypted: whether connections are.
    """

    def __init__(self, tokens: Tokens, port: int, *, is_encrypted: bool = False) -> None:
        self.tokens = tokens
        # Browsers send such a cookie over TLS alone.
        self._secure = "; Secure" if is_encrypted else ""
        self.cookie_name = f"graphbox_{port}"
        self._cookie_name = self.cookie_name.encode()

    def check(self, headers: Mapping[bytes, bytes], scope: Scope | None = None) -> Principal:
        """Return who sends a request; reject one without a token, or whose token lacks a scope.

        Args:
            headers: of the request.
            scope: that the token needs; None: any token will do.

        Raises:
            RefusedError: 401, the token is missing or wrong; 403, it lacks the scope.
        """
        kind, _, credentials = headers.get(b"authorization", b"").partition(b" ")
        principal = self.tokens.of_token(credentials) if kind.lower() == b"bearer" else None
        if principal is None:
            cookie = _cookie(headers.get(b"cookie", b""), self._cookie_name)
            principal = self.tokens.of_session(cookie)
            if principal is None:
                raise _no_token("a wrong one" if kind or cookie else "none")
        if scope is not None:
            self.check_scope(principal, scope)
        return principal

    @staticmethod
    def check_scope(principal: Principal, scope: Scope) -> None:
        """Reject a client whose token lacks a scope.

        Raises:
            RefusedError: 403.
        """
        if scope not in principal.scopes:
            raise _no_scope(principal, scope)

    def accepts(self, token: bytes) -> bool:
        """Return whether ``token``, apart from white space around it, is one of the tokens."""
        return self.tokens.of_token(token) is not None

    def set_cookie(self, token: bytes) -> str:
        """Return the ``Set-Cookie`` value that opens the page for who has ``token``."""
        key = session_key(token.strip()).decode()
        return f"{self.cookie_name}={key}; Path=/; HttpOnly; SameSite=Strict{self._secure}"


def _no_token(received: str) -> RefusedError:
    return RefusedError(
        HTTPStatus.UNAUTHORIZED,
        "token_required",
        f"expected the token of this server, received {received}",
        hint="send `Authorization: Bearer TOKEN`, or open the page in a browser and enter it there",
        headers={"www-authenticate": CHALLENGE},
    )


def _no_scope(principal: Principal, scope: Scope) -> RefusedError:
    scopes = ", ".join(each for each in Scope if each in principal.scopes)
    return RefusedError(
        HTTPStatus.FORBIDDEN,
        "scope_required",
        f"expected a token with the scope `{scope}`, received `{principal.name}` with {scopes}",
        hint=f"use a token that `graphbox tokens add NAME --scope {scope}` made",
    )


def _cookie(header: bytes, name: bytes) -> bytes:
    """Return the value of one cookie, empty if it is missing."""
    for pair in header.split(b";"):
        key, _, value = pair.strip().partition(b"=")
        if key == name:
            return value
    return b""
