"""A shop whose customers buy within a taste of their own: purchases of several days, made from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

USERS, ITEMS, TASTES = 48, 24, 4
DAY_S = 86_400

RUN_FILE = """\
version: 1
name: shop
seed: 3
threads: 1
graph:
  name: shop
  nodes: {user: {id_type: string}, item: {id_type: string}}
  edges:
    - type: [user, buys, item]
      path: purchases.csv
      source: user
      target: item
      timestamp: time
      keep_duplicates: true
tasks:
  next: {kind: recommend, node_type: user, target_type: item, relations: [buys]}
models:
  rows: {kind: matrix_factorization, task: next, dim: 8, epochs: 2, batch_size: 16, candidates: 16}
"""


def purchases(day: int, rows: int = 80) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return users, items and times of a day, one purchase in ten by chance."""
    generator = np.random.default_rng([7, day])
    user = generator.integers(0, USERS, rows)
    item = user % TASTES + TASTES * generator.integers(0, ITEMS // TASTES, rows)
    item = np.where(generator.random(rows) < 0.1, generator.integers(0, ITEMS, rows), item)
    return user, item, day * DAY_S + np.sort(generator.integers(0, DAY_S, rows))


def text_of(day: int, rows: int = 80) -> str:
    """Return the purchases of a day as CSV."""
    columns = zip(*purchases(day, rows), strict=True)
    return "user,item,time\n" + "".join(f"u{user},i{item},{time}\n" for user, item, time in columns)


def write_day(folder: Path, day: int, *, marker: str | None = "_SUCCESS", rows: int = 80) -> Path:
    """Write the purchases of a day into the folder of its date, its marker last; return that folder."""
    place = folder / f"202611{day + 1:02d}"
    place.mkdir(parents=True)
    (place / "purchases.csv").write_text(text_of(day, rows))
    if marker is not None:
        (place / marker).touch()
    return place
