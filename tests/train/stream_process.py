"""Follows streams in processes of their own, which can be made to die at a given moment."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphbox.pipeline.follow.feed as feed_module
import graphbox.train.checkpoint as checkpoint_module
from graphbox.config import load_config
from graphbox.pipeline.follow import FolderFeed
from graphbox.table import EmbeddingTable, Expiry, TablePublisher
from graphbox.train.checkpoint import CheckpointStore
from graphbox.train.stream.epochs import ChunkEpochs
from graphbox.train.stream.factorization import StreamingFactorization
from graphbox.train.stream.follow import FollowedModel, follow
from graphbox.workspace import ChunkLog, Workspace
from tests.train.job_server import serve_jobs

MOMENTS: dict[str, tuple[Any, str, bool]] = {
    "before the append": (feed_module, "append", False),
    "after the append": (feed_module, "append", True),
    "after expiry": (feed_module, "expire_chunks", True),
    "after scoring": (ChunkEpochs, "_score", True),
    "after a batch": (StreamingFactorization, "train_batch", True),
    "after a part of a version": (TablePublisher, "write_part", True),
    "between the tables of a version": (EmbeddingTable, "save_delta", True),
    "after a base of one table": (EmbeddingTable, "save_base", True),
    "after a version": (TablePublisher, "write", True),
    "after the log": (ChunkLog, "add", True),
    "before a checkpoint is in place": (checkpoint_module, "replace_durably", False),
    "after a checkpoint": (CheckpointStore, "save", True),
    "before a version is told": (TablePublisher, "publish", False),
    "after a version is told": (TablePublisher, "publish", True),
}
"""Function called at each moment, and whether the process dies after it or before."""


def die_in(moment: str, call: int) -> None:
    """Let this process die in a call, counted from 1, of what a moment is told by."""
    owner, name, after = MOMENTS[moment]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if not after and calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if after and calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def follow_stream(
    folder: str, moment: str | None = None, call: int = 1, checkpoint_interval_s: float = 1e9
) -> None:
    """Follow the stream of a folder until no chunk is there; die in a call of what a moment is told by."""
    if moment is not None:
        die_in(moment, call)
    shop = Path(folder)
    config = load_config(
        shop / "run.yaml",
        [
            f"stream.folder={json.dumps(str(shop / 'in'))}",
            "stream.until_idle_seconds=0",
            "stream.keep_chunks=3",
        ],
    )
    with Workspace(shop / "workspace") as workspace:
        feed = FolderFeed(config, workspace, "stream-1", stop=lambda: False, note=lambda _: None)
        feed.begin()
        follow(
            feed,
            FollowedModel(
                "rows", config.models["rows"], config.tasks["next"], 3, "stream-1", Expiry(passes=2)
            ),
            TablePublisher(shop / "serving", base_every=3),
            run_folder=shop / "run",
            threads=1,
            checkpoint_interval_s=checkpoint_interval_s,
        )


if __name__ == "__main__":
    serve_jobs(follow_stream)
