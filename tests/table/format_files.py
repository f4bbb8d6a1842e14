"""Writes the checkpoints under tests/formats/table-1: a base and a delta of whole rows, and both for serving.

Beside them a folder of publications.

python -m tests.table.format_files
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch

from graphbox.table import EmbeddingTable, TablePublisher

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
    publish(folder / "published")


def publish(folder: Path) -> None:
    """Write two versions of a table with a parameter."""
    table = make()
    publisher = TablePublisher(folder)
    for number in range(2):
        if number:
            change(table)
        publisher.write(number, {"rows": table})
        publisher.publish(f"day {number}", {"rows": table}, {"bias": torch.tensor([0.5, number])})


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    write(FOLDER)
