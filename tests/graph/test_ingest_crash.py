"""Imports that are interrupted, killed, or run out of disk: the old graph stays, and nothing else."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.ingest.budget import least_bytes
from graphbox.graph.ingest.demand import Demand

SMALL, LARGE = 1_000, 120_000
KILLS = int(os.environ.get("GRAPHBOX_KILLS", "8"))
"""Number of times that an import is killed; a longer stress test sets more."""

IMPORT = """
    import signal
    import sys
    from pathlib import Path
    from graphbox.errors import DoesNotFitError
    from graphbox.graph import Graph
    from tests.graph.test_ingest_crash import import_numbers, little_memory

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    tables, destination = Path(sys.argv[1]), Path(sys.argv[2])
    if "old" in sys.argv:
        import_numbers(tables, destination, "small")
    if "limit" in sys.argv:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    print("ready", flush=True)
    try:
        while True:
            import_numbers(tables, destination, "large", memory_bytes=little_memory())
    except DoesNotFitError as error:
        print(error)
    graph = Graph.open(destination, verify_digests=True)
    print(graph.name, sorted(path.name for path in destination.iterdir()))
"""


def little_memory() -> int:
    """Return memory that is enough, and leaves batches small."""
    return least_bytes(Demand(1, categorical_columns=1)) + (64 << 20)


def write_numbers(folder: Path, name: str, size: int) -> None:
    """Nodes with features of every kind that has files of its own, and edges, in text."""
    numbers = np.arange(size)
    tags = pa.array([f"{number}|{number % 7}" for number in numbers])
    nodes = pa.table({"id": numbers, "kind": [f"k{number % 10}" for number in numbers], "tags": tags})
    edges = pa.table({"source": numbers, "target": (numbers * 7 + 1) % size, "w": numbers % 5 + 1})
    arrow_csv.write_csv(nodes, folder / f"{name}-node.csv")
    arrow_csv.write_csv(edges, folder / f"{name}-edge.csv")


def import_numbers(tables: Path, destination: Path, name: str, *, memory_bytes: int | None = None) -> None:
    nodes = NodeSource(tables / f"{name}-node.csv", features={"kind": "categorical", "tags": "slots"})
    edges = EdgeSource(("n", "to", "n"), tables / f"{name}-edge.csv", weight="w")
    import_graph(GraphSource(name, {"n": nodes}, (edges,)), destination, memory_bytes=memory_bytes)


def state_of(destination: Path) -> str:
    """Return the name of the graph, having looked at all of it."""
    graph = Graph.open(destination, verify_digests=True)
    size = {"small": SMALL, "large": LARGE}[graph.name]
    assert (graph.num_nodes(), graph.num_edges()) == (size, size)
    assert (graph.csr().indices == (np.arange(size) * 7 + 1) % size).all()
    tags = graph.node_columns("n")["tags"]
    assert (tags.values.reshape(-1, 2) == np.stack([np.arange(size), np.arange(size) % 7], axis=1)).all()
    return graph.name


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name, size in (("small", SMALL), ("large", LARGE)):
        write_numbers(folder, name, size)
    return folder


def start(*arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", textwrap.dedent(IMPORT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.stderr.read() if process.stderr else ""


def wait_until_it_writes(destination: Path) -> None:
    deadline = time.monotonic() + 60
    while len(list(destination.iterdir())) <= 2:
        assert time.monotonic() < deadline, "the import has not begun to write"
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.02, 0.15, 0.4])
def test_ctrl_c_leaves_the_old_graph_and_no_thread(delay_s: float, tables: Path, tmp_path: Path) -> None:
    destination = tmp_path / "graph"
    import_numbers(tables, destination, "small")
    with start(tables, destination) as process:
        wait_until_ready(process)
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in errors
    assert "Fatal" not in errors
    assert state_of(destination) in ("small", "large")
    assert len(list(destination.iterdir())) == 2  # the manifest and what it names: no scratch, no half graph


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_import_leaves_a_committed_state(how: signal.Signals, tables: Path, tmp_path: Path) -> None:
    delays = random.Random(int(how))
    destination = tmp_path / "graph"
    import_numbers(tables, destination, "small")
    left_something = 0
    for kill in range(KILLS):
        with start(tables, destination) as process:
            wait_until_ready(process)
            if kill % 2:
                time.sleep(delays.uniform(0, 0.5))
            else:  # while it writes, however slow the machine is
                wait_until_it_writes(destination)
            process.send_signal(how)
            process.communicate(timeout=20)
        assert state_of(destination) in ("small", "large")
        left_something += len(list(destination.iterdir())) > 2
    assert left_something
    import_numbers(tables, destination, "small")
    assert state_of(destination) == "small"
    assert len(list(destination.iterdir())) == 2  # what killed imports left is gone


def test_a_file_that_may_not_grow_stands_for_a_full_disk(tables: Path, tmp_path: Path) -> None:
    with start(tables, tmp_path / "graph", "old", "limit") as process:
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert "expected room for" in output
    assert "File too large" in output
    assert "the graph that was here before is untouched" in output
    assert output.splitlines()[-1] == "small ['base-000001', 'manifest.json']"


@pytest.mark.parametrize("mebibytes", [1, 2, 4])
def test_a_full_disk_is_named_with_what_is_needed(mebibytes: int, tables: Path, tmp_path: Path) -> None:
    """A disk of its own, in memory: too small for the edges, the features, or the ids."""
    mount = shutil.which("mount")
    unshare = shutil.which("unshare")
    command = f'mount -t tmpfs -o size={mebibytes}m tmpfs "$0" && exec "$@"'
    if mount is None or unshare is None:
        pytest.skip("needs mount and unshare (util-linux)")
    disk = tmp_path / "disk"
    disk.mkdir()
    allowed = subprocess.run(
        [unshare, "-rm", "sh", "-c", command, str(disk), "true"], capture_output=True, check=False
    )
    if allowed.returncode:
        pytest.skip(f"a disk may not be mounted here: {allowed.stderr.decode().strip()}")
    prefix = (unshare, "-rm", "sh", "-c", command, str(disk))
    with start(tables, disk / "graph", "old", prefix=prefix) as process:
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert "expected room for" in output
    assert output.splitlines()[-1] == "small ['base-000001', 'manifest.json']"


def test_an_import_takes_the_memory_it_is_given(tables: Path, tmp_path: Path) -> None:
    import_numbers(tables, tmp_path / "graph", "large", memory_bytes=little_memory())
    assert state_of(tmp_path / "graph") == "large"
