"""The code in docs/guides/python.md runs, its request against a server of the workspace that it made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.server_process import wait_until

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "python.md"
ADDRESS = "http://127.0.0.1:8710"


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    requests = [block for block in blocks if ADDRESS in block]
    assert (len(blocks), len(requests)) == (7, 1)
    names: dict[str, Any] = {}
    code = "\n".join(block for block in blocks if block not in requests)
    exec(compile(code, str(GUIDE), "exec"), names)  # noqa: S102  # the project's own page
    assert names["matrix"].shape == (200, 16)
    assert 0 <= names["report"].metrics["next"]["light"]["recall@10"] <= 1
    assert names["papers"].embeddings("paper").num_rows == 300
    answer = ask(requests[0])
    assert len(answer["neighbors"]) == 5


def ask(code: str) -> dict[str, Any]:
    """Run the code of a request against `graphbox serve` on a port of its own."""
    program = [sys.executable, "-m", "graphbox", "serve", "-C", "workspace", "--port", "0", "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"].rstrip("/")
            names: dict[str, Any] = {}

            def is_answered() -> bool:
                try:
                    exec(compile(code.replace(ADDRESS, url), str(GUIDE), "exec"), names)  # noqa: S102
                except OSError:  # the model is being loaded
                    return False
                return True

            wait_until(is_answered, what="the model of the guide to be served")
            answer: dict[str, Any] = names["answer"]
            return answer
        finally:
            process.terminate()
