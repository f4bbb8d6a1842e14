"""DeepWalk from edges to embeddings, beside gensim and PyG's Node2Vec: time, pairs per second and quality.

    python -m benchmarks.train_walk --wiki FOLDER      # edges.txt.gz, labels.txt.gz: whole runs
    python -m benchmarks.train_walk --kernel FOLDER    # graph.npz: the first 1 % of the start nodes

All systems get 10 walks of 80 nodes from each node, window 10, dim 128, and as many threads as are asked
for. graphbox makes one pass and, as another system, two, deterministic and without locks. gensim's is its
fastest setting, which is also its best: hierarchical softmax, one epoch. Its walks are made by graphbox
and handed over as words; ``learning_seconds`` is the time without that. PyG's Node2Vec has one negative,
batches of 128 and SparseAdam, as in its example, and the walks of torch-cluster; on the large graph two
of its batches are timed. ``--node2vec-passes`` lets it learn from more walks of the small graph, towards
equal quality. Pairs are those of whole walks with a fixed window, whatever a system draws of them.
Quality is micro and macro F1 of one-vs-rest logistic regression on half of the nodes, over 10 splits, the
mean of the repeats, each with a seed of its own. The last lines are ratios of graphbox's rate to the
peers'. A peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.quality_data.frozen import split_f1
from graphbox import __version__
from graphbox.config import DeepWalkConfig
from graphbox.graph import Graph
from graphbox.sample import permutation, random_walk
from graphbox.skip_gram.walkers import WalkBatches
from graphbox.train import GraphView, embed
from graphbox.train.walks.one_type import OneTypeGraph, one_type_graph
from graphbox.train.walks.skip_gram import SkipGramTrainer
from graphbox.train.walks.sources import OneTypeSource

WALKS, LENGTH, WINDOW, DIM = 10, 80, 10, 128
KERNEL_SHARE = 0.01
_FIRST_SPLIT = 300
"""Settings were chosen on other splits."""

Edges = NDArray[np.int64]
Rows = NDArray[np.float32]
Wanted = Callable[[str], bool]


@dataclass(frozen=True)
class Walked:
    """Result of a system: seconds of wall and processor, pairs and rows.

    ``learning_seconds`` is the time after the walks were made, where that is known.
    """

    seconds: float
    cpu_seconds: float
    pairs: float
    rows: Rows | None = None
    learning_seconds: float | None = None


def config(passes: int, lock_free: bool) -> DeepWalkConfig:
    """Return the model: that of the run file for so few passes, with walks as long as the peers'."""
    return DeepWalkConfig(
        kind="deepwalk",
        dim=DIM,
        walk_length=LENGTH - 1,
        epochs=passes,
        negatives=128 // passes,
        learning_rate=0.1,
        lock_free=lock_free,
    )


def timed(work: Callable[[], tuple[float, Rows | None]]) -> Walked:
    """Run ``work``, which returns its number of pairs and the embeddings."""
    wall, cpu = time.perf_counter(), time.process_time()
    pairs, rows = work()
    return Walked(time.perf_counter() - wall, time.process_time() - cpu, pairs, rows)


def pairs_of(walks: float) -> float:
    """Return how many pairs of a centre and a context whole walks have."""
    return walks * sum(min(LENGTH - 1, i + WINDOW) - max(0, i - WINDOW) for i in range(LENGTH))


def graphbox_wiki(path: Path, passes: int, lock_free: bool, threads: int, seed: int) -> Walked:
    """Read the edge list and embed."""

    def work() -> tuple[float, Rows | None]:
        edges = read_edges(path)
        graph = Graph.from_coo(edges[:, 0], edges[:, 1])
        rows = embed(graph, config(passes, lock_free), seed=seed, threads=threads)["node"]
        return pairs_of(passes * WALKS * len(rows)), rows

    return timed(work)


def gensim_wiki(path: Path, threads: int, seed: int) -> Walked:
    """Read the edge list, walk and embed."""
    learning: list[float] = []

    def work() -> tuple[float, Rows | None]:
        edges = read_edges(path)
        graph = one_type_graph(GraphView(Graph.from_coo(edges[:, 0], edges[:, 1]), None), (), weighted=False)
        order = permutation(WALKS * graph.keys.total, seed) % graph.keys.total
        walked = gensim_walks(graph, order, threads, seed)
        learning.append(walked.seconds)
        return walked.pairs, walked.rows

    return replace(timed(work), learning_seconds=learning[0])


def gensim_walks(graph: OneTypeGraph, start: NDArray[np.int64], threads: int, seed: int = 0) -> Walked:
    """Embed walks from ``start`` with gensim; the time is that of learning alone."""
    from gensim.models import Word2Vec  # type: ignore[import-not-found]  # a peer

    walks = random_walk(graph, start, LENGTH - 1, seed=seed)
    sentences = [[str(node) for node in walk if node >= 0] for walk in walks.tolist()]

    def work() -> tuple[float, Rows | None]:
        model = Word2Vec(
            sentences,
            vector_size=DIM,
            window=WINDOW,
            min_count=0,
            sg=1,
            hs=1,
            negative=0,
            workers=threads,
            epochs=1,
            seed=seed,
        )
        rows = np.zeros((graph.keys.total, DIM), np.float32)
        for place, name in enumerate(model.wv.index_to_key):
            rows[int(name)] = model.wv.vectors[place]
        return pairs_of(len(start)), rows

    return timed(work)


def pyg_walks(
    graph: OneTypeGraph, start: NDArray[np.int64], threads: int, batches: int | None, seed: int = 0
) -> Walked:
    """Embed with PyG's Node2Vec; with ``batches`` only so many, and no rows."""
    import torch_cluster  # type: ignore[import-not-found]  # noqa: F401 - a peer, has the walks
    from torch_geometric.nn.models import node2vec

    node2vec.WITH_PYG_LIB = True
    walks = torch.library.Library("pyg", "FRAGMENT")  # type: ignore[no-untyped-call]
    walks.define(  # type: ignore[no-untyped-call]
        "random_walk(Tensor rowptr, Tensor col, Tensor seed, int length, float p, float q) -> Tensor"
    )
    walks.impl("random_walk", lambda *given: torch.ops.torch_cluster.random_walk(*given)[0], "CPU")  # type: ignore[no-untyped-call]
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    source = np.repeat(np.arange(graph.keys.total), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([source, graph.indices.astype(np.int64)]))
    model = node2vec.Node2Vec(
        edges, DIM, LENGTH, WINDOW + 1, walks_per_node=WALKS, num_nodes=graph.keys.total, sparse=True
    )
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)
    parts = torch.split(torch.from_numpy(start), 128)
    used = parts if batches is None else parts[:batches]

    def work() -> tuple[float, Rows | None]:
        for part in used:
            optimizer.zero_grad()
            positive, negative = model.sample(part)
            loss = model.loss(positive, negative)
            loss.backward()
            optimizer.step()  # type: ignore[no-untyped-call]
        return pairs_of(WALKS * sum(map(len, used))), None if batches else model().detach().numpy()

    return timed(work)


def graphbox_walks(graph: OneTypeGraph, start: NDArray[np.int64], lock_free: bool, threads: int) -> Walked:
    """Train on walks from ``start``; rows are made before."""

    class Starts(OneTypeSource):
        def batches(self, epoch: int) -> WalkBatches:  # noqa: ARG002 - the interface
            return WalkBatches(start, np.append(np.arange(0, len(start), 32), len(start)))

    source = Starts(
        graph,
        walks_per_node=1,
        walk_length=LENGTH - 1,
        window=WINDOW,
        batch_size=32,
        seed=0,
        threads=threads,
    )
    trainer = SkipGramTrainer(
        source, config(1, lock_free), dim=DIM, epochs=1, seed=0, dynamic_window=True, threads=threads
    )
    groups = trainer.begin_epoch(0)
    trainer.train_batch(0, 0)  # makes the rows

    def work() -> tuple[float, Rows | None]:
        for group in range(groups):
            trainer.train_batch(0, group)
        return pairs_of(len(start)), None

    return timed(work)


def read_edges(path: Path) -> Edges:
    """Return the edges of a text file: int64 [edges, 2]."""
    with gzip.open(path) as stream:
        return np.array(stream.read().split(), dtype=np.int64).reshape(-1, 2)


def show(case: str, system: str, threads: int, runs: list[Walked], f1: list[tuple[float, float]]) -> None:
    """Print one system at one case as a JSON line."""
    rates = [run.pairs / run.seconds for run in runs]
    line: dict[str, Any] = {
        "case": case,
        "system": system,
        "threads": threads,
        "rate": median(rates),
        "unit": "pairs/s",
        "min": min(rates),
        "max": max(rates),
        "repeats": len(runs),
        "per_cpu_s": median(run.pairs / run.cpu_seconds for run in runs),
        "seconds": median(run.seconds for run in runs),
    }
    learning = [run.learning_seconds for run in runs if run.learning_seconds is not None]
    if learning:
        line["learning_seconds"] = median(learning)
    if f1:
        (micro, macro), spread = np.mean(f1, axis=0), np.std(f1, axis=0)
        line |= {"micro_f1": round(micro, 4), "macro_f1": round(macro, 4), "f1_std": spread.round(4).tolist()}
    print(json.dumps(line), flush=True)


def show_ratios(case: str, seconds: Mapping[str, float]) -> None:
    """Print how many times as long as each of graphbox's ways each peer takes for the same."""
    for name, own in seconds.items():
        for peer, taken in seconds.items():
            if name.startswith("graphbox") and not peer.startswith("graphbox"):
                print(
                    json.dumps({"case": case, "system": name, "peer": peer, "ratio": round(taken / own, 2)})
                )


def is_installed(package: str) -> bool:
    """Return whether a peer can be imported."""
    try:
        __import__(package)
    except ImportError:
        return False
    return True


def run_wiki(
    folder: Path, threads: int, repeats: int, wanted: Wanted, with_quality: bool, node2vec_passes: int
) -> None:
    """Compare whole runs on the small graph."""
    case, path = "wiki, edges to embeddings", folder / "edges.txt.gz"
    with gzip.open(folder / "labels.txt.gz") as stream:
        pairs = np.array(stream.read().split(), dtype=np.int64).reshape(-1, 2)
    labels = pairs[np.argsort(pairs[:, 0]), 1]
    runs: dict[str, Callable[[int], Walked]] = {
        f"graphbox {__version__}, {passes} pass{'es' * (passes > 1)}{', lock-free' * lock_free}": partial(
            graphbox_wiki, path, passes, lock_free, threads
        )
        for passes in (1, 2)
        for lock_free in (False, True)
    }
    if is_installed("gensim"):
        runs["gensim"] = partial(gensim_wiki, path, threads)
    if is_installed("torch_cluster"):

        def pyg(seed: int) -> Walked:
            edges = read_edges(path)
            view = GraphView(Graph.from_coo(edges[:, 0], edges[:, 1]), None)
            graph = one_type_graph(view, (), weighted=False)
            order = permutation(node2vec_passes * graph.keys.total, seed) % graph.keys.total
            return pyg_walks(graph, order, threads, None, seed)

        runs[f"PyG Node2Vec, {node2vec_passes} pass{'es' * (node2vec_passes > 1)}"] = pyg
    seconds: dict[str, float] = {}
    for name, work in runs.items():
        if not wanted(name):
            continue
        done = [work(seed) for seed in range(repeats)]
        rows = [run.rows for run in done if run.rows is not None and with_quality]
        f1 = [split_f1(each, labels, 0.5, first_seed=_FIRST_SPLIT) for each in rows]
        show(case, name, threads, done, f1)
        seconds[name] = median(run.seconds for run in done)
        if done[0].learning_seconds is not None:
            seconds[f"{name}, walks not counted"] = median(run.learning_seconds or 0.0 for run in done)
    show_ratios(case, seconds)


def run_kernel(folder: Path, threads: int, repeats: int, wanted: Wanted) -> None:
    """Compare pairs per second on the large graph."""
    with np.load(folder / "graph.npz", allow_pickle=False) as arrays:
        files = np.repeat(np.arange(len(arrays["indptr"]) - 1), np.diff(arrays["indptr"]))
        total = np.cumsum(arrays["index_delta"], dtype=np.int64)
        before = np.concatenate([[0], total])[arrays["indptr"][:-1]]
        names = total - before[files] + int(arrays["num_nodes"][0])
    graph = one_type_graph(GraphView(Graph.from_coo(files, names), None), (), weighted=False)
    del files, names, total, before
    start = np.tile(np.arange(int(graph.keys.total * KERNEL_SHARE)), WALKS)
    start = start[np.diff(graph.indptr)[start] > 0][
        permutation(int((np.diff(graph.indptr)[start] > 0).sum()))
    ]
    runs: dict[str, Callable[[], Walked]] = {
        f"graphbox {__version__}": lambda: graphbox_walks(graph, start, False, threads),
        f"graphbox {__version__}, lock-free": lambda: graphbox_walks(graph, start, True, threads),
    }
    if is_installed("gensim"):
        runs["gensim"] = lambda: gensim_walks(graph, start[: len(start) // 20], threads)
    if is_installed("torch_cluster"):
        runs["PyG Node2Vec"] = lambda: pyg_walks(graph, start, threads, 2)
    case = "kernel, first 1 % of starts"
    seconds: dict[str, float] = {}
    for name, work in runs.items():
        if wanted(name):
            done = [work() for _ in range(repeats)]
            show(case, name, threads, done, [])
            seconds[name] = median(run.seconds / run.pairs for run in done)
    show_ratios(case, seconds)


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description="DeepWalk beside gensim and PyG's Node2Vec")
    parser.add_argument("--wiki", type=Path, help="folder of the small graph")
    parser.add_argument("--kernel", type=Path, help="folder of the large graph")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--systems", nargs="+", default=[""], help="only those whose name holds one of these")
    parser.add_argument("--time-only", action="store_true", help="leave out F1, which takes long")
    parser.add_argument("--node2vec-passes", type=int, default=1, help="passes of PyG's Node2Vec")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, as always")
    arguments = parser.parse_args()

    def wanted(name: str) -> bool:
        return any(part in name for part in arguments.systems)

    if arguments.wiki:
        run_wiki(
            arguments.wiki,
            arguments.threads,
            arguments.repeats,
            wanted,
            not arguments.time_only,
            arguments.node2vec_passes,
        )
    if arguments.kernel:
        run_kernel(arguments.kernel, arguments.threads, arguments.repeats, wanted)


if __name__ == "__main__":
    main()
