"""The same requests to a real Triton and to graphbox, over REST and gRPC.

Answers are equal, or `DIFFERENCES` has a row that says how they differ and why. Of errors the status is
compared, not the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.triton_server import why_not
from tests.server.triton_corpus import CASES, Case
from tests.server.triton_pair import Answer, Server, pair

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")

# Shared memory that the corpus registers.
MEMORY = Path("/dev/shm/graphbox_corpus")  # noqa: S108 - where POSIX shared memory is
MEMORY_BYTES = 4096


@dataclass(frozen=True)
class Difference:
    """Difference between the answers of the two servers.

    Attributes:
        triton: status of Triton's answer.
        ours: status of ours.
        why: reason.
    """

    triton: str
    ours: str
    why: str


MISTAKE = "a mistake of the client, no failure of the server"
IGNORED = "an option that is ignored is a wrong answer"
MEMORY_KEY = "keys begin with the server's prefix, and a wrong key is a mistake of the client"
NOT_JSON = "NaN is no JSON; binary data can hold it"
NO_ROWS = "no rows are a request whose answer has none"
MODEL_FILES = "models come from the workspace, never from a request"
NOT_THERE = "what is not there is not found"

DIFFERENCES: dict[tuple[str, str], Difference] = {
    **{
        ("rest", name): Difference("500", "400", MISTAKE)
        for name in (
            "negative classes",
            "classes as text",
            "not JSON",
            "JSON array",
            "no inputs",
            "data short",
            "data long",
            "negative size",
            "shape with a fraction",
            "data as text",
            "null in data",
            "booleans in data",
            "infinity",
            "id is a number",
            "binary size negative",
            "binary size as text",
            "truncated",
            "load a model in another folder",
            "load an encoded path",
            "load NUL",
            "load a long name",
            "register memory that is not there",
            "output in a part that is too small",
            "log setting of another type",
        )
    },
    ("rest", "register a path"): Difference("500", "400", MEMORY_KEY),
    ("rest", "register memory of Triton itself"): Difference("500", "400", MEMORY_KEY),
    ("grpc", "register a path"): Difference("INTERNAL", "INVALID_ARGUMENT", MEMORY_KEY),
    ("grpc", "register memory of Triton itself"): Difference("INTERNAL", "INVALID_ARGUMENT", MEMORY_KEY),
    ("grpc", "register memory that is not there"): Difference("INTERNAL", "INVALID_ARGUMENT", MISTAKE),
    ("grpc", "output in a part that is too small"): Difference("INTERNAL", "INVALID_ARGUMENT", MISTAKE),
    ("grpc", "no message"): Difference("INTERNAL", "INVALID_ARGUMENT", MISTAKE),
    ("grpc", "no classes"): Difference("INVALID_ARGUMENT", "OK", "as over REST: the output itself"),
    ("rest", "raw body"): Difference("400", "200", "the number of rows follows from the size of the body"),
    **{
        (transport, name): Difference(good, bad, IGNORED)
        for transport, good, bad in (("rest", "200", "400"), ("grpc", "OK", "INVALID_ARGUMENT"))
        for name in (
            "sequence",
            "custom parameter",
            "output twice",
            "unknown log setting",
            "unknown trace level",
            "unknown trace setting",
        )
    },
    ("rest", "NaN"): Difference("200", "400", NOT_JSON),
    ("rest", "no rows"): Difference("400", "200", NO_ROWS),
    ("grpc", "no rows"): Difference("INVALID_ARGUMENT", "OK", NO_ROWS),
    ("rest", "unknown compression"): Difference("501", "415", "the status of HTTP for it"),
    ("grpc", "version is a word"): Difference(
        "INVALID_ARGUMENT", "NOT_FOUND", "as over REST: no such version"
    ),
    ("rest", "ready of an unknown model"): Difference("400", "404", NOT_THERE),
    ("grpc", "ready of an unknown model"): Difference("OK", "NOT_FOUND", NOT_THERE),
    ("rest", "load an unknown model"): Difference("500", "404", NOT_THERE),
    ("grpc", "load an unknown model"): Difference("INTERNAL", "NOT_FOUND", NOT_THERE),
    ("rest", "trace an unknown model"): Difference("400", "404", NOT_THERE),
    ("grpc", "trace an unknown model"): Difference("INVALID_ARGUMENT", "NOT_FOUND", NOT_THERE),
    ("rest", "load a file of the request"): Difference("500", "400", MODEL_FILES),
    ("rest", "register again"): Difference("400", "409", "the status of HTTP for a name that is taken"),
    ("grpc", "register again"): Difference("ALREADY_EXISTS", "FAILED_PRECONDITION", "that of all conflicts"),
    ("rest", "unknown log format"): Difference("503", "501", "no format can be chosen by a request"),
    ("grpc", "unknown log format"): Difference(
        "INVALID_ARGUMENT", "UNIMPLEMENTED", "no format can be chosen by a request"
    ),
}

# Of good answers, fields whose values differ in any case: each server has a log and traces of its own.
OWN_FIELDS = frozenset({"trace_file", "log_info"})


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], tuple[Answer, Answer]]]:
    """Answers of Triton and of graphbox by transport and name of the case."""
    MEMORY.write_bytes(bytes(MEMORY_BYTES))
    try:
        with pair(tmp_path_factory.mktemp("twin")) as servers:
            yield {
                (transport, case.name): (_ask(servers[0], transport, case), _ask(servers[1], transport, case))
                for transport in ("rest", "grpc")  # one after the other: some cases follow from those before
                for case in CASES
                if _is_sent(case, transport)
            }
    finally:
        MEMORY.unlink()


def _is_sent(case: Case, transport: str) -> bool:
    return (case.path if transport == "rest" else case.call) is not None


def _ask(server: Server, transport: str, case: Case) -> Answer:
    return server.rest(case) if transport == "rest" else server.grpc(case)


@pytest.mark.parametrize(
    ("transport", "case"),
    [
        pytest.param(transport, case, id=f"{transport}: {case.name}")
        for transport in ("rest", "grpc")
        for case in CASES
        if _is_sent(case, transport)
    ],
)
def test_answers_are_equal_or_differ_for_a_reason(
    answers: dict[tuple[str, str], tuple[Answer, Answer]], transport: str, case: Case
) -> None:
    triton, ours = answers[transport, case.name]
    difference = DIFFERENCES.get((transport, case.name))
    if difference is not None:
        assert (triton.status, ours.status) == (difference.triton, difference.ours), (triton, ours)
        return
    assert triton.status == ours.status, (triton, ours)
    if not ours.is_good:
        assert ours.content, "an error has a text"
    elif case.compare == "keys":
        assert _shape(triton.content) == _shape(ours.content)
    elif case.compare != "status":
        assert _is_close(triton.content, ours.content), (triton.content, ours.content)


def test_each_difference_is_that_of_a_case() -> None:
    sent = {
        (transport, case.name)
        for transport in ("rest", "grpc")
        for case in CASES
        if _is_sent(case, transport)
    }
    assert len({case.name for case in CASES}) == len(CASES)
    assert DIFFERENCES.keys() <= sent


def _shape(value: Any) -> Any:
    """Return the names of the fields of a document, with those of the first element of each list."""
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items() if each not in ({}, [])}
    if isinstance(value, list):
        return [_shape(value[0])] if value and isinstance(value[0], dict) else []
    return None


def _is_close(triton: Any, ours: Any) -> bool:
    """Compare documents; float32 has more or fewer digits in JSON."""
    if isinstance(triton, dict) and isinstance(ours, dict):
        return triton.keys() == ours.keys() and all(
            _is_close(triton[name], ours[name]) for name in triton if name not in OWN_FIELDS
        )
    if isinstance(triton, list) and isinstance(ours, list):
        return len(triton) == len(ours) and all(map(_is_close, triton, ours))
    if isinstance(triton, float) or isinstance(ours, float):
        return math.isclose(triton, ours, rel_tol=1e-5, abs_tol=1e-6)
    return bool(triton == ours)
