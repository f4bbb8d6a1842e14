"""The code in docs/guides/shards.md runs: two shards and a trainer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from graphbox.table import EmbeddingTable

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "shards.md"


def test_the_code_of_the_guide_runs(tmp_path: Path) -> None:
    shard, train = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "shard.py").write_text(shard)
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "checkpoints").mkdir()
    known = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=known,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    shards = [start("shard.py", str(number), "2", "1") for number in range(2)]
    trainer = start("train.py")
    try:
        out, error = trainer.communicate(timeout=120)
        for each in shards:
            each.send_signal(signal.SIGTERM)
        ends = [each.communicate(timeout=60) for each in shards]
    finally:
        for each in (*shards, trainer):
            each.kill()
    assert [each.returncode for each in (trainer, *shards)] == [0, 0, 0], (error, ends)
    saved = EmbeddingTable.load(tmp_path / "checkpoints" / "users.table")
    assert len(saved) > 300
    assert out == f"{len(saved)} rows in 2 shards, {len(saved)} saved\n"
    assert all(any((tmp_path / f"shard-{number}").iterdir()) for number in range(2))
