"""Time to forget people, what is left of them, and the cost of a kept version of a graph.

    python -m benchmarks.life --data /data/gowalla [--users 100] [--repeats 5] [--epochs 1] [--json]

Gowalla's 29,858 users get ids of 16 characters. Two runs train on them: one exports a model in two versions
and compresses it to a third, the other keeps its vectors. ``graphbox forget`` then forgets users, in a copy
of that workspace for each repeat; every byte of the copy is searched for their ids and for the rows that
belonged to them, before and after. The second part appends a share of the edges to a graph whose version is
kept, compacts it, and compares what the kept version costs with the bytes of the arrays that changed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import graphbox
from benchmarks.byte_search import ByteSearch
from graphbox.artifact import Artifact
from graphbox.graph.compact import compact
from graphbox.graph.delta import append
from graphbox.graph.schema import EdgeSource, GraphSource, NodeSource
from graphbox.graph.versions import keep_version, kept_versions
from graphbox.row_codecs import row_codec
from graphbox.workspace import Workspace

REPEATS = 5
APPENDED_SHARES = (0.001, 0.01, 0.1)
RUN_FILE = """\
version: 1
name: {name}
graph:
  name: gowalla
  root: {root}
  nodes: {{user: {{}}, place: {{}}}}
  edges: [{{type: [user, visits, place], path: visits.parquet, reverse: visited_by}}]
tasks:
  places: {{kind: recommend, node_type: user, target_type: place, relations: [visits], baselines: []}}
models:
  {model}
{rest}"""
FIRST = "vectors: {{kind: lightgcn, task: places, epochs: {epochs}}}"
SECOND = "walks: {{kind: deepwalk, epochs: 1, edge_types: [[user, visits, place]]}}"
EXPORT = """\
export:
  places: {model: vectors}
compress:
  places: {max_drop: 1.0}
"""


def main() -> None:
    """Run both parts and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.txt.gz")
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphbox-life-") as scratch:
        folder = Path(scratch)
        visits = table_of_visits(asked.data)
        pq.write_table(visits, folder / "visits.parquet")
        made = make_workspace(folder, asked.epochs)
        users = np.random.default_rng(0).choice(
            visits["source"].unique().to_numpy(zero_copy_only=False), asked.users, False
        )
        for line in (forgotten(made, users.tolist(), asked.repeats), *kept(visits, folder)):
            print(json.dumps(line) if asked.json else in_words(line), flush=True)


def in_words(line: dict[str, Any]) -> str:
    """Return a line of results for a terminal."""
    return "  ".join(f"{key}={value}" for key, value in line.items())


def table_of_visits(data: Path) -> pa.Table:
    """Return Gowalla's training visits, users by ids of 16 characters."""
    sources, targets = [], []
    with gzip.open(data / "train.txt.gz", "rt") as lines:
        for line in lines:
            user, *places = line.split()
            name = hashlib.blake2b(user.encode(), digest_size=8).hexdigest()
            sources += [name] * len(places)
            targets += [f"place-{place}" for place in places]
    return pa.table({"source": sources, "target": targets})


def make_workspace(folder: Path, epochs: int) -> Path:
    """Return a workspace with a graph, two runs of it, and three versions of a model."""
    root = folder / "workspace"
    with Workspace(root) as workspace:
        for name, model, rest in (
            ("first", FIRST.format(epochs=epochs), EXPORT),
            ("second", SECOND.format(), ""),
        ):
            file = folder / f"{name}.yaml"
            file.write_text(RUN_FILE.format(name=name, root=folder, model=model, rest=rest))
            report = graphbox.run(file, workspace=workspace)
            if name == "first":  # the compressed version is the second; a further export is the third
                subprocess.run(
                    [sys.executable, "-m", "graphbox", "-C", str(root), "-q", "export", report.run],
                    check=True,
                )
    return root


# Forgetting


def forgotten(made: Path, users: list[str], repeats: int) -> dict[str, Any]:
    """Return how long it took to forget users, and what was found of them before and after."""
    with Workspace(made) as workspace:
        search = ByteSearch(traces_of(workspace, users))
        versions = sum(1 for _ in workspace.models())
        runs = len(workspace.runs())
    before = total(search.below(made))
    seconds, after = [], Counter[str]()
    for number in range(repeats):
        copy = made.with_name(f"copy-{number}")
        shutil.copytree(made, copy)
        named = copy.with_name("users.txt")
        named.write_text("\n".join(users))
        command = ["-C", str(copy), "-q", "forget", "gowalla", "--node", "user", "--ids", str(named)]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "graphbox", *command], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
        after += total(search.below(copy))
        shutil.rmtree(copy)
    return {
        "case": f"forget {len(users)} users",
        "runs": runs,
        "versions": versions,
        "seconds": round(statistics.median(seconds), 2),
        "min": round(min(seconds), 2),
        "max": round(max(seconds), 2),
        "repeats": repeats,
        "found_before": dict(before),
        "found_after": dict(after),
    }


def total(found: dict[str, Counter[str]]) -> Counter[str]:
    """Return how often each kind of trace was found in all files."""
    return sum(found.values(), Counter[str]())


def traces_of(workspace: Workspace, users: list[str]) -> dict[bytes, str]:
    """Return the byte strings by which users can be found: their ids, and the rows that are theirs."""
    traces = {user.encode(): "ids" for user in users}
    for run in workspace.runs():
        for file in sorted((run.path / "embeddings").rglob("user.npy")):
            ids = file.with_name("user.ids.txt").read_text().splitlines()
            place = {name: row for row, name in enumerate(ids)}
            rows = np.load(file, mmap_mode="r")
            traces |= {bytes_of(rows[place[user]]): "rows of runs" for user in users if user in place}
    for record in workspace.models():
        artifact = Artifact.open(record.path)
        for name, row in rows_of(artifact):
            nodes = artifact.ids("user").index(users, missing=-1)
            traces |= {bytes_of(row[node]): f"rows of models, {name}" for node in nodes if node >= 0}
    return traces


def rows_of(artifact: Artifact) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the stored rows of users, by their codec."""
    for name, spec in artifact.manifest.tables.items():
        if spec.node_type == "user":
            file = next(iter(row_codec(spec.codec).files(spec.rows, spec.dim)))  # the one with the rows
            yield spec.codec, np.load(artifact.path / "tables" / name / file, mmap_mode="r")


def bytes_of(row: npt.NDArray[Any]) -> bytes:
    """Return the bytes of one row as they lie on the disk."""
    return np.ascontiguousarray(row).tobytes()


# Kept versions


def kept(visits: pa.Table, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what a kept version costs when shares of the edges are appended and the graph is compacted."""
    order = np.random.default_rng(1).permutation(visits.num_rows)
    for share in APPENDED_SHARES:
        path = folder / f"graph-{share:g}"
        cut = int(visits.num_rows * (1 - share))
        graphbox.graph.ingest.import_graph(source_of(visits.take(order[:cut])), path)
        keep_version(path, "reader")
        before = arrays_below(path)
        append(path, source_of(visits.take(order[cut:])), compact="never")
        compact(path)
        changed = sum(size for name, size in before.items() if name not in arrays_below(path, current=True))
        yield {
            "case": f"a version kept while {share:.1%} of the edges are appended",
            "kept_bytes": kept_versions(path).size_bytes,
            "changed_bytes": changed,
            "graph_bytes": sum(before.values()),
        }


def source_of(visits: pa.Table) -> GraphSource:
    """Return visits as the tables of a graph."""
    edges = EdgeSource(("user", "visits", "place"), visits, source="source", target="target")
    return GraphSource("gowalla", {"user": NodeSource(), "place": NodeSource()}, (edges,))


def arrays_below(path: Path, *, current: bool = False) -> dict[str, int]:
    """Return the bytes of arrays by their digest; with ``current`` of those that the graph names now."""
    named = json.loads((path / "manifest.json").read_text())["files"] if current else None
    found = {}
    for file in path.rglob("*.npy"):
        if named is None or str(file.relative_to(path)) in named:
            found[hashlib.sha256(file.read_bytes()).hexdigest()] = file.stat().st_size
    return found


if __name__ == "__main__":
    main()
