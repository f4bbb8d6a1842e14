"""The code in docs/guides/tables-on-a-gpu.md runs, by Triton's interpreter with fewer keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu_kernel

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "tables-on-a-gpu.md"


def test_code_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    for here, there in (
        ('"cuda"', '"cpu"'),
        ("1000", "10"),
        ("1500", "15"),
        ("500", "5"),
        ("dim=64", "dim=8"),
    ):
        assert here in code
        code = code.replace(here, there)
    exec(compile(code, str(GUIDE), "exec"), {})  # noqa: S102  # the project's own page
