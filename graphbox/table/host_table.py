"""Tables of this process, for what only these can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from graphbox.errors import UnsupportedError
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    from graphbox.table.protocol import Table


@runtime_checkable
class _OverHostTable(Protocol):
    """A table that stands on one of this process, whatever else it is."""

    @property
    def local(self) -> EmbeddingTable: ...


def host_table(table: Table, purpose: str) -> EmbeddingTable:
    """Return the table of this process that keeps the rows: the table itself, or the one it stands on.

    Args:
        table: any table.
        purpose: what the rows are needed for, for the message.

    Raises:
        UnsupportedError: the rows are not in this process.
    """
    if isinstance(table, EmbeddingTable):
        return table
    if isinstance(table, _OverHostTable):
        return table.local
    raise UnsupportedError(
        f"expected a table whose rows are in this process for {purpose}, received {table!r}",
        hint="make an EmbeddingTable, or a DeviceTable or ShardedTable over one",
    )
