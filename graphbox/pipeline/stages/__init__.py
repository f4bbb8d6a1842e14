"""The stages of a run, in order; each is a function from a `StageContext` to a `StageResult`."""

from __future__ import annotations

from graphbox.pipeline.stage import Stage
from graphbox.pipeline.stages import (
    bench,
    compress,
    evaluate,
    export,
    follow,
    import_graph,
    promote,
    split,
    train,
)

__all__ = ["STAGES"]

STAGES: tuple[Stage, ...] = (
    import_graph.STAGE,
    split.STAGE,
    train.STAGE,
    evaluate.STAGE,
    export.STAGE,
    compress.STAGE,
    bench.STAGE,
    promote.STAGE,
    follow.STAGE,
)
