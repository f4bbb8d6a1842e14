"""Reading metrics.jsonl while it grows, and thinning long series."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphbox.server.metrics_file import MetricsTail, parse_point, read_metrics, thin


def line(step: int, **values: float | None) -> str:
    return json.dumps({"model": "sage", "step": step, "epoch": 0, "time_s": 0.5, "values": values}) + "\n"


def test_tail_gives_each_complete_line_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert list(tail.lines()) == [(1, b"one"), (2, b"two")]
    assert list(tail.lines()) == []
    with path.open("ab") as file:
        file.write(b"ee\nfour\n")
    assert list(tail.lines()) == [(3, b"three"), (4, b"four")]
    assert tail.line == 4


@pytest.mark.parametrize(("after", "expected"), [(0, [1, 2, 3]), (2, [3]), (3, [])])
def test_tail_skips_what_is_known(tmp_path: Path, after: int, expected: list[int]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"a\nb\nc\n")
    assert [number for number, _ in MetricsTail(path, after).lines()] == expected


def test_tail_reads_a_file_written_anew_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"a\nb\nc\n")
    tail = MetricsTail(path)
    assert len(list(tail.lines())) == 3
    path.write_bytes(b"d\n")
    assert list(tail.lines()) == [(1, b"d")]
    assert list(MetricsTail(path, after=7).lines()) == [(1, b"d")]


def test_long_lines_cross_reads(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    texts = [b"x" * size for size in (3_000_000, 1 << 20, 5)]
    path.write_bytes(b"\n".join(texts) + b"\n")
    assert [text for _, text in MetricsTail(path).lines()] == texts


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"7", b'{"model": "sage"}', b'{"model": "s", "step": 1, "values": {"a": "b"}}']
)
def test_damaged_lines_are_no_points(text: bytes) -> None:
    assert parse_point(text) is None


def test_series_by_model_and_quantity(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        line(0, loss=2.0) + line(1, loss=None, recall=0.1) + "damaged\n" + line(2, loss=1.0, recall=0.2)
    )
    metrics = read_metrics(path, 100)
    found = {series.key: (series.steps, series.values, series.non_finite) for series in metrics.series}
    assert found == {"loss": ([0, 2], [2.0, 1.0], 1), "recall": ([1, 2], [0.1, 0.2], 0)}
    assert (metrics.last_line, metrics.damaged_lines) == (4, 1)


def test_no_file_has_no_points(tmp_path: Path) -> None:
    metrics = read_metrics(tmp_path / "absent.jsonl", 10)
    assert (metrics.series, metrics.last_line) == ([], 0)


def reference_thin(x: np.ndarray, y: np.ndarray, count: int) -> list[int]:
    """The published algorithm, one triangle at a time."""
    edges = [int(edge) for edge in np.linspace(1, len(x) - 1, count - 1)]
    chosen = [0]
    for bucket in range(count - 2):
        following = range(edges[bucket + 1], edges[bucket + 2]) if bucket < count - 3 else [len(x) - 1]
        mean_x = sum(x[i] for i in following) / len(following)
        mean_y = sum(y[i] for i in following) / len(following)
        best, best_area = -1, -1.0
        for i in range(edges[bucket], edges[bucket + 1]):
            a = chosen[-1]
            area = abs((x[a] - mean_x) * (y[i] - y[a]) - (x[a] - x[i]) * (mean_y - y[a]))
            if area > best_area:
                best, best_area = i, area
        chosen.append(best)
    return [*chosen, len(x) - 1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("size", "count"), [(4, 3), (11, 10), (100, 7), (1000, 100)])
def test_thinning_follows_the_published_algorithm(seed: int, size: int, count: int) -> None:
    random = np.random.default_rng(seed)
    x = np.cumsum(random.integers(1, 5, size)).astype(np.float64)
    y = random.standard_normal(size)
    chosen = thin(x, y, count)
    assert chosen.tolist() == reference_thin(x, y, count)
    assert (np.diff(chosen) > 0).all()
    assert len(chosen) == count


def test_thinning_keeps_a_spike() -> None:
    y = np.zeros(10_000)
    y[7_123] = 9.0
    assert 7_123 in thin(np.arange(10_000.0), y, 50)


def test_phases_of_a_training_are_series_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        line(4, pretrain_loss=2.0, samples_per_s=90.0)
        + line(8, pretrain_loss=1.0, samples_per_s=80.0)
        + line(2, loss=5.0, samples_per_s=3.0)
        + line(2, validation_log_loss=0.4)
        + json.dumps({"model": "sage", "phase": "tune", "step": 1, "values": {"loss": 1.0}})
        + "\n"
    )
    metrics = read_metrics(path, 100)
    assert metrics.damaged_lines == 0
    assert [(series.phase, series.key, series.steps) for series in metrics.series] == [
        ("pretrain", "pretrain_loss", [4, 8]),
        ("pretrain", "samples_per_s", [4, 8]),
        (None, "loss", [2]),
        (None, "samples_per_s", [2]),
        (None, "validation_log_loss", [2]),
        ("tune", "loss", [1]),
    ]
