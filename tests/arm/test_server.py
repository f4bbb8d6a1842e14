"""A server on ARM answers as one on this machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.arm.conftest import KINDS
from tests.arm.machine import ABSOLUTE, RELATIVE, Machine

pytestmark = pytest.mark.arm

QUERIES = {
    "sage": "neighbors?id=u12&k=5",
    "node2vec": "neighbors?id=u12&k=5",
    "distmult": "answers?head=p0&relation=east&k=5",
}
"""REST requests of the kinds that are asked by GET."""


@pytest.fixture(scope="module")
def clients(emulated: Machine, here: Machine, models: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with emulated.serve(models).client() as remote, here.serve(models).client() as local:
        yield remote, local


@pytest.mark.parametrize("kind", KINDS)
def test_kserve(clients: tuple[httpx.Client, httpx.Client], models: Path, kind: str) -> None:
    request = (models / kind / "1" / "example_request.json").read_bytes()
    check([client.post(f"/v2/models/{kind}/infer", content=request) for client in clients])


@pytest.mark.parametrize("kind", QUERIES)
def test_rest(clients: tuple[httpx.Client, httpx.Client], kind: str) -> None:
    check([client.get(f"/api/v1/models/{kind}/{QUERIES[kind]}") for client in clients])


def test_rest_of_rows(clients: tuple[httpx.Client, httpx.Client]) -> None:
    rows = [{"who": "w1", "price": 0.5}, {"who": "w2", "price": 0.25}]
    check([client.post("/api/v1/models/deepfm/predict", json={"rows": rows}) for client in clients])


def test_a_bad_request_and_the_end(emulated: Machine, here: Machine, models: Path) -> None:
    server = emulated.serve(models)
    with server.client() as client:
        assert client.get("/api/v1/models/sage/neighbors?id=nobody&k=5").status_code == 404
        assert client.post("/v2/models/sage/infer", content=b"{}").status_code == 400
    assert server.stop() == 0


def check(answers: list[httpx.Response]) -> None:
    """Check that two servers answered alike: floats close, the rest the same."""
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    emulated, here = (json.loads(answer.content) for answer in answers)
    assert differences(emulated, here) == []


def differences(emulated: Any, here: Any, where: str = "") -> list[str]:
    """Return the places at which two JSON documents differ."""
    if isinstance(here, float) and isinstance(emulated, float):
        close = math.isclose(emulated, here, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return [] if close else [f"{where}: {emulated} and {here}"]
    if type(emulated) is not type(here) or not isinstance(here, dict | list):
        return [] if emulated == here else [f"{where}: {emulated} and {here}"]
    if isinstance(here, list):
        emulated, here = (dict(enumerate(each)) for each in (emulated, here))
    if emulated.keys() != here.keys():
        return [f"{where}: {sorted(emulated)} and {sorted(here)}"]
    return [found for key in here for found in differences(emulated[key], here[key], f"{where}/{key}")]
