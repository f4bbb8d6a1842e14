"""Pareto sets against a plain reference."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.compress.search.pareto import pareto_indices, spread_out


def reference(costs: list[list[int]]) -> list[int]:
    """Compare every pair of rows."""
    kept: list[int] = []
    for place, row in enumerate(costs):
        dominated = any(
            all(a <= b for a, b in zip(other, row, strict=True))
            and any(a < b for a, b in zip(other, row, strict=True))
            for other in costs
        )
        if not dominated and row not in costs[:place]:
            kept.append(place)
    return kept


@pytest.mark.parametrize("seed", range(20))
def test_pareto_sets_equal_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 6, (int(rng.integers(1, 40)), int(rng.integers(1, 4))))
    assert pareto_indices(costs.astype(np.float64)) == reference(costs.tolist())


@pytest.mark.parametrize("seed", range(10))
def test_thinned_sets_keep_extremes_and_what_is_asked_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.random((30, 3))
    chosen = spread_out(costs, 8, always=[17])
    assert len(chosen) == 8
    assert chosen == sorted(set(chosen))
    assert {17, *costs.argmin(axis=0).tolist()} <= set(chosen)
    assert spread_out(costs[:5], 8) == [0, 1, 2, 3, 4]


def test_equal_models_are_thinned_without_an_error() -> None:
    assert len(spread_out(np.ones((20, 2)), 4)) == 4
