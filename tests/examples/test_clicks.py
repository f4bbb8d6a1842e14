"""The example of tables in a click model: it learns, is killed, goes on, and does not go back."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parents[2] / "examples" / "clicks" / "clicks.py"
COLUMNS = [
    *("age", "workclass", "education", "marital-status", "occupation", "relationship", "race", "gender"),
    *("capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
]


def rows_of_people(rows: int) -> str:
    """Return a CSV whose label depends on the columns."""
    generator = np.random.default_rng(5)
    values = generator.integers(0, 12, (rows, len(COLUMNS) - 1))
    rich = values[:, 0] + values[:, 2] + generator.normal(0, 1, rows) > 15
    lines = [
        ",".join([*(f"v{value}" for value in row), ">50K" if label else "<=50K"])
        for row, label in zip(values.tolist(), rich, strict=True)
    ]
    return "\n".join([",".join(COLUMNS), *lines]) + "\n"


def test_a_killed_run_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    file, run = tmp_path / "people.csv", tmp_path / "run"
    file.write_text(rows_of_people(6000), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(SCRIPT), str(file), str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("pass 1 is saved"):
                process.send_signal(signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert int(lines[0].split()[0]) >= 1
    auc = next(float(line.split()[1].rstrip(",")) for line in lines if line.startswith("auc"))
    assert auc > 0.7
    assert any(line.endswith("is served: False") for line in lines)
    assert lines[-1].endswith("segments with a crossed value are rewritten")
