"""Full ranking: how long evaluating a model on Gowalla takes, every place for every user.

    python -m benchmarks.evaluation --data /data/gowalla            # 29,858 users, 40,981 places, dim 64
    python -m benchmarks.evaluation --queries 3000 --candidates 5000

Vectors are random: what they say changes no time. Test and train pairs are the published ones, or drawn. Each
number of threads is a line of JSON, which says whether the report is that of the first, bit for bit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphbox.metrics import RankingQueries, evaluate_ranking

_K = 20


def published(folder: Path) -> tuple[RankingQueries, NDArray[np.int64]]:
    """Return what the test part asks for, and how often train has each candidate."""
    train, test = (_lists(folder / f"{part}.txt.gz") for part in ("train", "test"))
    candidates = int(max(train[1].max(), test[1].max())) + 1
    queries = RankingQueries(np.arange(len(test[0]) - 1), *test, *train)
    return queries, np.bincount(train[1], minlength=candidates)


def _lists(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read lines of a user and its places, users ascending from 0."""
    with gzip.open(path, "rt") as lines:
        rows = [np.array(line.split()[1:], dtype=np.int64) for line in lines]
    return np.cumsum([0, *map(len, rows)]), np.concatenate(rows)


def drawn(queries: int, candidates: int) -> tuple[RankingQueries, NDArray[np.int64]]:
    """Return as many queries, each with 7 answers and 27 known candidates, as Gowalla has about."""
    generator = np.random.default_rng(0)
    rows = np.stack([generator.permutation(candidates)[:34] for _ in range(queries)])
    asked = RankingQueries(
        np.arange(queries),
        np.arange(queries + 1) * 7,
        rows[:, :7].ravel(),
        np.arange(queries + 1) * 27,
        rows[:, 7:].ravel(),
    )
    return asked, np.bincount(rows[:, 7:].ravel(), minlength=candidates)


def main() -> None:
    """Time the evaluation with one thread and with several."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of Gowalla's published files; drawn pairs without")
    parser.add_argument("--queries", type=int, default=29_858, help="of drawn pairs")
    parser.add_argument("--candidates", type=int, default=40_981, help="of drawn pairs")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    queries, degree = published(asked.data) if asked.data else drawn(asked.queries, asked.candidates)
    generator = np.random.default_rng(1)
    sources, targets = (
        generator.normal(size=(count, asked.dim)).astype(np.float32)
        for count in (len(queries.queries), len(degree))
    )
    reports: list[dict[str, float | int]] = []
    for threads in asked.threads:
        began, cpu_began = time.perf_counter(), time.process_time()
        report = evaluate_ranking(
            lambda rows: sources[rows] @ targets.T, queries, degree, k=_K, threads=threads
        )
        row = {
            "case": "full ranking",
            "data": "gowalla" if asked.data else "drawn",
            "queries": len(queries.queries),
            "candidates": len(degree),
            "dim": asked.dim,
            "threads": threads,
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - cpu_began, 2),
            "same_report": not reports or report == reports[0],
        }
        reports.append(report)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
