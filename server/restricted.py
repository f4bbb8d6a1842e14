"""Restricted APIs: categories of requests that only clients with a secret of their own may send.

The categories are Triton's. Over REST a client presents the secret in the header that the restriction names,
over gRPC in the metadata ``triton-grpc-protocol-<name>``. The category of each route and method is in
`graphbox.server.access`.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from graphbox.errors import NotFoundError, UsageError, did_you_mean
from graphbox.server.access import CATEGORIES, Category
from graphbox.server.problem import RefusedError
from graphbox.server.settings import check_token

__all__ = ["Restrictions"]

_GRPC_PREFIX = "triton-grpc-protocol-"
_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VARIABLE = "env:"


@dataclass(frozen=True)
class _Secret:
    """Header with which a client proves access to a category."""

    header: bytes
    value: bytes


class Restrictions:
    """The restricted categories of a server.

    Args:
        texts: ``CATEGORY[,CATEGORY...]:NAME=SOURCE``; the source of the secret is a file or ``env:VARIABLE``.

    Raises:
        UsageError: a text is malformed, a category is unknown or named twice, or a secret is too short.
        NotFoundError: there is no such file or variable.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._secrets: dict[str, _Secret] = {}
        for text in texts:
            for category, secret in _parsed(text).items():
                if category in self._secrets:
                    raise UsageError(
                        f"expected each category once, received {category} twice", where="restrict"
                    )
                self._secrets[category] = secret

    @classmethod
    def of(cls, texts: Sequence[str]) -> Restrictions | None:
        """Return the restrictions; None: there are none."""
        return cls(texts) if texts else None

    def check_request(self, category: Category | None, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request of HTTP that is restricted and does not present the secret.

        Args:
            category: of its route, see `graphbox.server.access`.
            headers: of the request.

        Raises:
            RefusedError: 403.
        """
        self._check(category, lambda secret: headers.get(secret.header, b""), "header")

    def check_call(self, category: Category | None, header: Callable[[str], bytes]) -> None:
        """Refuse a call of gRPC that is restricted and does not present the secret.

        Args:
            category: of its method.
            header: returns the metadata of a name, empty where it is missing.

        Raises:
            RefusedError: 403.
        """
        self._check(category, lambda secret: header(_GRPC_PREFIX + secret.header.decode()), "metadata")

    def _check(self, category: Category | None, presented: Callable[[_Secret], bytes], kind: str) -> None:
        secret = None if category is None else self._secrets.get(category)
        if secret is None or hmac.compare_digest(presented(secret), secret.value):
            return
        name = secret.header.decode()
        raise RefusedError(
            HTTPStatus.FORBIDDEN,
            "restricted",
            f"requests of the category {category} are restricted: expected the secret of this server in the "
            f"{kind} {_GRPC_PREFIX if kind == 'metadata' else ''}{name}",
        )


def _parsed(text: str) -> dict[str, _Secret]:
    """Return the secret of each category that a text names."""
    names, colon, rest = text.partition(":")
    key, equals, source = rest.partition("=")
    categories = names.split(",")
    if not (colon and equals and source and _KEY.fullmatch(key)):
        raise UsageError(
            "expected CATEGORY[,CATEGORY]:NAME=FILE, NAME of lower-case letters, digits, `-` and `_`, "
            f"received {text!r:.128}",
            where="restrict",
        )
    for category in categories:
        if category not in CATEGORIES:
            raise UsageError(
                f"expected the categories {', '.join(CATEGORIES)}, received {category!r:.64}",
                where="restrict",
                hint=did_you_mean(category, CATEGORIES),
            )
    value = _read(source)
    check_token(value)
    return dict.fromkeys(categories, _Secret(key.encode(), value.encode()))


def _read(source: str) -> str:
    """Return the secret of a file or of a variable of the environment."""
    if source.startswith(_VARIABLE):
        value = os.environ.get(source.removeprefix(_VARIABLE))
        if value is None:
            raise NotFoundError(f"expected the environment variable {source!r:.128}", where="restrict")
        return value.strip()
    try:
        return Path(source).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(
            f"expected a file with the secret, received {source!r:.128}: {error}", where="restrict"
        ) from error
