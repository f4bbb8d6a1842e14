"""Stage `follow`: a model scores and learns the chunks that come into a folder, one after the other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from graphbox.config import RunConfig
from graphbox.errors import UsageError, did_you_mean
from graphbox.pipeline.stage import Stage, StageContext, StageResult
from graphbox.words import counted

if TYPE_CHECKING:
    from graphbox.train import TrainProgress
    from graphbox.train.stream.follow import FollowedModel


def _run(context: StageContext) -> StageResult:
    from graphbox.device import chosen_device
    from graphbox.pipeline.follow import FolderFeed
    from graphbox.table import TablePublisher
    from graphbox.train.stream.follow import follow
    from graphbox.train.tracking.trackers import open_trackers
    from graphbox.workspace.chunk_log import read_chunks

    config = context.config
    model = followed_model(config, context.run_id)
    name, stream = model.name, config.stream
    feed = FolderFeed(
        config, context.workspace, context.run_id, stop=context.stop, note=context.progress.note
    )
    feed.begin()
    output = published_in(config, context.run_path)
    publisher = TablePublisher(output, values=stream.serving, base_every=stream.base_every)
    learnt_before = len(read_chunks(context.run_path))
    about = {"name": config.name, "graph": config.graph.name, "seed": str(config.seed)}
    with open_trackers(config.track, context.run_path, context.run_id, about) as trackers:
        outcome = follow(
            feed,
            model,
            publisher,
            run_folder=context.run_path,
            threads=config.threads,
            device=chosen_device(config.device),
            trackers=trackers,
            progress=lambda at: _show(context, at),
            waiting=lambda what: context.progress.step(f"waiting for {what}", 0, None),
            stop=context.stop,
        )
    chunks = read_chunks(context.run_path)
    graph = context.workspace.graph(config.graph.name)
    return StageResult(
        f"learnt {counted(len(chunks) - learnt_before, 'chunk')}, {len(chunks):,} in all; "
        f"tables for serving in {output}",
        {
            "graph": graph.name,
            "fingerprint": graph.fingerprint,
            "models": [name],
            "output": str(output),
        },
        {"training": {name: asdict(outcome)}},
    )


def followed_model(config: RunConfig, run_id: str) -> FollowedModel:
    """Return the model of a run file that learns from its stream.

    Raises:
        UsageError: there is none, or several and ``stream.model`` names none of them.
    """
    from graphbox.table import Expiry
    from graphbox.train.stream.follow import FollowedModel

    name = _model(config)
    section = config.models[name]
    task = None if section.task is None else config.tasks[section.task]
    dropped_after = config.stream.drop_rows_after_chunks
    expiry = None if dropped_after is None else Expiry(passes=dropped_after)
    return FollowedModel(name, section, task, config.seed, run_id, expiry)


def published_in(config: RunConfig, run_path: Path) -> Path:
    """Return the folder of the tables that a stream's run publishes."""
    return run_path / "serving" if config.stream.output is None else Path(config.stream.output)


def _model(config: RunConfig) -> str:
    """Return the name of the model that learns."""
    names = list(config.models)
    chosen = config.stream.model
    if chosen is None and len(names) == 1:
        return names[0]
    if chosen in config.models and chosen is not None:
        return chosen
    received = f"{len(names)} models" if chosen is None else f"`{chosen}`"
    raise UsageError(
        f"expected one model that learns from the stream, received {received}",
        where="stream.model",
        hint=(None if chosen is None else did_you_mean(chosen, names))
        or f"name one of them with stream.model={names[0]}"
        if names
        else "add a section `models`",
    )


def _show(context: StageContext, at: TrainProgress) -> None:
    context.progress.step(at.model, at.epoch, None, "chunks", at.values)


STAGE = Stage("follow", _run, section="stream", follows=True, last_work="writing a checkpoint")
