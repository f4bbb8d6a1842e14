"""Writes the checkpoints under tests/formats/table-1: a base and a delta of whole rows, and both for serving.

python -m tests.table.format_files
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from graphbox.table import EmbeddingTable

FOLDER = Path(__file__).parents[1] / "formats" / "table-1"
INT64 = np.iinfo(np.int64)
KEYS = np.array([0, -1, INT64.min, INT64.max, 12345])


def make() -> EmbeddingTable:
    """Return the table as it was when the base was saved."""
    table = EmbeddingTable(3, "adagrad", lr=0.5, init_scale=1.0, seed=7)
    table.push(KEYS, np.arange(15, dtype=np.float32).reshape(5, 3))
    return table


def change(table: EmbeddingTable) -> None:
    """Do what the deltas hold."""
    table.push([12345, 6], np.ones((2, 3), np.float32))
    table.erase([-1])


def write(folder: Path) -> None:
    """Write the checkpoints."""
    table = make()
    table.save_base(folder / "base")
    table.save_base(folder / "serving-base", serving="float16")
    change(table)
    table.save_delta(folder / "delta")
    table.save_delta(folder / "serving-delta", serving="int8")


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    write(FOLDER)
