"""The code in docs/guides/larger-than-memory.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "larger-than-memory.md"


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), str(GUIDE), "exec"), names)  # noqa: S102  # the project's own page
    assert names["fetch"].counts.misses > 0
