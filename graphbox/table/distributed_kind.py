"""Test for tables sharded over processes, without importing what those need."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from graphbox.table.distributed_table import ShardedTable


def is_sharded(table: object) -> TypeGuard[ShardedTable]:
    """Return whether ``table`` is a :class:`ShardedTable`.

    For what differs from other tables: all processes take part, and rows learn by a :class:`TableOptimizer`.
    """
    module = sys.modules.get("graphbox.table.distributed_table")
    return module is not None and isinstance(table, module.ShardedTable)
