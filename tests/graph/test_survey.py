"""Looking at tables: what a part of them says of the whole."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.graph import EdgeSource, GraphSource, NodeSource
from graphbox.graph.distinct import Estimate, extrapolate
from graphbox.graph.survey import GraphSurvey, survey_graph

EDGE = ("a", "to", "b")
Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
Draw = Callable[[np.random.Generator, int], Columns]


def survey(
    path: Path, sample_rows: int, *, scan_bytes: int = 0, block_bytes: int = 1 << 13, **options: object
) -> GraphSurvey:
    edges = EdgeSource(EDGE, path, **options)  # type: ignore[arg-type]
    return survey_graph(
        GraphSource("g", {"a": NodeSource(), "b": NodeSource()}, (edges,)),
        sample_rows=sample_rows,
        scan_bytes=scan_bytes,
        block_bytes=block_bytes,
    )


def written(path: Path, source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> Path:
    pq.write_table(pa.table({"source": source, "target": target}), path, row_group_size=10_000)
    return path


def close(estimate: Estimate, truth: int, share: float) -> bool:
    return abs(estimate.likely - truth) <= share * truth and estimate.low <= estimate.likely <= estimate.high


def test_what_is_read_wholly_is_known(tmp_path: Path) -> None:
    path = written(tmp_path / "e.parquet", np.array([1, 1, 1, 2]), np.array([5, 5, 6, 7]))
    found = survey(path, 100)
    assert found.edges[EDGE].table.rows == Estimate.exactly(4)
    assert found.edges[EDGE].edges == Estimate.exactly(3), "a repeated edge is one"
    assert found.nodes["a"].nodes == Estimate.exactly(2)
    assert found.nodes["b"].nodes == Estimate.exactly(3)
    assert found.nodes["a"].id_kind == "int64"
    kept = survey(path, 100, keep_duplicates=True)
    assert kept.edges[EDGE].edges == Estimate.exactly(4)


def order_by(*keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.lexsort(keys[::-1])


def uniform(rng: np.random.Generator, rows: int) -> Columns:
    return rng.integers(0, 20_000, rows), rng.integers(0, 10**12, rows)


def power_law(rng: np.random.Generator, rows: int) -> Columns:
    return np.minimum(rng.zipf(1.5, rows), 10**9), np.minimum(rng.zipf(1.2, rows), 10**12)


def sorted_by_source(rng: np.random.Generator, rows: int) -> Columns:
    source, target = rng.integers(0, 50_000, rows), rng.zipf(1.4, rows) % 60_000
    order = order_by(source)
    return source[order], target[order]


def sorted_by_both(rng: np.random.Generator, rows: int) -> Columns:
    source = rng.integers(0, 30_000, rows)
    target = source // 3 + rng.integers(0, 10, rows)
    order = order_by(source, target)
    return source[order], target[order]


def disjoint_blocks(rng: np.random.Generator, rows: int) -> Columns:
    """Every 5,000 rows are about nodes of their own: first about few, in the second half about many."""
    block = np.arange(rows) // 5_000
    spread = np.where(np.arange(rows) < rows // 2, 100, 2_000)
    return block * 10_000 + rng.integers(0, spread), block * 10_000 + rng.integers(0, spread)


ORDERS: list[tuple[Draw, float]] = [
    (uniform, 0.06),
    (power_law, 0.15),
    (sorted_by_source, 0.15),
    (sorted_by_both, 0.15),
    (disjoint_blocks, 1.0),  # whether ids go on beside a block, or others follow, blocks cannot tell
]
each_order = pytest.mark.parametrize(("draw", "share"), ORDERS, ids=[draw.__name__ for draw, _ in ORDERS])


def truths(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    sources, targets = (np.unique(end, return_inverse=True) for end in (source, target))
    pairs = np.sort(sources[1] * len(targets[0]) + targets[1])
    return len(sources[0]), len(targets[0]), 1 + int(np.count_nonzero(np.diff(pairs)))


def estimates(found: GraphSurvey) -> tuple[Estimate, Estimate, Estimate]:
    return found.nodes["a"].nodes, found.nodes["b"].nodes, found.edges[EDGE].edges


def write_csv(path: Path, source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]) -> bytes:
    pairs = zip(source.tolist(), target.tolist(), strict=True)
    content = "source,target\n" + "".join(f"{start},{end}\n" for start, end in pairs)
    path.write_text(content)
    return content.encode()


@each_order
@pytest.mark.parametrize("seed", [7, 8])
def test_blocks_from_all_over_tell_how_many_there_are(
    tmp_path: Path, draw: Draw, share: float, seed: int
) -> None:
    source, target = draw(np.random.default_rng(seed), 400_000)
    columns = pa.table({"source": source, "target": target})
    pq.write_table(columns, tmp_path / "e.parquet", row_group_size=4_000, use_dictionary=False)
    write_csv(tmp_path / "e.csv", source, target)
    for name in ("e.parquet", "e.csv"):
        found = survey(tmp_path / name, 5_000)
        assert found.nodes["a"].looked == "in places"
        for estimate, truth in zip(estimates(found), truths(source, target), strict=True):
            assert estimate.low <= truth <= estimate.high, (name, estimate, truth)
            assert close(estimate, truth, share), (name, estimate, truth)


@each_order
def test_all_rows_are_counted_where_they_are_read_in_a_moment(
    tmp_path: Path, draw: Draw, share: float
) -> None:
    del share
    source, target = draw(np.random.default_rng(3), 200_000)
    written(tmp_path / "e.parquet", source, target)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(write_csv(tmp_path / "e.csv", source, target), 1))
    for name in ("e.parquet", "e.csv", "e.csv.gz"):
        found = survey(tmp_path / name, 5_000, scan_bytes=1 << 30)
        assert found.edges[EDGE].table.rows == Estimate.exactly(200_000)
        assert estimates(found) == tuple(Estimate.exactly(truth) for truth in truths(source, target))


@each_order
def test_what_can_only_be_read_from_its_beginning_has_a_wide_range(
    tmp_path: Path, draw: Draw, share: float
) -> None:
    del share
    source, target = draw(np.random.default_rng(5), 200_000)
    content = write_csv(tmp_path / "e.csv", source, target)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(content, 1))
    found = survey(tmp_path / "e.csv.gz", 40_000)
    assert found.nodes["a"].looked == found.edges[EDGE].looked == "at the beginning"
    for estimate, truth in zip(estimates(found), truths(source, target), strict=True):
        assert estimate.low <= truth <= estimate.high
        assert estimate.low <= estimate.likely <= estimate.high


def test_several_tables_of_one_node_type(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    large, small = rng.integers(0, 30_000, (2, 300_000)), rng.integers(20_000, 40_000, (2, 30_000))
    written(tmp_path / "large.parquet", *large)
    written(tmp_path / "small.parquet", *small)
    tables = (
        EdgeSource(("n", "large", "n"), tmp_path / "large.parquet"),
        EdgeSource(("n", "small", "n"), tmp_path / "small.parquet"),
    )
    truth = len(np.unique(np.concatenate([large.ravel(), small.ravel()])))
    source = GraphSource("g", {"n": NodeSource()}, tables)
    whole = survey_graph(source, sample_rows=1000)
    assert whole.nodes["n"].nodes == Estimate.exactly(truth)
    parts = survey_graph(source, sample_rows=5000, scan_bytes=0, block_bytes=1 << 15).nodes["n"]
    assert parts.nodes.low <= truth <= parts.nodes.high
    assert close(parts.nodes, truth, 0.15)


def test_rows_of_text(tmp_path: Path) -> None:
    lines = ["source,target", *(f"user {number},{number % 977}" for number in range(200_000))]
    content = ("\n".join(lines) + "\n").encode()
    (tmp_path / "e.csv").write_bytes(content)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(content, 1))
    for name, share, id_bytes in (("e.csv", 0.02, 10.44), ("e.csv.gz", 0.25, 9.7)):
        found = survey(tmp_path / name, 20_000)
        rows = found.edges[EDGE].table.rows
        assert close(rows, 200_000, share)
        assert not rows.exact
        assert found.nodes["a"].id_kind == "string"
        assert found.nodes["b"].id_kind == "int64"
        assert close(found.nodes["a"].nodes, 200_000, share + 0.02)
        assert found.nodes["a"].id_bytes == pytest.approx(id_bytes, abs=0.2)


def test_widths_of_features(tmp_path: Path) -> None:
    table = {
        "id": ["x", "yy", "zzz"],
        "number": [1.0, 2.0, None],
        "kind": ["b", "b", "a"],
        "vector": [[1.0, 2.0]] * 3,
    }
    pq.write_table(pa.table(table), tmp_path / "n.parquet")
    written(tmp_path / "e.parquet", np.array([1]), np.array([2]))
    nodes = NodeSource(
        tmp_path / "n.parquet", features={"number": "number", "kind": "categorical", "vector": "vector"}
    )
    edges = EdgeSource(("n", "to", "m"), tmp_path / "e.parquet", weight="source", timestamp="target")
    found = survey_graph(GraphSource("g", {"n": nodes, "m": NodeSource()}, (edges,)))
    assert found.nodes["n"].nodes == Estimate.exactly(3)
    assert found.nodes["n"].feature_bytes == 4 + 4 + 8
    assert found.nodes["n"].fixed_bytes == len("ab") + 8 * 3
    assert found.nodes["n"].id_bytes == 2.0
    assert found.edges["n", "to", "m"].payload_bytes == 4 + 8


def test_lengths_of_lists_in_cells_of_text(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,seen,place\n1,a;b;c,1;2\n2,,3;4\n3,a,\n")
    (tmp_path / "e.csv").write_text("source,target,amounts\n1,2,.5|1|2\n2,3,\n3,1,1|2|3\n")
    nodes = NodeSource(tmp_path / "n.csv", features={"seen": "slots", "place": "vector"}, list_separator=";")
    edges = EdgeSource(("n", "to", "n"), tmp_path / "e.csv", features={"amounts": "vector"})
    found = survey_graph(GraphSource("g", {"n": nodes}, (edges,)))
    assert found.nodes["n"].feature_bytes == pytest.approx(8 + 8 * 4 / 3 + 4 * 2)
    assert found.edges["n", "to", "n"].vector_dims == {"amounts": 3}
    assert found.edges["n", "to", "n"].payload_bytes == 4 * 3


def test_extrapolation_of_laws() -> None:
    heaps = [round(1000 * 2 ** (0.6 * doubling)) for doubling in range(4)]
    assert close(extrapolate(heaps, 16), round(1000 * 2 ** (0.6 * 7)), 0.05)
    bounded = [round(10_000 * (1 - np.exp(-rows / 10_000))) for rows in (2500, 5000, 10_000, 20_000)]
    assert close(extrapolate(bounded, 16), 10_000, 0.05)
    assert extrapolate([5, 5, 5, 5], 100).likely == 5
    assert extrapolate([1, 2, 4, 8], 1).exact
