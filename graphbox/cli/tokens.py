"""`graphbox tokens`: the file of tokens of a server."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import age, table
from graphbox.errors import ConflictError, NotFoundError, UsageError, did_you_mean

if TYPE_CHECKING:
    from graphbox.server.tokens import TokenEntry

group = typer.Typer(help="Add, list or remove tokens of clients, for `graphbox serve --token-file`.")


class ScopeName(StrEnum):
    """Scopes of a token."""

    READ = "read"
    INFER = "infer"
    MANAGE = "manage"


FileOption = Annotated[
    Path,
    typer.Option(
        "--file", metavar="FILE", envvar="GRAPHBOX_SERVE_TOKEN_FILE", help="Token file.", show_default=False
    ),
]
NameArgument = Annotated[str, typer.Argument(help="Name of the token: who uses it.")]


def add_token(
    session: Session,
    name: NameArgument,
    file: FileOption,
    scope: Annotated[
        list[ScopeName],
        typer.Option(
            "--scope",
            help="What it may do, repeatable: read documents and metrics, infer, manage what is served.",
        ),
    ],
) -> None:
    """Make a token, add its hash to the file, and print the token: this once, it is stored nowhere.

    A running server accepts it within a second.
    """
    from graphbox.server.access import Scope
    from graphbox.server.tokens import new_token

    token, entry = new_token(name, [Scope(each.value) for each in scope])
    with _locked(file):
        entries = _entries(file) if file.exists() else []
        if any(each.name == name for each in entries):
            raise ConflictError(
                f"the file has a token `{name}` already",
                where=str(file),
                hint=f"`graphbox tokens remove {name} --file {file}` first, or choose another name",
            )
        _write(file, [*entries, entry])
    session.note(f"added `{name}` to {file}; the token is printed this once")
    session.answer({"name": name, "token": token}, lambda console: console.out(token))


def list_tokens(session: Session, file: FileOption) -> None:
    """List names and scopes of the tokens in a file."""
    entries = _entries(file)

    def show(console: Any) -> None:
        rows = [
            (entry.name, ", ".join(_scopes(entry)), "" if entry.created is None else age(entry.created))
            for entry in entries
        ]
        console.print(table(None, ("name", "scopes", "made"), rows))

    document = [{"name": entry.name, "scopes": _scopes(entry), "created": entry.created} for entry in entries]
    session.answer(document, show)


def remove_token(session: Session, name: NameArgument, file: FileOption) -> None:
    """Remove a token from a file; running servers refuse it, and the page's sessions, within a second."""
    with _locked(file):
        entries = _entries(file)
        names = [entry.name for entry in entries]
        if name not in names:
            there = f"there are: {', '.join(names)}" if names else "the file has no tokens"
            raise NotFoundError(
                f"there is no token `{name}`", where=str(file), hint=did_you_mean(name, names) or there
            )
        _write(file, [entry for entry in entries if entry.name != name])
    session.answer({"removed": name}, lambda console: console.print(f"removed {name}", markup=False))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Let one command at a time change the files of a folder."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(
            f"expected a file in a folder that is there: {error.strerror}", where=str(file)
        ) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _entries(file: Path) -> list[TokenEntry]:
    from graphbox.server.tokens import read_token_file

    return read_token_file(file)


def _write(file: Path, entries: list[TokenEntry]) -> None:
    """Replace a file as a whole: a server never reads a part of it."""
    from graphbox.durable import write_atomically
    from graphbox.server.tokens import token_file_text

    try:
        with write_atomically(file) as stream:
            stream.write(token_file_text(entries).encode())
    except OSError as error:
        raise UsageError(f"the token file cannot be written: {error.strerror}", where=str(file)) from None


def _scopes(entry: TokenEntry) -> list[str]:
    from graphbox.server.access import Scope

    return [scope for scope in Scope if scope in entry.scopes]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(group, "add")(add_token)
    command(group, "list")(list_tokens)
    command(group, "remove")(remove_token)
    app.add_typer(group, name="tokens")
