"""The page of a run that trains, in a real browser: its charts move while another thread writes points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphbox.workspace import RunWriter, Workspace
from tests.server.server_process import start_process

ROOT = Path(__file__).resolve().parents[2]
SECONDS_BETWEEN_POINTS = 0.2
BROWSER_TIMEOUT_S = 240


def write_points(run: RunWriter, stop: threading.Event) -> None:
    """Append a point every now and then, as training does, until told to stop."""
    step = 0
    with (run.path / "metrics.jsonl").open("a") as file:
        while not stop.wait(SECONDS_BETWEEN_POINTS):
            step += 1
            values = {"loss": 1.0 / step, "samples_per_s": 40_000.0}
            point = {"model": "sage", "step": step, "epoch": 0.0, "time_s": float(step), "values": values}
            file.write(json.dumps(point) + "\n")
            file.flush()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "training")


@pytest.fixture
def training_run(workspace: Workspace) -> Iterator[RunWriter]:
    """A run in its stage `train` that gains points all the time."""
    stop = threading.Event()
    with workspace.start_run("debian", "version: 1\nname: debian\n", "0" * 64, ["train"]) as run:
        run.begin_stage("train")
        writer = threading.Thread(target=write_points, args=(run, stop))
        writer.start()
        yield run
        stop.set()
        writer.join()


@pytest.mark.browser
@pytest.mark.slow
def test_charts_follow_a_run_and_survive_a_cut_connection(
    workspace: Workspace, training_run: RunWriter, tmp_path: Path
) -> None:
    if shutil.which("chromium") is None:
        pytest.fail("chromium is missing: apt-get install chromium")
    server = start_process({"port": 0, "workspace": workspace.root}, tmp_path / "server.log")
    try:
        done = subprocess.run(
            ["npm", "--prefix", str(ROOT / "web"), "run", "e2e"],  # noqa: S607 (npm of the set-up)
            env={
                **os.environ,
                "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
                "GRAPHBOX_URL": server.base,
                "GRAPHBOX_LIVE_RUN": training_run.id,
            },
            check=False,
            capture_output=True,
            text=True,
            timeout=BROWSER_TIMEOUT_S,
        )
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
