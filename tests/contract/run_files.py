"""One graph with all that kinds of models learn from, and a small run file for each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["MODELS", "TASKS", "run_file", "write_tables"]

USERS, ITEMS, PLACES, ROWS = 90, 40, 36, 160
TASTES = 3

GRAPH: dict[str, Any] = {
    "name": "town",
    "nodes": {
        "user": {"path": "user.parquet", "features": {"taste": "categorical", "x": "vector"}},
        "item": {"path": "item.parquet"},
        "place": {},
        "row": {
            "path": "row.parquet",
            "id": None,
            "features": {
                "who": "categorical",
                "price": "number",
                "met": "slots",
                "clicked": "boolean",
                "bought": "categorical",
            },
        },
    },
    "edges": [
        {"type": ["user", "knows", "user"], "path": "knows.parquet", "reverse": "known_by"},
        {
            "type": ["user", "buys", "item"],
            "path": "buys.parquet",
            "timestamp": "time",
            "reverse": "bought_by",
        },
        {
            "type": ["place", "near", "place"],
            "path": "near.parquet",
            "features": {"relation": "categorical"},
            "keep_duplicates": True,
        },
    ],
}

TASKS: dict[str, dict[str, Any]] = {
    "taste": {"kind": "classify", "node_type": "user", "label": "taste"},
    "friend": {"kind": "recommend", "node_type": "user", "relations": ["knows"], "k": 5},
    "item": {
        "kind": "recommend",
        "node_type": "user",
        "target_type": "item",
        "relations": ["buys"],
        "validation_fraction": 0.2,
        "k": 5,
    },
    "sale": {
        "kind": "predict_links",
        "node_type": "user",
        "target_type": "item",
        "relations": ["buys"],
        "split": {"kind": "time"},
    },
    "following": {
        "kind": "next",
        "node_type": "user",
        "target_type": "item",
        "relations": ["buys"],
        "k": 5,
    },
    "route": {
        "kind": "complete",
        "relations": [["place", "near", "place"]],
        "relation_feature": "relation",
        "split": {"kind": "random"},
    },
    "click": {
        "kind": "click",
        "node_type": "row",
        "label": "clicked",
        "also": [{"label": "bought"}],
        "split": {"kind": "random"},
    },
}
"""Without baselines, see :func:`run_file`."""

_BUYS, _KNOWS = ["user", "buys", "item"], ["user", "knows", "user"]
_WALKS = {"task": "taste", "dim": 8, "epochs": 2, "batch_size": 32}
_ROUTES = {"task": "route", "dim": 8, "epochs": 2, "batch_size": 32, "candidates": 24, "validate_every": 1}
_ITEMS = {"task": "item", "dim": 8, "epochs": 2, "batch_size": 32, "validate_every": 1}
_NEXT = {"task": "following", "dim": 8, "epochs": 2, "batch_size": 32, "candidates": 24, "dropout": 0.0}
_CLICKS = {"task": "click", "dim": 4, "hidden": [8], "epochs": 2, "batch_size": 32, "dropout": 0.0}

MODELS: dict[str, dict[str, Any]] = {
    "deepwalk": {**_WALKS, "edge_types": [_BUYS, _KNOWS], "walk_length": 10},
    "node2vec": {**_WALKS, "edge_types": [_KNOWS], "walk_length": 10, "p": 0.5},
    "metapath2vec": {
        **_WALKS,
        "metapaths": [[_BUYS, ["item", "bought_by", "user"]]],
        "walks_per_node": 4,
    },
    "line": {**_WALKS, "edge_types": [_KNOWS], "orders": [1]},
    "gnn": {
        "task": "taste",
        "dim": 8,
        "epochs": 2,
        "batch_size": 16,
        "num_neighbors": [64, 64],
        "relations": [_BUYS, _KNOWS],
        "embeddings": ["user", "item"],
        "dropout": 0.0,
    },
    "mlp": {
        "task": "taste",
        "dim": 8,
        "epochs": 2,
        "batch_size": 16,
        "embeddings": ["user"],
        "dropout": 0.0,
    },
    "module": {
        "task": "taste",
        "model": "tests.train.own_modules:Classifier",
        "relations": [_BUYS, _KNOWS],
        "num_neighbors": [64],
        "epochs": 2,
        "batch_size": 16,
    },
    "sage": {
        "task": "friend",
        "dim": 8,
        "epochs": 2,
        "batch_size": 16,
        "candidates": 24,
        "validate_every": 1,
        "relations": [_KNOWS],
    },
    "pinsage": {
        **_ITEMS,
        "validate_every": 2,
        "edge_types": [_BUYS, _KNOWS],
        "num_neighbors": 5,
        "negatives": 20,
        "hard_negative_ranks": [3, 30],
    },
    "two_tower": {**_ITEMS, "negatives": 8, "row_dropout": 0.0},
    "lightgcn": {**_ITEMS, "candidates": 24, "temperature": 0.2},
    "matrix_factorization": {**_ITEMS, "candidates": 24, "temperature": 0.2},
    "deepfm": _CLICKS,
    "dcn": _CLICKS,
    "wide_and_deep": {**_CLICKS, "crosses": [["who", "price"]]},
    "din": {**_CLICKS, "interests": [{"history": "met", "target": "who"}], "window": 3, "attention": [6]},
    "mmoe": {**_CLICKS, "experts": 3, "tower": [6]},
    "distmult": _ROUTES,
    "complex": _ROUTES,
    "transe": _ROUTES,
    "rotate": _ROUTES,
    "temporal": {"task": "sale", "dim": 8, "epochs": 2, "batch_size": 32},
    "sasrec": {**_NEXT, "window": 6, "validate_every": 1},
    "gru4rec": {**_NEXT, "window": 6, "hidden": 12, "validate_every": 1},
    "comirec": {**_NEXT, "window": 6, "hidden": 12, "interests": 3, "validate_every": 1},
}
"""Settings of a small model of each kind, without ``kind``."""


def run_file(kind: str) -> dict[str, Any]:
    """Return the run file that trains and exports a model of a kind, named as the kind."""
    model = MODELS[kind]
    task = model["task"]
    return {
        "version": 1,
        "name": kind.replace("_", "-"),
        "seed": 3,
        "threads": 1,
        "graph": GRAPH,
        "tasks": {task: {**TASKS[task], "baselines": []}},
        "models": {kind: {"kind": kind, **model}},
        "export": {kind: {"model": kind}},
    }


def write_tables(folder: Path) -> None:
    """Write the tables of the graph and all run files; a run file is JSON, which YAML includes."""
    generator = np.random.default_rng(0)
    taste = np.arange(USERS) % TASTES
    vectors = generator.normal(size=(USERS, 6)).astype(np.float32)
    vectors[:, :TASTES] += 2 * np.eye(TASTES)[taste]
    buyer = generator.integers(0, USERS, 600)
    item = taste[buyer] + TASTES * generator.integers(0, ITEMS // TASTES, 600)
    knower = generator.integers(0, USERS, 400)
    known = (knower + TASTES * generator.integers(1, USERS // TASTES, 400)) % USERS
    place = np.arange(PLACES)
    steps = {"east": 1, "north": 6, "northeast": 7}
    who, price = generator.integers(0, 12, ROWS), generator.random(ROWS)
    clicked = generator.random(ROWS) < 0.2 + 0.6 * (who % 2)
    bought = np.where(generator.random(ROWS) < price, "no", "yes")
    tables: dict[str, dict[str, Any]] = {
        "user": {
            "id": [f"u{each}" for each in range(USERS)],
            "taste": [f"taste-{each}" for each in taste],
            "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        },
        "item": {"id": [f"i{each}" for each in range(ITEMS)]},
        "buys": {
            "source": [f"u{each}" for each in buyer],
            "target": [f"i{each}" for each in item],
            "time": np.arange(len(buyer)),
        },
        "knows": {"source": [f"u{each}" for each in knower], "target": [f"u{each}" for each in known]},
        "near": {
            "source": [f"p{each}" for step in steps.values() for each in place],
            "target": [f"p{each}" for step in steps.values() for each in (place + step) % PLACES],
            "relation": [name for name in steps for _ in place],
        },
        "row": {
            "who": [f"w{each}" for each in who],
            "price": price,
            "met": [[f"w{(each + 5 * step) % 12}" for step in range(each % 5)] for each in who],
            "clicked": clicked,
            "bought": pa.array(bought, mask=~clicked),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    for kind in MODELS:
        (folder / f"{kind}.yaml").write_text(json.dumps(run_file(kind)))
