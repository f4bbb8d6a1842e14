"""Codecs under a byte budget against all choices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from graphbox.compress import BudgetedTable, choose_codecs, sampled_errors
from graphbox.compress import budget as budget_module
from graphbox.compress.tables import CODEC_OF_PRECISION, TIERED_PRECISIONS, TRAINED_PRECISIONS
from graphbox.errors import DoesNotFitError, UsageError
from graphbox.row_codecs import ArrayRows, row_codec

CODECS = tuple(codec for codec in CODEC_OF_PRECISION.values() if "(" not in codec.name)


def _tables(random: np.random.Generator, count: int) -> list[BudgetedTable]:
    tables = []
    for number in range(count):
        errors = dict(
            zip([codec.name for codec in CODECS], [0, *np.sort(random.random(5)).tolist()], strict=True)
        )
        popularity = None if number % 2 else float(random.integers(1, 9))
        rows, dim = int(random.integers(1, 900)), int(random.integers(1, 90))
        tables.append(BudgetedTable(f"t{number}", rows, dim, errors, popularity))
    return tables


def _bytes_and_error(tables: list[BudgetedTable], chosen: tuple[int, ...]) -> tuple[int, float]:
    codecs = [CODECS[place] for place in chosen]
    nbytes = sum(codec.bytes_of(t.rows, t.dim) for t, codec in zip(tables, codecs, strict=True))
    errors = (t.weight * t.errors[codec.name] ** 2 for t, codec in zip(tables, codecs, strict=True))
    return nbytes, sum(errors)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_choice_is_the_best_of_all(count: int) -> None:
    random = np.random.default_rng(count)
    for _ in range(10):
        tables = _tables(random, count)
        every = [_bytes_and_error(tables, each) for each in itertools.product(range(6), repeat=count)]
        smallest, largest = min(every)[0], max(every)[0]
        for budget in (smallest, (smallest + largest) // 3, (smallest + largest) // 2, largest, 2 * largest):
            found = choose_codecs(tables, budget)
            least = min(error for nbytes, error in every if nbytes <= budget)
            assert found.error == pytest.approx(least, rel=1e-12, abs=1e-15)
            assert found.nbytes <= budget
            assert found == choose_codecs(tables, budget)
            sizes = [found.codecs[t.name].bytes_of(t.rows, t.dim) for t in tables]
            assert found.nbytes == sum(sizes)


def test_budgets_below_the_smallest_are_refused_with_what_would_fit() -> None:
    tables = _tables(np.random.default_rng(0), 3)
    smallest = sum(row_codec("int2_rotated").bytes_of(t.rows, t.dim) for t in tables)
    smallest = min(smallest, sum(min(c.bytes_of(t.rows, t.dim) for c in CODECS) for t in tables))
    with pytest.raises(DoesNotFitError, match=f"at least {smallest} bytes, .* received {smallest - 1}"):
        choose_codecs(tables, smallest - 1)
    assert choose_codecs(tables, smallest).nbytes == smallest


def test_popular_tables_get_more_bits() -> None:
    errors = {
        codec.name: error for codec, error in zip(CODECS, (0, 1e-4, 5e-3, 0.09, 0.17, 0.33), strict=True)
    }
    tables = [BudgetedTable("seldom", 1000, 64, errors, 1), BudgetedTable("often", 1000, 64, errors, 100)]
    found = choose_codecs(tables, 60_000)
    assert {name: codec.name for name, codec in found.codecs.items()} == {
        "seldom": "int2_rotated",
        "often": "int4_rotated",
    }


def test_many_tables_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = _tables(np.random.default_rng(7), 12)
    exact = choose_codecs(tables, 200_000)
    monkeypatch.setattr(budget_module, "_MOST_STATES", 200)
    found = choose_codecs(tables, 200_000)
    assert found.nbytes <= 200_000
    assert exact.error <= found.error <= 1.1 * exact.error


def test_wrong_tables_are_refused() -> None:
    table = BudgetedTable("a", 3, 4, {"float32": 0.0})
    with pytest.raises(UsageError, match="distinct tables"):
        choose_codecs([table, table], 1000)
    with pytest.raises(UsageError, match="expected errors of table `a`"):
        choose_codecs([table], 1000, [row_codec("int8_rowwise")])
    assert choose_codecs([table], 48).codecs["a"].name == "float32"
    assert choose_codecs([], 0).nbytes == 0


def test_errors_are_those_of_a_sample() -> None:
    rows = np.random.default_rng(0).standard_normal((50_000, 32), np.float32)
    errors = sampled_errors(ArrayRows(rows))
    left_out = (*TIERED_PRECISIONS, *TRAINED_PRECISIONS)
    assert list(errors) == [
        codec.name for precision, codec in CODEC_OF_PRECISION.items() if precision not in left_out
    ]
    values = [errors[codec.name] for codec in CODECS]
    assert values == sorted(values)
    assert values[0] == 0
    assert math.isclose(errors["int4_rotated"], 0.085, rel_tol=0.15)
    tiers = sampled_errors(ArrayRows(rows), popularity=np.arange(50_000))
    assert {name: tiers[name] for name in errors} == errors
    least, most = tiers["clustered(int4_rotated)"], tiers["clustered(int3_rotated)"]
    assert least < tiers["clustered(tiered(int4_rotated,int3_rotated))"] < most
    few = sampled_errors(ArrayRows(rows[:3]), [row_codec("float16")])
    assert 0 < few["float16"] < 1e-3
