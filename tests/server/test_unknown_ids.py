"""Requests for ids that stored vectors lack, by each policy, and the counters of `/metrics`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from graphbox.workspace import Workspace
from tests.artifact.lookup_model import DIM, POLICIES, rows_of, write_lookup
from tests.server.sample_models import add_model, write_encoder
from tests.server.server_process import ServerProcess, StartServer

ASKED = ["user 3", "never seen", "user 0", "never seen"]
KNOWN = [True, False, True, False]


@pytest.fixture
def running(tmp_path: Path, start_server: StartServer) -> ServerProcess:
    """A server of a model of each policy, and of an encoder."""
    with Workspace(tmp_path / "workspace") as workspace:
        for unknown_ids in POLICIES:
            add_model(workspace, unknown_ids, write_lookup, unknown_ids=unknown_ids)
        add_model(workspace, "encoder", write_encoder)
    server = start_server(workspace=tmp_path / "workspace")
    server.wait_until_ready()
    return server


def infer(client: httpx.Client, model: str, ids: list[str], node_type: str = "user") -> httpx.Response:
    tensor = {"name": "id", "datatype": "BYTES", "shape": [len(ids)], "data": ids}
    body = {"inputs": [tensor], "parameters": {"node_type": node_type}}
    return client.post(f"/v2/models/{model}/infer", json=body)


def outputs(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return {each["name"]: each for each in response.json()["outputs"]}


def counts(client: httpx.Client) -> dict[str, float]:
    """Return the counters of lookups by `metric model`."""
    found = {}
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("graphbox_lookup_"):
            name, value = line.split(" ")
            found[f"{name.split('{')[0]} {name.split(chr(34))[1]}"] = float(value)
    return found


def test_each_policy_answers_as_it_declares(running: ServerProcess) -> None:
    default = {"zero": np.zeros(DIM), "mean": rows_of("user").mean(axis=0, dtype=np.float64)}
    with running.client() as client:
        refused = infer(client, "refuse", ASKED)
        assert refused.status_code == 400
        assert "`never seen`" in refused.text
        assert [each["name"] for each in client.get("/v2/models/refuse").json()["outputs"]] == ["embedding"]
        for unknown_ids, row in default.items():
            found = outputs(infer(client, unknown_ids, ASKED))
            assert list(found) == ["embedding", "known"]
            assert (found["known"]["datatype"], found["known"]["data"]) == ("BOOL", KNOWN)
            vectors = np.reshape(found["embedding"]["data"], found["embedding"]["shape"])
            expected = np.where(np.array(KNOWN)[:, None], rows_of("user")[[3, 0, 0, 0]], row)
            np.testing.assert_allclose(vectors, expected, rtol=1e-6)
            declared = client.get(f"/v2/models/{unknown_ids}").json()["outputs"]
            assert declared[1] == {"name": "known", "datatype": "BOOL", "shape": [-1]}
            empty = outputs(infer(client, unknown_ids, []))
            assert (empty["embedding"]["shape"], empty["known"]["shape"]) == ([0, DIM], [0])


def test_neighbors_of_unknown_ids_are_refused(running: ServerProcess) -> None:
    with running.client() as client:
        for name in POLICIES:
            path = f"/api/v1/models/{name}/neighbors"
            refused = client.get(path, params={"id": "never seen", "type": "user"})
            assert refused.status_code == 404
            assert "`never seen`" in refused.json()["message"]
            assert client.get(path, params={"id": "user 3", "type": "user", "k": 2}).status_code == 200


def test_the_counters_are_those_of_the_client(running: ServerProcess) -> None:
    rows = {"refuse": 0, "zero": 0, "mean": 0}
    default_rows = dict(rows)
    with running.client() as client:
        assert counts(client) == {}  # as all statistics of a model, from its first request on
        for size in (1, 2, 4):
            assert infer(client, "refuse", ASKED[:size]).status_code == (200 if size == 1 else 400)
            rows["refuse"] += 1 if size == 1 else 0
            for name in ("zero", "mean"):
                known = outputs(infer(client, name, ASKED[:size]))["known"]["data"]
                rows[name] += len(known)
                default_rows[name] += known.count(False)
        infer(client, "zero", ASKED, "item")  # refused: ids of another type
        assert counts(client) == {
            **{f"graphbox_lookup_rows_total {name}": float(value) for name, value in rows.items()},
            **{f"graphbox_lookup_default_rows_total {name}": float(n) for name, n in default_rows.items()},
        }
    assert default_rows == {"refuse": 0, "zero": 3, "mean": 3}
