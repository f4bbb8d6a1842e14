"""Embedding tables whose rows are on other machines: shards that serve them, and trainers that pull and push.

A shard (:class:`TableShard`) has the rows of some keys of every table and serves them by Arrow Flight
(:class:`ShardServer`). A trainer's :class:`ShardClient` pulls rows from all shards and pushes gradients to
them; a :class:`RemoteTable` makes one of their tables what modules and optimizers take. Addresses and
incarnations come from outside: nothing here depends on a scheduler.
"""

from graphbox.cluster.client import ShardClient
from graphbox.cluster.connection import ShardAddress
from graphbox.cluster.lease import Lease
from graphbox.cluster.remote_table import RemoteTable, pull_together
from graphbox.cluster.server import ShardServer
from graphbox.cluster.shard import TableShard

__all__ = [
    "Lease",
    "RemoteTable",
    "ShardAddress",
    "ShardClient",
    "ShardServer",
    "TableShard",
    "pull_together",
]
