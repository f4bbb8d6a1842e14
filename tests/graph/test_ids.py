"""Original ids: lookups agree with a dictionary, whatever the size of the question; wrong ids are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox import _core
from graphbox.errors import DataError, FormatError, NotFoundError, UsageError
from graphbox.graph.ids import (
    IntegerIds,
    NumberedIds,
    StringIds,
    hash_index_of,
    make_ids,
    string_array,
    string_buffers,
)

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
    assert ids.take(np.arange(len(values))).tolist() == values


def test_zero_and_null_are_told_apart() -> None:
    ids = ids_of([0, -1, 5])
    assert ids.find(pa.array([0, None, 5], pa.int64())).tolist() == [0, -1, 2]
    assert ids_of([7, 5]).find(pa.array([0, None], pa.int64())).tolist() == [-1, -1]
    assert ids_of(["b", "a"]).find(pa.array(["", None, "a"], pa.large_string())).tolist() == [-1, -1, 1]


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
    assert caught.value.hint == "this type has 2 nodes"


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
    with pytest.raises(DataError, match=r"received 3 again: `b`, `a`") as caught:
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


# The hash index, read as docs/formats/graph.md describes it


def test_xxh64_of_known_strings() -> None:
    """Values that implementations of XXH64 publish, for seed 0."""
    known = {
        "": 0xEF46DB3751D8E999,
        "a": 0xD24EC4F1A98C6E5B,
        "abc": 0x44BC2CF5AD770999,
        "Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
    }
    offsets, text = string_buffers(pa.array(list(known), pa.large_string()))
    hashes = np.empty(len(known), np.int64)
    _core.hash_strings(offsets, text, hashes)
    assert hashes.view(np.uint64).tolist() == list(known.values())


def hashes_of(values: pa.Array) -> np.ndarray:
    """Return the hash of each id with NumPy, or plain Python for strings."""
    if pa.types.is_large_string(values.type):
        return np.array([xxh64(text.encode()) for text in values.to_pylist()], np.uint64)
    bits = values.to_numpy().view(np.uint64)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    hashes: np.ndarray = bits ^ bits >> np.uint64(31)
    return hashes


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0, word by word as the specification has it."""
    prime = (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
    mask = 2**64 - 1

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    def mixed(lane: int, word: int) -> int:
        return rotated((lane + word * prime[1]) & mask, 31) * prime[0] & mask

    def word(start: int, size: int) -> int:
        return int.from_bytes(data[start : start + size], "little")

    start, hashed = 0, prime[4]
    if len(data) >= 32:
        lanes = [(prime[0] + prime[1]) & mask, prime[1], 0, -prime[0] & mask]
        while start + 32 <= len(data):
            lanes = [mixed(lane, word(start + 8 * i, 8)) for i, lane in enumerate(lanes)]
            start += 32
        hashed = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            hashed = ((hashed ^ mixed(0, lane)) * prime[0] + prime[3]) & mask
    hashed = (hashed + len(data)) & mask
    while start + 8 <= len(data):
        hashed = (rotated(hashed ^ mixed(0, word(start, 8)), 27) * prime[0] + prime[3]) & mask
        start += 8
    if start + 4 <= len(data):
        hashed = (rotated(hashed ^ word(start, 4) * prime[0] & mask, 23) * prime[1] + prime[2]) & mask
        start += 4
    for byte in data[start:]:
        hashed = rotated(hashed ^ byte * prime[4] & mask, 11) * prime[0] & mask
    hashed = (hashed ^ hashed >> 33) * prime[1] & mask
    hashed = (hashed ^ hashed >> 29) * prime[2] & mask
    return hashed ^ hashed >> 32


def lookup(index: np.ndarray, values: pa.Array, asked: pa.Array) -> list[int]:
    """Look ids up in a hash index, one after the other."""
    partition_bits = 0
    while len(values) >> partition_bits > 2**16:
        partition_bits += 1
    partitions = index.reshape(2**partition_bits, -1)
    size = partitions.shape[1]
    found = []
    ids = values.to_pylist()
    for value, hashed in zip(asked.to_pylist(), hashes_of(asked).tolist(), strict=True):
        partition = partitions[hashed >> (64 - partition_bits)]
        slot = (hashed & 0xFFFFFFFF) * size >> 32
        while partition[slot] != -1 and ids[partition[slot]] != value:
            slot = (slot + 1) % size
        found.append(int(partition[slot]))
    return found


@pytest.mark.parametrize("count", [1, 2, 1000, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_the_documented_lookup_finds_what_find_finds(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = np.unique(rng.integers(-(2**63), 2**63, count + 100, np.int64))
    every = pa.array(rng.permutation(numbers))
    if kind == "string":
        every = pc.binary_join_element_wise(
            every.cast(pa.large_string()), *pa.array(["id " * (count % 14), "-"], pa.large_string())
        )
    values, others = every.slice(0, count), every.slice(count)
    asked = pa.concat_arrays([values.slice(0, 300), others])
    index = hash_index_of(values)
    assert index.dtype == np.int32
    expected = [*range(min(count, 300)), *[-1] * len(others)]
    assert lookup(index, values, asked) == expected
    assert make_ids(values, "ids").find(asked).tolist() == expected


def test_equal_hashes_are_no_trouble() -> None:
    """Integers whose hashes have the same highest bits crowd one of two partitions."""

    def unmixed(hashed: int) -> int:
        for shift, factor in ((31, 0x319642B2D24D8EC3), (27, 0x96DE1B173F119089), (30, 1)):
            value = hashed
            for _ in range(64 // shift):
                value = hashed ^ value >> shift
            hashed = value * factor % 2**64
        return hashed

    crowded = np.array([unmixed(number * 61_000) for number in range(70_000)], np.uint64).view(np.int64)
    assert hashes_of(pa.array(crowded[:5])).tolist() == [number * 61_000 for number in range(5)]
    ids = make_ids(pa.array(crowded), "ids")
    assert len(ids.hash_index) > 2 * 70_000
    rows = np.arange(0, 70_000, 1000)
    assert ids.find(pa.array(crowded[rows])).tolist() == rows.tolist()


@pytest.mark.parametrize("damage", ["beyond", "negative", "short", "offsets"])
def test_a_damaged_index_is_named(damage: str) -> None:
    values = pa.array(["a", "b", "c"], pa.large_string())
    index, (offsets, text) = hash_index_of(values).copy(), string_buffers(values)
    if damage == "beyond":
        index[index >= 0] = 3
    elif damage == "negative":
        index[index >= 0] = -2
    elif damage == "short":
        index = index[:3]
    else:
        offsets = offsets + 10
    with pytest.raises(FormatError) as caught:
        StringIds(offsets, text, index, where="nodes/n/ids-index.npy").find(values)
    assert caught.value.where == "nodes/n/ids-index.npy"


def test_numbered_nodes_have_no_table() -> None:
    ids = NumberedIds(5)
    assert ids.find(pa.array([4, 5, -1, None, 0], pa.int64())).tolist() == [4, -1, -1, -1, 0]
    assert ids.take(np.array([3, 0])).tolist() == [3, 0]
    assert ids.values.to_pylist() == [0, 1, 2, 3, 4]
    assert np.array_equal(ids.hash_index, hash_index_of(ids.values))
    with pytest.raises(UsageError, match="from 0 to 4, received 5"):
        ids.take(np.array([5]))


def test_ids_can_be_left_out_of_an_index() -> None:
    values = pa.array([0, 7, 0], pa.int64())
    index = hash_index_of(values, np.array([False, True, True]))
    assert IntegerIds(values.to_numpy(), index).find(values).tolist() == [2, 1, 2]
