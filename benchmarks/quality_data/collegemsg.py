"""CollegeMsg: who writes to whom next, in the protocol of TGN and DyGLib with batches of 200."""

from __future__ import annotations

import gzip
from pathlib import Path

from benchmarks.quality_data.protocol import DataSet, Figure
from graphbox.durable import write_atomically

_TASK = "next_message"


def _tables(source: Path, destination: Path) -> None:
    """Write the messages, and a line for each given negative: source and time of its message, and who."""
    if (destination / "not_sent.txt").exists():
        return
    with gzip.open(source / "CollegeMsg.txt.gz", "rt") as lines:
        messages = [line.split() for line in lines]
    with gzip.open(source / "eval_negatives.txt.gz", "rt") as lines:
        negatives = [line.split() for line in lines]
    with write_atomically(destination / "messages.txt") as stream:
        stream.write("".join("\t".join(message) + "\n" for message in messages).encode())
    with write_atomically(destination / "not_sent.txt") as stream:
        for row, other in negatives:
            writer, _, time = messages[int(row)]
            stream.write(f"{writer}\t{other}\t{time}\n".encode())


DATA_SET = DataSet(
    name="collegemsg",
    run_file="examples/collegemsg/graphbox.yaml",
    files=("CollegeMsg.txt.gz", "eval_negatives.txt.gz"),
    prepare=_tables,
    figures=(
        Figure(
            "AP temporal",
            (_TASK, "temporal", "average_precision"),
            published="TGN .923, GraphMixer .9325, DyGFormer .958",
            goal=0.92,
        ),
        Figure("AUC temporal", (_TASK, "temporal", "auc")),
        Figure("AP EdgeBank", (_TASK, "seen_before_online", "average_precision"), published="EdgeBank .762"),
    ),
    remark="A batch of 200 is scored from what was known before it, as TGN does; GraphMixer and DyGFormer as "
    "published look at everything before the event itself.",
)
