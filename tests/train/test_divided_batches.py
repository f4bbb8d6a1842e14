"""Models whose queries share candidates, in 2 and 3 processes beside one: losses, rows, parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.graph import Graph
from graphbox.graph.ingest import import_graph
from graphbox.train import fit, load_outcome, load_split, load_trained, make_split, save_split
from tests.table.distributed_processes import Processes
from tests.train import test_click
from tests.train.atlas import build_atlas
from tests.train.divided_training import Learnt, learnt, section_of, task_of
from tests.train.shop import build_shop

TRIPLES = {
    "kind": "complete",
    "relations": [["place", "links", "place"]],
    "relation_feature": "relation",
    "split": {"kind": "given", "feature": "part"},
}
OF_TWO_TYPES = {
    "kind": "complete",
    "relations": [["place", "known", "place"], ["place", "lies_in", "country"]],
    "split": {"kind": "random"},
}
LINKS = {
    "kind": "predict_links",
    "node_type": "user",
    "target_type": "item",
    "relations": ["bought"],
    "validation_fraction": 0.2,
}
BUYS = {
    "kind": "recommend",
    "node_type": "user",
    "target_type": "item",
    "relations": ["bought"],
    "validation_fraction": 0.2,
    "k": 5,
}
CLICKS = test_click.TASK.model_dump(mode="json")
ENTITIES: dict[str, Any] = {"dim": 8, "epochs": 2, "batch_size": 32, "candidates": 24, "validate_every": 2}
FACTORS: dict[str, Any] = {"kind": "matrix_factorization", **ENTITIES, "batch_size": 40, "temperature": 0.2}
CLICK: dict[str, Any] = {
    "dim": 4,
    "hidden": [8],
    "batch_size": 16,
    "epochs": 2,
    "dropout": 0.0,
    "row_dropout": 0.0,
    "row_decay": 1e-3,
}
NETWORK: dict[str, Any] = {
    "kind": "gnn",
    "dim": 8,
    "num_neighbors": [1000, 1000],
    "batch_size": 64,
    "epochs": 2,
    "dropout": 0.0,
    "clip_norm": 1.0,
    "links": {"negatives": 40},
}

# Name: graph, task, settings of the model.
MODELS: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "distmult": ("atlas", TRIPLES, {"kind": "distmult", **ENTITIES, "regularization": 0.1, "dropout": 0.2}),
    "complex": ("atlas", TRIPLES, {"kind": "complex", **ENTITIES, "loss": "softmax", "reciprocal": False}),
    "transe": (
        "atlas",
        TRIPLES,
        {"kind": "transe", **ENTITIES, "loss": "self_adversarial", "regularization": 0.05, "distance": "sum"},
    ),
    "rotate": ("atlas", OF_TWO_TYPES, {"kind": "rotate", **ENTITIES, "distance": "sum"}),
    "single_queries": ("atlas", TRIPLES, {"kind": "rotate", **ENTITIES, "batch_size": 2, "epochs": 1}),
    "softmax": ("shop", BUYS, {**FACTORS, "contrast": 0.2}),
    "pairs": ("shop", BUYS, {**FACTORS, "loss": "nce", "popularity": 0.0, "candidates": 5}),
    "within_one_type": ("small", {}, {**FACTORS, "loss": "bpr"}),
    "no_answers_for_some": ("shop", BUYS, {**FACTORS, "epochs": 1, "batch_size": 2, "contrast": 0.2}),
    "sage": ("small", {}, {"kind": "sage", **ENTITIES, "features": ["topic", "size"], "num_neighbors": 4}),
    "sage_of_single_queries": ("small", {}, {"kind": "sage", **ENTITIES, "batch_size": 2, "epochs": 1}),
    "pinsage": (
        "shop",
        BUYS,
        {
            "kind": "pinsage",
            "dim": 8,
            "epochs": 2,
            "batch_size": 40,
            "negatives": 24,
            "hard_negative_ranks": [3, 30],
        },
    ),
    "two_tower": (
        "shop",
        BUYS,
        {"kind": "two_tower", "dim": 8, "epochs": 2, "batch_size": 40, "negatives": 24, "row_dropout": 0.0},
    ),
    "links": ("shop", LINKS, NETWORK),
    "links_by_softmax": ("shop", BUYS, {**NETWORK, "layer": "gat"}),
    "links_within_one_type": ("small", {}, {**NETWORK, "links": {"negatives": 2, "loss": "sigmoid"}}),
    "single_links": ("shop", LINKS, {**NETWORK, "batch_size": 1, "epochs": 1, "links": {"negatives": 1}}),
    "deepfm": ("log", CLICKS, {"kind": "deepfm", **CLICK}),
    "single_rows": ("log", CLICKS, {"kind": "dcn", **CLICK, "batch_size": 1, "epochs": 1}),
}


class Learning:
    """The models learnt in one process, and in several when they are asked for."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes, self._folder = processes, folder
        self._divided: dict[tuple[str, int], list[Learnt]] = {}
        self._alone: dict[str, Learnt] = {}
        self._jobs: dict[str, Any] = {}

    def add(self, name: str, graph: Graph, task: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        split = make_split(graph, task_of(task), 0)
        path = self._folder / f"{name}.npz"
        save_split(split, path)
        self._jobs[name] = {
            "graph": str(graph.path),
            "split": str(path),
            "config": dict(config),
            "task": dict(task),
        }
        self._alone[name] = learnt(graph, split, config, task)

    def job(self, name: str) -> Any:
        return self._jobs[name]

    def fit(self, name: str, size: int, run: Path, stop_after: int) -> list[bool]:
        """Train one of the models by the loop, and return of each process whether it was stopped."""
        job = self._jobs[name]
        folder = run.with_name(f"{run.name}-of-{size}")
        return self._processes.run("fits", size, folder, model=job, run=str(run), stop_after=stop_after)

    def alone(self, name: str) -> Learnt:
        return self._alone[name]

    def divided(self, name: str, size: int) -> list[Learnt]:
        """Return what each process ended with; all models are trained by the first to be asked for."""
        if (name, size) not in self._divided:
            folder = self._folder / f"of-{size}"
            jobs = self._folder / "models.json"
            jobs.write_text(json.dumps(self._jobs))
            self._processes.run("trains", size, folder, models=str(jobs))
            for each in self._jobs:
                found = [dict(np.load(folder / f"{each}-{rank}.npz")) for rank in range(size)]
                self._divided[each, size] = found
        return self._divided[name, size]


@pytest.fixture(scope="module")
def learning(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, recommend_task: Any
) -> Iterator[Learning]:
    folder = tmp_path_factory.mktemp("divided")
    import_graph(test_click.source_of(test_click.log_table(120)), folder / "log")
    graphs = {
        "atlas": build_atlas(folder / "atlas"),
        "shop": build_shop(folder / "shop"),
        "small": graph,
        "log": Graph.open(folder / "log"),
    }
    with Processes("tests.train.divided_training") as processes:
        made = Learning(processes, folder)
        for name, (of_graph, task, config) in MODELS.items():
            made.add(name, graphs[of_graph], task or recommend_task.model_dump(mode="json"), config)
        yield made


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_several_processes_learn_what_one_learns(learning: Learning, name: str, size: int) -> None:
    expected, parts = learning.alone(name), learning.divided(name, size)
    for found in parts:
        np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-4)
        np.testing.assert_allclose(found["figures"], expected["figures"], atol=2e-3)
        np.testing.assert_array_equal(found["figures"], parts[0]["figures"])
    assert np.isfinite(expected["losses"]).all()
    for entry, value in expected.items():
        if name == "links_by_softmax" and entry == "dense.model.head.offset":
            continue  # a softmax is the same with any
        if entry.startswith("dense."):
            for found in parts:
                np.testing.assert_array_equal(found[entry], parts[0][entry], err_msg=entry)
            # Adam makes a whole step of a gradient that is nothing but rounding.
            np.testing.assert_allclose(parts[0][entry], value, rtol=1e-2, atol=1e-2, err_msg=entry)
        if entry.startswith("rows."):
            keys = entry.replace("rows.", "keys.")
            every = np.concatenate([found[keys] for found in parts])
            rows = np.concatenate([found[entry] for found in parts])[np.argsort(every)]
            np.testing.assert_array_equal(np.sort(every), expected[keys])
            np.testing.assert_allclose(rows, value, rtol=1e-2, atol=1e-3, err_msg=entry)


@pytest.mark.parametrize("name", ["distmult", "softmax", "sage", "links"])
def test_a_stopped_training_goes_on_in_another_number_of_processes(
    learning: Learning, name: str, tmp_path: Path
) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    job = learning.job(name)
    expected = fit(
        Graph.open(job["graph"]),
        load_split(Path(job["split"])),
        name="model",
        config=section_of(job["config"]),
        task=task_of(job["task"]),
        run_folder=one,
        seed=3,
        threads=1,
    )
    assert learning.fit(name, 2, several, stop_after=4) == [True, True]
    assert learning.fit(name, 3, several, stop_after=1000) == [False, False, False]
    found = load_trained(several, "model")
    assert load_outcome(several, "model").steps == load_outcome(one, "model").steps
    assert set(found.embeddings) == set(expected.embeddings)
    for entry, vectors in expected.embeddings.items():
        np.testing.assert_allclose(found.embeddings[entry], vectors, atol=0.01, err_msg=entry)
