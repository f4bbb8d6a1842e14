"""Wiki (thunlp/OpenNE) under DeepWalk's protocol: a classifier of half of the nodes on frozen embeddings."""

from __future__ import annotations

import numpy as np

from benchmarks.quality_data.frozen import split_f1
from benchmarks.quality_data.protocol import DataSet, Figure, Job, Measured

_SPLITS = 10


def _measure(job: Job) -> Measured:
    report = job.run()
    run = job.open(report)
    rows = run.trained("deepwalk").embeddings["page"]
    labels = np.asarray(run.graph.feature("page", "class"), dtype=np.int64)
    micro, macro = split_f1(rows, labels, 0.5, splits=_SPLITS, first_seed=_SPLITS * job.seed)
    return {"micro-F1 at 50 %": micro, "macro-F1 at 50 %": macro, **job.data.read(report)}


DATA_SET = DataSet(
    name="wiki",
    run_file="examples/wiki/graphbox.yaml",
    files=("edges.txt.gz", "labels.txt.gz"),
    measure=_measure,
    figures=(
        Figure("micro-F1 at 50 %", published=".671", goal=0.675),
        Figure("macro-F1 at 50 %", published=".566", goal=0.57),
    ),
    seeds=(10, 11, 12),
    remark=(
        f"The mean over {_SPLITS} splits of each seed's embedding, drawn with the seed. Splits of seed 0 "
        "were seen while settings were chosen: the seeds here are others."
    ),
)
