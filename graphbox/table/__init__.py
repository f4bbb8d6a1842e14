"""Embedding tables: rows for any 64-bit keys, trained where they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphbox.table.sharding import shard_of
from graphbox.table.table import EmbeddingTable

if TYPE_CHECKING:
    from graphbox.table.module import TableEmbedding as TableEmbedding

__all__ = ["EmbeddingTable", "TableEmbedding", "shard_of"]


def __getattr__(name: str) -> Any:
    if name == "TableEmbedding":  # needs torch: loaded on first use
        from graphbox.table.module import TableEmbedding

        return TableEmbedding
    raise AttributeError(f"module 'graphbox.table' has no attribute {name!r}")
