"""Row updates that are active: for each model version the number of the last one that servers apply."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, insert, select

from graphbox.workspace import tables

__all__ = ["forget_row_sequence", "read_row_sequence", "read_row_sequences", "write_row_sequence"]


def read_row_sequences(connection: Connection) -> Mapping[tuple[str, int], int]:
    """Return the active row update by name and version; versions without one are served as they are."""
    table = tables.row_sequences
    rows = connection.execute(select(table)).all()
    return {(row.name, row.version): row.sequence for row in rows}


def read_row_sequence(connection: Connection, name: str, version: int) -> int:
    """Return the number of the active row update of a model version; 0: none is."""
    table = tables.row_sequences
    key = (table.c.name == name) & (table.c.version == version)
    found = connection.execute(select(table.c.sequence).where(key)).scalar_one_or_none()
    return int(found or 0)


def write_row_sequence(connection: Connection, name: str, version: int, sequence: int) -> None:
    """Make a row update of a model version active; 0: none."""
    forget_row_sequence(connection, name, version)
    if sequence:
        values = {"name": name, "version": version, "sequence": sequence}
        connection.execute(insert(tables.row_sequences).values(**values))


def forget_row_sequence(connection: Connection, name: str, version: int) -> bool:
    """Drop the active row update of a version that is removed or written again; return whether it had one."""
    table = tables.row_sequences
    key = (table.c.name == name) & (table.c.version == version)
    return bool(connection.execute(delete(table).where(key)).rowcount)
