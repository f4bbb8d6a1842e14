"""Predictions of `graphbox plan` for trainings beside measurements: the peak resident memory of the process.

Five sizes for each kind of model, each training by the command line in a process of its own, over a graph
that is there already. One line for each figure: `system` is `plan` for predictions and `graphbox` for
measurements, `off` their relation.

    python -m benchmarks.plan_training [--quick] [--json] [--only KIND] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.plan import Figure
from graphbox.config import load_config
from graphbox.graph import Graph
from graphbox.train.plan import GraphCounts, plan_trainings

SIZES = (5_000, 10_000, 20_000, 40_000, 80_000)
QUICK_SIZES = (10_000, 40_000)

_EDGES_PER_NODE = 8
_TRIPLES_PER_NODE = 4

Table = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A graph of any size, and the tasks over it.

    Attributes:
        tables: gives its tables by name, for a number of nodes.
        graph: the section ``graph`` of a run file, but for its name.
        tasks: the sections of its tasks.
    """

    tables: Callable[[int, np.random.Generator], Mapping[str, Table]]
    graph: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Any]]

    def write(self, folder: Path, nodes: int, seed: int = 0) -> None:
        """Write the tables into a folder."""
        for name, columns in self.tables(nodes, np.random.default_rng(seed)).items():
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def _links(nodes: int, generator: np.random.Generator) -> Mapping[str, Table]:
    """Return nodes with a label and a vector, and eight times as many edges between them."""
    vectors = generator.random((nodes, 16), dtype=np.float32)
    ends = generator.integers(0, nodes, (2, _EDGES_PER_NODE * nodes))
    return {
        "nodes": {
            "id": np.arange(nodes),
            "label": [f"class-{each}" for each in generator.integers(0, 8, nodes)],
            "x": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 16),
        },
        "edges": {
            "source": ends[0],
            "target": ends[1],
            "amount": generator.random(len(ends[0])),
            "kind": [f"k{each}" for each in generator.integers(0, 9, len(ends[0]))],
        },
    }


def _triples(nodes: int, generator: np.random.Generator) -> Mapping[str, Table]:
    """Return four times as many triples as entities, of 20 relations."""
    ends = generator.integers(0, nodes, (2, _TRIPLES_PER_NODE * nodes))
    relation = [f"r{each}" for each in generator.integers(0, 20, _TRIPLES_PER_NODE * nodes)]
    return {"triples": {"source": ends[0], "target": ends[1], "relation": relation}}


def _events(nodes: int, generator: np.random.Generator) -> Mapping[str, Table]:
    """Return users and a quarter as many items, and 5,000 events and one for twenty users between them."""
    count = 5_000 + nodes // 20
    return {
        "users": {"id": np.arange(nodes)},
        "items": {"id": np.arange(nodes // 4)},
        "events": {
            "source": generator.integers(0, nodes, count),
            "target": generator.integers(0, nodes // 4, count),
            "time": np.arange(count),
        },
    }


def _histories(nodes: int, generator: np.random.Generator) -> Mapping[str, Table]:
    """Return users, a quarter as many items, and eight times as many events between them."""
    count = _EDGES_PER_NODE * nodes
    return {
        "events": {
            "source": generator.integers(0, nodes, count),
            "target": generator.integers(0, nodes // 4, count),
            "time": np.arange(count),
        },
    }


def _log(rows: int, generator: np.random.Generator) -> Mapping[str, Table]:
    """Return rows with a user, a place, a price and three things seen before; a fifth are clicked."""
    offsets = pa.array(np.arange(0, 3 * rows + 1, 3), pa.int32())
    seen = pa.array([f"i{each}" for each in generator.integers(0, rows, 3 * rows)])
    return {
        "rows": {
            "user": [f"u{each}" for each in generator.integers(0, rows // 2, rows)],
            "place": [f"p{each}" for each in generator.integers(0, 200, rows)],
            "price": generator.random(rows),
            "seen": pa.ListArray.from_arrays(offsets, seen),
            "clicked": generator.random(rows) < 0.2,
        }
    }


def _visits(rows: int, generator: np.random.Generator) -> Mapping[str, Table]:
    """Return rows with a place and twenty places seen before; a fifth are clicked."""
    names = pa.array([f"p{each}" for each in range(200)])
    offsets = pa.array(np.arange(0, 20 * rows + 1, 20), pa.int32())
    place, before = (pa.array(generator.integers(0, 200, count)) for count in (rows, 20 * rows))
    return {
        "rows": {
            "place": names.take(place),
            "places": pa.ListArray.from_arrays(offsets, names.take(before)),
            "clicked": generator.random(rows) < 0.2,
        }
    }


WORLDS: Mapping[str, World] = {
    "links": World(
        _links,
        {
            "nodes": {"node": {"path": "nodes.parquet", "features": {"label": "categorical", "x": "vector"}}},
            "edges": [
                {
                    "type": ["node", "links", "node"],
                    "path": "edges.parquet",
                    "features": {"amount": "number", "kind": "categorical"},
                }
            ],
        },
        {
            "next": {
                "kind": "recommend",
                "node_type": "node",
                "relations": ["links"],
                "baselines": ["popular"],
            },
            "class": {"kind": "classify", "node_type": "node", "label": "label"},
            "told": {"kind": "predict_links", "node_type": "node", "relations": ["links"], "baselines": []},
        },
    ),
    "histories": World(
        _histories,
        {
            "nodes": {"user": {}, "item": {}},
            "edges": [
                {
                    "type": ["user", "buys", "item"],
                    "path": "events.parquet",
                    "timestamp": "time",
                    "keep_duplicates": True,
                }
            ],
        },
        {
            "following": {
                "kind": "next",
                "node_type": "user",
                "target_type": "item",
                "relations": ["buys"],
                "baselines": [],
            }
        },
    ),
    "triples": World(
        _triples,
        {
            "nodes": {"entity": {}},
            "edges": [
                {
                    "type": ["entity", "known", "entity"],
                    "path": "triples.parquet",
                    "features": {"relation": "categorical"},
                    "keep_duplicates": True,
                }
            ],
        },
        {"links": {"kind": "complete", "relation_feature": "relation", "baselines": ["popular"]}},
    ),
    "events": World(
        _events,
        {
            "nodes": {"user": {"path": "users.parquet"}, "item": {"path": "items.parquet"}},
            "edges": [
                {
                    "type": ["user", "buys", "item"],
                    "path": "events.parquet",
                    "timestamp": "time",
                    "keep_duplicates": True,
                }
            ],
        },
        {
            "bought": {
                "kind": "predict_links",
                "node_type": "user",
                "target_type": "item",
                "relations": ["buys"],
                "split": {"kind": "time"},
                "baselines": [],
            }
        },
    ),
    "log": World(
        _log,
        {
            "nodes": {
                "row": {
                    "path": "rows.parquet",
                    "id": None,
                    "features": {
                        "user": "categorical",
                        "place": "categorical",
                        "price": "number",
                        "seen": "slots",
                        "clicked": "boolean",
                    },
                }
            },
            "edges": [],
        },
        {"click": {"kind": "click", "node_type": "row", "label": "clicked", "baselines": ["prior"]}},
    ),
    "visits": World(
        _visits,
        {
            "nodes": {
                "row": {
                    "path": "rows.parquet",
                    "id": None,
                    "features": {"place": "categorical", "places": "slots", "clicked": "boolean"},
                }
            },
            "edges": [],
        },
        {"click": {"kind": "click", "node_type": "row", "label": "clicked", "baselines": ["prior"]}},
    ),
}


@dataclass(frozen=True)
class Case:
    """A kind of model, trained as briefly as its memory allows.

    Attributes:
        world: the graph.
        model: its section of the run file.
        nodes: how many times as many nodes as of other cases.
    """

    world: str
    model: Mapping[str, Any]
    nodes: int = 1


_SHORT_WALKS = {"walks_per_node": 4, "walk_length": 10, "window": 2, "epochs": 1}
_RANKED = {"task": "next", "epochs": 1, "batch_size": 8192, "candidates": 512, "temperature": 0.2}
_LINKS = {"holdout_fraction": 0.02, "negatives": 64}
_CLICK = {"task": "click", "epochs": 1, "batch_size": 8192}

_OF_EDGES = {
    "kind": "gnn",
    "task": "class",
    "epochs": 2,
    "edge_features": {"node__links__node": ["amount", "kind"]},
}
CASES: Mapping[str, Case] = {
    "deepwalk": Case("links", {"kind": "deepwalk", **_SHORT_WALKS}, 2),
    "node2vec": Case("links", {"kind": "node2vec", "q": 0.5, **_SHORT_WALKS}, 2),
    "line": Case("links", {"kind": "line", "epochs": 1, "batch_size": 8192}, 2),
    "metapath2vec": Case(
        "links", {"kind": "metapath2vec", "metapaths": [[["node", "links", "node"]]], "epochs": 1}, 2
    ),
    "lightgcn": Case("links", {"kind": "lightgcn", **_RANKED}),
    "matrix_factorization": Case("links", {"kind": "matrix_factorization", **_RANKED}),
    "sage": Case(
        "links",
        {"kind": "sage", "task": "next", "epochs": 1, "holdout_fraction": 0.02, "batch_size": 1024},
    ),
    "pinsage": Case("links", {"kind": "pinsage", "task": "next", "epochs": 2, "holdout_fraction": 0.02}),
    "two_tower": Case("links", {"kind": "two_tower", "task": "next", "epochs": 1, "batch_size": 4096}),
    "gnn": Case("links", {"kind": "gnn", "task": "class", "layer": "sage", "epochs": 2}),
    "gnn_propagation": Case(
        "links", {"kind": "gnn", "task": "class", "layer": "appnp", "layers": 10, "epochs": 2}
    ),
    "gnn_gcn": Case("links", {"kind": "gnn", "task": "class", "layer": "gcn", "layers": 3, "epochs": 2}),
    "gnn_gcn2": Case("links", {"kind": "gnn", "task": "class", "layer": "gcn2", "layers": 8, "epochs": 2}),
    "gnn_edges": Case("links", {"layer": "gine", **_OF_EDGES}),
    "gnn_edges_attention": Case("links", {"layer": "gatv2", **_OF_EDGES}),
    "gnn_sampled": Case(
        "links",
        {
            "kind": "gnn",
            "task": "class",
            "epochs": 1,
            "batch_size": 2048,
            "num_neighbors": [5, 5],
            "embeddings": ["node"],
        },
    ),
    "gnn_recommend": Case(
        "links", {"kind": "gnn", "task": "next", "epochs": 1, "batch_size": 1 << 20, "links": _LINKS}
    ),
    "gnn_predict_links": Case(
        "links", {"kind": "gnn", "task": "told", "epochs": 1, "batch_size": 1 << 20, "links": _LINKS}
    ),
    "mlp": Case("links", {"kind": "mlp", "task": "class", "epochs": 1, "batch_size": 8192}, 4),
    "mlp_rows": Case(
        "links", {"kind": "mlp", "task": "class", "epochs": 1, "batch_size": 8192, "embeddings": ["node"]}, 4
    ),
    "complex": Case(
        "triples", {"kind": "complex", "task": "links", "epochs": 1, "batch_size": 512, "dim": 64}
    ),
    "transe": Case("triples", {"kind": "transe", "task": "links", "epochs": 1, "batch_size": 512, "dim": 64}),
    "sasrec": Case("histories", {"kind": "sasrec", "task": "following", "epochs": 1}),
    "gru4rec": Case("histories", {"kind": "gru4rec", "task": "following", "epochs": 1}),
    "comirec": Case("histories", {"kind": "comirec", "task": "following", "epochs": 1}),
    "temporal": Case("events", {"kind": "temporal", "task": "bought", "epochs": 1}, 2),
    "deepfm": Case("log", {"kind": "deepfm", **_CLICK}, 4),
    "dcn": Case("log", {"kind": "dcn", **_CLICK}, 4),
    "wide_and_deep": Case("log", {"kind": "wide_and_deep", "crosses": [["user", "place"]], **_CLICK}, 4),
    "din": Case(
        "visits",
        {
            "kind": "din",
            "interests": [{"history": "places", "target": "place"}],
            "window": 20,
            "task": "click",
            "epochs": 1,
            "batch_size": 512,
        },
        4,
    ),
    "mmoe": Case("log", {"kind": "mmoe", **_CLICK}, 4),
}


def run_file(folder: Path, name: str, **changes: Any) -> Path:
    """Write the run file of a case and return its path; JSON is YAML.

    Args:
        folder: that of the tables.
        name: of the case.
        **changes: other values of keys of its model.
    """
    case = CASES[name]
    world, model = WORLDS[case.world], {**case.model, **changes}
    document = {
        "version": 1,
        "name": name.replace("_", "-"),
        "threads": 1,
        "graph": {"name": case.world, **world.graph},
        "tasks": {model["task"]: world.tasks[model["task"]]} if "task" in model else {},
        "models": {name: model},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(document))
    return path


def compare(folder: Path, name: str) -> Figure:
    """Train a case in a process of its own, and return the most it took beside what its plan says.

    Args:
        folder: tables of the case's world, and the workspace with its graph.
        name: of the case.
    """
    path = run_file(folder, name)
    workspace = folder / "workspace"
    graph = Graph.open(workspace / "graphs" / CASES[name].world)
    plan = plan_trainings(load_config(path), GraphCounts.of(graph))[name]
    report = _graphbox(["-C", str(workspace), "train", str(path), "--fresh", "--json", "-q"])
    (taken,) = (stage["peak_bytes"] for stage in report["stages"] if stage["name"] == "train")
    nodes = sum(graph.num_nodes(each) for each in graph.node_types)
    predicted = 0 if plan is None else plan.peak_bytes
    return Figure(f"train {name}, {nodes:,} nodes: peak memory", "bytes", predicted, taken)


def _graphbox(options: list[str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "graphbox", *options], capture_output=True, text=True, check=False
    )
    if done.returncode or not done.stdout:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout)


def figures(names: list[str], sizes: tuple[int, ...], folder: Path) -> Iterator[Figure]:
    """Yield the figures of some cases at some sizes; graphs are kept in ``folder`` for the next."""
    for size in sizes:
        for name in names:
            nodes = size * CASES[name].nodes
            place = folder / f"{CASES[name].world}-{nodes}"
            if not place.exists():
                place.mkdir()
                WORLDS[CASES[name].world].write(place, nodes)
                workspace = ["-C", str(place / "workspace")]
                _graphbox([*workspace, "import", str(run_file(place, name)), "--json", "-q"])
            yield compare(place, name)


def main() -> None:
    """Compare all cases at all sizes and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes")
    parser.add_argument("--json", action="store_true", help="a JSON document on each line")
    parser.add_argument("--only", choices=list(CASES), action="append", help="one of the kinds")
    parser.add_argument("--folder", type=Path, help="where graphs are kept for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for figure in figures(options.only or list(CASES), QUICK_SIZES if options.quick else SIZES, folder):
            if options.json:
                for line in figure.lines():
                    print(json.dumps(line), flush=True)
                continue
            print(
                f"{figure.case:60} predicted {figure.predicted:16,.0f} measured {figure.measured:16,.0f} "
                f"{figure.predicted / figure.measured:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
