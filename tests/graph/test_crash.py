"""Writers that are killed, that meet, that run out of room: the old graph or the new one, nothing else."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.errors import DoesNotFitError, NotFoundError, TimeLimitError, UsageError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.format import FolderWriter, graph_lock
from graphbox.graph.ingest import import_graph

SIZES = {"small": 2_000, "large": 3_000}
"""Name of a committed state, and its number of nodes (and edges)."""


def write_tables(folder: Path, num_nodes: int) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"id": np.arange(num_nodes), "x": np.arange(num_nodes)}), folder / "node.parquet")
    ends = np.arange(num_nodes)
    pq.write_table(pa.table({"source": ends, "target": (ends * 7 + 1) % num_nodes}), folder / "edge.parquet")


def source_in(folder: Path) -> GraphSource:
    nodes = NodeSource(folder / "node.parquet", features={"x": "integer"})
    return GraphSource(folder.name, {"n": nodes}, (EdgeSource(("n", "to", "n"), folder / "edge.parquet"),))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for name, size in SIZES.items():
        write_tables(tmp_path / name, size)
    return tmp_path


def state_of(path: Path) -> str | None:
    """Return which committed state the folder holds, having checked all of it; None where there is none."""
    try:
        graph = Graph.open(path, verify_digests=True)
    except NotFoundError:
        return None
    size = SIZES[graph.name]
    assert (graph.num_nodes(), graph.num_edges()) == (size, size)
    assert graph.csr().indices.tolist() == [(source * 7 + 1) % size for source in range(size)]
    assert (graph.feature("n", "x") == np.arange(size)).all()
    return graph.name


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


IMPORT_FOREVER = """
    import itertools, sys
    from pathlib import Path
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.ingest import import_graph

    tables, destination = map(Path, sys.argv[1:3])
    print("ready", flush=True)
    for name in itertools.cycle(["large", "small"]):
        folder = tables / name
        nodes = NodeSource(folder / "node.parquet", features={"x": "integer"})
        edges = EdgeSource(("n", "to", "n"), folder / "edge.parquet")
        import_graph(GraphSource(name, {"n": nodes}, (edges,)), destination)
"""


@contextlib.contextmanager
def importing_forever(tables: Path, destination: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that imports the two states in turn, and kill it (SIGKILL) at the end."""
    with child(IMPORT_FOREVER, tables, destination) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        finally:
            process.kill()


def is_half_way(destination: Path) -> bool:
    """Return whether an import is being written, or was when it was killed."""
    if not destination.exists():
        return False
    folders = sum(entry.name.startswith("base-") for entry in destination.iterdir())
    return folders > (destination / "manifest.json").exists()


@pytest.mark.slow
def test_a_killed_import_leaves_a_committed_state(tables: Path) -> None:
    delays = random.Random(0)
    destination = tables / "graphs" / "graph"
    hit_half_way = 0
    committed = False
    for kill in itertools.count():
        if kill >= 12 and hit_half_way:
            break
        assert kill < 500, "no kill came while an import was writing"
        if kill % 4 == 0:
            shutil.rmtree(destination, ignore_errors=True)
            committed = False
        with importing_forever(tables, destination):
            deadline = time.monotonic() + 60
            while not is_half_way(destination):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(delays.choice([0, 0, delays.uniform(0, 0.06 if kill % 4 == 0 else 0.3)]))
        assert state_of(destination) is not None or not committed
        committed = state_of(destination) is not None
        hit_half_way += is_half_way(destination)
    import_graph(source_in(tables / "small"), destination)
    assert state_of(destination) == "small"
    assert sum(entry.is_dir() for entry in destination.iterdir()) == 1  # what killed imports left is gone


@pytest.mark.slow
def test_a_reader_sees_the_old_graph_or_the_new_one(tables: Path) -> None:
    destination = tables / "graph"
    import_graph(source_in(tables / "small"), destination)
    seen: set[str] = set()
    with importing_forever(tables, destination):
        deadline = time.monotonic() + 60
        while len(seen) < 2 or time.monotonic() < deadline - 58:
            assert time.monotonic() < deadline, f"only {seen} seen"
            graph = Graph.open(destination)
            size = SIZES[graph.name]
            assert graph.csr().indices.tolist() == [(source * 7 + 1) % size for source in range(size)]
            seen.add(graph.name)
    assert seen == set(SIZES)


HOLD_LOCK = """
    import sys
    from pathlib import Path
    from graphbox.graph.format import graph_lock

    with graph_lock(Path(sys.argv[1])):
        print("locked", flush=True)
        sys.stdin.read()
"""


def test_a_second_writer_waits_and_then_says_for_what(tables: Path) -> None:
    destination = tables / "graph"
    import_graph(source_in(tables / "small"), destination)
    with child(HOLD_LOCK, destination) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(TimeLimitError) as caught:
            import_graph(source_in(tables / "large"), destination, lock_timeout_s=0.2)
        assert caught.value.message.startswith(
            f"waited 0.2 s for process {holder.pid}, which has been writing this graph since 20"
        )
        assert str(tables / ".graph.lock") in caught.value.message
        assert state_of(destination) == "small"
        holder.communicate("", timeout=30)
    import_graph(source_in(tables / "large"), destination, lock_timeout_s=5)
    assert state_of(destination) == "large"


def test_threads_exclude_each_other_too(tables: Path) -> None:
    destination = tables / "graph"
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with graph_lock(destination):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    with pytest.raises(TimeLimitError):
        import_graph(source_in(tables / "small"), destination, lock_timeout_s=0.1)
    leave.set()
    thread.join(30)
    import_graph(source_in(tables / "small"), destination)
    assert state_of(destination) == "small"


LIMIT_FILE_SIZE = """
    import resource, sys
    from pathlib import Path
    from graphbox.errors import DoesNotFitError
    from graphbox.graph import Graph

    graph = Graph.open(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        graph.save(sys.argv[2])
    except DoesNotFitError as error:
        print(error)
"""


def test_a_full_disk_is_named_with_the_bytes_needed(tables: Path) -> None:
    """The limit on the size of a file stands for a full disk: the write fails half way through."""
    import_graph(source_in(tables / "large"), tables / "graph")
    import_graph(source_in(tables / "small"), tables / "copy")
    with child(LIMIT_FILE_SIZE, tables / "graph", tables / "copy") as process:
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert "expected room for 24,128 bytes or more (24,128 for this file): File too large" in output
    assert "the graph that was here before is untouched" in output
    assert state_of(tables / "copy") == "small"
    assert len(list((tables / "copy").iterdir())) == 2


def test_a_disk_with_too_little_room_is_not_filled_up(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tables)._replace(free=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        DoesNotFitError, match=r"expected room for 36,128 bytes or more .12,000 .*: 10,000 bytes are free"
    ):
        import_graph(source_in(tables / "large"), tables / "new" / "graph")
    assert {entry.name for entry in (tables / "new").iterdir()} == {".graph.lock", ".graph.turn.lock"}


@pytest.mark.parametrize("broken", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_import_removes_what_it_wrote(tables: Path, broken: type[BaseException]) -> None:
    destination = tables / "graph"

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("edges"):
            raise broken

    with pytest.raises(broken):
        import_graph(source_in(tables / "small"), destination, progress)
    assert not destination.exists()
    import_graph(source_in(tables / "small"), destination)
    with pytest.raises(broken):
        import_graph(source_in(tables / "large"), destination, progress)
    assert len(list(destination.iterdir())) == 2
    assert state_of(destination) == "small"


def test_what_was_left_is_removed_by_the_next_writer(tables: Path) -> None:
    destination = tables / "graph"
    import_graph(source_in(tables / "small"), destination)
    (destination / "base-000002" / "nodes").mkdir(parents=True)
    (destination / "manifest.json.tmp").write_text("{")
    assert state_of(destination) == "small"
    with FolderWriter(destination):
        assert sorted(entry.name for entry in destination.iterdir() if entry.is_dir()) == [
            "base-000001",
            "base-000002",
        ]
    import_graph(source_in(tables / "large"), destination)
    assert sorted(entry.name for entry in destination.iterdir()) == ["base-000002", "manifest.json"]
    assert state_of(destination) == "large"


def test_a_folder_that_cannot_be_written_is_named(tables: Path) -> None:
    with pytest.raises(UsageError, match="expected a folder that can be written, received: File exists"):
        import_graph(source_in(tables / "small"), tables / "small" / "node.parquet" / "graph")
