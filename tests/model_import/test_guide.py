"""The commands of the guide do what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphbox.model_import import FORMATS
from tests.cli.conftest import call_main
from tests.model_import.onnx_files import linear

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "adding-models.md").read_text()
COMMANDS = re.findall(r"^    graphbox (models add .*)$", GUIDE, re.MULTILINE)
LINES_OF_PYTHON = re.findall(r"^    ((?:from graphbox|outputs = ).*)$", GUIDE, re.MULTILINE)
ROWS = np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)


def test_every_command_of_the_guide_adds_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(linear().SerializeToString())
    data = [0.5] * 24
    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 8], "data": data}]}
    Path("request.json").write_text(json.dumps(request))
    lines = [f"{number}\t" + " ".join(map(str, row)) + "\n" for number, row in enumerate(ROWS)]
    Path("vectors.txt").write_text("".join(lines))
    Path("embedding").mkdir()
    Path("embedding/part-00000").write_text("".join(lines))
    Path("words.txt").write_text("".join(f"w{number}\n" for number in range(len(ROWS))))
    np.save("vectors.npy", ROWS)
    np.savez("factors.npz", user=ROWS, item=ROWS)
    table = {
        "sku": [f"s{number}" for number in range(len(ROWS))],
        "vector": ROWS.tolist(),
        "tags": ROWS.tolist(),
    }
    pq.write_table(pa.table(table), "items.parquet")
    assert len(COMMANDS) == 8
    assert len(LINES_OF_PYTHON) == 2
    for command in COMMANDS:
        outcome = call_main(command.split())
        assert outcome.code == 0, (command, outcome.err)
    names: dict[str, Any] = {"rows": np.ones((3, 8), np.float32)}
    exec("\n".join(LINES_OF_PYTHON), names)  # noqa: S102 (lines of our own guide)
    assert names["outputs"]["y"].shape == (3, 300)


def test_every_format_is_in_the_table() -> None:
    assert set(re.findall(r"^\| .*?\| `(\w+)` \|", GUIDE, re.MULTILINE)) == {*FORMATS} - {"onnx"}
