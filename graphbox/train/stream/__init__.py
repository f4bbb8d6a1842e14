"""Training from streams: each chunk of new data is scored by the model as it is, then learnt."""

from __future__ import annotations

from graphbox.train.stream.chunk import Chunk, NewEdges
from graphbox.train.stream.trainer import ChunkScores, StreamingTrainer

__all__ = ["Chunk", "ChunkScores", "NewEdges", "StreamingTrainer"]
