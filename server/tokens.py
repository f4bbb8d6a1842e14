"""Tokens of clients: names, scopes and hashes, from a file that is read again when it changes.

The file has no secret. A keyed hash turns a token into the key of a session, which the page keeps as a
cookie; the file has the hash of that key. So the same entry admits the token and the cookies that were made
with it, and neither follows from the file.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphbox.errors import NotFoundError, UsageError, did_you_mean
from graphbox.server.access import Principal, Scope

__all__ = ["TokenEntry", "Tokens", "check_token_name", "new_token", "read_token_file", "token_file_text"]

logger = logging.getLogger("graphbox.server")

DEFAULT_NAME = "default"
"""Name of the token that `Settings.token` gives."""
LOOPBACK_NAME = "loopback"
"""Name of clients of a server without tokens."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_MOST_RECENT = 1024
_MAX_FILE_BYTES = 1024 * 1024
_SECRET_BYTES = 32
_KEYS = ("hash", "scopes", "created")
_HEADER = """\
# Tokens of `graphbox serve --token-file`: hashes, no secrets. `graphbox tokens` rewrites this file.
"""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token of a file.

    Attributes:
        name: names the client in logs.
        hash: see `hash_of`, in hexadecimal digits.
        scopes: what the token may do.
        created: when it was made.
    """

    name: str
    hash: str
    scopes: frozenset[Scope]
    created: datetime | None = None


class Tokens:
    """The tokens that a server accepts. Safe to use from any thread.

    Args:
        token: has all scopes; None: there is no such token.
        file: a token file; None: there is none.

    Raises:
        NotFoundError: the file is not there.
        UsageError: it cannot be read.
    """

    def __init__(self, token: str | None, file: Path | None = None) -> None:
        self._file = file
        self._of_setting: dict[bytes, Principal] = {}
        if token is not None:
            self._of_setting[hash_of(token.encode())] = Principal(DEFAULT_NAME, frozenset(Scope))
        self._principals: Mapping[bytes, Principal] = self._of_setting
        # Tokens that were accepted: a hash of each request would take longer than all else of its admission.
        self._recent: dict[bytes, Principal] = {}
        self._content = b""
        self._failure = ""
        if file is not None:
            self._take(_read(file))

    def of_token(self, token: bytes) -> Principal | None:
        """Return who has a token, apart from white space around it; None: it is wrong."""
        known = self._recent.get(token)
        if known is not None:
            return known
        recent = self._recent
        found = self.of_session(session_key(token.strip()))
        if found is not None and len(recent) < _MOST_RECENT:
            recent[token] = found
        return found

    def of_session(self, key: bytes) -> Principal | None:
        """Return who has a session; None: it is not that of a token, or the token was removed.

        The time of the search depends on a hash, which a client that does not know the key cannot choose: it
        tells nothing about the key.
        """
        return self._principals.get(hashlib.sha256(key).digest())

    def reload(self) -> None:
        """Read the file again; one that cannot be read is logged once, and changes nothing."""
        if self._file is None:
            return
        try:
            content = _read(self._file)
            if content != self._content:
                self._take(content)
                logger.info("tokens were read again: %d", len(self._principals))
        except UsageError as error:
            if str(error) != self._failure:
                logger.error("the tokens were not read again, the earlier ones stay: %s", error)
            self._failure = str(error)
            return
        self._failure = ""

    def _take(self, content: bytes) -> None:
        entries = _parse(content, str(self._file))
        found = {bytes.fromhex(entry.hash): Principal(entry.name, entry.scopes) for entry in entries}
        self._content = content
        self._principals = {**found, **self._of_setting}
        # After them, and a new one: a search that found what is gone by now adds it to the old one.
        self._recent = {}


def session_key(token: bytes) -> bytes:
    """Return the key of the sessions of a token: 64 hexadecimal digits."""
    return hmac.digest(token, b"graphbox page", "sha256").hex().encode()


def hash_of(token: bytes) -> bytes:
    """Return what a token file keeps of a token, from which neither token nor session follows."""
    return hashlib.sha256(session_key(token)).digest()


def new_token(name: str, scopes: Iterable[Scope]) -> tuple[str, TokenEntry]:
    """Return a random token of 256 bits, and its entry.

    Raises:
        UsageError: the name is none for a token, or there is no scope.
    """
    check_token_name(name)
    granted = frozenset(scopes)
    if not granted:
        raise UsageError("expected a scope, received none", where="--scope", hint=f"scopes: {_scope_names()}")
    token = secrets.token_urlsafe(_SECRET_BYTES)
    now = datetime.now(UTC).replace(microsecond=0)
    return token, TokenEntry(name, hash_of(token.encode()).hex(), granted, now)


def check_token_name(name: str) -> None:
    """Reject a name that no token can have.

    Raises:
        UsageError: it is one.
    """
    if not _NAME.fullmatch(name) or name in {DEFAULT_NAME, LOOPBACK_NAME}:
        raise UsageError(
            "expected a name of letters, digits, `_` and `-`, at most 64, other than "
            f"`{DEFAULT_NAME}` and `{LOOPBACK_NAME}`, received {name!r:.80}",
            where="name of a token",
        )


def read_token_file(file: Path) -> list[TokenEntry]:
    """Return the tokens of a file, in its order.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it is no token file.
    """
    return _parse(_read(file), str(file))


def token_file_text(entries: Iterable[TokenEntry]) -> str:
    """Return the text of a token file."""
    parts = [_HEADER]
    for entry in entries:
        scopes = ", ".join(f'"{scope}"' for scope in Scope if scope in entry.scopes)
        created = "" if entry.created is None else f"created = {entry.created.isoformat()}\n"
        parts.append(f'[tokens.{entry.name}]\nhash = "{entry.hash}"\nscopes = [{scopes}]\n{created}')
    return "\n".join(parts)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(
            "there is no such token file",
            where=str(file),
            hint="`graphbox tokens add NAME --file FILE` makes one",
        ) from None
    except OSError as error:
        raise UsageError(f"the token file cannot be read: {error.strerror}", where=str(file)) from None
    if not content.strip():  # as an editor leaves it for a moment
        raise UsageError("expected a token file, received an empty one", where=str(file))
    if len(content) > _MAX_FILE_BYTES:
        raise UsageError(
            f"expected a token file of at most {_MAX_FILE_BYTES} bytes, received a larger one",
            where=str(file),
        )
    return content


def _parse(content: bytes, where: str) -> list[TokenEntry]:
    try:
        document = tomllib.loads(content.decode())
    except ValueError as error:  # which those of TOML and of UTF-8 are
        raise UsageError(f"expected a token file in TOML, received: {error}", where=where) from None
    for key in document:
        if key != "tokens":
            hint = did_you_mean(key, ["tokens"]) or "tokens are tables such as `[tokens.NAME]`"
            raise UsageError(f"unknown key `{key[:64]}` in a token file", where=where, hint=hint)
    tables = document.get("tokens", {})
    if not isinstance(tables, dict):
        raise UsageError("expected tables such as `[tokens.NAME]`, received another value", where=where)
    entries = [_entry(name, table, f"{where}: tokens.{name[:80]}") for name, table in tables.items()]
    hashes = {entry.hash: entry.name for entry in entries}
    for entry in entries:
        if hashes[entry.hash] != entry.name:
            raise UsageError(
                f"the tokens `{entry.name}` and `{hashes[entry.hash]}` have the same hash",
                where=where,
                hint="remove one of them",
            )
    return entries


def _entry(name: str, table: Any, where: str) -> TokenEntry:
    try:
        check_token_name(name)
    except UsageError as error:
        raise UsageError(error.message, where=where) from None
    if not isinstance(table, dict):
        raise UsageError("expected a table with `hash` and `scopes`, received another value", where=where)
    for key in table:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f"known keys: {', '.join(_KEYS)}"
            raise UsageError(f"unknown key `{key[:64]}`", where=where, hint=hint)
    hashed, scopes, created = table.get("hash"), table.get("scopes"), table.get("created")
    if not isinstance(hashed, str) or not _HASH.fullmatch(hashed):
        raise UsageError(
            "expected `hash` of 64 hexadecimal digits",
            where=where,
            hint="`graphbox tokens add NAME --file FILE` makes a token and its hash",
        )
    if not isinstance(scopes, list) or not scopes or not set(map(str, scopes)) <= set(Scope):
        raise UsageError(
            f"expected `scopes`, a list of {_scope_names()}, received {scopes!r:.80}", where=where
        )
    if not isinstance(created, datetime | None):
        raise UsageError("expected `created`, a date with time, received another value", where=where)
    return TokenEntry(name, hashed, frozenset(map(Scope, scopes)), created)


def _scope_names() -> str:
    return ", ".join(Scope)
