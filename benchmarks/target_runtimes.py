"""Runtimes outside this process that `benchmarks.targets` measures: a graphbox server, Triton, Chromium.

Each is started for one model version and stopped afterwards. A runtime that the environment names already
(``GRAPHBOX_REMOTE``, ``GRAPHBOX_TRITON``, ``GRAPHBOX_CHROMIUM``) is used instead, and nothing is started.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from graphbox.deploy.building import build_package
from graphbox.workspace import ModelRecord
from tests.deploy import triton_server
from tests.server.server_process import start_process

__all__ = ["EXTERNAL_TARGETS", "RuntimeMissingError", "started_runtime"]

EXTERNAL_TARGETS = ("remote", "triton_repository/python", "browser/wasm")
"""Targets that run a model elsewhere."""


class RuntimeMissingError(Exception):
    """A runtime is not installed on this machine; the message says how to install it."""


@contextmanager
def started_runtime(target: str, workspace: Path, record: ModelRecord, folder: Path) -> Iterator[None]:
    """Start what a target runs a model version in, name it in the environment, and stop it.

    Args:
        target: name of a target; nothing is started for those that run in this process.
        workspace: folder of the workspace that has the version.
        record: the model version.
        folder: where logs and model repositories are written.

    Raises:
        RuntimeMissingError: the runtime is not installed.
    """
    variable, start = _RUNTIMES.get(target.partition("/")[0], ("", None))
    if start is None or os.environ.get(variable, "").strip():
        yield
        return
    with ExitStack() as stack:
        stack.callback(os.environ.pop, variable, None)
        os.environ[variable] = stack.enter_context(start(workspace, record, folder))
        yield


@contextmanager
def _graphbox_server(workspace: Path, record: ModelRecord, folder: Path) -> Iterator[str]:
    server = start_process({"port": 0, "workspace": workspace}, folder / "graphbox.log")
    try:
        server.wait_until_ready()
        yield f"server={server.base}/v2/models/{record.name}.onnx/versions/{record.version}"
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


@contextmanager
def _triton(workspace: Path, record: ModelRecord, folder: Path) -> Iterator[str]:
    del workspace
    reason = triton_server.why_not()
    if reason is not None:
        raise RuntimeMissingError(reason)
    repository = folder / "repository"
    build_package(record.path, "triton_repository/python", out=repository / record.name)
    with triton_server.triton_server(repository, folder / "triton.log") as url:
        yield url


@contextmanager
def _chromium(workspace: Path, record: ModelRecord, folder: Path) -> Iterator[str]:
    del workspace, record, folder
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        raise RuntimeMissingError("neither `chromium` nor `google-chrome` is installed")
    yield executable


_Start = Callable[[Path, ModelRecord, Path], AbstractContextManager[str]]
_RUNTIMES: Mapping[str, tuple[str, _Start]] = {
    "remote": ("GRAPHBOX_REMOTE", _graphbox_server),
    "triton_repository": ("GRAPHBOX_TRITON", _triton),
    "browser": ("GRAPHBOX_CHROMIUM", _chromium),
}
"""By adapter: the variable that names a runtime to it, and what starts one."""
