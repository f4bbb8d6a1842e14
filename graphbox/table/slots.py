"""Where the rows are that a pull gave, so that the push after it looks no key up again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphbox import _core

if TYPE_CHECKING:
    from graphbox.table.rows import TableRows


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the rows are that :meth:`EmbeddingTable.pull_slots` gave, for :meth:`EmbeddingTable.push_slots`.

    Attributes:
        table: whose rows they are.
        shape: that of the keys.
    """

    table: TableRows
    shape: tuple[int, ...]
    _rows: _core.PulledRows

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Slots(shape={self.shape}, table={self.table!r})"
