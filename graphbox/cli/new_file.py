"""Writing a file for the user where none is yet."""

from __future__ import annotations

from pathlib import Path

from graphbox.errors import ConflictError, GraphboxError


def write_new_file(path: Path, text: str, *, hint: str, force: bool = False) -> None:
    """Write a file that is not there yet.

    Args:
        path: the file.
        text: what is to be in it.
        hint: what to do when there is one.
        force: write over it.

    Raises:
        ConflictError: there is one.
        GraphboxError: it cannot be written.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConflictError("expected no file there, but there is one", where=str(path), hint=hint) from None
    except OSError as error:
        raise GraphboxError(f"the run file cannot be written: {error.strerror}", where=str(path)) from None
