"""Accuracy of PyTorch Geometric's layers trained through our loader, beside its own loader and full batches.

python -m benchmarks.loader_accuracy DATA [--seeds 5] [--json]

``DATA`` is a folder with ``cora/cora.npz`` and ``imdb/imdb.npz``. GraphSAGE classifies Cora's papers (public
split), HGT IMDB's movies (400 for training). PyTorch Geometric's loader runs where one of its samplers
(pyg-lib, torch-sparse) is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as PygNeighborLoader
from torch_geometric.nn import GraphSAGE, HGTConv, Linear
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE
from torch_geometric.utils import scatter

from graphbox.graph import Graph
from graphbox.sample import NeighborLoader

HIDDEN = 32
IMDB_ROW_NORM = (
    5.0  # of movies' features: HGT's first weights are small, so with less it takes many more epochs
)


@dataclass(frozen=True)
class Task:
    """Nodes to classify.

    Attributes:
        name: of the data set.
        data: the graph, with ``y`` and the split as ``train_index`` and ``test_index``.
        node_type: what is classified; None in ``Data``.
        model: makes a model of a seed.
        num_neighbors: of the loaders, for training.
        batch_size: of the loaders, for training.
        epochs: passes over the training nodes.
        learning_rate: of Adam.
    """

    name: str
    data: Any
    node_type: str | None
    model: Callable[[], torch.nn.Module]
    num_neighbors: list[int]
    batch_size: int
    epochs: int
    learning_rate: float

    def index(self, split: str) -> torch.Tensor:
        """Return the nodes of ``train`` or ``test``."""
        store = self.data if self.node_type is None else self.data[self.node_type]
        found: torch.Tensor = store[f"{split}_index"]
        return found


class Sage(torch.nn.Module):
    """GraphSAGE over ``Data``."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layers = GraphSAGE(inputs, HIDDEN, num_layers=2, out_channels=classes, dropout=0.5)

    def forward(self, batch: Data) -> torch.Tensor:
        """Return the scores of all nodes."""
        scores: torch.Tensor = self.layers(batch.x, batch.edge_index)
        return scores


class Hgt(torch.nn.Module):
    """Two HGT layers over ``HeteroData``."""

    def __init__(self, metadata: Any, inputs: int, classes: int) -> None:
        super().__init__()
        self.project = torch.nn.ModuleDict({each: Linear(inputs, HIDDEN) for each in metadata[0]})
        self.first = HGTConv(HIDDEN, HIDDEN, metadata, heads=2)
        self.second = HGTConv(HIDDEN, HIDDEN, metadata, heads=2)
        self.classify = Linear(HIDDEN, classes)

    def forward(self, batch: HeteroData) -> torch.Tensor:
        """Return the scores of all movies."""
        hidden = {
            node_type: self.project[node_type](torch.nn.functional.dropout(x, 0.5, self.training)).relu()
            for node_type, x in batch.x_dict.items()
        }
        hidden = self.first(hidden, batch.edge_index_dict)
        hidden = self.second(hidden, batch.edge_index_dict)
        scores: torch.Tensor = self.classify(torch.nn.functional.dropout(hidden["movie"], 0.5, self.training))
        return scores


def cora(folder: Path) -> Task:
    """Return the task on Cora."""
    arrays = np.load(folder / "cora" / "cora.npz", allow_pickle=False)
    edges = torch.from_numpy(arrays["edge_index"]).long()
    data = Data(
        x=_features(arrays),
        y=torch.from_numpy(arrays["y"]).long(),
        edge_index=torch.cat([edges, edges.flip(0)], 1),
    )
    for split in ("train", "test"):
        data[f"{split}_index"] = torch.from_numpy(arrays[f"{split}_idx"]).long()
    return Task("cora-graphsage", data, None, lambda: Sage(1433, 7), [10, 10], 70, 20, 0.01)


def imdb(folder: Path) -> Task:
    """Return the task on IMDB; directors and actors have the mean of their movies' features (as in MAGNN)."""
    arrays = np.load(folder / "imdb" / "imdb.npz", allow_pickle=False)
    data = HeteroData()
    data["movie"].x, data["movie"].y = _features(arrays), torch.from_numpy(arrays["y"]).long()
    data["movie"].x *= IMDB_ROW_NORM / data["movie"].x.norm(dim=1, keepdim=True).clamp(min=1e-6)
    for other, count in zip(("director", "actor"), arrays["num_nodes"].tolist()[1:], strict=True):
        pairs = torch.from_numpy(arrays[f"movie_{other}"]).long().t()
        data[other].x = scatter(data["movie"].x[pairs[0]], pairs[1], dim_size=count, reduce="mean")
        data["movie", f"has_{other}", other].edge_index = pairs
        data[other, f"{other}_of", "movie"].edge_index = pairs.flip(0)
    for split in ("train", "test"):
        data["movie"][f"{split}_index"] = torch.from_numpy(arrays[f"{split}_idx"]).long()
    metadata = data.metadata()
    inputs = data["movie"].x.shape[1]
    return Task("imdb-hgt", data, "movie", lambda: Hgt(metadata, inputs, 3), [10, 10], 100, 15, 0.01)


def _features(arrays: Any) -> torch.Tensor:
    x: npt.NDArray[np.float32] = np.zeros(arrays["x_shape"], np.float32)
    x[np.repeat(np.arange(len(x)), np.diff(arrays["x_indptr"])), arrays["x_indices"]] = arrays["x_data"]
    return torch.from_numpy(x / np.maximum(x.sum(axis=1, keepdims=True), 1))


# Systems: each gives the batches of an epoch


def full_batches(task: Task, _: int) -> Callable[[], Iterable[Any]]:
    """Return what gives the whole graph once for each batch a loader gives, so that steps are as many."""
    steps = -(-len(task.index("train")) // task.batch_size)
    return lambda: [task.data] * steps


def graphbox_batches(task: Task, seed: int) -> Callable[[], Iterable[Any]]:
    """Return our loader over the graph made of the data."""
    graph = _graph(task)
    nodes: Any = task.index("train")
    loader = NeighborLoader(
        graph,
        task.num_neighbors,
        nodes if task.node_type is None else (task.node_type, nodes),
        batch_size=task.batch_size,
        shuffle=True,
        seed=seed,
    )
    return lambda: loader


def pyg_batches(task: Task, _: int) -> Callable[[], Iterable[Any]]:
    """Return PyTorch Geometric's loader."""
    nodes: Any = task.index("train")
    loader = PygNeighborLoader(
        _without_split(task.data),
        task.num_neighbors,
        input_nodes=nodes if task.node_type is None else (task.node_type, nodes),
        batch_size=task.batch_size,
        shuffle=True,
    )
    return lambda: loader


def _graph(task: Task) -> Graph:
    return Graph.from_pyg(_without_split(task.data))


def _without_split(data: Any) -> Any:
    copied = data.clone()
    for store in copied.stores:
        for split in ("train", "test"):
            store.pop(f"{split}_index", None)
    return copied


def accuracy(task: Task, system: Callable[[Task, int], Callable[[], Iterable[Any]]], seed: int) -> float:
    """Return the accuracy on the test nodes, scored on the whole graph, after training with a seed."""
    torch.manual_seed(seed)
    model, batches = task.model(), system(task, seed)
    with torch.no_grad():
        model(task.data)  # gives layers of unknown width theirs
    optimizer = torch.optim.Adam(model.parameters(), lr=task.learning_rate, weight_decay=5e-4)
    train = task.index("train")
    for _ in range(task.epochs):
        model.train()
        for batch in batches():
            optimizer.zero_grad()
            store = batch if task.node_type is None else batch[task.node_type]
            chosen = slice(store.batch_size) if "batch_size" in store else train
            loss = torch.nn.functional.cross_entropy(model(batch)[chosen], store.y[chosen])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.eval()
    with torch.no_grad():
        predicted = model(task.data).argmax(dim=1)
    store = task.data if task.node_type is None else task.data[task.node_type]
    return float((predicted == store.y)[task.index("test")].float().mean())


def main() -> None:
    """Train all systems on both tasks with all seeds."""
    parser = argparse.ArgumentParser(description="accuracy through loaders")
    parser.add_argument("data", type=Path, help="folder with cora/cora.npz and imdb/imdb.npz")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    systems = {"full batches": full_batches, "graphbox": graphbox_batches}
    if WITH_PYG_LIB or WITH_TORCH_SPARSE:
        systems["PyG's NeighborLoader"] = pyg_batches
    for make in (cora, imdb):
        task = make(options.data)
        for name, system in systems.items():
            reached = [accuracy(task, system, seed) for seed in range(options.seeds)]
            found = {
                "case": task.name,
                "system": name,
                "accuracy": statistics.mean(reached),
                "min": min(reached),
                "max": max(reached),
                "seeds": len(reached),
            }
            if options.json:
                print(json.dumps(found), flush=True)
            else:
                print(
                    f"{task.name:16} {name:22} {found['accuracy']:.4f} "
                    f"[{found['min']:.4f}-{found['max']:.4f}], {len(reached)} seeds",
                    flush=True,
                )


if __name__ == "__main__":
    main()
