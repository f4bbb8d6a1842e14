"""The core: leases of models that are opened while their callers leave."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from graphbox.deploy import DeployedEncoder
from graphbox.deploy.cancellation import check_cancelled
from graphbox.server.executor import Executor
from graphbox.server.inference import Inference
from graphbox.server.repository import Repository
from graphbox.server.settings import Settings
from graphbox.workspace import Workspace
from tests.server.sample_models import add_model, write_encoder


def test_a_caller_that_leaves_while_a_model_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is the version unavailable to others then, nor does it stay open for ever."""
    workspace = Workspace(tmp_path / "work")
    add_model(workspace, "companion", write_encoder)
    repository = Repository(workspace)
    executor = Executor(max_pending=4)
    inference = Inference(repository, executor, Settings())
    opening, left = threading.Event(), threading.Event()
    warm_up = DeployedEncoder.warm_up

    def slow_warm_up(model: Any) -> None:
        opening.set()
        left.wait(20)
        check_cancelled()
        warm_up(model)

    monkeypatch.setattr(DeployedEncoder, "warm_up", slow_warm_up)

    async def leave() -> None:
        asking = asyncio.ensure_future(inference.enter("companion", None))
        await asyncio.to_thread(opening.wait, 20)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        left.set()
        lease = await asyncio.wait_for(inference.enter("companion", None), 20)
        lease.leave()

    try:
        asyncio.run(leave())
        slot = repository.slot("companion")
        assert slot.state() == ("READY", "")
        slot.close()
        assert slot.try_enter() is None, "a user was left behind"
    finally:
        executor.close()
