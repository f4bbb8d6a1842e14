"""Edges of a graph with at most so many into each node, and what a network makes of the nodes then."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.models.graph_layers import Edges
from graphbox.models.graph_network import GraphNetwork, LayerEdges

_RANGES = 16


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
        counts = np.bincount(target) - np.bincount(target[is_loop], minlength=int(target.max(initial=-1)) + 1)
        is_kept = _drawn(target, ~is_loop, counts, most, np.random.default_rng([seed, number]))
        kept = np.flatnonzero(is_kept | is_loop)
        chosen = torch.from_numpy(kept)
        weight, features = (None if of is None else of[chosen] for of in (each.weight, each.features))
        if weight is not None and normalized:
            scale = np.maximum(counts / most, 1.0).astype(np.float32)[target[kept]]
            weight = weight * torch.from_numpy(np.where(is_loop[kept], np.float32(1), scale))
        found[edge_type] = Edges(each.index[:, chosen], weight, features)
    return found


def _drawn(
    target: npt.NDArray[np.int64],
    is_candidate: npt.NDArray[np.bool_],
    counts: npt.NDArray[np.int64],
    most: int,
    random: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    """Return which edges are drawn: bool [e]; of each target those with the ``most`` smallest random numbers.

    Targets are sorted in a few ranges of about as many edges each, which bounds the memory of the sort.

    Args:
        target: int64 [e].
        is_candidate: bool [e]; others are not drawn.
        counts: int64 [targets], candidates of each target.
        most: edges that are drawn of a target.
        random: gives each candidate a number, in the order of the edges.
    """
    numbers = np.zeros(len(target))
    numbers[is_candidate] = random.random(np.count_nonzero(is_candidate))
    ends = np.cumsum(counts)
    total = int(counts.sum())
    bounds = np.searchsorted(ends, np.arange(1, _RANGES) * total / _RANGES)
    is_drawn = np.zeros(len(target), np.bool_)
    for low, high in itertools.pairwise([0, *np.unique(bounds).tolist(), len(counts)]):
        of_range = np.flatnonzero(is_candidate & (target >= low) & (target < high))
        order = of_range[np.lexsort((numbers[of_range], target[of_range]))]
        first = ends[target[order]] - counts[target[order]] - (ends[low - 1] if low else 0)
        is_drawn[order[np.arange(len(order)) - first < most]] = True
    return is_drawn


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
