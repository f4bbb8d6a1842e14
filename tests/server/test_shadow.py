"""Shadows: what is compared, against NumPy, and that clients never notice."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.deploy import DeployedModel
from graphbox.deploy.signature import WHOLE, Signature
from graphbox.errors import InvalidRequestError
from graphbox.server.batching import Call, Outcome
from graphbox.server.executor import Executor
from graphbox.server.inference import Inference
from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.workspace import Workspace
from graphbox.workspace.traffic import ShadowSums
from tests.server.sample_models import DIM, add_model, write_encoder
from tests.server.server_process import TOKEN, StartServer, wait_until
from tests.server.test_process import damage
from tests.server.versioned_models import affine, write_affine

BEARER = {"authorization": f"Bearer {TOKEN}"}
QUEUE = 64


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with two versions of a bare model."""
    workspace = Workspace(tmp_path / "work", busy_timeout_s=0.2)
    for _ in range(2):
        add_model(workspace, "affine", write_affine, activate=False)
    return workspace


@contextmanager
def opened(workspace: Workspace) -> Iterator[Inference]:
    """The core of a server with its models open."""
    repository = Repository(workspace)
    repository.preload()
    executor = Executor(max_pending=16)
    inference = Inference(repository, executor, Settings())
    try:
        yield inference
    finally:
        inference.shadows.stop(20)
        executor.close()
        repository.close()


async def infer(inference: Inference, inputs: dict[str, Any], version: str | None = None) -> Outcome:
    """Answer one call as the transports do."""
    lease = await inference.enter("affine", version)
    now = time.perf_counter_ns()
    call = Call(inputs, {}, None, 0, now, now, now)
    outcome = await asyncio.wait_for(lease.infer(call), 20)
    assert outcome.outputs is not None, outcome.error
    lease.answered(call, outcome, len(outcome.outputs["y"]))
    lease.leave()
    return outcome


def rows(seed: int, number: int = 5) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((number, DIM)).astype(np.float32)


def sums_of(workspace: Workspace, name: str = "affine") -> ShadowSums:
    return workspace.shadow_sums(name) or ShadowSums()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for another thread, while the event loop goes on."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited 30 s for {what}"
        await asyncio.sleep(0.02)


def test_differences_equal_numpy(workspace: Workspace) -> None:
    workspace.set_shadow("affine", 2, 100, 1.0)
    inputs = [rows(seed) for seed in range(20)]

    async def ask(inference: Inference) -> None:
        for number, x in enumerate(inputs, 1):
            outcome = await infer(inference, {"x": x})
            assert outcome.outputs is not None
            np.testing.assert_allclose(outcome.outputs["y"], affine(x, 1), rtol=1e-6)
            await infer(inference, {"x": x}, "2")
            await infer(inference, {"x": x}, "1")
            await eventually(lambda number=number: inference_calls(inference) >= number, "the shadow")  # type: ignore[misc]
        await eventually(lambda: sums_of(workspace).calls == len(inputs), "the sums to be written")

    with opened(workspace) as inference:
        asyncio.run(ask(inference))
    sums = sums_of(workspace)
    assert (sums.calls, sums.failed, sums.dropped, sums.error) == (20, 0, 0, None)
    assert sums.active_ns > 0
    assert sums.shadow_ns > 0
    x = np.concatenate(inputs)
    difference = np.abs(affine(x, 2).astype(np.float64) - affine(x, 1))
    y = sums.outputs["y"]
    assert (y.rows, y.numbers) == (100, 100 * DIM)
    assert y.different_rows == (difference > 1).any(axis=1).sum()
    assert y.difference_sum == pytest.approx(difference.sum(), rel=1e-6)
    assert y.difference_max == pytest.approx(difference.max(), rel=1e-6)
    top = sums.outputs["top"]
    assert (top.rows, top.different_rows, top.listed, top.shared) == (100, 0, 300, 300)


def inference_calls(inference: Inference) -> int:
    """Return how many calls the shadow of `affine` has answered in this process."""
    records = inference._repository.counters
    route = inference._repository.routes["affine"]
    assert route.shadow is not None
    found = records.records(("shadow calls", "affine", str(route.shadow.shadow.change))).get("", [])
    return sum(record[0] for record in found)


def replace_answer(inference: Inference, change: Callable[[Signature], Signature]) -> None:
    """Change how version 2 answers."""
    with inference._repository.use("affine", 2) as served:
        model: DeployedModel = served.model
        changed = change(model.signature(WHOLE))
        model.signature = lambda suffix: changed  # type: ignore[method-assign]


def test_a_slow_shadow_delays_nothing_and_its_queue_is_bounded(workspace: Workspace) -> None:
    """Calls are answered while the shadow is stuck; what finds its queue full is dropped and counted."""
    workspace.set_shadow("affine", 2)
    begun, go_on = threading.Event(), threading.Event()
    total = QUEUE + 40

    def slowed(signature: Signature) -> Signature:
        def answer(*given: Any) -> Any:
            begun.set()
            assert go_on.wait(30)
            return signature.answer(*given)

        return dataclasses.replace(signature, answer=answer)

    async def ask(inference: Inference) -> None:
        await infer(inference, {"x": rows(0)})
        await asyncio.to_thread(begun.wait, 20)
        for seed in range(total):
            await infer(inference, {"x": rows(seed)})
        assert inference_calls(inference) == 0, "all were answered before the shadow"
        go_on.set()
        await eventually(lambda: sums_of(workspace).dropped >= 40, "dropped calls")
        await eventually(
            lambda: sums_of(workspace).calls + sums_of(workspace).dropped == total + 1, "the others"
        )

    with opened(workspace) as inference:
        replace_answer(inference, slowed)
        try:
            asyncio.run(ask(inference))
        finally:
            go_on.set()


def test_the_thread_rests_for_as_long_as_a_call_took(workspace: Workspace) -> None:
    """Half a core at most, also for calls of more than a second."""
    workspace.set_shadow("affine", 2)
    call_s = 1.4
    begun: list[float] = []

    def slowed(signature: Signature) -> Signature:
        def answer(*given: Any) -> Any:
            begun.append(time.monotonic())
            time.sleep(call_s)
            return signature.answer(*given)

        return dataclasses.replace(signature, answer=answer)

    async def ask(inference: Inference) -> None:
        await infer(inference, {"x": rows(0)})
        await eventually(lambda: len(begun) == 1, "the first call")
        await infer(inference, {"x": rows(1)})
        await eventually(lambda: len(begun) == 2, "the second call")

    with opened(workspace) as inference:
        replace_answer(inference, slowed)
        asyncio.run(ask(inference))
    assert begun[1] - begun[0] >= 2 * call_s


def test_a_failing_shadow_is_counted_with_its_reason(workspace: Workspace) -> None:
    workspace.set_shadow("affine", 2)
    errors: list[Exception] = [InvalidRequestError("no such column"), ValueError("singular matrix")]

    def failing(signature: Signature) -> Signature:
        def answer(*_: Any) -> Any:
            raise errors.pop(0)

        return dataclasses.replace(signature, answer=answer)

    async def ask(inference: Inference) -> None:
        for failed, reason in ((1, "no such column"), (2, "ValueError: singular matrix")):
            await infer(inference, {"x": rows(failed)})
            await eventually(lambda failed=failed: sums_of(workspace).failed == failed, "the failure")  # type: ignore[misc]
            assert sums_of(workspace).error == reason

    with opened(workspace) as inference:
        replace_answer(inference, failing)
        asyncio.run(ask(inference))
    assert sums_of(workspace).outputs == {}


def test_a_shadow_with_other_inputs_fails(workspace: Workspace) -> None:
    add_model(workspace, "affine", write_affine, activate=False, inputs="z")
    workspace.set_shadow("affine", 3)

    async def ask(inference: Inference) -> None:
        await infer(inference, {"x": rows(1)})
        await eventually(lambda: sums_of(workspace).failed == 1, "the failure")

    with opened(workspace) as inference:
        asyncio.run(ask(inference))
    assert "expected the inputs z" in (sums_of(workspace).error or "")


def test_sums_are_written_once_the_database_can_be(workspace: Workspace, caplog: Any) -> None:
    workspace.set_shadow("affine", 2)

    async def ask(inference: Inference, locked: sqlite3.Connection) -> None:
        for number in range(1, 4):
            await infer(inference, {"x": rows(number)})
            await eventually(lambda number=number: inference_calls(inference) == number, "the shadow")  # type: ignore[misc]
        await eventually(lambda: "cannot be written, retrying" in caplog.text, "an attempt")
        assert sums_of(workspace) == ShadowSums()
        locked.execute("ROLLBACK")
        await eventually(lambda: sums_of(workspace).calls == 3, "the sums")

    with (
        opened(workspace) as inference,
        closing(sqlite3.connect(workspace.root / "graphbox.db", isolation_level=None)) as locked,
    ):
        locked.execute("BEGIN IMMEDIATE")
        asyncio.run(ask(inference, locked))
    assert sums_of(workspace).outputs["y"].rows == 15


def test_a_share_is_repeated_and_an_ended_shadow_is_not(workspace: Workspace) -> None:
    workspace.set_shadow("affine", 2, 25)

    async def ask(inference: Inference) -> None:
        for number in range(20):
            await infer(inference, {"x": rows(number)})
        await eventually(lambda: sums_of(workspace).calls + sums_of(workspace).dropped >= 4, "the shadow")
        workspace.end_share("affine", "shadow")
        repository = inference._repository
        repository.poll_requests()
        repository.apply_traffic()
        lease = await inference.enter("affine", None)
        assert lease.repeat is None
        lease.leave()

    with opened(workspace) as inference:
        asyncio.run(ask(inference))
    assert workspace.shadow_sums("affine") is None


def test_shadow_of_a_server(start_server: StartServer, tmp_path: Path) -> None:
    """Two workers, nearest nodes, documents and metrics; then a shadow that cannot be opened."""
    workspace = Workspace(tmp_path / "work")
    for scale in (1.0, -1.0, 1.0):
        add_model(workspace, "companion", write_encoder, activate=False, scale=scale)
    damage(workspace, 3)
    server = start_server(workspace=workspace.root, token=TOKEN, workers=2)
    server.wait_until_ready()
    inputs = [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]
    body: dict[str, Any] = {"inputs": inputs, "parameters": {"k": 3}}

    def document() -> dict[str, Any]:
        with server.client(headers=BEARER) as client:
            found: dict[str, Any] = client.get("/api/v1/models").json()[0]["shadow"]
            return found

    def ask(path: str, body: dict[str, Any]) -> None:
        with server.client(headers=BEARER) as client:
            answer = client.post(f"/v2/models/{path}/infer", json=body)
            assert answer.status_code == 200
            assert answer.json()["model_version"] == "1"

    with server.client(headers=BEARER) as client:
        answer = client.post("/api/v1/models/companion/shadow", json={"version": 2, "tolerance": 0.01})
        assert answer.json()["shadow"]["version"] == 2

        def is_compared() -> bool:
            ask("companion.nearest", body)
            ask("companion", {"inputs": inputs})
            return {"nearest.neighbor", "embedding"} <= {each["name"] for each in document()["outputs"]}

        wait_until(is_compared, what="compared calls", timeout_s=40)
        outputs = {each["name"]: each for each in document()["outputs"]}
        assert 0 <= outputs["nearest.neighbor"]["overlap"] < 1
        assert outputs["nearest.neighbor"]["largest_difference"] is None
        assert outputs["embedding"]["different_share"] == 1
        assert outputs["embedding"]["overlap"] is None
        text = client.get("/metrics").text
        labels = 'model="companion",output="embedding",version="2"'
        assert f"graphbox_shadow_different_rows_total{{{labels}}}" in text
        assert 'graphbox_shadow_failures_total{model="companion",version="2"} 0.0' in text
        client.post("/api/v1/models/companion/shadow", json={"version": 3, "percent": 100})

        def is_dropped() -> bool:
            ask("companion", {"inputs": inputs})
            return bool(document()["dropped"])

        wait_until(is_dropped, what="dropped calls", timeout_s=40)
        assert (document()["available"], document()["calls"]) == (False, 0)
        assert client.delete("/api/v1/models/companion/shadow").json()["shadow"] is None
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
