"""Films of IMDB under MAGNN's protocol: a linear SVM on the embeddings of the films of the test part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks.quality_data.frozen import split_f1
from benchmarks.quality_data.node_tables import parts, read_arrays, words, write_table
from benchmarks.quality_data.protocol import DataSet, Figure, Job, Measured
from graphbox.train.tasks import ClassifySplit

_GENRES = ("action", "comedy", "drama")
_SPLITS = 10
_PUBLISHED = {20: ".562 (HAN), .594 (MAGNN)", 80: ".579 (HAN), .607 (MAGNN)"}
_GOALS = {20: 0.59, 80: 0.605}


def _tables(source: Path, destination: Path) -> None:
    data = read_arrays(source / "imdb.npz")
    write_table(
        destination / "movie.parquet",
        id=np.arange(len(data["y"])),
        genre=[_GENRES[number] for number in data["y"]],
        part=parts(data),
        keywords=words(data),
    )
    for name, key in (("directed", "movie_director"), ("acted_in", "movie_actor")):
        movie, person = data[key].T
        write_table(destination / f"{name}.parquet", source=person, target=movie)


def _measure(job: Job) -> Measured:
    report = job.run()
    run = job.open(report)
    split = run.split("genre")
    if not isinstance(split, ClassifySplit):
        raise TypeError("the task `genre` of the run file is to be of kind classify")
    nodes = split.nodes("test")
    rows, labels = run.trained("appnp").embeddings["movie"][nodes], split.labels[nodes]
    found = dict(job.data.read(report))
    for percent in _GOALS:
        options = {"splits": _SPLITS, "first_seed": _SPLITS * job.seed}
        micro, macro = split_f1(rows, labels, percent / 100, LinearSVC, **options)
        found |= {f"macro-F1 at {percent} %": macro, f"micro-F1 at {percent} %": micro}
    return found


DATA_SET = DataSet(
    name="imdb",
    run_file="examples/imdb/graphbox.yaml",
    files=("imdb.npz",),
    prepare=_tables,
    measure=_measure,
    figures=(
        *(Figure(f"macro-F1 at {each} %", None, _PUBLISHED[each], _GOALS[each]) for each in _GOALS),
        *(Figure(f"micro-F1 at {each} %") for each in _GOALS),
        Figure("accuracy of the network", ("genre", "appnp", "accuracy")),
    ),
    remark=(
        f"The mean over {_SPLITS} splits of each seed's embedding, drawn with the seed. The network learns "
        "from the 400 films of the train part; the 400 of the validation part decide when it stops."
    ),
)
