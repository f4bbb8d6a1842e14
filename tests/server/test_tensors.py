"""Tensors survive both encodings for every datatype, and wrong ones never become other numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from graphbox.errors import InvalidRequestError
from graphbox.server.kserve.tensors import (
    DATATYPES,
    datatype_of,
    decode_binary,
    decode_json,
    encode_binary,
    encode_json,
)

NUMERIC = [name for name in DATATYPES if name != "BYTES"]
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


def elements_of(datatype: str) -> Any:
    dtype = DATATYPES[datatype]
    if dtype.kind == "f":
        return {"allow_nan": False, "allow_infinity": False}
    return None


@st.composite
def numeric_tensors(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    datatype = draw(st.sampled_from(NUMERIC))
    return datatype, draw(hnp.arrays(DATATYPES[datatype], draw(shapes), elements=elements_of(datatype)))


@settings(max_examples=200, deadline=None)
@given(numeric_tensors())
def test_numbers_survive(given_tensor: tuple[str, np.ndarray]) -> None:
    datatype, tensor = given_tensor
    assert datatype_of(tensor.dtype) == datatype
    binary = decode_binary(memoryview(encode_binary(tensor)), datatype, tensor.shape, "x")
    np.testing.assert_array_equal(binary, tensor)
    assert binary.dtype == tensor.dtype
    text = orjson.dumps(encode_json(tensor), option=orjson.OPT_SERIALIZE_NUMPY)
    for data in (orjson.loads(text), tensor.tolist()):
        back = decode_json(data, datatype, tensor.shape, "x")
        np.testing.assert_array_equal(back, tensor)
        assert back.dtype == tensor.dtype


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(), max_size=6))
def test_strings_survive(strings: list[str]) -> None:
    tensor = np.empty(len(strings), dtype=np.object_)
    tensor[:] = [text.encode() for text in strings]
    assert (
        decode_binary(memoryview(encode_binary(tensor)), "BYTES", tensor.shape, "x").tolist()
        == tensor.tolist()
    )
    assert decode_json(encode_json(tensor), "BYTES", tensor.shape, "x").tolist() == tensor.tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(), min_size=1, max_size=6))
def test_strings_are_encoded_as_by_the_triton_client(strings: list[bytes]) -> None:
    tensor = np.empty(len(strings), dtype=np.object_)
    tensor[:] = strings
    assert encode_binary(tensor) == serialize_byte_tensor(tensor).item()
    assert deserialize_bytes_tensor(encode_binary(tensor)).tolist() == strings


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 4))
def test_any_bytes_are_strings_or_refused(raw: bytes, count: int) -> None:
    try:
        tensor = decode_binary(memoryview(raw), "BYTES", (count,), "x")
    except InvalidRequestError:
        return
    assert encode_binary(tensor) == raw


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=3), children, max_size=2)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(json_values, st.sampled_from(list(DATATYPES)), st.lists(st.integers(0, 4), max_size=3))
def test_any_json_is_the_tensor_it_says_or_refused(data: Any, datatype: str, shape: list[int]) -> None:
    try:
        tensor = decode_json(data, datatype, shape, "x")
    except InvalidRequestError:
        return
    assert tensor.shape == tuple(shape)
    assert tensor.dtype == DATATYPES[datatype]
    flat = np.array(data, dtype=object).ravel().tolist() if data else []
    assert len(flat) == math.prod(shape)
    if datatype != "BYTES" and DATATYPES[datatype].kind in "iub":
        assert tensor.ravel().tolist() == flat


@pytest.mark.parametrize(
    ("datatype", "lowest", "highest"),
    [
        (name, *map(int, (np.iinfo(dtype).min, np.iinfo(dtype).max)))
        for name, dtype in DATATYPES.items()
        if dtype.kind in "iu"
    ],
)
def test_integers_at_and_beyond_their_limits(datatype: str, lowest: int, highest: int) -> None:
    assert decode_json([lowest, highest], datatype, [2], "x").tolist() == [lowest, highest]
    for value in (lowest - 1, highest + 1):
        with pytest.raises(InvalidRequestError, match=f"{datatype} elements between"):
            decode_json([value], datatype, [1], "x")


def test_large_ids_keep_their_last_digit() -> None:
    for value in (2**53 + 1, -(2**53) - 1, 2**63 - 1):
        (parsed,) = orjson.loads(json.dumps([value]))
        assert decode_json([parsed], "INT64", [1], "x").tolist() == [value]


@pytest.mark.parametrize(("datatype", "value"), [("FP16", 65520.0), ("FP32", 3.5e38), ("FP32", -1e39)])
def test_floats_beyond_their_range(datatype: str, value: float) -> None:
    with pytest.raises(InvalidRequestError, match="out of range"):
        decode_json([value], datatype, [1], "x")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_outputs_that_json_cannot_hold_are_refused(dtype: type[np.floating[Any]], value: float) -> None:
    tensor = np.array([[1.0, value], [value, 2.0]], dtype)
    with pytest.raises(InvalidRequestError, match=f"returned {value} as element 1") as caught:
        encode_json(tensor)
    assert caught.value.hint == "ask for the output with the parameter binary_data"
    assert np.frombuffer(encode_binary(tensor), dtype).tolist()[3] == 2.0


def test_odd_addresses_are_copied() -> None:
    raw = memoryview(b"x" + np.arange(4, dtype=np.float32).tobytes())
    tensor = decode_binary(raw[1:], "FP32", (4,), "x")
    assert tensor.flags.aligned
    assert tensor.tolist() == [0, 1, 2, 3]


def test_dtypes_the_protocol_lacks() -> None:
    with pytest.raises(InvalidRequestError, match="complex64"):
        datatype_of(np.dtype(np.complex64))


def test_large_tensors_are_sent_from_their_own_memory() -> None:
    tensor = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    raw = encode_binary(tensor)
    assert isinstance(raw, memoryview)
    assert np.shares_memory(np.frombuffer(raw, np.uint8), tensor)
    assert bytes(raw) == tensor.tobytes()
    every_other = tensor[:, ::2]
    assert bytes(encode_binary(every_other)) == every_other.tobytes()


def test_a_small_part_of_a_large_array_is_copied() -> None:
    """Of an execution of joined calls, whose other outputs would stay while one client does not read."""
    joined = np.zeros((8, 10_000), np.float32)
    assert not np.shares_memory(np.frombuffer(encode_binary(joined[2:3]), np.uint8), joined)
    assert np.shares_memory(np.frombuffer(encode_binary(joined[1:7]), np.uint8), joined)
