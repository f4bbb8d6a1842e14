"""Training of GraphSAGE on sampled batches of the bundled Debian graph, beside PyTorch Geometric.

The same network (rows of 64 numbers, two layers, each relation its own mean of 10 and 5 neighbours, summed)
classifies packages into sections, by the run file's split by source. `graphbox` trains through its trainer,
PyTorch Geometric as its users do: its own loader, `torch.nn.Embedding`, Adam. Rates are seeds per second,
`accuracy` that on the test part after the last epoch. Ours shows the share of each stage:
`compute` is torch's forward and backward alone.

    python -m benchmarks.train_gnn [--quick] [--json] [--folder FOLDER] [--epochs 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader as PygNeighborLoader
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

import graphbox.demo
from graphbox.config import ClassifyTaskConfig, GraphNetworkConfig, load_config
from graphbox.graph import Graph
from graphbox.graph.ingest import import_graph
from graphbox.pipeline.stages.import_graph import graph_source
from graphbox.train import Assignment, ClassifySplit, GraphView, make_split
from graphbox.train.network.classify import make_graph_network_trainer

CASE = "GraphSAGE, sections of the Debian graph"
DIM, HOPS, BATCH_SIZE = 64, (10, 5), 512
LEARNING_RATE, ROW_LEARNING_RATE = 0.01, 0.05


@dataclass(frozen=True)
class Result:
    """One system: seeds per second of each epoch, accuracy on test, and seconds by stage."""

    system: str
    rates: list[float]
    accuracy: float | None
    stages: Mapping[str, float]


def debian(folder: Path) -> tuple[Graph, ClassifySplit, ClassifyTaskConfig]:
    """Import the bundled graph and return it with the split of its sections."""
    config = load_config(Path(graphbox.demo.__file__).parent / "graphbox.yaml")
    source = graph_source(config.graph)
    source = replace(source, edges=tuple(replace(each, csr=True) for each in source.edges))
    import_graph(source, folder / "debian")
    graph = Graph.open(folder / "debian")
    (task,) = (each for each in config.tasks.values() if isinstance(each, ClassifyTaskConfig))
    split = make_split(graph, task, config.seed)
    assert isinstance(split, ClassifySplit)  # noqa: S101 - for the type checker
    return graph, split, task


def settings(epochs: int) -> GraphNetworkConfig:
    """Return the section of the model."""
    return GraphNetworkConfig.model_validate(
        {
            "kind": "gnn",
            "task": "section",
            "dim": DIM,
            "epochs": epochs,
            "batch_size": BATCH_SIZE,
            "num_neighbors": HOPS,
            "features": {},
            "dropout": 0.5,
            "weight_decay": 0.0,
            "learning_rate": LEARNING_RATE,
            "table_learning_rate": ROW_LEARNING_RATE,
        }
    )


def train_graphbox(
    graph: Graph,
    split: ClassifySplit,
    task: ClassifyTaskConfig,
    config: GraphNetworkConfig,
    batches: int | None = None,
) -> Result:
    """Train with graphbox's trainer, all epochs or the first ``batches`` of each."""
    view = GraphView(graph, split, "train")
    assignment = Assignment("sage", view, split, task, 0, 1)
    trainer = make_graph_network_trainer(config, assignment)
    rates = []
    for epoch in range(config.epochs):
        count = trainer.begin_epoch(epoch)
        if epoch == 1 or config.epochs == 1:
            assignment.clock.restart()  # the first fills caches
        started, seeds = time.perf_counter(), 0
        for batch in range(count if batches is None else min(batches, count)):
            seeds += trainer.train_batch(epoch, batch)[1]
        rates.append(seeds / (time.perf_counter() - started))
    stages = assignment.clock.seconds()
    accuracy = None
    if batches is None:
        logits = trainer.trained("sage", GraphView(graph, split, "test")).logits
        nodes = split.nodes("test")
        assert logits is not None  # noqa: S101 - for the type checker
        accuracy = float((logits[nodes].argmax(axis=1) == split.labels[nodes]).mean())
    return Result("graphbox", rates, accuracy, stages)


class PygNetwork(nn.Module):
    """The same network as PyTorch Geometric's users write it."""

    def __init__(self, data: HeteroData, classes: int) -> None:
        super().__init__()
        self.rows = nn.ModuleDict()
        for name in data.node_types:
            rows = nn.Embedding(int(data[name].num_nodes), DIM)
            nn.init.uniform_(rows.weight, -0.1, 0.1)
            self.rows[name] = rows
        self.layers = nn.ModuleList(
            HeteroConv({each: SAGEConv(DIM, DIM) for each in data.edge_types}, aggr="sum") for _ in HOPS
        )
        self.head = nn.Linear(DIM, classes)

    def forward(self, batch: HeteroData) -> Tensor:
        """Return the logits of all packages of the batch."""
        vectors = {name: self.rows[name](batch[name].n_id) for name in batch.node_types}
        vectors = {name: functional.dropout(each, 0.5, self.training) for name, each in vectors.items()}
        for layer in self.layers:
            found = layer(vectors, batch.edge_index_dict)
            vectors = {
                name: functional.dropout(functional.relu(each), 0.5, self.training)
                for name, each in found.items()
            }
        logits: Tensor = self.head(vectors["package"])
        return logits


def train_pyg(graph: Graph, split: ClassifySplit, epochs: int, batches: int | None = None) -> Result:
    """Train as PyTorch Geometric's users do, all epochs or the first ``batches`` of each."""
    data = HeteroData()
    for name in graph.node_types:
        data[name].num_nodes = graph.num_nodes(name)
    for edge_type in graph.edge_types:
        source, target = graph.csc(edge_type).coo()
        data[edge_type].edge_index = torch.from_numpy(np.stack([source, target]).astype(np.int64))
    torch.manual_seed(0)
    network = PygNetwork(data, len(split.classes))
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    labels = torch.from_numpy(split.labels)

    def loader(fold: str, *, shuffle: bool) -> Any:
        nodes = torch.from_numpy(split.nodes(fold))  # type: ignore[arg-type]
        return PygNeighborLoader(
            data, list(HOPS), ("package", nodes), batch_size=BATCH_SIZE, shuffle=shuffle, num_workers=0
        )

    rates = []
    seeds_of_train = loader("train", shuffle=True)
    for _ in range(epochs):
        started, seeds = time.perf_counter(), 0
        network.train()
        for batch in islice(seeds_of_train, batches):
            size = batch["package"].batch_size
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(batch)[:size], labels[batch["package"].n_id[:size]])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            seeds += size
        rates.append(seeds / (time.perf_counter() - started))
    name = f"torch_geometric {torch_geometric.__version__}"
    if batches is not None:
        return Result(name, rates, None, {})
    network.eval()
    right = total = 0
    with torch.no_grad():
        for batch in loader("test", shuffle=False):
            size = batch["package"].batch_size
            found = network(batch)[:size].argmax(dim=1)
            right += int((found == labels[batch["package"].n_id[:size]]).sum())
            total += size
    return Result(name, rates, right / total, {})


def line_of(result: Result) -> dict[str, Any]:
    """Return what is printed of a result; the first epoch warms up."""
    rates = result.rates[1:] or result.rates
    line: dict[str, Any] = {
        "case": CASE,
        "threads": 1,
        "unit": "seeds/s",
        "repeats": len(rates),
        "system": result.system,
        "rate": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
    }
    if result.accuracy is not None:
        line["accuracy"] = result.accuracy
    total = sum(result.stages.values())
    if total:
        line["stages"] = {name: round(seconds / total, 3) for name, seconds in result.stages.items()}
    return line


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        epochs, batches = (2, 15) if options.quick else (options.epochs, None)
        graph, split, task = debian(folder)
        results = [train_graphbox(graph, split, task, settings(epochs), batches=batches)]
        if WITH_PYG_LIB or WITH_TORCH_SPARSE:
            results.append(train_pyg(graph, split, epochs, batches))
        for result in results:
            line = line_of(result)
            if options.json:
                print(json.dumps(line), flush=True)
                continue
            print(f"{CASE}: {line['system']:24} {line['rate']:10,.0f} seeds/s", end="")
            print(f" accuracy {result.accuracy:.4f}" if result.accuracy is not None else "", end="")
            print("".join(f" {name} {share:.0%}" for name, share in line.get("stages", {}).items()))


if __name__ == "__main__":
    main()
