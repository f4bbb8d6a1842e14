"""Shards in threads of this process, which can be killed and have successors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from graphbox.cluster import ShardClient, ShardServer, TableShard
from graphbox.cluster.connection import ShardAddress


class Shards:
    """Servers of all shards; each can be replaced by a successor that has what was durable.

    Args:
        count: how many there are.
        folder: for their generations; None: they keep nothing.
        trainers: how many learn in step; None: none do.
        token: of the cluster.
    """

    def __init__(
        self, count: int, folder: Path | None = None, *, trainers: int | None = None, token: str | None = None
    ) -> None:
        self.count = count
        self._folder = folder
        self._trainers = trainers
        self._token = token
        self.servers: list[ShardServer] = []
        self.shards: list[TableShard] = []
        self.deadline_s = 10.0
        for number in range(count):
            self._start(number, 1)

    def address(self, number: int) -> ShardAddress:
        return ShardAddress(self.servers[number].location, self.shards[number].incarnation)

    def replace(self, number: int) -> None:
        """Start a successor, to which the one before does not belong any more."""
        self.shards[number].lease.end()
        self._start(number, self.shards[number].incarnation + 1)

    def client(self, trainer: int = 0, **options: object) -> ShardClient:
        options = {"deadline_s": 15.0, "token": self._token, **options}
        return ShardClient(self.address, self.count, trainer, **options)  # type: ignore[arg-type]

    def _start(self, number: int, incarnation: int) -> None:
        shard = TableShard(
            number,
            self.count,
            incarnation=incarnation,
            folder=None if self._folder is None else self._folder / f"shard-{number}",
            checkpoints=self._folder,
            trainers=self._trainers,
            deadline_s=self.deadline_s,
        )
        server = ShardServer(shard, token=self._token, durable_every_s=3600)
        self.shards[number:] = [shard, *self.shards[number + 1 :]]
        self.servers[number:] = [server, *self.servers[number + 1 :]]


@contextmanager
def shards_of(count: int, *arguments: object, **options: object) -> Iterator[Shards]:
    yield Shards(count, *arguments, **options)  # type: ignore[arg-type]


def all_rows(shards: Sequence[TableShard], table: str) -> dict[int, list[float]]:
    """Return the rows of a table in all shards by key."""
    found: dict[int, list[float]] = {}
    for shard in shards:
        for keys, rows in shard.tables[table].items():
            found |= dict(zip(keys.tolist(), rows.tolist(), strict=True))
    return found
