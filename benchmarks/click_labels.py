"""MMoE on the census rows of UCI's "Adult" beside the one of torch-rechub, on the same rows.

    pip install --target /tmp/peers --no-deps torch-rechub
    python -m benchmarks.click_labels --root FOLDER --peers /tmp/peers --json

FOLDER has adult.csv.gz. The labels are those of the paper's census experiment: an income of more than 50,000,
and never married; the models read the other columns. The first 16,281 rows, the official test part, are
tested, every tenth of the others chooses the epoch, by the AUC of the first label.

torch-rechub's MMoE (batch normalization in experts and towers) has vectors, experts, layers and towers of the
same sizes. It reads numbers as graphbox standardizes them, and between which of graphbox's 32 knots they lie.
Its trainer is its own: Adam at 0.001, its weight decay the best on the validation part of three. graphbox's
models have their defaults. `deepfm` learns each label alone.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.rechub import PARTS, fit, part_rows
from graphbox import __version__
from graphbox.models.click_fields import choose_knots
from graphbox.pipeline import run
from graphbox.workspace import Workspace

_DIM, _HIDDEN, _EXPERTS, _TOWER = 16, (128, 64), 4, (32,)
_TEST_ROWS = 16_281
_KNOTS = 32
_WEIGHT_DECAYS = (1e-5, 1e-4, 1e-3)
_LABELS = ("income", "never_married")
_NUMBERS = ("age", "fnlwgt", "educational-num", "capital-gain", "capital-loss", "hours-per-week")
Columns = dict[str, Any]
Figures = dict[str, float]


def read_rows(path: Path) -> Columns:
    """Return the columns, the labels in place of those that they are made of, and the part of each row."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    columns: Columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name in _NUMBERS:
        columns[name] = np.array(columns[name], np.float32)
    columns["income"] = [each == ">50K" for each in columns["income"]]
    columns["never_married"] = [each == "Never-married" for each in columns.pop("marital-status")]
    number = np.arange(len(rows))
    place = np.where(number < _TEST_ROWS, 2, (number % 10 == 0).astype(int))
    columns["part"] = [PARTS[each] for each in place]
    return columns


def _read_columns(rows: Columns) -> list[str]:
    return [name for name in rows if name not in {*_LABELS, "part"}]


def run_file(rows: Columns, seed: int) -> Columns:
    """Return the run file of graphbox's models: of both labels, and of the second one alone."""
    kinds = {name: "number" if name in _NUMBERS else "categorical" for name in _read_columns(rows)}
    features = {**kinds, **dict.fromkeys(_LABELS, "boolean"), "part": "categorical"}
    split = {"kind": "given", "feature": "part"}
    task = {"kind": "click", "node_type": "person", "split": split}
    first, second = _LABELS
    sizes = {"dim": _DIM, "hidden": list(_HIDDEN), "features": list(kinds)}
    return {
        "version": 1,
        "name": "census",
        "seed": seed,
        "graph": {
            "name": "census",
            "nodes": {"person": {"path": "rows.parquet", "id": None, "features": features}},
        },
        "tasks": {
            "both": {**task, "label": first, "also": [{"label": second}]},
            "second": {**task, "label": second, "baselines": []},
        },
        "models": {
            "mmoe": {"kind": "mmoe", "task": "both", **sizes, "experts": _EXPERTS, "tower": list(_TOWER)},
            "deepfm": {"kind": "deepfm", "task": "both", **sizes},
            "deepfm_second": {"kind": "deepfm", "task": "second", **sizes},
        },
    }


def graphbox_figures(rows: Columns, seed: int) -> dict[str, Figures]:
    """Return AUC and log loss of each label on the test part, by model and baseline."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pq.write_table(pa.table(rows), folder / "rows.parquet")
        (folder / "run.yaml").write_text(json.dumps(run_file(rows, seed)))
        report = run(folder / "run.yaml", (), Workspace(folder / "workspace"))
    both = {**report.metrics["both"], **report.baselines["both"]}
    both["deepfm"] = {
        **both["deepfm"],
        **{
            f"{name}.{_LABELS[1]}": value for name, value in report.metrics["second"]["deepfm_second"].items()
        },
    }
    names = [f"{figure}{suffix}" for suffix in ("", f".{_LABELS[1]}") for figure in ("auc", "log_loss")]
    return {model: {name: float(figures[name]) for name in names} for model, figures in both.items()}


def peer_figures(rows: Columns, seed: int) -> Figures:
    """Return AUC and log loss of each label of torch-rechub's MMoE on the test part."""
    parts = np.array(rows["part"])
    labels = np.stack([np.array(rows[name], np.float32) for name in _LABELS], axis=1)
    inputs: dict[str, NDArray[Any]] = {}
    for name in _read_columns(rows):
        values = rows[name]
        if name in _NUMBERS:
            inputs[name], inputs[f"{name} knot"] = _peer_numbers(values, parts == "train")
        else:
            number = {value: place for place, value in enumerate(sorted(set(values)))}
            inputs[name] = np.array([number[each] for each in values])
    best, found = -1.0, Figures()
    for weight_decay in _WEIGHT_DECAYS:
        probabilities = _train_peer(inputs, labels, parts, weight_decay, seed)
        validation = float(roc_auc_score(labels[parts == "validation", 0], probabilities["validation"][:, 0]))
        if validation > best:
            best, found = validation, {"weight_decay": weight_decay}
            for place, suffix in enumerate(("", f".{_LABELS[1]}")):
                test, predicted = labels[parts == "test", place], probabilities["test"][:, place]
                found[f"auc{suffix}"] = float(roc_auc_score(test, predicted))
                found[f"log_loss{suffix}"] = float(log_loss(test, predicted))
    return found


def _peer_numbers(
    values: NDArray[np.float32], is_known: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return numbers standardized after sign(x) log(1 + abs(x)), and between which of graphbox's knots."""
    scaled = np.sign(values) * np.log1p(np.abs(values))
    known = scaled[is_known]
    standardized = ((scaled - known.mean()) / known.std()).astype(np.float32)
    knots = choose_knots(values[is_known].astype(np.float64), _KNOTS)
    return standardized, np.searchsorted(knots, values)


def _train_peer(
    inputs: dict[str, NDArray[Any]],
    labels: NDArray[np.float32],
    parts: NDArray[np.str_],
    weight_decay: float,
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    features = import_module("torch_rechub.basic.features")
    torch.manual_seed(seed)
    columns = [
        features.DenseFeature(name)
        if values.dtype == np.float32
        else features.SparseFeature(name, vocab_size=int(values.max()) + 1, embed_dim=_DIM)
        for name, values in inputs.items()
    ]
    types = ["classification"] * len(_LABELS)
    model = import_module("torch_rechub.models.multi_task").MMOE(
        columns,
        types,
        _EXPERTS,
        expert_params={"dims": list(_HIDDEN)},
        tower_params_list=[{"dims": list(_TOWER)} for _ in _LABELS],
    )
    rows = part_rows(inputs, labels, parts)
    trainer, _ = fit("MTLTrainer", model, [types], rows, weight_decay)
    model.load_state_dict(trainer.early_stopper.best_weights)  # which a training without a stop leaves out
    model.eval()
    with torch.no_grad():
        return {
            part: model({name: torch.from_numpy(each) for name, each in rows[part][0].items()}).numpy()
            for part in PARTS[1:]
        }


def main() -> None:
    """Print the figures of all seeds, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, required=True, help="folder with adult.csv.gz")
    parser.add_argument("--peers", type=Path, required=True, help="where torch-rechub is")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true", help="a JSON document")
    options = parser.parse_args()
    sys.path.append(str(options.peers))
    rows = read_rows(options.root / "adult.csv.gz")
    found: dict[str, list[Figures]] = {}
    for seed in options.seeds:
        figures = {**graphbox_figures(rows, seed), "torch-rechub mmoe": peer_figures(rows, seed)}
        for name, each in figures.items():
            found.setdefault(name, []).append(each)
    if options.json:
        print(json.dumps({"graphbox": __version__, "seeds": options.seeds, "figures": found}))
        return
    for name, of_seeds in found.items():
        means = {
            key: statistics.fmean(each[key] for each in of_seeds)
            for key in of_seeds[0]
            if key != "weight_decay"
        }
        print(f"{name:>20}: {', '.join(f'{key} {value:.4f}' for key, value in means.items())}")


if __name__ == "__main__":
    main()
