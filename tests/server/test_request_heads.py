"""Requests with the same JSON part are decoded as if each was the first one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from graphbox.artifact import TensorSpec
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import Outputs, Parameters, Signature
from graphbox.errors import InvalidRequestError
from graphbox.server.kserve.codec import InferRequest, RequestHead, decode_request
from graphbox.server.settings import RequestLimits

LIMITS = RequestLimits(max_rows=100, max_json_bytes=1 << 20)


def signature() -> Signature:
    """Return a signature of two inputs, one of which may be left out."""

    def answer(inputs: Feeds, _parameters: Parameters) -> Outputs:
        return dict(inputs)

    inputs = {
        "x": TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),
        "name": TensorSpec(name="name", datatype="BYTES", shape=(-1,)),
        "k": TensorSpec(name="k", datatype="INT64", shape=(-1,)),
    }
    return Signature(
        platform="test",
        inputs=inputs,
        outputs=inputs,
        answer=answer,
        work=lambda inputs: len(inputs["x"]),
        parameters=frozenset({"depth"}),
        defaults={"k": 7},
    )


def request(rows: int, seed: int, **fields: Any) -> tuple[bytes, str, dict[str, Any]]:
    """Return the body of a request with binary tensors, the size of its JSON part, and the tensors."""
    x = np.random.default_rng(seed).standard_normal((rows, 2)).astype(np.float32)
    names = [f"{seed}{row}"[:1].encode() for row in range(rows)]
    packed = b"".join(b"\x01\x00\x00\x00" + each for each in names)
    entries = [
        ("x", "FP32", [rows, 2], x.tobytes()),
        ("name", "BYTES", [rows], packed),
    ]
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": name,
                    "datatype": datatype,
                    "shape": shape,
                    "parameters": {"binary_data_size": len(data)},
                }
                for name, datatype, shape, data in entries
            ],
            **fields,
        }
    ).encode()
    return head + x.tobytes() + packed, str(len(head)), {"x": x, "name": names}


def check(found: InferRequest, expected: dict[str, Any]) -> None:
    np.testing.assert_array_equal(found.inputs["x"], expected["x"])
    assert found.inputs["name"].tolist() == expected["name"]
    assert found.inputs["k"].tolist() == [7] * len(expected["x"])


def test_requests_with_one_head_have_their_own_tensors() -> None:
    model, heads = signature(), dict[bytes, RequestHead]()
    settings = {"parameters": {"depth": 3, "timeout": 5_000, "priority": 2, "binary_data_output": True}}
    for seed in range(5):
        for rows in (1, 4):
            body, length, expected = request(rows, seed, **settings)
            found = decode_request(body, length, model, LIMITS, heads)
            check(found, expected)
            alone = decode_request(body, length, model, LIMITS)
            assert (found.outputs, found.parameters) == (alone.outputs, alone.parameters)
            assert (found.timeout_s, found.priority, found.id) == (0.005, 2, None)
    assert len(heads) == 2


def test_requests_with_an_id_are_not_kept() -> None:
    model, heads = signature(), dict[bytes, RequestHead]()
    for name in ("a", "b"):
        body, length, expected = request(1, 0, id=name)
        found = decode_request(body, length, model, LIMITS, heads)
        check(found, expected)
        assert found.id == name
    assert not heads


def test_requests_with_numbers_in_json_are_not_kept() -> None:
    model, heads = signature(), dict[bytes, RequestHead]()
    body, length, expected = request(1, 0)
    message = json.loads(body[: int(length)])
    message["inputs"][0] |= {"data": [1.0, 2.0], "parameters": {}}
    head = json.dumps(message).encode()
    found = decode_request(head + body[-5:], str(len(head)), model, LIMITS, heads)
    assert found.inputs["x"].tolist() == [[1.0, 2.0]]
    assert found.inputs["name"].tolist() == expected["name"]
    assert not heads


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body + b"x"])
def test_other_sizes_than_the_head_says_are_refused_the_second_time_too(change: Any) -> None:
    model, heads = signature(), dict[bytes, RequestHead]()
    body, length, _ = request(2, 0)
    with pytest.raises(InvalidRequestError) as first:
        decode_request(change(body), length, model, LIMITS, heads)
    decode_request(body, length, model, LIMITS, heads)
    with pytest.raises(InvalidRequestError) as second:
        decode_request(change(body), length, model, LIMITS, heads)
    assert str(first.value) == str(second.value)


def test_wrong_elements_behind_a_known_head_are_refused() -> None:
    model, heads = signature(), dict[bytes, RequestHead]()
    body, length, _ = request(2, 0)
    wrong = body[:-5] + b"\xff\xff\x00\x00x"
    messages = []
    for given in (wrong, body, wrong):
        try:
            decode_request(given, length, model, LIMITS, heads)
        except InvalidRequestError as error:
            messages.append(str(error))
    assert len(messages) == 2
    assert messages[0] == messages[1]


def test_heads_are_bounded_in_number_and_size() -> None:
    model, heads = signature(), dict[bytes, RequestHead]()
    for number in range(1000):
        body, length, expected = request(1, 0, parameters={"depth": number})
        check(decode_request(body, length, model, LIMITS, heads), expected)
        assert len(heads) <= 256
    heads.clear()
    body, length, expected = request(1, 0, parameters={"depth": "d" * 2000})
    check(decode_request(body, length, model, LIMITS, heads), expected)
    assert not heads
