"""Which tables are in several processes, asked without loading what those need."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from graphbox.table.distributed_table import ShardedTable


def is_sharded(table: object) -> TypeGuard[ShardedTable]:
    """Return whether ``table`` is a :class:`ShardedTable`.

    Modules over tables, loops and checkpoints take one in the place of an :class:`EmbeddingTable`, by which
    name they know it: what they do with any table it does, too. This tells the two apart for the rest.
    """
    module = sys.modules.get("graphbox.table.distributed_table")
    return module is not None and isinstance(table, module.ShardedTable)
