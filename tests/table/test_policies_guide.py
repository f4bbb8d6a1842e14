"""The code in docs/guides/table-policies.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "table-policies.md"


def test_the_code_of_the_guide_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(GUIDE), "exec"), names)  # noqa: S102  # the project's own page
    table, report = names["table"], names["report"]
    assert 0 < len(table) < report.examined
    assert report.low_score == report.examined - len(table)
    assert table.policy_events.refused_pulls > 0
