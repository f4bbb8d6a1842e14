"""Purchases of Amazon's Beauty in order, as prepared for S3-Rec: the next one of each user."""

from __future__ import annotations

import gzip
from pathlib import Path

from benchmarks.quality_data.protocol import DataSet, Figure
from graphbox.durable import write_atomically

_TASK, _FILE = "next", "sequences.txt.gz"

_GOALS = {("sasrec", "recall@10"): 0.065, ("sasrec", "ndcg@10"): 0.035}

_PUBLISHED = {
    "sasrec": (".0605", ".0318"),
    "gru4rec": (".0283", ".0137"),
    "popular": (".0152", ".0068"),
    "markov": ("", ""),
    "item_knn": ("", ""),
}
"""HR@10 and NDCG@10, all items ranked: table of the repository of S3-Rec (RUCAIBox/CIKM2020-S3Rec)."""


def events_of_sequences(source: Path, destination: Path) -> None:
    """Write a line with user, item and place for each item of a file that has a user's items on each line."""
    target = destination / "events.txt"
    if target.exists():
        return
    with gzip.open(source / _FILE, "rt") as lines, write_atomically(target) as stream:
        for line in lines:
            user, *items = line.split()
            rows = (f"{user}\t{item}\t{place}\n" for place, item in enumerate(items))
            stream.write("".join(rows).encode())


DATA_SET = DataSet(
    name="beauty",
    run_file="examples/beauty/graphbox.yaml",
    files=(_FILE,),
    prepare=events_of_sequences,
    figures=tuple(
        Figure(f"{metric} {name}", (_TASK, name, metric), published[number], _GOALS.get((name, metric)))
        for name, published in _PUBLISHED.items()
        for number, metric in enumerate(("recall@10", "ndcg@10"))
    ),
    remark=(
        "Defaults, which were chosen by the validation part of this set. Models learn from train alone and "
        "end as they were best on validation, as published. With one item to find, recall is the hit rate."
    ),
)
