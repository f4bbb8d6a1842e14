"""Walks of other systems, where they are installed: torch-cluster's, and PyTorch Geometric's.

Each function returns the name with the version and the work of one call, or None where the system is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch_geometric
from torch_geometric.nn import Node2Vec
from torch_geometric.nn.models.metapath2vec import sample

from benchmarks.rmat import Rmat
from benchmarks.walk_graphs import ThereAndBack

System: TypeAlias = tuple[str, Callable[[int], int]]
"""Name, and work(repeat) that returns how many units it did."""

Int64Array = npt.NDArray[np.int64]

PYG = f"torch-geometric {torch_geometric.__version__}"


def torch_cluster_walk(graph: Rmat, start: Int64Array, length: int, p: float, q: float) -> System | None:
    """Walk by torch-cluster, uniform or looking back (it ignores p and q below q = 1)."""
    name = _torch_cluster()
    if name is None:
        return None
    rowptr, indices, nodes = _tensors(graph.indptr, graph.indices, start)

    def work(_: int) -> int:
        walks = torch.ops.torch_cluster.random_walk(rowptr, indices, nodes, length, p, q)[0]
        return int(walks.numel()) - len(nodes)

    return name, work


def pyg_metapath(graph: ThereAndBack, start: Int64Array, length: int) -> System:
    """Walk there and back as PyG's MetaPath2Vec does."""
    steps = [_tensors(each.indptr, each.indices) for each in (graph.there, graph.back)]
    degrees = [indptr[1:] - indptr[:-1] for indptr, _ in steps]
    (nodes,) = _tensors(start)
    nobody = 1 << 40  # the node it puts after a dead end

    def work(_: int) -> int:
        walk = [nodes]
        for step in range(length):
            indptr, indices = steps[step % 2]
            walk.append(sample(indptr, indices, degrees[step % 2], walk[-1], 1, nobody).view(-1))
        return torch.stack(walk[1:]).numel()

    return f"{PYG} MetaPath2Vec", work


def pyg_pairs(graph: Rmat, start: Int64Array, length: int, window: int) -> System | None:
    """Make pairs as PyG's Node2Vec does: of each node of a walk and those up to ``window`` steps later.

    Its windows of torch-cluster's walks, the positive ones; its loader draws negatives too. They stay rows of
    ``window + 1`` nodes.
    """
    cluster = _torch_cluster()
    if cluster is None:
        return None
    rowptr, indices, nodes = _tensors(graph.indptr, graph.indices, start)
    model = SimpleNamespace(
        walks_per_node=1,
        random_walk_fn=torch.ops.torch_cluster.random_walk,
        rowptr=rowptr,
        col=indices,
        walk_length=length,
        context_size=window + 1,
        p=1.0,
        q=1.0,
    )

    def work(_: int) -> int:
        return sum(
            Node2Vec.pos_sample(model, nodes[first : first + 8192])[:, 1:].numel()
            for first in range(0, len(nodes), 8192)
        )

    return f"{PYG} Node2Vec, {cluster}", work


def _torch_cluster() -> str | None:
    try:
        module = importlib.import_module("torch_cluster")
    except ImportError:
        return None
    return f"torch-cluster {module.__version__}"


def _tensors(*arrays: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> list[torch.Tensor]:
    return [torch.from_numpy(array.astype(np.int64)) for array in arrays]
