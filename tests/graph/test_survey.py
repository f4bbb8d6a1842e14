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
from graphbox.graph.survey import Estimate, GraphSurvey, extrapolate, survey_graph

EDGE = ("a", "to", "b")
Draw = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]


def survey(path: Path, sample_rows: int, **options: object) -> GraphSurvey:
    edges = EdgeSource(EDGE, path, **options)  # type: ignore[arg-type]
    return survey_graph(
        GraphSource("g", {"a": NodeSource(), "b": NodeSource()}, (edges,)), sample_rows=sample_rows
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


@pytest.mark.parametrize(
    ("draw", "share"),
    [
        (lambda rng, n: rng.integers(0, 20_000, n), 0.06),
        (lambda rng, n: rng.integers(0, 10**12, n), 0.02),
        (lambda rng, n: np.sort(rng.integers(0, 50_000, n)), 0.06),
        (lambda rng, n: np.minimum(rng.zipf(1.5, n), 10**9), 0.15),
    ],
    ids=["few", "scattered", "sorted", "power law"],
)
def test_distinct_ids_of_the_whole_from_a_part(tmp_path: Path, draw: Draw, share: float) -> None:
    rng = np.random.default_rng(7)
    source, target = draw(rng, 400_000), rng.integers(0, 1000, 400_000)
    found = survey(written(tmp_path / "e.parquet", source, target), 50_000)
    assert found.edges[EDGE].table.rows == Estimate.exactly(400_000), "Parquet says how many rows"
    assert close(found.nodes["a"].nodes, len(np.unique(source)), share)
    assert not found.nodes["a"].nodes.exact
    pairs = len(np.unique(np.stack([source, target]), axis=1).T)
    assert close(found.edges[EDGE].edges, pairs, 0.1)


def test_rows_of_text(tmp_path: Path) -> None:
    lines = ["source,target", *(f"user {number},{number % 977}" for number in range(200_000))]
    content = ("\n".join(lines) + "\n").encode()
    (tmp_path / "e.csv").write_bytes(content)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(content, 1))
    for name, share in (("e.csv", 0.02), ("e.csv.gz", 0.25)):
        found = survey(tmp_path / name, 20_000)
        rows = found.edges[EDGE].table.rows
        assert close(rows, 200_000, share)
        assert not rows.exact
        assert found.nodes["a"].id_kind == "string"
        assert found.nodes["b"].id_kind == "int64"
        assert close(found.nodes["a"].nodes, 200_000, share + 0.02)
        assert found.nodes["a"].id_bytes == pytest.approx(9.4, abs=0.6)


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


def test_extrapolation_of_laws() -> None:
    heaps = [round(1000 * 2 ** (0.6 * doubling)) for doubling in range(4)]
    assert close(extrapolate(heaps, 16), round(1000 * 2 ** (0.6 * 7)), 0.05)
    bounded = [round(10_000 * (1 - np.exp(-rows / 10_000))) for rows in (2500, 5000, 10_000, 20_000)]
    assert close(extrapolate(bounded, 16), 10_000, 0.05)
    assert extrapolate([5, 5, 5, 5], 100).likely == 5
    assert extrapolate([1, 2, 4, 8], 1).exact
