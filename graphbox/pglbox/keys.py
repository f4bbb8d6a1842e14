"""Every key of a PGLBox YAML file, in PGL's and in PaddleRec's variant, and what becomes of it."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, get_args

Kind = Literal["text", "integer", "number", "flag", "names", "integers", "mapping", "any"]

_TABLE: Final = Path(__file__).with_name("keys.tsv")
_COLUMNS: Final = ["group", "name", "kind", "fate", "target", "note", "off", "read_with"]


class Fate(StrEnum):
    """Result of the conversion of a key."""

    MAPPED = "mapped"
    """It says the same in the run file."""
    IGNORED = "ignored"
    """Nothing is lost: it is dead there, of their environment, or asks for nothing."""
    UNSUPPORTED = "unsupported"
    """The run file goes without it: graphbox cannot do it yet."""
    REFUSED = "refused"
    """No run file is written: it is wrong, or the run would be another one without it."""


@dataclass(frozen=True)
class Key:
    """A key of a PGLBox YAML file.

    Attributes:
        name: as PGLBox spells it.
        group: part of the file it belongs to.
        kind: what its value is; "any" where nothing reads it.
        fate: what becomes of it when it asks for something.
        target: key of the run file that says it, or beside which the note stands.
        note: what is different or why; the text of the guide's table and of the comment.
        off: values that ask for nothing, besides an empty one.
        only_sage: it is read with ``sage_mode: True`` alone.
    """

    name: str
    group: str
    kind: Kind
    fate: Fate
    target: str = ""
    note: str = ""
    off: tuple[object, ...] = ()
    only_sage: bool = False


def _read() -> dict[str, Key]:
    """Return the keys of the table beside this module: a line each, ``off`` as a JSON list."""
    kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
    with _TABLE.open(encoding="utf-8", newline="") as stream:
        header, *lines = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert header == _COLUMNS  # noqa: S101 - a file of this package
    return {
        name: Key(
            name,
            group,
            kinds[kind],
            Fate(fate),
            target,
            note,
            tuple(json.loads(off or "[]")),
            with_ == "sage",
        )
        for group, name, kind, fate, target, note, off, with_ in lines
    }


KEYS: Final[dict[str, Key]] = _read()
"""Every known key by name, grouped as in the table and in the guide."""
