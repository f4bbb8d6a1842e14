"""The bundled graph, Debian 12's package index: what belongs with a package, and its section.

The tasks of the demo's run file, each run by itself; held out are whole sources.
"""

from __future__ import annotations

import json
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.quality_data.protocol import DataSet, Figure
from benchmarks.quality_data.rankings import ranking_figures

__all__ = ["DATA_SET", "SECTIONS"]

_RUN_FILE = "examples/debian/graphbox.yaml"


def _only(task: str, model: str) -> tuple[str, ...]:
    """Return the overrides that leave one task and one model of the run file, without what follows them."""
    sections = YAML(typ="safe").load(Path(__file__).parents[2] / _RUN_FILE)
    kept = {name: {key: sections[name][key]} for name, key in (("tasks", task), ("models", model))}
    return (*(f"{name}={json.dumps(values)}" for name, values in kept.items()), "export={}", "compress={}")


_REMARK = "The seed is also that of the split, so each measures on other sources."

DATA_SET = DataSet(
    name="debian",
    run_file=_RUN_FILE,
    files=(),
    figures=ranking_figures("companion", "sage", goals=(0.38, 0.3), published={}, others=()),
    overrides=_only("companion", "sage"),
    remark=_REMARK,
)

SECTIONS = DataSet(
    name="debian-sections",
    run_file=_RUN_FILE,
    files=(),
    figures=(
        Figure("accuracy", ("section", "skipgram", "accuracy"), goal=0.78),
        Figure("macro-F1", ("section", "skipgram", "macro_f1")),
        Figure("accuracy neighbors_vote", ("section", "neighbors_vote", "accuracy")),
    ),
    overrides=_only("section", "skipgram"),
    remark=f"{_REMARK} By a logistic regression on the embedding of a package, the means of those of its "
    "source, its tags and the packages around it (`neighbors: true`) and the known sections of packages of "
    "other sources around it (`neighbor_classes: true`), chosen by folds cut from train and validation of "
    "seed 0. The test parts were seen before: that of seed 0 with embeddings of packages alone (.761), all "
    "three without `neighbor_classes` and an earlier skip-gram (.782, .772, .763).",
)
