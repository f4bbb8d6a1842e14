"""The OpenAPI document: complete, the same each time, and the one the web page's client was made from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphbox.server.openapi import document

SNAPSHOT = Path(__file__).parents[2] / "web" / "openapi.json"


def test_snapshot_of_the_web_page_is_current() -> None:
    assert json.loads(SNAPSHOT.read_text()) == document(), (
        "the REST interface has changed: run `make api` and commit web/openapi.json with the generated client"
    )


def test_program_needs_no_workspace(tmp_path: Path) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "graphbox.server.openapi"], cwd=tmp_path, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == document()
    assert list(tmp_path.iterdir()) == []


def test_every_answer_is_typed() -> None:
    schemas = document()["components"]["schemas"]
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            content = operation["responses"]["200"]["content"]
            if "application/json" in content:
                assert content["application/json"]["schema"], path
            assert operation["responses"]["default"]["content"]["application/json"]["schema"] == {
                "$ref": "#/components/schemas/Problem"
            }
    assert {"MetricPoint", "EventEnd", "RunSummary", "Problem"} <= set(schemas)


def test_every_field_of_an_answer_is_always_there() -> None:
    for name, schema in document()["components"]["schemas"].items():
        if name != "ShadowRequest":  # the body of a request, which may leave fields out
            assert sorted(schema.get("required", [])) == sorted(schema["properties"]), name


def test_operation_ids_are_unique() -> None:
    ids: list[Any] = [o["operationId"] for methods in document()["paths"].values() for o in methods.values()]
    assert len(ids) == len(set(ids))
