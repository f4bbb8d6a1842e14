"""Recipes that are suggested after the ladder: bytes go where the metric loses least, up to its limit."""

from __future__ import annotations

import pytest

from graphbox.artifact import TableSpec
from graphbox.compress.recipe import Recipe
from graphbox.compress.search import Space, Trial, suggestions
from graphbox.compress.search.space import ladder, neighbor_probes, probes
from graphbox.compress.tables import CODEC_OF_PRECISION

METRIC = "recall@20"
ROWS, DIM = 10_000, 64
CODECS = ("float32", "float16", "int8", "int4", "int3", "int2")
ERRORS = dict(zip(CODECS, (0.0, 1e-4, 0.005, 0.09, 0.18, 0.36), strict=True))
SPACE = Space(
    tables={"read": CODECS, "ranked": CODECS}, dense=("float32", "int8"), max_neighbors=(None, 8, 4)
)
SPECS = {
    name: TableSpec(node_type="node", codec="float32", rows=ROWS, dim=DIM, ids="ids/node.parquet")
    for name in SPACE.tables
}
LOST_OF_TABLE = {"read": 0.01, "ranked": 0.04}
"""Of the metric, in int2."""
LOST_OF_BOUND = {None: 0.0, 8: 0.0, 4: 0.02}
BYTES_OF_LISTS = {None: 500_000, 8: 400_000, 4: 300_000}


def lost(recipe: Recipe) -> float:
    """Return what the metric loses: the sum of what the parts lose, by their squared errors."""
    of_tables = (LOST_OF_TABLE[name] * (ERRORS[codec] / 0.36) ** 2 for name, codec in recipe.tables.items())
    return sum(of_tables) + LOST_OF_BOUND[recipe.max_neighbors]


def size(recipe: Recipe) -> int:
    """Return the bytes of tables and lists."""
    codecs = (CODEC_OF_PRECISION[recipe.tables.get(name, "float32")] for name in SPACE.tables)
    return sum(codec.bytes_of(ROWS, DIM) for codec in codecs) + BYTES_OF_LISTS[recipe.max_neighbors]


def trials(space: Space) -> list[Trial]:
    """Return trials of the ladder, measured."""
    return [
        Trial(each, "ladder", "measured", size_bytes=size(each), metrics={METRIC: 0.5 - lost(each)})
        for each in ladder(space)
    ]


def suggested(space: Space, least: float | None) -> list[Recipe]:
    errors = {name: {codec: ERRORS[codec] for codec in known} for name, known in space.tables.items()}
    return suggestions(SPECS, space, errors, trials(space), METRIC, least)


def test_the_suggestions_are_those_closest_to_the_limit() -> None:
    found = suggested(SPACE, 0.49)
    assert 2 <= len(found) <= 8
    away = [abs(lost(each) - 0.01) for each in found]
    assert away == pytest.approx(sorted(away), abs=1e-9)
    assert len({each.key for each in found}) == len(found)
    within = [each for each in found if lost(each) <= 0.01]
    uniform = [each for each in ladder(SPACE) if lost(each) <= 0.01]
    assert min(map(size, within)) < min(map(size, uniform))


def test_a_bound_that_costs_nothing_is_taken_and_one_that_costs_more_is_not() -> None:
    bounds = [each.max_neighbors for each in suggested(SPACE, 0.49)]
    assert 8 in bounds
    assert 4 not in bounds
    unbounded = Space(tables=SPACE.tables, dense=SPACE.dense)
    assert {each.max_neighbors for each in suggested(unbounded, 0.49)} == {None}
    smallest = [
        min(size(each) for each in suggested(space, 0.49) if lost(each) <= 0.01)
        for space in (SPACE, unbounded)
    ]
    assert smallest[0] < smallest[1]


def test_without_a_limit_the_smallest_come_first() -> None:
    sizes = [size(each) for each in suggested(SPACE, None)]
    assert len(sizes) > 1
    assert sizes == sorted(sizes)


def test_without_losses_bounds_are_not_compared() -> None:
    alone = {recipe.key for recipe in [*probes(SPACE).values(), *neighbor_probes(SPACE).values()]}
    rest = [each for each in trials(SPACE) if each.recipe.key not in alone]
    errors = dict.fromkeys(SPACE.tables, ERRORS)
    found = suggestions(SPECS, SPACE, errors, rest, METRIC, 0.49)
    assert found
    assert {each.max_neighbors for each in found} == {None}


def test_one_table_has_nothing_to_be_divided() -> None:
    assert suggestions(SPECS, SPACE, {"read": ERRORS}, trials(SPACE), METRIC, 0.49) == []
