"""Original ids: lookups agree with a dictionary, whatever the size of the question; wrong ids are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.errors import DataError, FormatError, NotFoundError, UsageError
from graphbox.graph.ids import IntegerIds, StringIds, make_ids, string_array, string_buffers

STRINGS = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=60, unique=True)
INTEGERS = st.lists(
    st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), min_size=1, max_size=60, unique=True
)


def ids_of(values: Sequence[Any]) -> StringIds | IntegerIds:
    kind = pa.large_string() if isinstance(values[0], str) else pa.int64()
    ids = make_ids(pa.array(values, kind), "ids")
    assert isinstance(ids, StringIds | IntegerIds)
    return ids


@settings(deadline=None, max_examples=60)
@given(values=STRINGS, others=st.lists(st.text(max_size=6)), repeat=st.integers(0, 4))
def test_strings_are_found_like_in_a_dictionary(values: list[str], others: list[str], repeat: int) -> None:
    ids = ids_of(values)
    position = {value: index for index, value in enumerate(values)}
    for asked in (values * repeat + others, values[:1] + others[:2]):
        expected = [position.get(value, -1) for value in asked]
        assert ids.index(asked, node_type="n", missing=-1).tolist() == expected
    assert ids.take(np.arange(len(values))).tolist() == values
    assert ids.values.take(pa.array(ids.order)).to_pylist() == sorted(
        values, key=lambda value: value.encode()
    )


@settings(deadline=None, max_examples=60)
@given(values=STRINGS, others=st.lists(st.text(max_size=6), max_size=20))
def test_binary_search_and_hash_agree(values: list[str], others: list[str]) -> None:
    ids = ids_of(values)
    asked = pa.array([*values, *others, None], pa.large_string())
    position = {value: index for index, value in enumerate(values)}
    expected = [position.get(value, -1) for value in asked.to_pylist()]
    assert ids.find(asked).tolist() == expected
    assert ids._search(asked).tolist() == expected


def test_few_of_many_strings_are_found() -> None:
    values = [f"node-{number * 7919 % 5003}" for number in range(5003)]
    ids = ids_of(values)
    asked = [values[17], "node-5003", values[4000], values[17]]
    assert ids.index(asked, node_type="n", missing=-1).tolist() == [17, -1, 4000, 17]


@settings(deadline=None, max_examples=60)
@given(values=INTEGERS, others=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_are_found_like_in_a_dictionary(values: list[int], others: list[int]) -> None:
    ids = ids_of(values)
    position = {value: index for index, value in enumerate(values)}
    asked = np.array([*values, *others], np.int64)
    expected = [position.get(value, -1) for value in asked.tolist()]
    assert ids.index(asked, node_type="n", missing=-1).tolist() == expected
    assert ids._search(pa.array(asked)).tolist() == expected
    assert ids.take(np.arange(len(values))).tolist() == values


def test_zero_and_null_are_told_apart() -> None:
    ids = ids_of([0, -1, 5])
    assert ids.find(pa.array([0, None, 5], pa.int64())).tolist() == [0, -1, 2]
    assert ids._search(pa.array([0, None, 5], pa.int64())).tolist() == [0, -1, 2]
    assert ids_of([7, 5])._search(pa.array([0, None], pa.int64())).tolist() == [-1, -1]


@pytest.mark.parametrize(
    "asked",
    [
        ["b", "a"],
        ("b", "a"),
        np.array(["b", "a"]),
        np.array(["b", "a"], object),
        pa.array(["b", "a"]),
        pa.chunked_array([["b"], ["a"]]),
    ],
)
def test_strings_may_come_in_any_list(asked: Any) -> None:
    assert ids_of(["a", "b"]).index(asked, node_type="n").tolist() == [1, 0]


@pytest.mark.parametrize(
    "asked", [[5, 0], np.array([5, 0], np.int32), np.array([5, 0], np.uint64), pa.array([5, 0])]
)
def test_integers_may_come_in_any_list(asked: Any) -> None:
    assert ids_of([0, 5]).index(asked, node_type="n").tolist() == [1, 0]


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    assert ids_of([0, 5]).index(torch.tensor([5, 5]), node_type="n").tolist() == [1, 1]


def test_nothing_asked_gives_nothing() -> None:
    assert ids_of(["a"]).index([], node_type="n").dtype == np.int64
    assert len(ids_of([3]).index([], node_type="n")) == 0


def test_the_first_missing_ids_are_named_with_a_suggestion() -> None:
    ids = ids_of(["nginx", "bash", "zlib1g"])
    with pytest.raises(NotFoundError) as caught:
        ids.index(["bash", "ngnix", "a", "b", "c", "d", "e", "ngnix"], node_type="package")
    assert caught.value.message == (
        "expected ids of nodes of type `package`, received `ngnix`, `a`, `b`, `c`, `d` and 1 more"
    )
    assert caught.value.hint == "did you mean `nginx`?"
    with pytest.raises(NotFoundError, match="received `9`") as caught:
        ids_of([1, 2]).index([9], node_type="user")
    assert caught.value.hint == "there are 2 nodes of this type"


@pytest.mark.parametrize(
    ("values", "asked", "message"),
    [
        (["a"], "a", r"expected a list of ids, received the single str 'a'"),
        ([1], 1, r"expected a list of ids, received the single int 1"),
        ([1], np.int64(1), r"expected a list of ids, received the single int64"),
        (["a"], [1], r"expected strings, received values of type int64"),
        ([1], ["1"], r"expected 64-bit integers, received values of type string"),
        ([1], [1.0], r"expected 64-bit integers, received values of type double"),
        ([1], [True], r"expected 64-bit integers, received values of type bool"),
        ([1], [2**63], r"beyond 64 bits"),
        ([1], [2**70], r"beyond 64 bits"),
        (["a"], ["a", 1], r"values of several types"),
    ],
)
def test_ids_of_another_kind_are_refused(values: list[Any], asked: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ids_of(values).index(asked, node_type="n")


def test_repeated_ids_are_refused_with_examples() -> None:
    with pytest.raises(
        DataError, match=r"received 3 again: `a`, `b`, \.\.\.|received 3 again: `a`, `b`"
    ) as caught:
        make_ids(pa.array(["b", "a", "a", "b", "a", "c"], pa.large_string()), "nodes.csv, column `id`")
    assert caught.value.where == "nodes.csv, column `id`"
    with pytest.raises(DataError, match="at least one node"):
        make_ids(pa.array([], pa.int64()), "nodes.csv")


@given(values=st.lists(st.text(max_size=5), max_size=20), start=st.integers(0, 5))
@settings(deadline=None)
def test_strings_survive_their_buffers(values: list[str], start: int) -> None:
    array = pa.array(values, pa.large_string()).slice(start)
    offsets, text = string_buffers(array)
    assert string_array(offsets, text).to_pylist() == values[start:]


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 2, 1, 3]])
def test_offsets_that_are_none_are_refused(offsets: list[int]) -> None:
    with pytest.raises(FormatError, match="offsets"):
        string_array(np.array(offsets, np.int64), np.zeros(3, np.uint8))
