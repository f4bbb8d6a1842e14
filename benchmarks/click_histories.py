"""DIN on MovieLens-100k beside the one of torch-rechub, on the same rows.

    pip install --target /tmp/peers --no-deps recbole torch-rechub
    python -m benchmarks.click_histories --peers /tmp/peers --json

recbole carries the ratings as its example. A row is a rating in the order of time, a click one of 4 or 5. It
has the user, the item and its first genre, and as histories the items that the user gave 4 or 5 before, and
their first genres. The first 80 % of the rows are learnt from, the next 10 % choose the epoch, the last 10 %
are tested.

torch-rechub's DIN (Dice, weights that are not normalized) has vectors, layers and windows of the same sizes,
and a trainer of its own: Adam at 0.001. Its weight decay is the best on the validation part of three: its
default, that of its examples, and one between. graphbox's models have their defaults but for these sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
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
from graphbox.pipeline import run
from graphbox.workspace import Workspace

_DIM, _WINDOW, _HIDDEN, _ATTENTION = 16, 20, (128, 64), (64, 16)
_WEIGHT_DECAYS = (1e-5, 1e-4, 1e-3)
_FIELDS = ("user", "item", "genre")
Columns = dict[str, Any]


def read_rows(folder: Path, window: int = _WINDOW) -> Columns:
    """Return the ratings in the order of time, with what the user liked before each."""
    genres = {row[0]: row[3].split(" ")[0] for row in _cells(folder / "ml-100k.item")}
    ratings = sorted(
        _cells(folder / "ml-100k.inter"), key=lambda row: (int(row[3]), int(row[0]), int(row[1]))
    )
    liked: dict[str, list[str]] = {}
    columns: Columns = {name: [] for name in (*_FIELDS, "items", "genres", "clicked")}
    for user, item, rating, _ in ratings:
        before = liked.setdefault(user, [])
        last = before[-window:]
        values = (user, item, genres[item], list(last), [genres[each] for each in last], float(rating) >= 4)
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
        if columns["clicked"][-1]:
            before.append(item)
    count = len(ratings)
    place = np.searchsorted([0.8 * count, 0.9 * count], np.arange(count), side="right")
    columns["part"] = [PARTS[each] for each in place]
    for name in ("user", "item"):  # ids are integers; lists of them too, see docs/models.md
        columns[name] = list(map(int, columns[name]))
    columns["items"] = [list(map(int, each)) for each in columns["items"]]
    return columns


def _cells(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8") as lines:
        return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def run_file(seed: int, window: int = _WINDOW) -> Columns:
    """Return the run file of graphbox's models."""
    sizes = {"task": "click", "dim": _DIM, "hidden": list(_HIDDEN)}
    pairs = [{"history": "items", "target": "item"}, {"history": "genres", "target": "genre"}]
    kinds = {"user": "categorical", "item": "categorical", "genre": "categorical", "part": "categorical"}
    features = {**kinds, "items": "slots", "genres": "slots", "clicked": "boolean"}
    return {
        "version": 1,
        "name": "movielens",
        "seed": seed,
        "graph": {
            "name": "movielens",
            "nodes": {"row": {"path": "rows.parquet", "id": None, "features": features}},
        },
        "tasks": {
            "click": {
                "kind": "click",
                "node_type": "row",
                "label": "clicked",
                "split": {"kind": "given", "feature": "part"},
            }
        },
        "models": {
            "deepfm": {"kind": "deepfm", **sizes},
            "din": {
                "kind": "din",
                **sizes,
                "interests": pairs,
                "window": window,
                "attention": list(_ATTENTION),
            },
        },
    }


def graphbox_figures(rows: Columns, seed: int) -> dict[str, dict[str, float]]:
    """Return AUC and log loss of the test part, by model and baseline."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pq.write_table(pa.table(rows), folder / "rows.parquet")
        (folder / "run.yaml").write_text(json.dumps(run_file(seed)))
        report = run(folder / "run.yaml", (), Workspace(folder / "workspace"))
    found = {**report.metrics["click"], **report.baselines["click"]}
    return {name: {key: float(each[key]) for key in ("auc", "log_loss")} for name, each in found.items()}


def peer_figures(rows: Columns, seed: int) -> dict[str, float]:
    """Return AUC and log loss of torch-rechub's DIN on the test part."""
    parts = np.array(rows["part"])
    codes = {
        name: _codes(rows, name, lists)
        for name, lists in (("user", ""), ("item", "items"), ("genre", "genres"))
    }
    inputs = {name: each for found, _ in codes.values() for name, each in found.items()}
    sizes = {name: size for name, (_, size) in codes.items()}
    labels = np.array(rows["clicked"], np.float32)
    best, found = -1.0, {"auc": 0.0, "log_loss": 0.0}
    for weight_decay in _WEIGHT_DECAYS:
        probabilities = _train_peer(inputs, labels, parts, sizes, weight_decay, seed)
        validation = float(roc_auc_score(labels[parts == "validation"], probabilities["validation"]))
        if validation > best:
            best, test = validation, labels[parts == "test"]
            found = {
                "auc": float(roc_auc_score(test, probabilities["test"])),
                "log_loss": float(log_loss(test, probabilities["test"])),
                "weight_decay": weight_decay,
            }
    return found


def _codes(rows: Columns, name: str, lists: str) -> tuple[dict[str, NDArray[np.int64]], int]:
    """Return a column, and lists of the same things padded at the end, as numbers from 1; and how many."""
    number = {value: place for place, value in enumerate(sorted(set(rows[name])), start=1)}
    found = {name: np.array([number[each] for each in rows[name]])}
    if lists:
        padded = np.zeros((len(rows[name]), _WINDOW), np.int64)
        for place, values in zip(padded, rows[lists], strict=True):
            place[: len(values)] = [number[each] for each in values]
        found[lists] = padded
    return found, len(number) + 1


def _train_peer(
    inputs: dict[str, NDArray[np.int64]],
    labels: NDArray[np.float32],
    parts: NDArray[np.str_],
    sizes: dict[str, int],
    weight_decay: float,
    seed: int,
) -> dict[str, NDArray[np.float64]]:
    features = import_module("torch_rechub.basic.features")
    torch.manual_seed(seed)
    sparse = {
        name: features.SparseFeature(name, vocab_size=size, embed_dim=_DIM) for name, size in sizes.items()
    }
    histories = [
        features.SequenceFeature(
            lists, vocab_size=sizes[name], embed_dim=_DIM, pooling="concat", shared_with=name, padding_idx=0
        )
        for name, lists in (("item", "items"), ("genre", "genres"))
    ]
    model = import_module("torch_rechub.models.ranking").DIN(
        [sparse["user"]],
        histories,
        [sparse["item"], sparse["genre"]],
        mlp_params={"dims": list(_HIDDEN)},
        attention_mlp_params={"dims": list(_ATTENTION)},
    )
    rows = part_rows(inputs, labels, parts)
    trainer, loaders = fit("CTRTrainer", model, [], rows, weight_decay)
    with contextlib.redirect_stdout(io.StringIO()):
        return {
            part: np.array(trainer.predict(trainer.model, loader))
            for part, loader in zip(PARTS[1:], loaders[1:], strict=True)
        }


def main() -> None:
    """Print the figures of all seeds, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=Path, required=True, help="where recbole and torch-rechub are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true", help="a JSON document")
    options = parser.parse_args()
    sys.path.append(str(options.peers))
    rows = read_rows(options.peers / "recbole" / "dataset_example" / "ml-100k")
    found: dict[str, list[dict[str, float]]] = {}
    for seed in options.seeds:
        figures = {**graphbox_figures(rows, seed), "torch-rechub din": peer_figures(rows, seed)}
        for name, each in figures.items():
            found.setdefault(name, []).append(each)
    if options.json:
        print(json.dumps({"graphbox": __version__, "seeds": options.seeds, "figures": found}))
        return
    for name, of_seeds in found.items():
        means = {key: statistics.fmean(each[key] for each in of_seeds) for key in ("auc", "log_loss")}
        print(f"{name:>20}: AUC {means['auc']:.4f}, log loss {means['log_loss']:.4f}")


if __name__ == "__main__":
    main()
