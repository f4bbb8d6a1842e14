"""Generated requests for every operation of the OpenAPI document: each answer is a documented one.

The paths of KServe have a document of their own kind, the protocol; `test_fuzz` sends those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.generation import GenerationMode

from graphbox.server.openapi import document
from tests.server.sample_models import build_workspace
from tests.server.server_process import TOKEN, ServerProcess, start_process

MODELS = ["companion", "section", "numbers"]
_DOCUMENT = document()
LABELS = sorted(
    f"{method.upper()} {path}" for path, methods in _DOCUMENT["paths"].items() for method in methods
)


def _can_be_wrong(label: str) -> bool:
    """Return whether a request can contradict the document: one of any texts alone cannot."""
    method, path = label.split()
    operation = _DOCUMENT["paths"][path][method.lower()]
    texts = [each["schema"].keys() <= {"type", "title"} for each in operation.get("parameters", [])]
    return "requestBody" in operation or not all(texts)


CASES = [
    (label, mode)
    for label in LABELS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or _can_be_wrong(label)
]
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a token, so that nothing is refused for its lack."""
    folder = tmp_path_factory.mktemp("schema")
    workspace, log = build_workspace(folder / "debian"), folder / "server.log"
    server = start_process({"port": 0, "workspace": workspace.root, "token": TOKEN}, log)
    server.wait_until_ready()
    yield server
    assert server.stop() == 0
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    results: list[Any] = [*schemathesis.openapi.from_dict(_DOCUMENT).get_all_operations()]
    return {operation.label: operation for operation in (each.ok() for each in results)}


def test_every_operation_is_known(operations: dict[str, Any]) -> None:
    assert sorted(operations) == LABELS


@pytest.mark.parametrize(("label", "mode"), CASES)
@pytest.mark.parametrize(
    "examples", [6, pytest.param(500, marks=[pytest.mark.stress, pytest.mark.timeout(1200)])]
)
def test_operation(
    guarded: ServerProcess, operations: dict[str, Any], label: str, mode: GenerationMode, examples: int
) -> None:
    operation = operations[label]

    @seed(1)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=[*HealthCheck])
    @given(case=operation.as_strategy(generation_mode=mode), name=st.sampled_from([*MODELS, None]))
    def send(case: Any, name: str | None) -> None:
        if name is not None and "name" in case.path_parameters:
            case.path_parameters["name"] = name
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = case.call(base_url=guarded.base, headers=headers, timeout=20)
        if answer.status_code == 501:  # the model is of another kind
            assert answer.json()["code"] == "unsupported"
        excluded = [checks.not_a_server_error] if answer.status_code == 501 else []
        case.validate_response(answer, checks=CHECKS, excluded_checks=excluded)

    send()
