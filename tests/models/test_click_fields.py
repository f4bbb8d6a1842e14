"""Fields of rows: keys of values, shares of knots, standardized numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from graphbox.errors import UsageError
from graphbox.fields import Field, take_rows
from graphbox.graph.columns import Column
from graphbox.graph.schema import FeatureSpec
from graphbox.models.click_fields import ClickFields, choose_fields, choose_knots
from graphbox.table import hashed_keys, salted_keys


def categories(*texts: str | None) -> Column:
    encoded = pa.array(texts, pa.large_string()).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy().astype(np.int32)
    return Column("categorical", codes, encoded.dictionary)


COLUMNS = {
    "city": categories("Rome", None, "Lima", "Rome"),
    "price": Column("number", np.array([1.0, np.nan, 3.0, 2.0], np.float32)),
    "tags": Column("slots", np.array([7, 8, 7]), None, np.array([0, 2, 2, 2, 3])),
    "new": Column("boolean", np.array([True, False, False, True])),
    "shape": Column("vector", np.arange(8, dtype=np.float32).reshape(4, 2)),
}
KINDS = [Field("city", "categorical"), Field("price", "number"), Field("tags", "slots")]
FIELDS = (*KINDS, Field("new", "boolean"), Field("shape", "vector", 2))
LABELS = np.array([[1], [0], [0], [1]], np.int8)


def bags(fields: ClickFields) -> list[list[list[tuple[int, float]]]]:
    """Return key and weight of each value, by field and row."""
    rows = fields.prepare(COLUMNS)
    batch = fields.batch(rows, fields.scale_of([(rows, LABELS)], 4))
    pairs = list(zip(batch.keys.tolist(), batch.weights.tolist(), strict=True))
    ends = batch.offsets.tolist()
    found = [pairs[start:end] for start, end in itertools.pairwise(ends)]
    return [found[4 * field : 4 * field + 4] for field in range(len(fields.bags))]


def test_keys_are_hashes_of_field_and_value() -> None:
    city, price, tags, new = bags(ClickFields(FIELDS))
    rome, lima = salted_keys(hashed_keys(["Rome", "Lima"]), "city").tolist()
    assert [rome, lima] == [city[0][0][0], city[2][0][0]]
    assert city[3] == city[0] == [(rome, 1.0)]
    assert city[1][0][0] not in (rome, lima)
    seven, eight = salted_keys(np.array([7, 8]), "tags").tolist()
    assert tags == [[(seven, 0.5), (eight, 0.5)], [], [], [(seven, 1.0)]]
    assert new[0] == new[3] != new[1] == new[2]
    knots = salted_keys(np.array([0, 1, 2, -1]), "price").tolist()
    assert [each[0] for each in price] == [(knots[0], 1.0), (knots[3], 1.0), (knots[2], 1.0), (knots[1], 1.0)]


def test_the_code_of_a_category_does_not_matter() -> None:
    fields = ClickFields(FIELDS[:1])
    first = fields.prepare({"city": categories("Rome", "Lima")})["city"]
    second = fields.prepare({"city": categories("Lima", "Rome")})["city"]
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    assert first.tolist() == second.tolist()[::-1]


def test_numbers_are_standardized_by_the_rows_that_are_learnt() -> None:
    fields = ClickFields(FIELDS)
    rows = fields.prepare(COLUMNS)
    parts = [take_rows(rows, np.arange(start, start + 2)) for start in (0, 2)]
    scale = fields.scale_of([(parts[0], LABELS[:2]), (parts[1], LABELS[2:])], 4)
    assert scale.positive_rate == 0.5
    numbers = fields.batch(rows, scale).numbers.numpy()
    logarithm = np.log1p(np.array([1.0, 3.0, 2.0]))
    expected = (logarithm - logarithm.mean()) / logarithm.std()
    np.testing.assert_allclose(numbers[[0, 2, 3], 0], expected, rtol=1e-5)
    np.testing.assert_allclose(numbers[:, 1:3].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(numbers[:, 1:3].std(axis=0), 1, rtol=1e-5)
    assert numbers[:, 3].tolist() == [0, 1, 0, 0]  # what is missing
    assert numbers[1, 0] == 0
    far = fields.batch(fields.prepare(COLUMNS | {"price": Column("number", np.full(4, 1e30))}), scale)
    assert far.numbers[:, 0].tolist() == [5.0] * 4


@pytest.mark.parametrize("seed", range(4))
def test_a_number_is_shared_between_the_knots_around_it(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = np.round(generator.lognormal(size=500), 2).astype(np.float32)
    fields = ClickFields([Field("price", "number")], knots=8)
    rows = fields.prepare({"price": Column("number", values)})
    scale = fields.scale_of([(rows, (np.arange(500) % 2 == 0).astype(np.int8)[:, None])], 500)
    batch = fields.batch(rows, scale)
    number_of = {key: place for place, key in enumerate(salted_keys(np.arange(8), "price").tolist())}
    knots = scale.knots[0]
    for row, value in enumerate(values.astype(float)):
        low, high = (number_of[key] for key in batch.keys[2 * row : 2 * row + 2].tolist())
        share = batch.weights[2 * row : 2 * row + 2].numpy()
        assert knots[low] <= value <= knots[high]
        assert share.sum() == pytest.approx(1)
        assert share @ knots[[low, high]] == pytest.approx(value, rel=1e-4)
    beyond = fields.batch(fields.prepare({"price": Column("number", np.array([-9.0, 1e9]))}), scale)
    assert [number_of[key] for key in beyond.keys.tolist()] == [0, 1, 7, 7]
    assert beyond.weights.tolist() == [1, 0, 1, 0]


def test_frequent_values_are_knots() -> None:
    generator = np.random.default_rng(0)
    values = np.concatenate([np.zeros(900), np.full(50, 7688.0), generator.uniform(1, 99, 50)])
    knots = choose_knots(values, 10)
    assert len(knots) == 10
    assert {0.0, 7688.0} <= set(knots)
    assert (knots[1], knots[-2]) == (values[950:].min(), values[950:].max())
    assert choose_knots(np.array([3.0, 1.0, 3.0, np.nan]), 5).tolist() == [1, 3]
    assert choose_knots(np.full(3, np.nan), 5).tolist() == [0]
    spread = choose_knots(np.arange(1000.0), 5)
    np.testing.assert_allclose(spread, [0, 249.75, 499.5, 749.25, 999], atol=1)


def test_crosses_have_a_key_for_each_combination() -> None:
    fields = ClickFields(FIELDS, [("city", "new"), ("new", "price")])
    rows = fields.prepare(COLUMNS)
    crosses = fields.batch(rows, fields.scale_of([(rows, LABELS)], 4)).crosses.tolist()
    assert crosses[0][0] == crosses[0][3]
    assert len({*crosses[0], *crosses[1]}) == 3 + 4
    with pytest.raises(UsageError, match="single values, received `tags`"):
        ClickFields(FIELDS, [("city", "tags")])


def test_fields_are_features_that_are_there() -> None:
    known = {"a": FeatureSpec("number"), "b": FeatureSpec("boolean"), "c": FeatureSpec("vector", dim=3)}
    assert [field.name for field in choose_fields(known, None, ["b"], "x")] == ["a", "c"]
    assert choose_fields(known, ["c", "b"], ["b"], "x") == (Field("c", "vector", 3), Field("b", "boolean"))
    with pytest.raises(UsageError, match="no feature `d`"):
        choose_fields(known, ["d"], [], "x")
    with pytest.raises(UsageError, match="expected features"):
        choose_fields({"b": FeatureSpec("boolean")}, None, ["b"], "x")
