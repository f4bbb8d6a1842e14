"""Data sets with the models of `graphbox init`, untouched, under the published protocols.

A default is never chosen on the data it is reported on. :data:`ORIGINS` says where each chosen default comes
from and what it would be without each of these sets; a test refuses a set by which the choice changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.quality_data.protocol import DataSet

__all__ = ["CASES", "ORIGINS", "Case", "Origin", "overrides_of"]

_TEMPLATES = Path(__file__).parents[2] / "graphbox" / "cli" / "templates"


@dataclass(frozen=True)
class Case:
    """A data set with the models of a template.

    Attributes:
        data: name of the data set.
        template: name of the template; None: there is none for such tasks, the defaults of ``kind`` count.
        kind: kind of the model.
        model: name that the model has in the run file of the example.
        task: its task there; None: it has none.
        figure: name of the figure that is compared.
        best: the best that was published; where nothing was, the best that the run file reached.
        source: of the best figure.
    """

    data: str
    template: str | None
    kind: str
    model: str
    task: str | None
    figure: str
    best: float
    source: str


CASES: tuple[Case, ...] = (
    Case("adult", "click", "deepfm", "deepfm", "income", "AUC deepfm", 0.9279, "LightGBM"),
    Case("beauty", "next", "sasrec", "sasrec", "next", "recall@10 sasrec", 0.0648, "TIGER"),
    Case(
        "collegemsg",
        None,
        "temporal",
        "temporal",
        "next_message",
        "AP temporal",
        0.9579,
        "DyGFormer, which looks at all before the event itself",
    ),
    Case("cora", "classify", "gnn", "gcn2", "topic", "accuracy", 0.850, "GPRGNN"),
    Case("debian", "recommend", "lightgcn", "sage", "companion", "recall@20 sage", 0.4104, "the run file"),
    Case("debian-sections", "classify", "gnn", "skipgram", "section", "accuracy", 0.7963, "the run file"),
    Case("gowalla", "recommend", "lightgcn", "lightgcn", "places", "recall@20 lightgcn", 0.1862, "UltraGCN"),
    Case("imdb", "classify", "gnn", "appnp", "genre", "macro-F1 at 20 %", 0.5935, "MAGNN"),
    Case("lastfm", "recommend", "lightgcn", "lightgcn", "artists", "recall@20 lightgcn", 0.2716, "GF-CF"),
    Case("lastfm-hin", None, "gnn", "network", "listens", "AUC", 0.9891, "MAGNN, with other negatives"),
    Case("wiki", "walk", "deepwalk", "deepwalk", "topic", "micro-F1 at 50 %", 0.671, "DeepWalk by gensim"),
    Case("wn18rr", "knowledge", "complex", "complex", "links", "mrr complex", 0.477, "RotatE"),
)
"""Each data set with what a user would take for it."""


@dataclass(frozen=True)
class Origin:
    """Where a default comes from.

    Attributes:
        kind: of the models that have it.
        setting: the setting, or the rule that gives it.
        value: what was chosen.
        chosen_on: data whose validation parts, or cuts of whose training parts, it was chosen on.
        without: what the choice is without each of the sets in ``chosen_on`` that has a case.
        command: command that measures it, or where it is published.
    """

    kind: str
    setting: str
    value: str
    chosen_on: tuple[str, ...]
    command: str
    without: Mapping[str, str] = field(default_factory=dict)


ORIGINS: tuple[Origin, ...] = (
    Origin("gnn", "candidates", "appnp, sage", (), "as published; the validation part of the data decides"),
    Origin("gnn", "appnp: layers, alpha, dropout", "10, 0.1, 0.5", (), "Gasteiger et al., ICLR 2019"),
    Origin(
        "gnn",
        "appnp: weight_decay",
        "0.0005",
        ("cora", "imdb"),
        "validation part of imdb; random cuts of Cora with other test papers",
        {"cora": "0.0005", "imdb": "0.0005"},
    ),
    Origin(
        "gnn",
        "layer for links between nodes without features",
        "lightgcn; `residual` compared after 20 epochs",
        ("wiki", "collegemsg", "beauty"),
        "He et al., SIGIR 2020; python -m benchmarks.link_layers",
        dict.fromkeys(("wiki", "collegemsg", "beauty"), "lightgcn; `residual` compared after 20 epochs"),
    ),
    Origin(
        "lightgcn",
        "temperature",
        "0.1, 0.15, 0.22 and 0.32 compared after 5 epochs",
        ("MovieLens-100k",),
        "the validation part of the data decides",
    ),
    Origin(
        "deepwalk",
        "epochs",
        "each edge is walked 200 times, at least 3,000 batches",
        ("block models",),
        "python -m benchmarks.walk_passes",
    ),
    Origin(
        "sasrec",
        "batch_size",
        "32 batches an epoch, from 32 to 512 histories",
        ("MovieLens-100k",),
        "python -m benchmarks.sequence_settings",
    ),
    Origin(
        "sasrec",
        "dropout, learning_rate, table_learning_rate",
        "0.2, 0.002, 0.01",
        ("beauty", "MovieLens-100k"),
        "validation part of beauty; python -m benchmarks.sequence_settings",
        {"beauty": "0.2, 0.002, 0.01"},
    ),
)
"""Chosen defaults of the kinds in :data:`CASES`; all others are as published, or older than the table."""


def overrides_of(case: Case, data: DataSet, tune: str | None = None) -> tuple[str, ...]:
    """Return the overrides that put a template's model in the place of the run file's.

    Args:
        case: the data set and the template.
        data: the same data set.
        tune: time for a search, as `10min`; None: none.
    """
    section: dict[str, Any] = {"kind": case.kind}
    if case.template is not None:
        models = YAML(typ="safe").load(_TEMPLATES / f"{case.template}.yaml")["models"]
        section = next(dict(each) for each in models.values() if each["kind"] == case.kind)
    if case.task is not None:
        section["task"] = case.task
    if tune is not None:
        section["tune"] = tune
    kept = tuple(each for each in data.overrides if not each.startswith("models="))
    return (*kept, f"models={json.dumps({case.model: section})}", "export={}", "compress={}")
