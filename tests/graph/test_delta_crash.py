"""Appends, removals and compactions that are killed half-way: the graph is one of the committed states."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import TimeLimitError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.columns import Column
from graphbox.graph.compact import compact, in_background
from graphbox.graph.delta import append
from graphbox.graph.format import FolderWriter, read_manifest
from graphbox.graph.tables import numbered_nodes

BASE_NODES = 200

CHANGE_FOREVER = """
    import itertools, sys
    from pathlib import Path
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.compact import compact, in_background
    from graphbox.graph.delta import append, remove

    path, first = Path(sys.argv[1]), int(sys.argv[2])
    compaction = None
    print("ready", flush=True)
    for step in itertools.count(first):
        if step % 3 == 1:
            remove(path, nodes={"n": [step - 1]})
        elif step % 6 == 5:
            if compaction is not None:
                compaction.result()
            compaction = in_background(lambda: compact(path))  # the changes go on meanwhile
        else:
            nodes = NodeSource({"id": [200 + step], "x": [step]}, features={"x": "integer"})
            ends = {"source": [200 + step] * 50, "target": list(range(step, step + 50))}
            edges = EdgeSource(("n", "to", "n"), ends)
            append(path, GraphSource("", {"n": nodes}, (edges,)), compact="never")
        print(step, flush=True)
"""


def state_after(steps: int) -> tuple[set[int], set[tuple[int, int]]]:
    """Return the ids and the edges after so many steps of the program above."""
    ids = set(range(BASE_NODES))
    edges = {(node, (node * 7 + 1) % BASE_NODES) for node in ids}
    for step in range(steps):
        if step % 3 == 1:
            ids.discard(step - 1)
            edges = {edge for edge in edges if step - 1 not in edge}
        elif step % 6 != 5:
            ids.add(BASE_NODES + step)
            edges |= {(BASE_NODES + step, target) for target in range(step, step + 50) if target in ids}
    return ids, edges


def state_of(path: Path) -> tuple[set[int], set[tuple[int, int]]]:
    """Return the ids and edges of a graph, every byte of which has been checked."""
    graph = Graph.open(path, verify_digests=True)
    ids = [each for each in graph.arrow_ids("n").to_pylist() if each is not None]
    source, target = graph.csc().coo()
    ends = zip(graph.ids("n", source).tolist(), graph.ids("n", target).tolist(), strict=True)
    added = [each for each in ids if each >= BASE_NODES]
    numbers = graph.feature("n", "x")[graph.index("n", added)]
    assert (numbers == np.array(added, np.int64) - BASE_NODES).all()
    assert (graph.feature("n", "x")[graph.removed_nodes("n")] == 0).all()
    return set(ids), set(ends)


def save_base(path: Path) -> None:
    nodes = np.arange(BASE_NODES)
    graph = Graph.from_coo(nodes, (nodes * 7 + 1) % BASE_NODES)
    table = numbered_nodes(BASE_NODES, {"x": Column("integer", np.full(BASE_NODES, -1))})
    Graph("crash", {"n": table}, {("n", "to", "n"): graph.own_edges(graph.edge_types[0])}).save(path)


@pytest.mark.parametrize(
    "kills", [5, pytest.param(100, marks=[pytest.mark.stress, pytest.mark.timeout(1800)])]
)
def test_killed_changes_leave_a_committed_state(tmp_path: Path, kills: int) -> None:
    delays = random.Random(kills)
    path = tmp_path / "graph"
    save_base(path)
    done = 0
    unfinished = 0
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHANGE_FOREVER), str(path), str(done)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            steps = [process.stdout.readline().strip() for _ in range(delays.randrange(5))]
            time.sleep(delays.uniform(0, 0.15))
            assert process.poll() is None, process.stderr.read()
            process.kill()
            steps += process.stdout.read().split()
        done = int(steps[-1]) + 1 if steps else done
        named = 1 + len(read_manifest(path)["deltas"])
        unfinished += sum(entry.is_dir() for entry in path.iterdir()) > named
        state = state_of(path)
        if state != state_after(done):
            done += 1
            assert state == state_after(done)
    assert done > kills
    if kills > 50:
        assert unfinished
    compact(path)
    assert state_of(path) == state_after(done)
    assert sorted(entry.is_dir() for entry in path.iterdir()) == [False, True]


# Several processes


APPEND_FOREVER = """
    import itertools, sys
    from pathlib import Path
    from graphbox.graph import EdgeSource, GraphSource, NodeSource
    from graphbox.graph.delta import append

    path = Path(sys.argv[1])
    print("ready", flush=True)
    for step in itertools.count():
        nodes = NodeSource({"id": [200 + step], "x": [step]}, features={"x": "integer"})
        edges = EdgeSource(("n", "to", "n"), {"source": [200 + step], "target": [step]})
        append(path, GraphSource("", {"n": nodes}, (edges,)))
"""


def test_two_readers_never_see_half_of_an_append(tmp_path: Path) -> None:
    """Each append adds a node and an edge; it compacts every so often. Both readers see as many of each."""
    path = tmp_path / "graph"
    save_base(path)
    reader = """
        import sys, time
        from pathlib import Path
        from graphbox.graph import Graph

        seen = set()
        last = 0
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline or len(seen) < 5:
            assert time.monotonic() < deadline + 60
            graph = Graph.open(Path(sys.argv[1]))
            csc = graph.csc()
            assert graph.num_nodes() == csc.num_edges == len(graph.ids("n")), graph
            assert graph.feature("n", "x").max() == max(graph.num_nodes() - 201, -1)
            assert graph.num_nodes() >= last
            last = graph.num_nodes()
            seen.add(last)
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for program in (APPEND_FOREVER, reader, reader)
    ]
    try:
        for process in processes[1:]:
            assert process.stderr is not None
            assert process.wait(90) == 0, process.stderr.read()
        assert processes[0].poll() is None, processes[0].stderr.read() if processes[0].stderr else ""
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_second_writer_is_told_who_holds_the_graph_since_when_and_for_what(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    save_base(path)
    source = GraphSource("", {"n": NodeSource({"id": [1], "x": [5]}, features={"x": "integer"})}, ())
    with FolderWriter(path, activity="compacting"), pytest.raises(TimeLimitError) as caught:
        append(path, source, lock_timeout_s=0.1)
    assert re.search(
        rf"waited 0.1 s for process {os.getpid()}, which has been compacting this graph "
        r"since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 \(it holds .*\.graph\.lock\)",
        caught.value.message,
    )
    assert append(path, source, lock_timeout_s=1).nodes["n"].updated == 1
    assert (tmp_path / ".graph.lock").read_text() == ""


def test_compaction_in_the_background_leaves_open_graphs_alone(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    save_base(path)
    append(
        path,
        GraphSource("", {}, (EdgeSource(("n", "to", "n"), {"source": [0], "target": [5]}),)),
        compact="never",
    )
    before = Graph.open(path)
    report = in_background(lambda: compact(path)).result(60)
    assert (report.changes, report.path) == (1, path)
    assert before.num_edges() == before.csc().num_edges == BASE_NODES + 1
    assert before.csc().edge_ids is not None
    after = Graph.open(path)
    assert after.csc().edge_ids is None
    assert after.csc().indices.tolist() == before.csc().indices.tolist()
    assert compact(path).changes == 0
