"""Sampled edges per second of loaders, end to end: batches as PyTorch Geometric data, without features.

python -m benchmarks.loader [--quick] [--json] [--scale 20 22] [--only WORD]

Beside runs PyTorch Geometric's own loader where one of its samplers (pyg-lib, torch-sparse) is installed,
with the same seeds; its system's name says which. It has no leakage control of links, so ours is measured
with it and without. ``--only`` runs the cases whose name has the word.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch_geometric
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader as PygLinkNeighborLoader
from torch_geometric.loader import NeighborLoader as PygNeighborLoader
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

import graphbox.demo
from benchmarks.measure import measure, show
from benchmarks.rmat import rmat
from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.ingest import import_graph
from graphbox.graph.schema import CSC
from graphbox.graph.tables import EdgeTable, numbered_nodes
from graphbox.sample import LinkNeighborLoader, NeighborLoader

BATCH_SIZE = 1024
HETERO_BATCH_SIZE = 256
UNIT = "edges/s"

Int64Array: TypeAlias = npt.NDArray[np.int64]

_RELATIONS = {
    "depends": "package",
    "pre_depends": "package",
    "recommends": "package",
    "suggests": "package",
    "enhances": "package",
    "built_from": "source",
    "tagged": "tag",
}


@dataclass(frozen=True)
class Bench:
    """Options of the cases to run, and of their output."""

    as_json: bool
    only: str
    batches: int
    repeats: int

    def run(self, case: str, systems: dict[str, Callable[[int], Any]], *, two_threads: bool = True) -> None:
        """Measure a case.

        Args:
            case: its name.
            systems: makes a loader of ``batches`` batches, by the system's name; ours takes the threads.
            two_threads: whether ours is measured with two as well.
        """
        if self.only not in case:
            return
        for system, loader in systems.items():
            ours = system.startswith("graphbox")
            for threads in (1, 2) if ours and two_threads else (1,):

                def work(_: int, loader: Callable[[int], Any] = loader, threads: int = threads) -> int:
                    return sum(_edges(batch) for batch in loader(threads))

                found = measure(case, system, UNIT, work, threads=threads, repeats=self.repeats)
                show(found, as_json=self.as_json)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description="sampled edges per second of loaders")
    parser.add_argument("--quick", action="store_true", help="small inputs: checks that it runs")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--scale", type=int, nargs="+", default=[20, 22], help="of the R-MAT graphs")
    parser.add_argument("--only", default="", help="run the cases whose name has this in it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.json, options.only, *((2, 2) if options.quick else (10, 5)))
    for scale in [12] if options.quick else options.scale:
        show_one_type(bench, f"rmat{scale}", scale)
    with tempfile.TemporaryDirectory() as scratch:
        show_several_types(bench, debian(Path(scratch)))


def show_one_type(bench: Bench, name: str, scale: int) -> None:
    """Measure loaders of nodes and of links on an R-MAT graph."""
    made = rmat(scale)
    graph = _graph_of(made.indptr, made.indices)
    targets = np.repeat(np.arange(made.num_nodes), np.diff(made.indptr))
    data = Data(
        edge_index=torch.from_numpy(np.stack([made.indices.astype(np.int64), targets])),
        num_nodes=made.num_nodes,
    )
    rng = np.random.default_rng(0)
    seeds = rng.permutation(made.connected())[: bench.batches * BATCH_SIZE]
    links = data.edge_index[:, torch.from_numpy(rng.integers(0, data.num_edges, bench.batches * BATCH_SIZE))]
    for num_neighbors in ([15, 10, 5], [25, 10]):
        systems: dict[str, Callable[[int], Any]] = {
            "graphbox": lambda threads, hops=num_neighbors: NeighborLoader(  # type: ignore[misc]  # bound now
                graph, hops, seeds, batch_size=BATCH_SIZE, num_threads=threads
            )
        }
        for system in _peers():
            systems[system] = lambda _, hops=num_neighbors: PygNeighborLoader(  # type: ignore[misc]
                data, hops, input_nodes=torch.from_numpy(seeds), batch_size=BATCH_SIZE
            )
        bench.run(f"{name}-nodes-{num_neighbors}", systems)

    def ours(leakage: bool) -> Callable[[int], LinkNeighborLoader]:
        return lambda threads: LinkNeighborLoader(
            graph,
            [15, 10],
            links,
            batch_size=BATCH_SIZE,
            neg_sampling="binary",
            exclude_seed_edges=leakage,
            num_threads=threads,
        )

    systems = {"graphbox": ours(True), "graphbox without leakage control": ours(False)}
    for system in _peers():
        systems[system] = lambda _: PygLinkNeighborLoader(
            data, [15, 10], edge_label_index=links, batch_size=BATCH_SIZE, neg_sampling="binary"
        )
    bench.run(f"{name}-links-[15, 10]", systems)


def show_several_types(bench: Bench, graph: Graph) -> None:
    """Measure loaders on the bundled graph, with all its edge types and their reverses."""
    data = HeteroData()
    for node_type in graph.node_types:
        data[node_type].num_nodes = graph.num_nodes(node_type)
    for edge_type in graph.edge_types:
        data[edge_type].edge_index = torch.from_numpy(np.stack(graph.csc(edge_type).coo()).astype(np.int64))
    count = min(bench.batches * HETERO_BATCH_SIZE, graph.num_nodes("package"))
    seeds = np.random.default_rng(0).permutation(graph.num_nodes("package"))[:count]
    hops = [10, 5]
    systems: dict[str, Callable[[int], Any]] = {
        "graphbox": lambda threads: NeighborLoader(
            graph,
            hops,
            ("package", seeds),
            batch_size=HETERO_BATCH_SIZE,
            features=(),
            num_threads=threads,
        )
    }
    for system in _peers():
        systems[system] = lambda _: PygNeighborLoader(
            data, hops, input_nodes=("package", torch.from_numpy(seeds)), batch_size=HETERO_BATCH_SIZE
        )
    bench.run(f"debian-nodes-{hops}", systems)
    depends = ("package", "depends", "package")
    edges = data[depends].edge_index
    links = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(0))[:count]]
    systems = {
        "graphbox": lambda threads: LinkNeighborLoader(
            graph,
            hops,
            (depends, links),
            batch_size=HETERO_BATCH_SIZE,
            neg_sampling="binary",
            features=(),
            num_threads=threads,
        )
    }
    for system in _peers():
        systems[system] = lambda _: PygLinkNeighborLoader(
            data, hops, edge_label_index=(depends, links), batch_size=HETERO_BATCH_SIZE, neg_sampling="binary"
        )
    bench.run(f"debian-links-{hops}", systems)


def debian(folder: Path) -> Graph:
    """Return the bundled graph, imported into ``folder``."""
    bundled = Path(next(iter(graphbox.demo.__path__)))
    source = GraphSource(
        "debian",
        {name: NodeSource(bundled / f"{name}.parquet") for name in ("package", "source", "tag")},
        tuple(
            EdgeSource(
                ("package", relation, target), bundled / f"{relation}.parquet", reverse=f"rev_{relation}"
            )
            for relation, target in _RELATIONS.items()
        ),
    )
    import_graph(source, folder / "debian", strict=True)
    return Graph.open(folder / "debian")


def _graph_of(indptr: Int64Array, indices: npt.NDArray[np.int32]) -> Graph:
    nodes = len(indptr) - 1
    edges = EdgeTable(CSC(indptr, indices, nodes))
    return Graph("rmat", {"node": numbered_nodes(nodes)}, {("node", "to", "node"): edges})


def _peers() -> Iterator[str]:
    """Give the name of PyTorch Geometric with its sampler, if it has one."""
    sampler = "pyg-lib" if WITH_PYG_LIB else "torch-sparse" if WITH_TORCH_SPARSE else None
    if sampler is not None:
        yield f"PyG {torch_geometric.__version__} with {sampler}"


def _edges(batch: Any) -> int:
    if isinstance(batch, HeteroData):
        return sum(store.edge_index.shape[1] for store in batch.edge_stores)
    edges: int = batch.edge_index.shape[1]
    return edges


if __name__ == "__main__":
    main()
