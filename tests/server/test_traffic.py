"""Shares of requests, and the differences of outputs, against plain references."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from graphbox.server.kserve.codec import routing_key_in
from graphbox.server.shadow_comparison import compare_outputs
from graphbox.server.traffic import Share


@pytest.mark.parametrize("percent", [0.1, 1, 10, 33.3, 50, 99.9, 100])
def test_requests_without_a_key_are_spread_evenly(percent: float) -> None:
    """Every stretch of requests has the share, not only all together; each process does the same."""
    share, again = Share("shop", percent), Share("shop", percent)
    taken = np.array([share.takes(None) for _ in range(5000)])
    assert [again.takes(None) for _ in range(5000)] == taken.tolist()
    totals = np.concatenate([[0], taken.cumsum()])
    for length in (1, 10, 100, 1000, 5000):
        counts = totals[length:] - totals[:-length]
        assert np.abs(counts - length * percent / 100).max() <= 1 + np.log(length)


@pytest.mark.parametrize("percent", [5, 20, 50])
def test_keys_are_split_within_binomial_bounds(percent: float) -> None:
    keys = [f"user-{number}".encode() for number in range(20_000)]
    share = Share("shop", percent)
    taken = [share.takes(key) for key in keys]
    deviation = np.sqrt(len(keys) * percent / 100 * (1 - percent / 100))
    assert abs(sum(taken) - len(keys) * percent / 100) < 5 * deviation
    assert [Share("shop", percent).takes(key) for key in keys] == taken, "the same in every process"
    larger = Share("shop", percent + 10)
    assert all(larger.takes(key) for key, is_taken in zip(keys, taken, strict=True) if is_taken)
    assert [Share("other", percent).takes(key) for key in keys] != taken


def test_keys_are_hashed_with_the_name_of_the_model() -> None:
    """Other programs can tell where a request goes: docs/decisions/0023."""
    point = int.from_bytes(blake2b(b"shop\0user-7", digest_size=8).digest(), "big") / 2**64
    assert Share("shop", point * 100 + 0.001).takes(b"user-7")
    assert not Share("shop", point * 100 - 0.001).takes(b"user-7")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"parameters": {"routing_key": "u17"}, "inputs": []}', b"u17"),
        ('{"parameters": {"routing_key": "\u00e9"}}'.encode(), "\u00e9".encode()),
        (b'{"parameters": {"routing_key": ""}}', None),
        (b'{"parameters": {"routing_key": 7}}', None),
        (b'{"parameters": ["routing_key"]}', None),
        (b'{"routing_key": "u17"}', None),
        (b'{"parameters": {"routing_key": "u17"}', None),
        (b"", None),
    ],
)
def test_routing_key_of_a_body(body: bytes, key: bytes | None) -> None:
    assert routing_key_in(body, None, 1000) == key
    assert routing_key_in(body + b"\0binary", str(len(body)), 1000) == (key if body else None)
    assert routing_key_in(body, "-1", 1000) is None
    assert routing_key_in(body + b" " * 1000, None, 1000) is None


def reference(
    active: np.ndarray[Any, Any], shadow: np.ndarray[Any, Any], tolerance: float
) -> Sequence[float]:
    """Return rows, rows that differ, numbers, sum and largest of the differences, one number at a time."""
    rows = different = numbers = 0
    differences = [0.0]
    for some, others in zip(active.tolist(), shadow.tolist(), strict=True):
        is_different = False
        for one, other in zip(np.ravel(some), np.ravel(others), strict=True):
            if np.isfinite(one) and np.isfinite(other):
                numbers += 1
                differences.append(abs(float(one) - float(other)))
                is_different |= differences[-1] > tolerance
            else:
                is_different |= not (one == other or (np.isnan(one) and np.isnan(other)))
        rows += 1
        different += is_different
    return rows, different, numbers, sum(differences), max(differences)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8])
@pytest.mark.parametrize("shape", [(40,), (40, 7), (3, 40_000), (40, 2, 3), (0, 5)])
@pytest.mark.parametrize("tolerance", [0.0, 1.0, 5.0])
def test_differences_equal_a_reference(dtype: Any, shape: tuple[int, ...], tolerance: float) -> None:
    random = np.random.default_rng(11)
    active = (random.standard_normal(shape) * 100 + 128).clip(0, 255).astype(dtype)
    shadow = active.copy()
    changed = random.random(shape) < (0.1 if active.size < 1000 else 0.00001)
    shadow[changed] = (random.standard_normal(shape) * 100 + 128).clip(0, 255).astype(dtype)[changed]
    if dtype in (np.float32, np.float64) and active.size:
        active.ravel()[:3] = np.nan, np.inf, np.nan
        shadow.ravel()[:3] = np.nan, -np.inf, 0
    (found,) = compare_outputs({"y": active}, {"y": shadow}, tolerance).values()
    expected = reference(active, shadow, tolerance)
    assert (found.rows, found.different_rows, found.numbers, found.difference_max) == (
        *expected[:3],
        expected[4],
    )
    assert found.difference_sum == pytest.approx(expected[3], rel=1e-12)


def test_large_integers_that_differ_by_one_differ() -> None:
    active = np.array([[2**53], [7]])
    found = compare_outputs({"id": active}, {"id": np.array([[2**53 + 1], [7]])}, 1e-4)["id"]
    assert (found.rows, found.different_rows) == (2, 1)


def test_lists_of_ids_have_an_overlap() -> None:
    active = np.array([[b"a", b"b", b"c"], [b"d", b"", b""]], object)
    shadow = np.array([[b"b", b"a", b"x"], [b"", b"", b""]], object)
    found = compare_outputs({"neighbor": active}, {"neighbor": shadow}, 0)["neighbor"]
    assert (found.rows, found.different_rows, found.numbers) == (2, 2, 0)
    assert (found.listed, found.shared) == (4, 2)
    found = compare_outputs({"id": np.array([[5, 6, -1]])}, {"id": np.array([[6, 5]])}, 0)["id"]
    assert (found.rows, found.different_rows, found.listed, found.shared) == (1, 1, 2, 2), "other lengths"


@pytest.mark.parametrize("shadow", [{}, {"y": np.zeros((3, 2))}, {"y": np.zeros((4, 3), bool)}])
def test_outputs_that_cannot_be_compared_differ_in_all_rows(shadow: dict[str, Any]) -> None:
    found = compare_outputs({"y": np.zeros((4, 3))}, shadow, 1e9)["y"]
    assert (found.rows, found.different_rows, found.numbers) == (4, 4, 0)
