"""LightGCN on Gowalla beside PyG's: how soon the validation recall is there that PyG's reaches in some time.

    python -m benchmarks.train_recommend --gowalla FOLDER --minutes 30

Both learn from the same four fifths of the training pairs, and are ranked on the rest by the same code;
ranking is not counted. The peer is ``torch_geometric.nn.models.LightGCN`` with BPR and its authors' settings
(3 layers, 64 numbers, batches of 2048 pairs, Adam at 0.001, regularization 1e-4); graphbox has its defaults.
Prints a JSON line for each point of either curve, then one with both times and their ratio.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch_geometric
from numpy.typing import NDArray
from torch_geometric.nn.models import LightGCN

from benchmarks.quality_data.gowalla import DATA_SET, edges_of_neighbor_lists
from graphbox import __version__
from graphbox.config import LightGCNConfig, TaskConfig, load_config
from graphbox.metrics import RankingQueries, ScoreBlock, evaluate_ranking
from graphbox.pipeline import run_pipeline
from graphbox.pipeline.run_data import RunData
from graphbox.train import GraphView, RecommendSplit
from graphbox.train.assignment import Assignment
from graphbox.train.recommendation.queries import in_degree, ranking_queries
from graphbox.train.recommendation.trainer import RecommendationTrainer
from graphbox.workspace import Workspace

QUERIES = 4096
VALIDATION = 0.2
POINTS = 12
PEER_BATCH, PEER_LAYERS, PEER_DIM, PEER_RATE, PEER_DECAY = 2048, 3, 64, 1e-3, 1e-4


@dataclass(frozen=True)
class Held:
    """Training data and queries that both systems get."""

    view: GraphView
    split: RecommendSplit
    queries: RankingQueries
    degree: NDArray[np.int64]
    task: TaskConfig
    config: LightGCNConfig


@dataclass(frozen=True)
class Point:
    """Where a curve is: seconds of training, and what ranking on validation gives."""

    seconds: float
    recall: float
    ndcg: float


def held(folder: Path, scratch: Path) -> Held:
    """Import the training pairs and hold a fifth of them out."""
    tables = scratch / "tables"
    tables.mkdir()
    edges_of_neighbor_lists(folder, tables)
    run_file = Path(__file__).parents[1] / DATA_SET.run_file
    settings = [f"graph.root={json.dumps(str(tables))}", f"tasks.places.validation_fraction={VALIDATION}"]
    workspace = Workspace(scratch / "workspace")
    report = run_pipeline(load_config(run_file, settings), workspace, until="split")
    data = RunData.open(workspace, report.run)
    split = data.split("places")
    if not isinstance(split, RecommendSplit):
        raise TypeError(f"expected a recommend split, received {type(split).__name__}")
    view = GraphView(data.graph, split, "train")
    queries = ranking_queries(view, split, "validation").sample(QUERIES, 0)
    task = data.config.tasks["places"]
    config = LightGCNConfig(kind="lightgcn", task="places")
    return Held(view, split, queries, in_degree(view, split), task, config)


def curve(
    steps: Iterator[Callable[[], ScoreBlock]], data: Held, every_s: float, system: str
) -> Iterator[Point]:
    """Yield points of a training; ``steps`` trains and gives what makes the scores of its state."""
    seconds, next_s = 0.0, every_s
    began = time.perf_counter()
    for scores in steps:
        seconds += time.perf_counter() - began
        if seconds >= next_s:
            report = evaluate_ranking(scores(), data.queries, data.degree, k=20, buckets=())
            point = Point(seconds, float(report["recall@20"]), float(report["ndcg@20"]))
            rounded = {
                "seconds": round(seconds, 1),
                "recall": round(point.recall, 5),
                "ndcg": round(point.ndcg, 5),
            }
            print(json.dumps({"case": "gowalla, validation", "system": system, **rounded}), flush=True)
            yield point
            next_s = max(next_s + every_s, seconds)
        began = time.perf_counter()


def peer_steps(data: Held, seed: int) -> Iterator[Callable[[], ScoreBlock]]:
    """Train PyG's LightGCN, a batch at a time."""
    torch.manual_seed(seed)
    users = data.view.num_nodes(data.split.node_type)
    places = data.view.num_nodes(data.split.target_type)
    pairs = torch.from_numpy(data.split.train + np.array([0, users])).T.contiguous()
    edges = torch.cat([pairs, pairs.flip(0)], dim=1)
    model = LightGCN(users + places, PEER_DIM, PEER_LAYERS)
    optimizer = torch.optim.Adam(model.parameters(), lr=PEER_RATE)

    def scores() -> ScoreBlock:
        with torch.no_grad():
            vectors = model.get_embedding(edges).numpy()
        return lambda queries: np.asarray(vectors[queries] @ vectors[users:].T, dtype=np.float32)

    while True:
        for batch in torch.split(torch.randperm(pairs.shape[1]), PEER_BATCH):
            positive = pairs[:, batch]
            negative = torch.stack([positive[0], torch.randint(users, users + places, (len(batch),))])
            optimizer.zero_grad()
            logits = model(edges, torch.cat([positive, negative], dim=1))
            found, against = logits.chunk(2)
            nodes = torch.unique(torch.cat([positive, negative], dim=1))
            loss = model.recommendation_loss(found, against, node_id=nodes, lambda_reg=PEER_DECAY)
            loss.backward()
            optimizer.step()
            yield scores


def graphbox_steps(data: Held, seed: int, threads: int) -> Iterator[Callable[[], ScoreBlock]]:
    """Train graphbox's LightGCN, a batch at a time."""
    assignment = Assignment("lightgcn", data.view, data.split, data.task, seed, threads)
    trainer = RecommendationTrainer(data.config, assignment)
    for epoch in range(trainer.epochs):
        for batch in range(trainer.begin_epoch(epoch)):
            loss, _ = trainer.train_batch(epoch, batch)
            if not math.isfinite(loss):
                raise ValueError(f"expected a finite loss, received {loss}")
            yield lambda: trainer.trained("lightgcn", data.view).score


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gowalla", type=Path, required=True, help="folder of train.txt.gz and test.txt.gz")
    parser.add_argument("--minutes", type=float, default=30.0, help="training time of the peer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object per line, as always")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    limit_s = 60.0 * asked.minutes
    with TemporaryDirectory() as scratch:
        data = held(asked.gowalla, Path(scratch))
        peer = f"PyG {torch_geometric.__version__}"
        theirs: list[Point] = []
        for point in curve(peer_steps(data, asked.seed), data, limit_s / POINTS, peer):
            theirs.append(point)
            if point.seconds >= limit_s:
                break
        best = max(theirs, key=lambda point: point.recall)
        system = f"graphbox {__version__}"
        steps = graphbox_steps(data, asked.seed, asked.threads)
        for point in curve(steps, data, limit_s / (10 * POINTS), system):
            if point.recall >= best.recall:
                break
        else:
            raise SystemExit(f"{system} has not reached {best.recall:.4f}")
    done = {
        "case": "gowalla, to the same validation recall@20",
        "threads": asked.threads,
        "unit": "s",
        "recall": round(best.recall, 5),
        peer: round(best.seconds, 1),
        system: round(point.seconds, 1),
        "recall_of_graphbox": round(point.recall, 5),
        "ndcg": [round(best.ndcg, 5), round(point.ndcg, 5)],
        "ratio": round(best.seconds / point.seconds, 1),
    }
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
