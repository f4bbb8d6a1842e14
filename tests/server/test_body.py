"""JSON objects of request bodies: limits, and keys that appear twice."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbox.errors import InvalidRequestError
from graphbox.server.body import BYTES_PER_CONTAINER, parse_object
from graphbox.server.problem import RefusedError

LIMIT = 1 << 20
MAX_CONTAINERS = LIMIT // BYTES_PER_CONTAINER

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300)
@given(st.dictionaries(st.text(), VALUES, max_size=5), st.booleans())
def test_objects_are_parsed_as_the_standard_library_does(message: dict[str, Any], ascii_only: bool) -> None:
    body = json.dumps(message, ensure_ascii=ascii_only).encode()
    assert parse_object(body, LIMIT) == json.loads(body)


# Each of the texts hides the second key in another way.
REPEATED = [
    '{"a": 1, "a": 2}',
    '{"a": {"b": 1, "b": 2}}',
    '{"x": [1, 2, {"a": "::", "\\u0061": "\\u003a"}]}',
    '{"x": [[], [{"a": 1, "a": 1}]], "y": ":"}',
    '{"x": "\\u003a\\u003a", "a": 1, "a": ["\\u003a"]}',
    '{"": 0, "": "\\"\\\\"}',
    '{"x": "\\\\", "a": 1, "a": "\\\\\\""}',
]


@pytest.mark.parametrize("text", REPEATED)
def test_a_key_that_appears_twice_is_refused(text: str) -> None:
    orjson.loads(text)
    with pytest.raises(InvalidRequestError, match="each key of an object once"):
        parse_object(text.encode(), LIMIT)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.text(max_size=2), VALUES), max_size=5), st.booleans())
def test_repeated_keys_are_found_among_any_others(members: list[tuple[str, Any]], ascii_only: bool) -> None:
    inner = ", ".join(
        f"{json.dumps(key, ensure_ascii=ascii_only)}: {json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in members
    )
    body = f'{{"outer": [1, {{{inner}}}]}}'.encode()
    if len({key for key, _ in members}) == len(members):
        assert parse_object(body, LIMIT) == json.loads(body)
    else:
        with pytest.raises(InvalidRequestError, match="twice"):
            parse_object(body, LIMIT)


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"7", b"{", b"\xef\xbb\xbf{}", b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": "\xff"}']
)
def test_other_texts_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="expected a JSON object"):
        parse_object(body, LIMIT)


def test_size_is_limited() -> None:
    body = b'{"a": "' + b"x" * 100 + b'"}'
    assert parse_object(body, len(body)) == {"a": "x" * 100}
    with pytest.raises(RefusedError, match="at most 109 bytes of JSON") as caught:
        parse_object(body + b" ", len(body))
    assert caught.value.status == 413


@pytest.mark.parametrize("element", ["[]", "{}", '[{"a": 1}]'])
def test_lists_and_objects_are_limited_in_number(element: str) -> None:
    def body(count: int) -> bytes:
        return f'{{"x": [{", ".join([element] * count)}]}}'.encode()

    each = element.count("[") + element.count("{")
    most = (MAX_CONTAINERS - 2) // each
    assert len(parse_object(body(most), LIMIT)["x"]) == most
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_CONTAINERS} lists and objects"):
        parse_object(body(most + 1), LIMIT)


def test_brackets_within_strings_are_no_lists() -> None:
    texts = ["[{"] * MAX_CONTAINERS
    assert parse_object(json.dumps({"x": texts}).encode(), LIMIT) == {"x": texts}
