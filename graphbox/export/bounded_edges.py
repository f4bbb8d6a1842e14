"""Edges of a graph with at most so many into each node, and what a network makes of the nodes then."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.models.graph_layers import Edges
from graphbox.models.graph_network import GraphNetwork, LayerEdges


def bounded_edges(
    edges: Mapping[EdgeType, Edges], most: int, seed: int, *, normalized: bool
) -> dict[EdgeType, Edges]:
    """Return at most ``most`` edges into each node of each relation, drawn without replacement by a seed.

    Args:
        edges: all edges of each relation.
        most: edges of a node and relation; with ``normalized`` that of a node to itself comes on top of them.
        seed: of the draw.
        normalized: degrees normalize the weights. Those of drawn edges then stand for all: they are
            multiplied by the number of all over that of the drawn, as in batches of training.
    """
    found = {}
    for number, (edge_type, each) in enumerate(edges.items()):
        source, target = (ends.numpy() for ends in each.index)
        is_loop = np.zeros(len(source), np.bool_)
        if normalized and edge_type[0] == edge_type[2]:
            is_loop = source == target
        others = np.flatnonzero(~is_loop)
        order = others[
            np.lexsort((np.random.default_rng([seed, number]).random(len(others)), target[others]))
        ]
        counts = np.bincount(target[order], minlength=int(target.max(initial=-1)) + 1)
        first = np.cumsum(counts) - counts
        drawn = order[np.arange(len(order)) - first[target[order]] < most]
        kept = np.sort(np.concatenate([drawn, np.flatnonzero(is_loop)]))
        weight = None if each.weight is None else each.weight[torch.from_numpy(kept)]
        if weight is not None and normalized:
            scale = np.maximum(counts / most, 1.0).astype(np.float32)[target[kept]]
            weight = weight * torch.from_numpy(np.where(is_loop[kept], np.float32(1), scale))
        found[edge_type] = Edges(each.index[:, torch.from_numpy(kept)], weight)
    return found


@torch.no_grad()
def vectors_over(
    network: GraphNetwork,
    edges: Mapping[EdgeType, Edges],
    inputs: Mapping[str, npt.NDArray[np.float32]],
    node_type: str,
) -> Tensor:
    """Return what the last layer makes of the nodes of a type: float32 [nodes, dim].

    Args:
        network: in evaluation mode, on the CPU.
        edges: of each relation, by node indices.
        inputs: by node type float32 [nodes, dim], what goes into the first layer.
        node_type: whose vectors.
    """
    first = {name: torch.from_numpy(each) for name, each in inputs.items()}
    seen = LayerEdges(edges, {name: len(each) for name, each in first.items()})
    vectors = first
    for number in range(network.shape.layers):
        vectors = network.layer(number, vectors, seen, first)
    return vectors[node_type]
