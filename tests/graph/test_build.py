"""The native builder beside the plain NumPy reference, on random inputs, in every regime of memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from graphbox.errors import DoesNotFitError, UsageError
from graphbox.graph import build
from graphbox.graph.format import FolderWriter
from graphbox.graph.schema import IdType
from tests.graph import reference_build as reference

MIB = 1 << 20
PLENTY = 512 * MIB
EXTREMES = np.array([0, -1, 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max], np.int64)
WORDS = ["a", "ä", "結点", "🙂", "a" * 100, "b\tc", "é", "e\u0301", "00", "0"]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[FolderWriter]:
    with FolderWriter(tmp_path / "graph") as writer:
        yield writer


def random_ids(kind: IdType, count: int, rng: np.random.Generator) -> pa.Array:
    """Return distinct ids in random order, odd ones among them."""
    numbers = rng.permutation(
        np.unique(np.concatenate([EXTREMES, rng.integers(-(2**63), 2**63, count, np.int64)]))
    )[:count]
    if kind == "int64":
        return pa.array(numbers)
    texts = [*WORDS, *(f"node {number}" for number in numbers.tolist())][:count]
    return pa.array([texts[i] for i in rng.permutation(len(texts)).tolist()], pa.large_string())


def array_of(writer: FolderWriter, relative: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.load(writer.path / relative, allow_pickle=False)
    return array


def check_ids(writer: FolderWriter, entry: dict[str, Any], expected: pa.Array) -> None:
    """Compare the ids on disk with those expected."""
    if entry["kind"] == "int64":
        assert np.array_equal(array_of(writer, entry["values"]), expected.to_numpy())
        return
    offsets, text = array_of(writer, entry["offsets"]), array_of(writer, entry["text"]).tobytes()
    texts = [text[start:end].decode() for start, end in pairwise(offsets.tolist())]
    assert texts == expected.to_pylist()


def batches(count: int, rng: np.random.Generator) -> Iterator[slice]:
    """Cut rows into batches of random sizes, an empty one among them."""
    start = 0
    yield slice(0, 0)
    while start < count:
        end = min(count, start + int(rng.integers(1, max(2, count))))
        yield slice(start, end)
        start = end


def columns_of(count: int, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    return {
        "weight": rng.random(count, np.float32),
        "timestamp": rng.integers(-(2**62), 2**62, count),
        "feature-0": rng.random((count, 3), np.float32),
        "feature-1": rng.random(count) < 0.5,
        "feature-2": rng.integers(-1, 4, count).astype(np.int32),
    }


TYPES: dict[str, build.PayloadType] = {
    "weight": np.dtype("<f4"),
    "timestamp": np.dtype("<i8"),
    "feature-0": (np.dtype("<f4"), (3,)),
    "feature-1": np.dtype("|b1"),
    "feature-2": np.dtype("<i4"),
}
RECODE = {"feature-2": np.array([3, 2, 0, 1], np.int32)}


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("discover", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("one_type", [False, True])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (3, 50), (200, 3000), (5000, 20_000)])
def test_edges_as_the_reference_says(
    kind: IdType,
    discover: tuple[bool, bool],
    one_type: bool,
    keep: bool,
    nodes: int,
    edges: int,
    writer: FolderWriter,
) -> None:
    if one_type and discover[0] != discover[1]:
        pytest.skip("the ids of a node type are all discovered, or none is")
    rng = np.random.default_rng([nodes, keep, one_type])
    options: dict[str, Any] = {"scratch": writer.scratch, "memory_bytes": PLENTY}
    ours = [build.NodeIds(kind, threads=2, **options) for _ in range(1 if one_type else 2)] * (1 + one_type)
    theirs = [reference.NodeIds(kind, **options) for _ in range(1 if one_type else 2)] * (1 + one_type)
    known = [random_ids(kind, nodes, rng)] * 2 if one_type else [random_ids(kind, nodes, rng) for _ in "st"]
    for end in (0,) if one_type else (0, 1):
        if not discover[end]:
            for ids in (ours[end], theirs[end]):
                ids.add(known[end])
                ids.close()
    shared: dict[str, Any] = {"discover": discover, "columns": TYPES, "keep_duplicates": keep, **options}
    our_edges = build.EdgeBuilder(ours[0], ours[1], threads=2, **shared)
    their_edges = reference.EdgeBuilder(theirs[0], theirs[1], **shared)
    absent = pa.array([None, "absent" if kind == "string" else 12345], known[0].type)
    ends = []
    for end in (0, 1):
        asked = pa.concat_arrays([known[end], absent])
        skewed = (rng.random(edges) ** 3 * len(asked)).astype(np.int64)
        ends.append(asked.take(pa.array(skewed)))
    columns = columns_of(edges, rng)
    for rows in batches(edges, rng):
        part = {name: column[rows] for name, column in columns.items()}
        added = [builder.add(ends[0][rows], ends[1][rows], part) for builder in (our_edges, their_edges)]
        ours_left_out, theirs_left_out = (rows.dangling_rows for rows in added)
        assert ours_left_out is not None
        assert theirs_left_out is not None
        assert np.array_equal(ours_left_out, theirs_left_out)
    for ids in ours:
        ids.close()
    memory = reference.MemoryWriter()
    built = our_edges.finish(writer, "edges/e", csr=keep, recode=RECODE)
    expected = their_edges.finish(memory, "edges/e", csr=keep, recode=RECODE)
    assert built.arrays.keys() == expected.arrays.keys()
    for name in expected.arrays:
        array = array_of(writer, built.arrays[name])
        assert array.dtype == memory.arrays[expected.arrays[name]].dtype
        assert np.array_equal(array, memory.arrays[expected.arrays[name]]), name
    for name in ("in_degrees", "out_degrees"):
        for mine, other in zip(getattr(built, name), getattr(expected, name), strict=True):
            assert np.array_equal(mine, other), name
    for name in vars(expected).keys() - {"arrays", "in_degrees", "out_degrees"}:
        assert getattr(built, name) == getattr(expected, name), name
    for end, name in ((0, "nodes/s"), (1, "nodes/t")):
        assert ours[end].num_nodes == theirs[end].num_nodes
        assert ours[end].num_isolated == theirs[end].num_isolated
        check_ids(writer, ours[end].write(writer, name), theirs[end].take(np.arange(theirs[end].num_nodes)))


def test_repeated_ids_are_no_nodes(tmp_path: Path) -> None:
    ids = build.NodeIds("string", scratch=tmp_path, memory_bytes=PLENTY)
    ids.add(pa.array(["a", "b"]))
    ids.add(pa.array(["c", "b", "c", "d"], pa.large_string()).slice(1))
    ids.close()
    assert (ids.num_nodes, ids.num_repeated, ids.first_repeated) == (4, 1, (1, 2, "b"))
    assert ids.find(pa.array(["d", None, "c", "x", "a"], pa.large_string())).tolist() == [3, -1, 2, -1, 0]


# Larger than memory


@dataclass(frozen=True)
class Case:
    """A graph to build again and again."""

    kind: IdType
    discover: bool
    known: pa.Array
    source: pa.Array
    target: pa.Array
    columns: dict[str, npt.NDArray[Any]]
    keep: bool


def files_of(case: Case, folder: Path, *, ids_bytes: int, edges_bytes: int, threads: int, rows: int) -> Any:
    """Build the graph of a case and return its files, and what the builder says."""
    with FolderWriter(folder) as writer:
        ids = build.NodeIds(case.kind, scratch=writer.scratch, memory_bytes=ids_bytes, threads=threads)
        if not case.discover:
            for start in range(0, len(case.known), rows):
                ids.add(case.known.slice(start, rows))
            ids.close()
        edges = build.EdgeBuilder(
            ids,
            ids,
            discover=(case.discover, case.discover),
            columns={name: column_type(column) for name, column in case.columns.items()},
            keep_duplicates=case.keep,
            scratch=writer.scratch,
            memory_bytes=edges_bytes,
            threads=threads,
        )
        for start in range(0, len(case.source), rows):
            part = slice(start, start + rows)
            edges.add(
                case.source.slice(start, rows),
                case.target.slice(start, rows),
                {name: column[part] for name, column in case.columns.items()},
            )
        ids.close()
        built = edges.finish(writer, "edges/e", csr=True)
        found = ids.find(case.known.slice(0, 100)).tolist()
        ids.write(writer, "nodes/n")
        again = ids.take(np.arange(min(ids.num_nodes, 50))).to_pylist()
        files = {path.name: path.read_bytes() for path in sorted(writer.path.rglob("*.npy"))}
        said = {name: str(value) for name, value in vars(built).items()}
        return (
            files,
            said,
            (ids.num_nodes, ids.num_isolated, ids.num_repeated, ids.first_repeated, found, again),
        )


def column_type(column: npt.NDArray[Any]) -> build.PayloadType:
    return (column.dtype, column.shape[1:])


def case_of(kind: IdType, *, discover: bool, keep: bool, nodes: int, edges: int, payload: bool) -> Case:
    rng = np.random.default_rng(nodes + edges)
    known = random_ids(kind, nodes, rng)
    asked = pa.concat_arrays([known, pa.array([None, "absent" if kind == "string" else 12345], known.type)])
    ends = [asked.take(pa.array((rng.random(edges) ** 4 * len(asked)).astype(np.int64))) for _ in "st"]
    columns = (
        {"weight": rng.random(edges, np.float32), "vector": rng.random((edges, 3), np.float32)}
        if payload
        else {}
    )
    repeated = pa.concat_arrays([known, known.slice(nodes // 2, 3)])
    return Case(kind, discover, repeated, ends[0], ends[1], columns, keep)


FEW_FOR_IDS = 22 * MIB
FEW_FOR_EDGES = 40 * MIB
"""The ids of the cases do not fit into so little memory, nor do their edges with columns."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "discover", "keep", "payload"),
    [
        ("int64", False, False, True),
        ("int64", True, True, False),
        ("string", False, True, False),
        ("string", True, False, True),
    ],
)
def test_the_same_bytes_with_any_memory_and_threads(
    kind: IdType, discover: bool, keep: bool, payload: bool, tmp_path: Path
) -> None:
    case = case_of(kind, discover=discover, keep=keep, nodes=1_500_000, edges=600_000, payload=payload)
    expected = files_of(
        case, tmp_path / "plenty", ids_bytes=PLENTY, edges_bytes=PLENTY, threads=1, rows=100_000
    )
    for number, (ids_bytes, edges_bytes, threads, rows) in enumerate(
        [(PLENTY, FEW_FOR_EDGES, 2, 70_000), (FEW_FOR_IDS, FEW_FOR_EDGES, 4, 500_000)]
    ):
        actual = files_of(
            case,
            tmp_path / str(number),
            ids_bytes=ids_bytes,
            edges_bytes=edges_bytes,
            threads=threads,
            rows=rows,
        )
        assert actual[1:] == expected[1:]
        assert actual[0].keys() == expected[0].keys()
        for name, content in expected[0].items():
            assert actual[0][name] == content, name


MEASURE = """
    import sys
    from pathlib import Path
    import numpy as np, pyarrow as pa
    from graphbox.graph import build
    from graphbox.graph.format import FolderWriter

    def peak_bytes():
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    folder, (nodes, edges, ids_bytes, edges_bytes) = sys.argv[1], map(int, sys.argv[2:])
    rng = np.random.default_rng(0)
    rows = 1 << 15
    with FolderWriter(Path(folder)) as writer:
        ids = build.NodeIds("int64", scratch=writer.scratch, memory_bytes=ids_bytes, threads=2)
        edge_builder = build.EdgeBuilder(
            ids, ids, discover=(True, True), columns={"weight": np.dtype("<f4")}, keep_duplicates=False,
            scratch=writer.scratch, memory_bytes=edges_bytes, threads=2)
        before = None
        for start in range(0, edges, rows):
            ends = rng.integers(0, nodes, (2, rows)) * 0x9E3779B97F4A7C1 - 2**62
            weights = rng.random(rows, np.float32)
            before = before or peak_bytes()
            edge_builder.add(pa.array(ends[0]), pa.array(ends[1]), {"weight": weights})
        ids.close()
        built = edge_builder.finish(writer, "edges/e", csr=True)
        ids.write(writer, "nodes/n")
    print(peak_bytes() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "edges", "ids_bytes", "edges_bytes"),
    [
        (300_000, 5_000_000, 32 * MIB, 64 * MIB),
        (2_000_000, 3_000_000, 24 * MIB, 32 * MIB),
        (1_000_000, 5_000_000, 64 * MIB, 128 * MIB),
    ],
)
def test_what_is_held_stays_within_the_budget(
    nodes: int, edges: int, ids_bytes: int, edges_bytes: int, tmp_path: Path
) -> None:
    arguments = [str(number) for number in (nodes, edges, ids_bytes, edges_bytes)]
    script = textwrap.dedent(MEASURE)
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "graph"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert process.stderr == ""
    # What the interpreter, the allocator and the stacks of threads take comes on top.
    assert int(process.stdout) <= ids_bytes + edges_bytes + 12 * MIB


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_the_forecast_is_near_what_ids_hold(kind: IdType, tmp_path: Path) -> None:
    ids = build.NodeIds(kind, scratch=tmp_path, memory_bytes=PLENTY)
    known = random_ids(kind, 700_000, np.random.default_rng(3))
    ids.add(known)
    ids.close()
    text_bytes = 0 if kind == "int64" else known.nbytes - 8 * (len(known) + 1)
    assert build.ids_bytes(len(known), text_bytes) == pytest.approx(ids.held_bytes, rel=0.15)


def test_misuse_is_told_apart(writer: FolderWriter) -> None:
    options: dict[str, Any] = {"scratch": writer.scratch, "memory_bytes": PLENTY}
    ids = build.NodeIds("int64", **options)
    with pytest.raises(UsageError, match="expected an id in every row, received 1 nulls"):
        ids.add(pa.array([1, None]))
    with pytest.raises(UsageError, match="expected ids of type int64, received string"):
        ids.add(pa.array(["a"]))
    edges = build.EdgeBuilder(
        ids, ids, discover=(True, True), columns={"weight": np.dtype("<f4")}, keep_duplicates=False, **options
    )
    one = pa.array([1])
    with pytest.raises(UsageError, match=r"expected the columns \['weight'\], received \[\]"):
        edges.add(one, one, {})
    with pytest.raises(UsageError, match=r"expected float32 \[1\], received float64 \[1\]") as wrong:
        edges.add(one, one, {"weight": np.ones(1)})
    assert wrong.value.where == "column `weight`"
    with pytest.raises(UsageError, match="closed before the edges are finished"):
        edges.finish(writer, "edges/e")
    ids.close()
    edges.finish(writer, "edges/e")
    with pytest.raises(UsageError, match="once, received it again"):
        edges.finish(writer, "edges/e")
    options["memory_bytes"] = MIB
    few = build.EdgeBuilder(ids, ids, discover=(False, False), columns={}, keep_duplicates=False, **options)
    with pytest.raises(DoesNotFitError, match=r"expected at least [0-9]+ bytes of memory to sort edges"):
        few.add(one, one, {})
