"""Embedding tables: rows for any 64-bit keys, trained where they are stored."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphbox.table.policy import (
    CountAdmission,
    Expiry,
    PolicyEvents,
    ProbabilityAdmission,
    RowCounters,
    ShowClickScore,
    ShrinkReport,
    TablePolicies,
)
from graphbox.table.protocol import Table
from graphbox.table.publication import PublishedTables, TablePublisher
from graphbox.table.rows_ahead import RowsAhead
from graphbox.table.salt import hashed_keys, salted_keys, unsalted_keys
from graphbox.table.serving import ServingTable
from graphbox.table.sharding import shard_of
from graphbox.table.statistics import DeviceTableStatistics, TableStatistics
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    from graphbox.table.bag import BagSlot as BagSlot
    from graphbox.table.bag import TableEmbeddingBag as TableEmbeddingBag
    from graphbox.table.bag import TableEmbeddingBagCollection as TableEmbeddingBagCollection
    from graphbox.table.device_table import DeviceTable as DeviceTable
    from graphbox.table.distributed import ProcessGroup as ProcessGroup
    from graphbox.table.distributed_table import ShardedTable as ShardedTable
    from graphbox.table.module import TableEmbedding as TableEmbedding
    from graphbox.table.optimizer import TableOptimizer as TableOptimizer

_MODULE_OF = {
    "BagSlot": "graphbox.table.bag",
    "DeviceTable": "graphbox.table.device_table",
    "ProcessGroup": "graphbox.table.distributed",
    "ShardedTable": "graphbox.table.distributed_table",
    "TableEmbedding": "graphbox.table.module",
    "TableEmbeddingBag": "graphbox.table.bag",
    "TableEmbeddingBagCollection": "graphbox.table.bag",
    "TableOptimizer": "graphbox.table.optimizer",
}
"""Names that need torch: loaded on first use."""

__all__ = [
    "BagSlot",
    "CountAdmission",
    "DeviceTable",
    "DeviceTableStatistics",
    "EmbeddingTable",
    "Expiry",
    "PolicyEvents",
    "ProbabilityAdmission",
    "ProcessGroup",
    "PublishedTables",
    "RowCounters",
    "RowsAhead",
    "ServingTable",
    "ShardedTable",
    "ShowClickScore",
    "ShrinkReport",
    "Table",
    "TableEmbedding",
    "TableEmbeddingBag",
    "TableEmbeddingBagCollection",
    "TableOptimizer",
    "TablePolicies",
    "TablePublisher",
    "TableStatistics",
    "hashed_keys",
    "salted_keys",
    "shard_of",
    "unsalted_keys",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'graphbox.table' has no attribute {name!r}")
