"""Shards in threads of this process, which can have successors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from graphbox.cluster import ShardClient, ShardServer, TableShard
from graphbox.cluster.connection import ShardAddress
from graphbox.cluster.lease import Lease


class Shards:
    """Servers of all shards; each can be replaced by a successor that has what was durable.

    Args:
        count: how many there are.
        folder: for their generations and checkpoints; None: they keep nothing.
        trainers: how many learn in step; None: none do.
        token: of the cluster.
        deadline_s: how long pulls wait for other trainers.
    """

    def __init__(
        self,
        count: int,
        folder: Path | None = None,
        *,
        trainers: int | None = None,
        token: str | None = None,
        deadline_s: float = 10.0,
    ) -> None:
        self.count = count
        self.shards: list[TableShard] = []
        self._folder = folder
        self._options: dict[str, Any] = {"trainers": trainers, "deadline_s": deadline_s}
        self._token = token
        self._servers: list[ShardServer] = []
        self._clients: list[ShardClient] = []
        self._closing = ExitStack()
        for number in range(count):
            self.shards.append(self._shard(number, 1))
            self._servers.append(self._serve(number))

    def address(self, number: int) -> ShardAddress:
        return ShardAddress(self._servers[number].location, self.shards[number].incarnation)

    def replace(self, number: int) -> None:
        """Start a successor, when the lease of the one before has run out."""
        self.shards[number].lease.end()
        self.shards[number] = self._shard(number, self.shards[number].incarnation + 1)
        self._servers[number] = self._serve(number)

    def client(self, trainer: int = 0, **options: Any) -> ShardClient:
        defaults = {"deadline_s": 15.0, "token": self._token, "checkpoints": self._folder}
        client = ShardClient(self.address, self.count, trainer, **(defaults | options))
        self._clients.append(client)
        return client

    def rows(self, table: str) -> dict[int, list[float]]:
        """Return the rows of all shards by key."""
        found: dict[int, list[float]] = {}
        for shard in self.shards:
            for keys, rows in shard.tables[table].items():
                found |= dict(zip(keys.tolist(), rows.tolist(), strict=True))
        return found

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._closing.close()

    def _shard(self, number: int, incarnation: int) -> TableShard:
        folder = None if self._folder is None else self._folder / f"shard-{number}"
        return TableShard(
            number,
            self.count,
            incarnation=incarnation,
            folder=folder,
            checkpoints=self._folder,
            lease=Lease(None),
            **self._options,
        )

    def _serve(self, number: int) -> ShardServer:
        server = ShardServer(self.shards[number], token=self._token, durable_every_s=3600)
        return self._closing.enter_context(server)


MakeShards = Callable[..., Shards]


@contextmanager
def shards_of(*arguments: Any, **options: Any) -> Iterator[Shards]:
    """Have shards while the block runs."""
    shards = Shards(*arguments, **options)
    try:
        yield shards
    finally:
        shards.close()
