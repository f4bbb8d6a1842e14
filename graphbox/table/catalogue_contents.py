"""Contents of a table's folder, as graphbox/table/catalogue.py and state_records.py store them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class CatalogueDamage(Exception):  # noqa: N818 - never leaves this package: what is damaged is made anew
    """The catalogue cannot be read. The message says why."""


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """Catalogue entry of a segment.

    Attributes:
        sequence: its number, which is its file's name too.
        is_erased: it holds keys that were erased, and no rows.
        rows: number of rows, or keys.
        live: a bit for each row, whether it counts, in 64-bit words. None, when written: as before.
    """

    sequence: int
    is_erased: bool
    rows: int
    live: bytes | None


@dataclass(frozen=True, slots=True)
class CatalogueContents:
    """All that a catalogue says.

    Attributes:
        segments: in the order they were written.
        state_records: numbers of the records that hold settings and counts together, in their order.
    """

    segments: list[ListedSegment] = field(default_factory=list)
    state_records: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FolderContents:
    """All that is in a table's folder.

    Attributes:
        settings: of the table.
        segments: in the order they were written.
        policy_states: number of the pass and what admission counted, as the core keeps them: all of it, then
            what changed; empty where it is not known.
    """

    settings: dict[str, Any]
    segments: list[ListedSegment] = field(default_factory=list)
    policy_states: tuple[bytes, ...] = ()
