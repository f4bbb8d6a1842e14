"""Compute with the native core alone: ids, samples, walks and table rows, each from a seed.

    core_results.py RESULTS.npz GRAPH

Run by two machines; `test_core.py` compares the arrays.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.graph import Graph
from graphbox.sample import (
    NegativeSampler,
    gather_rows,
    permutation,
    ppr_neighbors,
    random_walk,
    sample_heterogeneous,
    sample_neighbors,
    skip_gram_pairs,
)
from graphbox.table import EmbeddingTable, ServingTable, hashed_keys, shard_of
from graphbox.table.arguments import DType, Optimizer

Arrays = dict[str, npt.NDArray[Any]]
NODES, EDGES, DIM = 400, 6000, 20


def hash_results() -> Arrays:
    text = (np.arange(5000) % 251).astype(np.uint8)
    words = [f"word-{number}-\u00e9" for number in range(500)]
    keys = hashed_keys(words)
    return {
        "crc32c": np.array([_core.crc32c(text[:length]) for length in (0, 1, 7, 8, 9, 4096, 5000)]),
        "hashed_keys": keys,
        "shard_of": shard_of(keys, 7),
        "permutation": permutation(1000, seed=3, epoch=2),
    }


def lookup_results(folder: Path) -> Arrays:
    """Read a graph that another machine may have written."""
    graph = Graph.open(folder)
    graph.verify()
    results: Arrays = {}
    for node_type in graph.node_types:
        ids = graph.ids(node_type)
        results[f"index of {node_type}"] = graph.index(node_type, ids[::3])
        results[f"ids of {node_type}"] = np.array([str(each) for each in ids])
    for edge_type in graph.edge_types:
        results[f"in-neighbours of {edge_type}"] = np.asarray(graph.csc(edge_type).indices)
        results[f"out-neighbours of {edge_type}"] = np.asarray(graph.csr(edge_type).indices)
    sample = sample_heterogeneous(graph, {"item": np.arange(10)}, [3, 2], seed=5)
    for edge_type, edges in sample.edge_ids.items():
        results[f"sampled of {edge_type}"] = np.asarray(edges)
    return results


def sample_results() -> Arrays:
    generator = np.random.default_rng(1)
    graph = Graph.from_coo(
        generator.integers(0, NODES, EDGES),
        generator.integers(0, NODES, EDGES),
        num_nodes=NODES,
        weight=generator.random(EDGES).astype(np.float32) + 0.1,
        timestamp=np.arange(EDGES),
    )
    seeds = np.arange(0, NODES, 3)
    times = np.full(len(seeds), EDGES // 2)
    options: dict[str, dict[str, Any]] = {
        "uniform": {},
        "replaced": {"replace": True},
        "weighted": {"weight_attr": "weight"},
        "times": {"input_time": times},
        "weighted times": {"input_time": times, "weight_attr": "weight"},
        "latest": {"input_time": times, "temporal_strategy": "last"},
    }
    results: Arrays = {}
    for name, each in options.items():
        sample = sample_neighbors(graph, seeds, [6, 4], seed=11, epoch=1, num_threads=2, **each)
        results |= {f"{name}: nodes": sample.nodes, f"{name}: edges": sample.edge_ids}
    walks: dict[str, dict[str, Any]] = {
        "plain": {},
        "weighted": {"weighted": True},
        "node2vec": {"p": 0.5, "q": 2.0},
        "weighted node2vec": {"p": 4.0, "q": 0.25, "weighted": True},
        "restarts": {"restart_probability": 0.2},
        "temporal": {"temporal": True, "temporal_strategy": "linear"},
    }
    for name, each in walks.items():
        results[f"walks: {name}"] = random_walk(graph, seeds, 12, seed=4, num_threads=2, **each)
    centers, contexts = skip_gram_pairs(results["walks: plain"], 3, dynamic_window=True, seed=2)
    results |= {"centers": centers, "contexts": contexts}
    visited = ppr_neighbors(graph, seeds, 5, seed=9)
    results |= {"visited": visited.neighbors, "visits": visited.visits}
    sampler = NegativeSampler(generator.random(NODES), seed=6)
    results["negatives"] = sampler.sample((100, 5))
    return results


def table_results() -> Arrays:
    """Train rows with each optimizer, keep them on disk, and look them up as they are served."""
    generator = np.random.default_rng(2)
    batches = [
        (generator.integers(-300, 300, 1500), generator.standard_normal((1500, DIM)).astype(np.float32))
        for _ in range(4)
    ]
    results: Arrays = {}
    for optimizer in get_args(Optimizer):
        for dtype in get_args(DType):
            table = EmbeddingTable(DIM, optimizer, 0.1, seed=8, dtype=dtype, threads=2)
            for keys, gradients in batches:
                table.pull(keys)
                table.push(keys, gradients)
            results[f"{optimizer}, {dtype}"] = table.pull(np.arange(-300, 300), create=False)
    with tempfile.TemporaryDirectory() as scratch:
        saved = Path(scratch) / "saved"
        table.save_base(saved, serving="int8")
        served = ServingTable.open(saved, dtype="int8")
        results["served int8 rows"] = served.pull(np.arange(-350, 350))
        tiered = EmbeddingTable(128, path=Path(scratch) / "tier", memory_bytes=20 << 20, seed=8)
        for start in range(0, 60_000, 10_000):
            tiered.pull(np.arange(start, start + 10_000))
        results["rows on disk"] = tiered.pull(np.arange(0, 60_000, 7), create=False)
        assert tiered.tier_statistics().cold_rows > 0
        tiered.close()
    rows = generator.standard_normal((500, DIM)).astype(np.float32)
    results["gathered"] = gather_rows(rows, np.abs(batches[0][0]))
    return results


def file_results() -> Arrays:
    """Hash files that the core writes."""
    with tempfile.TemporaryDirectory() as scratch:
        table = EmbeddingTable(DIM, "adam", seed=8)
        table.pull(np.arange(1000))
        table.push(np.arange(1000), np.full((1000, DIM), 0.5, np.float32))
        table.save(Path(scratch) / "saved")
        return {
            f"sha256 of {path.name}": np.frombuffer(hashlib.sha256(path.read_bytes()).digest(), np.uint8)
            for path in sorted((Path(scratch) / "saved").rglob("*"))
            if path.is_file()
        }


def main() -> None:
    results = {
        **hash_results(),
        **lookup_results(Path(sys.argv[2])),
        **sample_results(),
        **table_results(),
        **file_results(),
    }
    np.savez(sys.argv[1], **results)  # type: ignore[arg-type]  # NumPy's stub takes the option for an array


if __name__ == "__main__":
    main()
