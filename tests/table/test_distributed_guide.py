"""The code in docs/guides/several-processes.md runs, in two processes as torchrun starts them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from graphbox.table import EmbeddingTable

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "several-processes.md"


@pytest.mark.stress
def test_the_code_of_the_guide_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "train.py").write_text(code)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    known = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**known, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [each.communicate(timeout=250) for each in started]
    finally:
        for each in started:
            each.kill()
    assert [each.returncode for each in started] == [0, 0], said
    saved = EmbeddingTable.load(tmp_path / "users.table")
    assert len(saved) > 500
    assert said[0][0] == f"{len(saved)} rows in 2 processes, {len(saved)} saved\n"
