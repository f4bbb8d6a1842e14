"""Counting distinct values: the sketch against NumPy, and hashes that agree with equality."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from graphbox.graph.distinct import DistinctSketch, Estimate, from_blocks, hash_ids, hash_pairs, text_bytes


@pytest.mark.parametrize("distinct", [1, 900, 5_000, 300_000])
def test_a_sketch_is_exact_as_long_as_it_holds_all_and_close_beyond(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    values = np.concatenate([np.arange(distinct), rng.integers(0, distinct, 400_000)])
    rng.shuffle(values)
    sketch = DistinctSketch(size=4096)
    for part in np.array_split(values, 37):
        sketch.add(hash_ids(pa.array(part), as_text=False))
    found = sketch.count()
    if distinct <= 4096:
        assert found == Estimate.exactly(distinct)
    else:
        assert found.low < distinct < found.high
        assert abs(found.likely / distinct - 1) < 0.05
    assert sketch.count() == found, "counting changes nothing"


def test_nothing_is_nothing() -> None:
    assert DistinctSketch().count() == Estimate.exactly(0)
    assert from_blocks([], 0.5) == Estimate.exactly(0)
    assert from_blocks([np.empty(0, np.uint64)], 0.5) == Estimate.exactly(0)


def test_hashes_of_equal_ids_are_equal_whatever_they_are_stored_as() -> None:
    integers = pa.array([3, -5, 1 << 62, 0])
    assert (hash_ids(integers, as_text=False) == hash_ids(pa.array([3, -5, 1 << 62, 0]), as_text=False)).all()
    texts = pa.array(["x", "3", "-5", str(1 << 62), "0"], pa.large_string()).slice(1)
    assert (hash_ids(integers, as_text=True) == hash_ids(texts, as_text=True)).all()
    assert (hash_ids(texts.cast(pa.string()), as_text=True) == hash_ids(texts, as_text=True)).all()
    assert text_bytes(hash_ids(texts, as_text=True)) == np.mean([1, 2, 19, 1])


def test_a_pair_is_not_its_reverse() -> None:
    left, right = (hash_ids(pa.array(ids), as_text=False) for ids in ([1, 2], [2, 1]))
    assert len(np.unique(hash_pairs(left, right))) == 2
    assert (hash_pairs(left, right) == hash_pairs(left.copy(), right.copy())).all()


def test_blocks_that_are_all_are_counted() -> None:
    blocks = [hash_ids(pa.array(ids), as_text=False) for ids in ([1, 1, 2], [2, 3])]
    assert from_blocks(blocks, 1.0) == Estimate.exactly(3)


def test_values_of_one_block_each_stand_for_those_of_the_others() -> None:
    blocks = [hash_ids(pa.array(np.arange(100) + 100 * number), as_text=False) for number in range(20)]
    found = from_blocks(blocks, 0.1)
    assert found.low <= 20_000 <= found.high
    assert abs(found.likely - 20_000) < 100
