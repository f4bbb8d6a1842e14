"""Assignment of keys to the shards of a table."""

from __future__ import annotations

from typing import Any

from graphbox import _core
from graphbox.native import Int64Array, integer_array
from graphbox.table.arguments import integer


def shard_of(keys: Any, shards: int) -> Int64Array:
    """Return the number of the shard that each key belongs to, where a table is divided into ``shards``.

    The same for ever: ``EmbeddingTable.load(path, shard=(i, shards))`` takes the keys for which this is i. It
    is the mix of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of the key, scaled to the number of shards.

    Args:
        keys: integers of any shape.
        shards: how many there are.

    Returns:
        int64 [*keys.shape], each 0 to ``shards`` - 1.

    Raises:
        UsageError: keys that are no integers, or less than one shard.
    """
    array = integer_array(keys, "keys", dimensions=None)
    return _core.shard_of(array.reshape(-1), integer(shards, "shards", 1, 2**31)).reshape(array.shape)
