"""Takes streaming trainers through chunks in memory, without checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from graphbox.train.stream import Chunk, ChunkScores, StreamingTrainer


def score_then_learn(
    trainer: StreamingTrainer, chunks: Iterable[Chunk]
) -> Iterator[tuple[Chunk, ChunkScores | None]]:
    """Take a trainer through chunks in memory.

    Yields:
        Each chunk, with what the model said of it before it learnt from it.
    """
    for chunk in chunks:
        scores = None if chunk.number == 0 else trainer.score_chunk(chunk)
        for batch in range(trainer.open_chunk(chunk)):
            loss, _ = trainer.train_batch(chunk.number, batch)
            assert np.isfinite(loss)
        trainer.close_chunk(chunk)
        yield chunk, scores
