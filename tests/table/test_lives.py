"""Lives of tables: a few thousand operations always, a million where there is time."""

from __future__ import annotations

import numpy as np
import pytest

from graphbox.table.arguments import Optimizer
from tests.table.life import some_keys
from tests.table.lives import KINDS, live
from tests.table.reference import OPTIMIZERS, PlainTable
from tests.table.vector_reference import VectorTable

OPERATIONS_OF_A_LIFE = 5000
LIVES = {
    "memory": 88,
    "policies": 36,
    "eviction": 20,
    "ssd": 30,
    "ssd-policies": 16,
    "training": 10,
}
"""A million operations in all."""


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_at_once_are_those_one_at_a_time(optimizer: Optimizer) -> None:
    rng = np.random.default_rng(5)
    keys = some_keys(rng, 40)
    assert len(np.unique(keys)) == 40
    plain = PlainTable(6, optimizer, 11)
    table = VectorTable(keys, 6, optimizer, 11)
    for _ in range(60):
        places = rng.integers(0, len(keys), rng.integers(0, 12))
        grads = rng.standard_normal((len(places), 6), np.float32)
        for create in (False, True):
            expected = plain.pull(keys[places].tolist(), create)
            np.testing.assert_allclose(table.pull(places, create), expected, rtol=1e-9, atol=1e-9)
        again = rng.integers(0, len(keys), len(places))
        table.push(again, grads)
        plain.push(keys[again].tolist(), grads)
        gone = rng.integers(0, len(keys), 2)
        assert table.erase(gone) == plain.erase(keys[gone].tolist())
        assert table.keys().tolist() == sorted(plain.rows)


@pytest.mark.parametrize("kind", KINDS)
def test_short_lives(kind: str) -> None:
    assert live(kind, 0, 800).total() == 800


@pytest.mark.stress
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_operations(kind: str) -> None:
    assert sum(LIVES.values()) * OPERATIONS_OF_A_LIFE == 1_000_000
    for seed in range(LIVES[kind]):
        live(kind, 1000 + seed, OPERATIONS_OF_A_LIFE)
