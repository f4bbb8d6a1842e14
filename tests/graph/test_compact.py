"""Compaction while others change the graph, and what other writers see of it."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphbox.errors import ConflictError, NotFoundError, TimeLimitError
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.compact import MAX_CHANGES, CompactReport, compact, in_background
from graphbox.graph.delta import append, remove
from graphbox.graph.format import graph_lock, read_manifest, remove_graph

TO = ("node", "to", "node")
NODES = 60


def edges(source: list[int], target: list[int]) -> GraphSource:
    data = {"source": source, "target": target, "w": [0.5] * len(source), "colour": ["red"] * len(source)}
    return GraphSource(
        "", {}, (EdgeSource(TO, data, weight="w", features={"colour": "categorical"}, keep_duplicates=True),)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A graph with repeated edges, weights, a categorical feature, and two changes."""
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, NODES, 400), rng.integers(0, 12, 400)
    Graph.from_coo(
        np.concatenate([source, source[:50]]),
        np.concatenate([target, target[:50]]),
        num_nodes=NODES,
        weight=np.arange(1, 451),
        edge_features={"colour": np.array(["blue", "green", "blue"])[rng.integers(0, 3, 450)]},
    ).save(tmp_path / "graph")
    append(tmp_path / "graph", edges([1, 2, 2, 50], [3, 4, 4, 40]), compact="never")
    remove(tmp_path / "graph", nodes={"node": [7]}, edges={TO: ([int(source[0])], [int(target[0])])})
    return tmp_path / "graph"


def content(graph: Graph) -> dict[int, tuple[object, ...]]:
    """Return everything of each edge by its stable id."""
    csc = graph.csc(TO)
    ids = csc.ids_at(np.arange(csc.num_edges))
    source, target = csc.coo()
    assert csc.weight is not None
    colours = graph.edge_feature(TO, "colour")[ids]
    categories = graph.edge_features(TO)["colour"].categories
    assert categories is not None
    columns = (
        graph.ids("node", source).tolist(),
        graph.ids("node", target).tolist(),
        csc.weight.tolist(),
        [categories[code] for code in colours.tolist()],
    )
    return dict(zip(graph.stable_edge_ids(TO, ids).tolist(), zip(*columns, strict=True), strict=True))


def compact_and(path: Path, meanwhile: Callable[[], object]) -> CompactReport:
    """Compact a graph and do something when its nodes have been written and its edges have not."""

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("edges"):
            assert (done, total) == (1, 2)
            meanwhile()

    return compact(path, progress, lock_timeout_s=0.1)


def change(path: Path) -> None:
    """Add edges between old and new nodes, some of them repeated; remove old and new edges and a node."""
    new = NodeSource({"id": np.array([100, 101])})
    edges_ = edges([100, 1, 2, 2, 8], [3, 3, 4, 101, 5])
    append(path, GraphSource("", {"node": new}, edges_.edges), compact="never", lock_timeout_s=0)
    remove(path, nodes={"node": [9]}, edges={TO: ([2, 100], [4, 3])}, lock_timeout_s=0)
    append(path, edges([2, 3], [4, 4]), compact="never", lock_timeout_s=0)


def test_changes_committed_meanwhile_follow_the_new_base(path: Path, tmp_path: Path) -> None:
    """They wait for nobody, and the graph is the one that has them without any compaction."""
    alone = Path(shutil.copytree(path, tmp_path / "alone"))
    change(alone)
    expected = content(Graph.open(alone))
    before = Graph.open(path)
    report = compact_and(path, lambda: change(path))
    assert report.changes == 2
    graph = Graph.open(path, verify_digests=True)
    assert content(graph) == expected != content(before)
    assert graph.removed_nodes("node").tolist() == [7, 9]
    manifest = read_manifest(path)
    assert (manifest["base"], len(manifest["deltas"])) == ("base-000002", 3)
    assert sorted(entry.name for entry in path.iterdir()) == [
        "base-000002",
        "delta-000003",
        "delta-000004",
        "delta-000005",
        "manifest.json",
    ]
    on_disk = {file.relative_to(path).as_posix() for file in path.rglob("*.npy")}
    assert on_disk == set(manifest["files"])
    # What follows an overtaken compaction changes and compacts like any graph.
    for each in (path, alone):
        remove(each, edges={TO: ([3], [4])})
    assert compact(path).changes == 4
    assert content(Graph.open(path, verify_digests=True)) == content(Graph.open(alone))


def test_a_category_used_again_meanwhile_stays(path: Path) -> None:
    """Compaction erases the text of categories that only removed edges had, unless a change uses them."""
    append(path, edges([30], [30]), compact="never")
    for _ in range(2):
        graph = Graph.open(path)
        ends = [(source, target) for source, target, _, colour in content(graph).values() if colour == "red"]
        remove(path, edges={TO: ([each[0] for each in ends], [each[1] for each in ends])})
        compact_and(path, lambda: append(path, edges([31], [31]), compact="never"))
        assert [each for each in content(Graph.open(path)).values() if each[3] == "red"] == [
            (31, 31, 0.5, "red")
        ]


def test_another_compaction_is_told_who_is_at_it(path: Path) -> None:
    def again() -> None:
        with pytest.raises(TimeLimitError) as caught:
            compact(path, lock_timeout_s=0.05)
        assert re.search(
            rf"waited 0.05 s for process {os.getpid()}, which has been compacting this graph since 20",
            caught.value.message,
        )
        with pytest.raises(TimeLimitError, match="compacting this graph since"):
            remove_graph(path, timeout_s=0.05)

    assert compact_and(path, again).changes == 2


def test_appending_leaves_compaction_to_who_is_at_it(path: Path) -> None:
    for number in range(MAX_CHANGES):
        append(path, edges([number], [50]), compact="never")
    reports = []
    compact_and(path, lambda: reports.append(append(path, edges([1], [51]))))
    assert [report.compacted for report in reports] == [False]
    assert len(read_manifest(path)["deltas"]) == 1


def test_appending_compacts_in_the_background(path: Path) -> None:
    for number in range(MAX_CHANGES):
        append(path, edges([number], [50]), compact="never")
    report = append(path, edges([1], [51]), compact="background")
    assert report.compaction is not None
    assert not report.compacted
    append(path, edges([1], [52]), compact="never")
    done = report.compaction.result(60)
    assert done is not None
    assert done.changes >= MAX_CHANGES + 1
    assert len(read_manifest(path)["deltas"]) <= 1
    assert append(path, edges([1], [53]), compact="background").compaction is None


def test_a_graph_imported_or_removed_meanwhile_is_left_alone(path: Path) -> None:
    with pytest.raises(ConflictError, match="it was imported anew meanwhile"):
        compact_and(path, lambda: Graph.from_coo([0], [1]).save(path))
    assert Graph.open(path, verify_digests=True).num_edges() == 1
    assert sorted(entry.name for entry in path.iterdir()) == ["base-000003", "manifest.json"]
    append(path, GraphSource("", {}, (EdgeSource(TO, {"source": [1], "target": [0]}),)), compact="never")
    with pytest.raises(NotFoundError, match=r"there is no graph|it was removed meanwhile"):
        compact_and(path, lambda: shutil.rmtree(path))
    assert not path.exists()


def test_what_a_compaction_that_failed_or_was_killed_leaves_is_removed(path: Path) -> None:
    expected = content(Graph.open(path))
    names = sorted(entry.name for entry in path.iterdir())

    def fail() -> None:
        assert (path / "compaction-000002").is_dir()
        append(path, edges([], []), compact="never")  # writers remove what was left, but nothing of this one
        assert (path / "compaction-000002").is_dir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact_and(path, fail)
    assert sorted(entry.name for entry in path.iterdir()) == names
    (path / "compaction-000002" / "nodes").mkdir(parents=True)  # as a killed one leaves
    assert content(Graph.open(path)) == expected
    append(path, edges([5], [5]), compact="never")
    assert not (path / "compaction-000002").exists()
    in_background(lambda: compact(path)).result(60)
    assert len(content(Graph.open(path))) == len(expected) + 1


def test_one_who_writes_without_a_pause_keeps_out_nobody(path: Path) -> None:
    stop = threading.Event()
    rounds = 0

    def write() -> None:
        nonlocal rounds
        while not stop.is_set():
            with graph_lock(path, 60):
                rounds += 1
                time.sleep(0.03)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3):
            before = rounds
            with graph_lock(path, 60, activity="testing"):
                # It waits a moment, seldom a few, for the turn; without turns it would be by chance.
                assert rounds - before < 30
        assert compact(path).changes == 2
    finally:
        stop.set()
        thread.join(60)
