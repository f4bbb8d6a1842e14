"""A layer over a random graph, as an edge list and as padded neighbour tables of some targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.graph.schema import EdgeType
from graphbox.models.edge_inputs import EdgeSizes
from graphbox.models.graph_layers import Edges, PaddedLayerInputs
from graphbox.models.layer_kinds import LAYER_KINDS, LayerShape, make_layer
from graphbox.models.padded_layers import PaddedNeighbors

DIM = 8
BOTH: tuple[EdgeType, ...] = (
    ("user", "likes", "item"),
    ("item", "liked_by", "user"),
    ("item", "near", "item"),
    ("item", "after", "item"),
)
ONE: tuple[EdgeType, ...] = (("item", "near", "item"),)
WITHIN: tuple[EdgeType, ...] = BOTH[2:]

VARIANTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "sage": (
        {},
        {"aggr": "max"},
        {"aggr": "pool"},
        {"aggr": "sum", "root_weight": False},
        {"normalize": True},
    ),
    "gcn": ({}, {"bias": False}),
    "gat": ({}, {"heads": 2}, {"heads": 2, "concat": False, "residual": True}, {"fill_value": 0.5}),
    "gatv2": ({}, {"heads": 2}, {"heads": 2, "concat": False}, {"residual": True, "bias": False}),
    "gin": ({}, {"train_eps": True}, {"aggr": "min"}),
    "gine": ({}, {"train_eps": True}, {"aggr": "max"}, {"aggr": "mean"}),
    "gcn2": ({}, {"theta": 0.5, "layer": 3}, {"shared_weights": False}),
    "appnp": ({}, {"alpha": 0.3}),
    "transformer": ({}, {"heads": 2}, {"heads": 2, "concat": False, "beta": True}, {"root_weight": False}),
    "rgcn": ({}, {"num_bases": 3}, {"num_blocks": 2}, {"aggr": "max", "root_weight": False}),
    "hgt": ({}, {"heads": 2}),
    "lightgcn": ({},),
}
"""Options to try of every kind of layer; the first are none."""


def relations_of(name: str) -> tuple[EdgeType, ...]:
    """Return relations between several node types, or of one where the layer takes no others."""
    return WITHIN if name == "gcn2" else BOTH


class PaddedCase:
    """A layer with random parameters and vectors, over a graph with a hub, parallel edges and isolated nodes.

    Args:
        name: of the layer.
        relations: edge types.
        options: of the layer.
        nodes: number of each type.
        batch: number of targets of each type; drawn with repeats, with a node that has no neighbours.
        weighted: edges have weights of their own.
        featured: edges have features, in all relations but ``likes``: categories and numbers.
    """

    def __init__(
        self,
        name: str,
        relations: Sequence[EdgeType],
        options: Mapping[str, Any],
        *,
        nodes: int = 40,
        batch: int = 31,
        weighted: bool = False,
        featured: bool = False,
        seed: int = 0,
    ) -> None:
        generator = np.random.default_rng([seed, nodes, batch])
        kind = LAYER_KINDS[name]
        self.relations = list(relations)
        self.types = list(dict.fromkeys(end for each in relations for end in (each[0], each[2])))
        torch.manual_seed(seed)
        self.edge_sizes = {
            each: EdgeSizes((4,), 2) if each[1] == "near" else EdgeSizes((), 3)
            for each in (relations if featured else ())
            if each[1] != "likes"
        }
        shape = LayerShape(DIM, relations, self.types, options, weighted, self.edge_sizes)
        self.layer = make_layer(name, kind, shape).eval()
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.copy_(torch.randn(parameter.shape) * 0.5)
        self.has_weights = weighted or kind.normalized
        self.vectors = {each: _random(generator, nodes) for each in self.types}
        self.first = {each: _random(generator, nodes) for each in self.types}
        self.edges = {each: self._edges(generator, nodes, self.edge_sizes.get(each)) for each in relations}
        self.targets = {
            each: torch.from_numpy(np.append(generator.integers(0, nodes, max(batch - 1, 0)), 0)[:batch])
            for each in self.types
        }

    def _edges(self, generator: np.random.Generator, nodes: int, sizes: EdgeSizes | None) -> Edges:
        sources, targets = generator.integers(0, nodes, 3 * nodes), generator.integers(1, nodes, 3 * nodes)
        targets[: 2 * nodes : 3] = 1  # a hub; nothing arrives at node 0
        sources[4], targets[4] = sources[5], targets[5]
        sources[6] = targets[6]
        weight = generator.uniform(-0.5, 2.0, len(sources)).astype(np.float32)
        weight[7] = 0.0
        index = torch.from_numpy(np.stack([sources, targets]))
        columns = None
        if sizes is not None:
            codes = [generator.integers(0, size, (len(sources), 1)) for size in sizes.categories]
            numbers = generator.standard_normal((len(sources), sizes.numbers))
            columns = torch.from_numpy(np.concatenate([*codes, numbers], axis=1).astype(np.float32))
        return Edges(index, torch.from_numpy(weight) if self.has_weights else None, columns)

    def expected(self) -> Tensor:
        """Return what the layer makes of the targets over the edge list, type after type."""
        with torch.no_grad():
            found = self.layer(self.vectors, self.edges, self.first)
        return torch.cat([found[name][nodes] for name, nodes in self.targets.items()])

    def inputs(self) -> PaddedLayerInputs:
        """Return the same with padded tables; what stands for absent nodes is no zero vector."""
        absent = torch.full((1, DIM), 3.0)
        return PaddedLayerInputs(
            below={name: torch.cat([absent, each]) for name, each in self.vectors.items()},
            neighbors={each: self._padded(each) for each in self.relations},
            own={name: nodes + 1 for name, nodes in self.targets.items()},
            first={name: self.first[name][nodes] for name, nodes in self.targets.items()},
        )

    def _padded(self, relation: EdgeType) -> PaddedNeighbors:
        edges = self.edges[relation]
        sources, targets = (each.numpy() for each in edges.index)
        lists = [np.flatnonzero(targets == node) for node in self.targets[relation[2]].tolist()]
        slots = max([1, *map(len, lists)])
        index = np.zeros((len(lists), slots), np.int64)
        weight = np.zeros((len(lists), slots), np.float32)
        columns = None
        if edges.features is not None:  # of absent neighbours anything may be there
            columns = torch.full((len(lists), slots, edges.features.shape[1]), 2.0)
        for row, found in enumerate(lists):
            index[row, : len(found)] = sources[found] + 1
            if columns is not None and edges.features is not None:
                columns[row, : len(found)] = edges.features[torch.from_numpy(found)]
            if edges.weight is not None:
                weight[row, : len(found)] = edges.weight.numpy()[found]
        return PaddedNeighbors(
            torch.from_numpy(index),
            torch.from_numpy(weight) if edges.weight is not None else None,
            columns,
        )

    def padded(self) -> Tensor:
        """Return what the layer makes of the targets over padded tables."""
        with torch.no_grad():
            found = self.layer.padded(self.inputs())
        return torch.cat([found[name] for name in self.targets])


def _random(generator: np.random.Generator, nodes: int) -> Tensor:
    values: NDArray[np.float32] = generator.standard_normal((nodes, DIM), np.float32)
    return torch.from_numpy(values)
