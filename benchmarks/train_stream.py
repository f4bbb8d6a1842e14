"""Following a stream beside training on the same rows at once: rows per second, and where the time goes.

    python -m benchmarks.train_stream [--quick]

Purchases of a made-up shop, a chunk for each hour, are followed from CSV files to published tables: read,
hashed, appended to the graph, scored, learnt, published and checkpointed chunk by chunk. ``at once`` imports
the same files once and learns them in the same batches with the same trainer, without scores, versions and
checkpoints. The first chunk, which finds nothing there, counts as well.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from benchmarks.measure import rate_of, show_in_turns
from graphbox.config import RunConfig, load_config
from graphbox.graph import Graph, GraphSource
from graphbox.graph.chunks import begin_stream, stream_of
from graphbox.graph.ingest import import_graph
from graphbox.pipeline.follow import FolderFeed
from graphbox.pipeline.stages.import_graph import graph_source
from graphbox.table import TablePublisher
from graphbox.train import GraphView
from graphbox.train.assignment import Assignment, make_streaming_trainer
from graphbox.train.stream.chunk import Chunk, NewEdges, chunk_of
from graphbox.train.stream.follow import FollowedModel, follow
from graphbox.workspace import Workspace

RUN_FILE = """\
version: 1
name: shop
threads: 1
graph:
  name: shop
  nodes: {user: {id_type: int64}, item: {id_type: int64}}
  edges:
    - type: [user, buys, item]
      path: '*/purchases.csv'
      source: user
      target: item
      timestamp: time
      keep_duplicates: true
tasks:
  next: {kind: recommend, node_type: user, target_type: item, relations: [buys]}
models:
  rows: {kind: matrix_factorization, task: next, dim: 64, epochs: 1, batch_size: 512, candidates: 1024}
"""


@dataclass(frozen=True)
class Size:
    """Sizes of the stream."""

    chunks: int
    rows: int
    users: int
    items: int


SIZES = {False: Size(24, 20_000, 50_000, 5_000), True: Size(4, 2_000, 2_000, 500)}


def write_shop(folder: Path, size: Size) -> None:
    """Write the run file, and a chunk for each hour: popular items, users with a taste."""
    (folder / "run.yaml").write_text(RUN_FILE)
    for hour in range(size.chunks):
        generator = np.random.default_rng(hour)
        user = generator.integers(0, size.users, size.rows)
        rank = (size.items / 10 * generator.power(0.5, size.rows)).astype(np.int64)
        item = rank * 10 + np.where(generator.random(size.rows) < 0.8, user % 10, generator.integers(0, 10))
        time = hour * 3600 + np.sort(generator.integers(0, 3600, size.rows))
        place = folder / "in" / f"20261101{hour:02d}"
        place.mkdir(parents=True)
        pc.write_csv(pa.table({"user": user, "item": item, "time": time}), place / "purchases.csv")
        (place / "_SUCCESS").touch()


def follow_once(config: RunConfig, folder: Path) -> None:
    """Follow all chunks in a workspace of its own."""
    place = Path(tempfile.mkdtemp(dir=folder))
    with Workspace(place / "workspace") as workspace:
        feed = FolderFeed(config, workspace, "shop-1", stop=lambda: False, note=lambda _: None)
        feed.begin()
        outcome = follow(
            feed,
            FollowedModel("rows", config.models["rows"], config.tasks["next"], 0, "shop-1"),
            TablePublisher(place / "serving"),
            run_folder=place / "run",
            threads=config.threads,
        )
    total = sum(outcome.stage_seconds.values())
    shares = {stage: round(seconds / total, 3) for stage, seconds in outcome.stage_seconds.items()}
    print(json.dumps({"case": "stages of follow", **shares}), flush=True)
    shutil.rmtree(place)


def hours_of(chunk: Chunk) -> Iterator[Chunk]:
    """Divide a chunk by the hours of its edges."""
    [(edge_type, edges)] = chunk.edges.items()
    if edges.timestamp is None:
        raise RuntimeError("the purchases have times")
    hour = edges.timestamp // 3600
    for number in range(int(hour[-1]) + 1):
        part = slice(*np.searchsorted(hour, [number, number + 1]).tolist())
        new = NewEdges(edges.source[part], edges.target[part], edges.edge_ids[part], edges.timestamp[part])
        yield replace(chunk, number=number, edges={edge_type: new})


def learn_at_once(config: RunConfig, folder: Path) -> None:
    """Import all files as one graph and learn it hour by hour."""
    place = Path(tempfile.mkdtemp(dir=folder))
    graph_section = config.graph.model_copy(update={"root": str(folder / "in")})
    source: GraphSource = graph_source(graph_section)
    import_graph(source, place / "graph", threads=config.threads)
    begin_stream(place / "graph", "shop", "at once")
    graph, stream = Graph.open(place / "graph"), stream_of(place / "graph")
    if stream is None:
        raise RuntimeError("the stream did not begin")
    assignment = Assignment("rows", GraphView(graph, None), None, config.tasks["next"], 0, config.threads)
    trainer = make_streaming_trainer(config.models["rows"], assignment)
    for chunk in hours_of(chunk_of(graph, stream, 0)):
        for batch in range(trainer.open_chunk(chunk)):
            trainer.train_batch(chunk.number, batch)
    shutil.rmtree(place)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description="Following a stream beside training on the same rows at once"
    )
    parser.add_argument("--quick", action="store_true", help="a small shop, one run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    arguments = parser.parse_args()
    size = SIZES[arguments.quick]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shop(folder, size)
        given = [f"stream.folder={json.dumps(str(folder / 'in'))}", "stream.until_idle_seconds=0"]
        config = load_config(folder / "run.yaml", given)
        rows = size.chunks * size.rows

        def followed() -> float:
            follow_once(config, folder)
            return rows

        def at_once() -> float:
            learn_at_once(config, folder)
            return rows

        show_in_turns(
            f"{size.chunks} chunks of {size.rows} rows, matrix factorization of dim 64",
            "rows/s",
            {"graphbox, following": rate_of(followed), "graphbox, at once": rate_of(at_once)},
            as_json=arguments.json,
            repeats=1 if arguments.quick else arguments.repeats,
        )


if __name__ == "__main__":
    main()
