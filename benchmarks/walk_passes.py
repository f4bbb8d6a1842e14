"""Accuracy of walks by the number of passes, on block models with hubs: where DeepWalk's default comes from.

``python -m benchmarks.walk_passes [--nodes N] [--degree D] [--passes 4 8 16]``. Prints JSON lines: ``case``,
``system`` (passes; ``graph`` is what the graph decides), ``micro_f1`` of a logistic regression on half of the
nodes, the mean of three splits, and ``seconds``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.quality_data.frozen import split_f1
from graphbox.config import DeepWalkConfig
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.train import embed
from graphbox.train.choosing.facts import facts_of

_EXPONENT = 1.5
"""Of the power law of the nodes' weights, cut at the root of their number."""


def block_model(
    nodes: int, classes: int, degree: float, outside: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges of a degree-corrected block model, and the class of each node.

    Nodes draw partners in proportion to weights with a power law; 70 % of those that are not from anywhere
    are of the node's class, the others of a second class that it has (Karrer and Newman, Phys. Rev. E 2011).

    Args:
        nodes: number of nodes.
        classes: number of classes.
        degree: edges of a node before equal ones are joined, about.
        outside: share of the partners that are drawn from all nodes.
        seed: of all draws.

    Returns:
        Edges, int64 [e, 2], each pair once; classes, int64 [nodes].
    """
    random = np.random.default_rng(seed)
    weight = np.minimum((1 - random.random(nodes)) ** (-1 / _EXPONENT), nodes**0.5)
    own, second = random.integers(0, classes, nodes), random.integers(0, classes, nodes)
    source = random.choice(nodes, int(nodes * degree / 2), p=weight / weight.sum())
    target = random.choice(nodes, len(source), p=weight / weight.sum())
    is_inside = random.random(len(source)) >= outside
    wanted = np.where(random.random(len(source)) < 0.7, own[source], second[source])
    for number in range(classes):
        members, places = np.flatnonzero(own == number), is_inside & (wanted == number)
        share = weight[members] / weight[members].sum()
        target[places] = random.choice(members, int(places.sum()), p=share)
    edges = np.unique(np.sort(np.stack([source, target], axis=1), axis=1), axis=0)
    return edges[edges[:, 0] != edges[:, 1]], own


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--degree", type=float, default=78.0)
    parser.add_argument("--outside", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", type=int, nargs="*", default=[2, 4, 8, 16, 32])
    asked = parser.parse_args()
    edges, classes = block_model(asked.nodes, asked.classes, asked.degree, asked.outside, asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        graph = _imported(edges, Path(folder))
        labels = classes[np.asarray(graph.ids("node")).astype(np.int64)]
        (suggested,) = DeepWalkConfig(kind="deepwalk").suggestions(facts_of(graph, None))
        passes: dict[str, int] = {str(each): each for each in asked.passes}
        passes["graph"] = int(suggested.settings["epochs"])
        for system, epochs in passes.items():
            began = time.monotonic()
            rows = embed(graph, DeepWalkConfig(kind="deepwalk", epochs=epochs), seed=asked.seed)["node"]
            seconds = time.monotonic() - began
            micro, _ = split_f1(rows, labels, 0.5, splits=3)
            case = f"{asked.nodes} nodes, {len(edges)} edges"
            found = {"case": case, "system": system, "epochs": epochs, "micro_f1": round(micro, 4)}
            print(json.dumps({**found, "seconds": round(seconds, 1)}), flush=True)
    return 0


def _imported(edges: NDArray[np.int64], folder: Path) -> Graph:
    path = folder / "edges.parquet"
    pq.write_table(pa.table({"source": edges[:, 0], "target": edges[:, 1]}), path)
    source = GraphSource("blocks", {"node": NodeSource()}, (EdgeSource(("node", "links", "node"), path),))
    import_graph(source, folder / "graph")
    return Graph.open(folder / "graph")


if __name__ == "__main__":
    sys.exit(main())
