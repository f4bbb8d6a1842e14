"""The code in docs/guides/tables-in-models.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "tables-in-models.md"


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), str(GUIDE), "exec"), names)  # noqa: S102  # the project's own page
    assert names["loss"].item() > 0
    assert len(names["items"]) > 8 * 64
