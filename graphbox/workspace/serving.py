"""Requests about served models: which were unloaded, for all workers and servers of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, select, update

from graphbox.workspace import tables
from graphbox.workspace.database import Database, sqlite_url
from graphbox.workspace.row_sequences import read_row_sequence, read_row_sequences, write_row_sequence
from graphbox.workspace.traffic import ModelTraffic, ShadowSums, add_shadow_sums, read_traffic

_CHANGES = "served models"
"""Counter of all changes of the table; no run or model has a name with a blank."""


@dataclass(frozen=True, slots=True)
class ServedModelRecord:
    """The last request about a served model.

    Attributes:
        unloaded: whether it is not to be served.
        change: number of the request; later ones have higher numbers.
    """

    unloaded: bool
    change: int


@dataclass(frozen=True, slots=True)
class ServedModels:
    """All requests about served models at one moment.

    Attributes:
        change: number of the last change.
        records: last request by model name; models without one are to be served.
        traffic: canaries and shadows by model name.
        row_sequences: active row update by name and version; others are served without any.
    """

    change: int
    records: Mapping[str, ServedModelRecord]
    traffic: Mapping[str, ModelTraffic] = field(default_factory=dict)
    row_sequences: Mapping[tuple[str, int], int] = field(default_factory=dict)


class ServingRecords:
    """The table of requests about served models. Safe to use from several threads and processes.

    Every method raises `TimeLimitError` where the database stays locked, and `FormatError` where it is gone.

    Args:
        database: has the tables ``served_models``, ``counters``, ``traffic_shares`` and ``row_sequences``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def at(cls, path: Path, busy_timeout_s: float) -> ServingRecords:
        """Open, or create, a SQLite file with these tables alone: for servers without a workspace."""
        only = (tables.served_models, tables.counters, tables.traffic_shares, tables.row_sequences)
        return cls(Database(sqlite_url(path), str(path), busy_timeout_s, only=only))

    def stamp(self) -> tuple[int, ...] | None:
        """Return numbers that differ once the database has changed; None: they are not known."""
        return self._database.stamp()

    def change(self) -> int:
        """Return the number of the last change; cheap enough to poll."""
        with self._database.read() as connection:
            return _last_change(connection)

    def read(self) -> ServedModels:
        """Return all requests."""
        table = tables.served_models
        with self._database.read() as connection:
            change = _last_change(connection)
            rows = connection.execute(select(table)).all()
            traffic = read_traffic(connection)
            sequences = read_row_sequences(connection)
        records = {row.name: ServedModelRecord(row.unloaded, row.change) for row in rows}
        return ServedModels(change, records, traffic, sequences)

    def write(self, name: str, *, unloaded: bool) -> ServedModelRecord:
        """Note a request about a model."""
        table = tables.served_models
        with self._database.write() as connection:
            change = next_change(connection)
            connection.execute(delete(table).where(table.c.name == name))
            connection.execute(insert(table).values(name=name, unloaded=unloaded, change=change))
        return ServedModelRecord(unloaded, change)

    def row_sequence(self, name: str, version: int) -> int:
        """Return the number of the active row update of a model version; 0: none is."""
        with self._database.read() as connection:
            return read_row_sequence(connection, name, version)

    def write_row_sequence(self, name: str, version: int, sequence: int) -> None:
        """Make a row update of a model version active, for all servers; 0: none."""
        with self._database.write() as connection:
            next_change(connection)
            write_row_sequence(connection, name, version, sequence)

    def add_shadow_sums(self, name: str, change: int, sums: ShadowSums) -> bool:
        """Add to the sums of a shadow; return False where it has ended, and nothing is added."""
        with self._database.write() as connection:
            return add_shadow_sums(connection, name, change, sums)


def forget_served_model(connection: Connection, name: str) -> None:
    """Drop the requests about a model that is being removed."""
    table = tables.served_models
    if connection.execute(delete(table).where(table.c.name == name)).rowcount:
        next_change(connection)


def next_change(connection: Connection) -> int:
    """Return the number of one more change, which servers find when they poll."""
    counters = tables.counters
    row = counters.c.name == _CHANGES
    if not connection.execute(update(counters).where(row).values(value=counters.c.value + 1)).rowcount:
        connection.execute(insert(counters).values(name=_CHANGES, value=1))
    return _last_change(connection)


def _last_change(connection: Connection) -> int:
    counters = tables.counters
    query = select(func.coalesce(func.max(counters.c.value), 0)).where(counters.c.name == _CHANGES)
    return int(connection.execute(query).scalar_one())
