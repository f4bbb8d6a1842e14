"""The code in docs/guides/loaders.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "loaders.md"


def test_the_code_of_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    exec(compile("\n".join(blocks), str(GUIDE), "exec"), names)  # noqa: S102  # the project's own page
    assert names["loss"].item() > 0
