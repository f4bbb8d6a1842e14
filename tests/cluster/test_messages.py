"""Messages between trainers and shards: what is read was written, and bytes of anybody are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.cluster.messages import (
    PULL_SCHEMA,
    Ack,
    Operation,
    Pull,
    Rows,
    TablePart,
    decode_ack,
    decode_operation,
    decode_pull,
    decode_rows,
    encode_ack,
    encode_error,
    encode_operation,
    encode_pull,
    encode_rows,
)
from graphbox.errors import DataError, DoesNotFitError, FormatError, GraphboxError, ShardReplacedError

PULL = Pull(
    3, 7, 41, True, (TablePart("user", 2), TablePart("item", 1)), np.array([5, -6, 1 << 62], np.int64)
)
PUSH = Operation(
    3,
    7,
    42,
    "push",
    (TablePart("user", 2, 0.5, 1), TablePart("item", 1, None, 1)),
    np.array([5, -6, 9], np.int64),
    np.arange(7, dtype=np.float32),
    np.ones(3, np.float32),
)


def same(left: Any, right: Any) -> bool:
    names = list(left.__dataclass_fields__)
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        if isinstance(getattr(left, name), np.ndarray)
        else getattr(left, name) == getattr(right, name)
        for name in names
    )


def test_what_is_read_is_what_was_written() -> None:
    assert same(decode_pull(*encode_pull(PULL)), PULL)
    assert same(decode_operation(*encode_operation(PUSH)), PUSH)
    nothing = replace(PUSH, kind="end_pass", parts=(), keys=PULL.keys[:0], values=PUSH.values[:0])
    nothing = replace(nothing, counts=PUSH.values[:0])
    assert same(decode_operation(*encode_operation(nothing)), nothing)
    ack = Ack(3, 40, 12)
    assert decode_ack(encode_ack(ack)) == ack
    for kind in (np.float32, np.float16):
        rows = Rows(np.arange(6, dtype=kind), 2, ack)
        assert same(decode_rows(*encode_rows(rows)), rows)


def test_rows_are_used_where_they_are() -> None:
    values = np.arange(6, dtype=np.float32)
    batch, metadata = encode_rows(Rows(values, 0, Ack(1, 0, 0)))
    assert np.shares_memory(decode_rows(batch, metadata).values, values)


@pytest.mark.parametrize("error", [DataError("no", where="key 3"), DoesNotFitError("no", hint="less")])
def test_errors_come_back_as_they_were(error: GraphboxError) -> None:
    with pytest.raises(type(error)) as caught:
        decode_ack(encode_error(error))
    assert (caught.value.message, caught.value.where, caught.value.hint) == (
        error.message,
        error.where,
        error.hint,
    )


def test_an_error_of_another_kind_is_ours() -> None:
    for kind in ("Exception", "annotations", "nothing", 3):
        with pytest.raises(GraphboxError, match="said") as caught:
            decode_ack(b'{"error": {"kind": %s, "message": "said"}}' % repr(kind).replace("'", '"').encode())
        assert type(caught.value) is GraphboxError


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_anything_else_is_refused(data: st.DataObject) -> None:
    import orjson

    batch, metadata = encode_operation(PUSH)
    pull_batch, pull_metadata = encode_pull(PULL)
    head = orjson.loads(data.draw(st.sampled_from([metadata, pull_metadata])))
    name = data.draw(st.sampled_from(sorted(head)))
    head[name] = data.draw(JUNK)
    try:
        given_metadata = orjson.dumps(head)
    except TypeError:
        return  # integers beyond 64 bits
    for decode, each in ((decode_operation, batch), (decode_pull, pull_batch), (decode_pull, batch)):
        try:
            found = decode(each, given_metadata)
        except FormatError:
            continue
        assert sum(part.keys for part in found.parts) == len(found.keys)


@pytest.mark.parametrize(
    ("batch", "metadata"),
    [
        (None, encode_pull(PULL)[1]),
        (encode_pull(PULL)[0], b""),
        (encode_pull(PULL)[0], b"[]"),
        (encode_pull(PULL)[0], b"\xff"),
        (pa.record_batch([pa.array([1, None, 3])], schema=PULL_SCHEMA), encode_pull(PULL)[1]),
        (pa.record_batch([pa.array([1.0, 2.0, 3.0])], names=["keys"]), encode_pull(PULL)[1]),
        (pa.record_batch([pa.array([1, 2, 3])], names=["others"]), encode_pull(PULL)[1]),
        (pa.record_batch([pa.array([1, 2])], schema=PULL_SCHEMA), encode_pull(PULL)[1]),
    ],
)
def test_a_message_without_what_it_says_is_refused(batch: Any, metadata: bytes) -> None:
    with pytest.raises(FormatError):
        decode_pull(batch, metadata)


def test_lists_beyond_their_numbers_are_refused() -> None:
    batch, metadata = encode_operation(PUSH)
    offsets = np.array([0, 2], np.int32)
    beyond = pa.Array.from_buffers(
        pa.list_(pa.int64()), 1, [None, pa.py_buffer(offsets)], children=[pa.array([1, 2])]
    )
    damaged = pa.record_batch([beyond, *batch.columns[1:]], schema=batch.schema)
    offsets[1] = 1 << 20  # as bytes of anybody may have it
    with pytest.raises(FormatError, match="damaged"):
        decode_operation(damaged, metadata)


def test_a_replaced_shard_is_a_conflict() -> None:
    with pytest.raises(ShardReplacedError):
        decode_rows(None, encode_error(ShardReplacedError("gone")))
