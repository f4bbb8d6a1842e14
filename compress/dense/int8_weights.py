"""Weights of 8 bits in blocks of 32; see `graphbox.compress.dense.block_weights`."""

from __future__ import annotations

from graphbox.compress.dense.block_weights import BlockWeights

__all__ = ["METHOD"]

METHOD = BlockWeights(bits=8)
