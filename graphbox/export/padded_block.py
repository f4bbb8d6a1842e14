"""A GraphSAGE tower lowered to padded blocks: Gather, MatMul and one Gemm; no scatter, no loop.

Relations that join the same two node types share one neighbour table, so that a request needs few inputs.
A Gather of all their slots at once would leave the cache at large batches: they are taken a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphbox.artifact import ArtifactWriter
from graphbox.errors import DoesNotFitError
from graphbox.graph.live_rows import LiveRows
from graphbox.graph.schema import EdgeType, edge_type_text
from graphbox.models.graph_layers import Edges
from graphbox.models.sage import SageTower

_RELATIONS_PER_GATHER = 4
_MOST_NEIGHBORS = np.iinfo(np.uint16).max


@dataclass(frozen=True, eq=False)
class RelationBlock:
    """The relations between two node types, with the neighbours of each node in each of them.

    Attributes:
        edge_types: R triples with the same source and target.
        counts: uint16 [nodes of the target, R].
        neighbors: int32 [sum of counts], node indices of the source, node by node, then by relation.
        weights: float32 [sum of counts], of the edges; None: they have none, or they follow from the counts.
        features: float32 [sum of counts, columns], of the edges; None: they have none.
    """

    edge_types: tuple[EdgeType, ...]
    counts: npt.NDArray[np.uint16]
    neighbors: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32] | None = None
    features: npt.NDArray[np.float32] | None = None

    @property
    def source(self) -> str:
        """Node type of the neighbours."""
        return self.edge_types[0][0]


def group_relations(
    relations: Sequence[EdgeType], neighbors: Mapping[EdgeType, npt.NDArray[np.int32]]
) -> list[RelationBlock]:
    """Group relations by their source type, in the order of first appearance.

    Args:
        relations: edge types that arrive at one node type.
        neighbors: of each, a table int32 [nodes of the target, F], -1 = absent; F may differ.
    """
    blocks: list[RelationBlock] = []
    for source in dict.fromkeys(relation[0] for relation in relations):
        members = tuple(relation for relation in relations if relation[0] == source)
        present = [neighbors[relation] >= 0 for relation in members]
        counts = np.stack([table.sum(axis=1) for table in present], axis=1).astype(np.uint16)
        start = np.concatenate([[0], np.cumsum(counts.reshape(-1), dtype=np.int64)])[:-1].reshape(
            counts.shape
        )
        flat = np.empty(int(counts.sum(dtype=np.int64)), np.int32)
        for position, relation in enumerate(members):
            order = np.cumsum(present[position], axis=1) - 1
            flat[(start[:, position, None] + order)[present[position]]] = neighbors[relation][
                present[position]
            ]
        blocks.append(RelationBlock(members, counts, flat))
    return blocks


def group_edges(
    group: Sequence[EdgeType],
    edges: Mapping[EdgeType, Edges],
    source: LiveRows,
    target: LiveRows,
    edges_at_once: int = 1 << 20,
) -> RelationBlock:
    """Return the neighbours of each node in some relations as lists, in the order of the edges.

    Edges are counted and then put into place, some at a time: beside the result memory is needed for these,
    and for two numbers of each list.

    Args:
        group: edge types with the same source and the same target.
        edges: all edges of each, by node indices; either all have weights or none.
        source: rows of the artifact for sources.
        target: likewise of targets.
        edges_at_once: most edges that are grouped at a time.

    Raises:
        DoesNotFitError: a node has more neighbours in a relation than a list can have.
    """
    relations = len(group)
    parts = _Parts(group, edges, source, target, edges_at_once)
    counts = np.zeros(len(target) * relations, np.int64)
    for part in parts:
        np.add.at(counts, part.lists, 1)
    longest = int(counts.max(initial=0))
    if longest > _MOST_NEIGHBORS:
        node, number = divmod(int(counts.argmax()), relations)
        raise DoesNotFitError(
            f"expected at most {_MOST_NEIGHBORS} neighbours of a node in a relation, received {longest} of "
            f"row {node} in {edge_type_text(group[number])}",
            hint="export it with `max_neighbors`, or as stored vectors (`form: vectors`)",
        )
    free = np.cumsum(counts) - counts
    num_edges = int(counts.sum())
    neighbors = np.empty(num_edges, np.int32)
    is_weighted = any(edges[each].weight is not None for each in group)
    weights = np.empty(num_edges, np.float32) if is_weighted else None
    columns = max(
        (each.features.shape[1] for name in group if (each := edges[name]).features is not None), default=0
    )
    features = np.zeros((num_edges, columns), np.float32) if columns else None
    for part in parts:
        order = np.argsort(part.lists, kind="stable")
        lists = part.lists[order]
        first = np.flatnonzero(np.diff(lists, prepend=-1))
        lengths = np.diff(first, append=len(lists))
        place = free[lists] + np.arange(len(lists)) - np.repeat(first, lengths)
        free[lists[first]] += lengths
        neighbors[place] = part.sources[order]
        if weights is not None and part.weights is not None:
            weights[place] = part.weights[order]
        if features is not None and part.features is not None:
            features[place, : part.features.shape[1]] = part.features[order]
    shaped = counts.reshape(-1, relations).astype(np.uint16)
    return RelationBlock(tuple(group), shaped, neighbors, weights, features)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some edges of a relation between live nodes.

    Attributes:
        lists: int64 [e], the list that each belongs to: row of the target times relations, plus the relation.
        sources: int64 [e], rows of the sources.
        weights: float32 [e], or None.
        features: float32 [e, columns], or None.
    """

    lists: npt.NDArray[np.int64]
    sources: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None
    features: npt.NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class _Parts:
    """The edges of the relations of a group, in their order, some at a time; can be read more than once."""

    group: Sequence[EdgeType]
    edges: Mapping[EdgeType, Edges]
    source: LiveRows
    target: LiveRows
    edges_at_once: int

    def __iter__(self) -> Iterator[_Part]:
        for number, each in enumerate(self.group):
            index, weight = self.edges[each].index.numpy(), self.edges[each].weight
            features = self.edges[each].features
            for start in range(0, index.shape[1], self.edges_at_once):
                stop = start + self.edges_at_once
                ends = index[:, start:stop]
                sources, targets = self.source.rows(ends[0]), self.target.rows(ends[1])
                # Removed nodes have no row; a network has an edge from each to itself all the same.
                is_live = self.source.nodes(sources) == ends[0]
                is_live &= self.target.nodes(targets) == ends[1]
                yield _Part(
                    targets[is_live] * len(self.group) + number,
                    sources[is_live],
                    None if weight is None else weight[start:stop].numpy()[is_live],
                    None if features is None else features[start:stop].numpy()[is_live],
                )


def degrees(blocks: Sequence[RelationBlock], nodes: int) -> npt.NDArray[np.int64]:
    """Return how many neighbours each node has in all blocks of its type together: int64 [nodes]."""
    found = np.zeros(nodes, np.int64)
    for block in blocks:
        found += block.counts.sum(axis=1, dtype=np.int64)
    return found


def counts_file(block: int) -> str:
    """Return the path of the counts of a block in an artifact."""
    return f"neighbors/{block}.counts.npy"


def neighbors_file(block: int) -> str:
    """Return the path of the neighbours of a block in an artifact."""
    return f"neighbors/{block}.npy"


def weights_file(block: int) -> str:
    """Return the path of the weights of a block in an artifact."""
    return f"neighbors/{block}.weights.npy"


def edges_file(block: int) -> str:
    """Return the path of the features of a block's edges in an artifact."""
    return f"neighbors/{block}.edges.npy"


def write_block(writer: ArtifactWriter, number: int, block: RelationBlock) -> None:
    """Write the arrays of a block."""
    writer.add_array(counts_file(number), block.counts)
    writer.add_array(neighbors_file(number), block.neighbors)
    if block.weights is not None:
        writer.add_array(weights_file(number), block.weights)
    if block.features is not None:
        writer.add_array(edges_file(number), block.features)


class PaddedBlockEncoder(nn.Module):
    """The same function as ``SageTower``, of padded blocks.

    Args:
        tower: the trained tower; its relations in the order of ``relations``.
        relations: edge types in the order of the tower's columns.
        blocks: the same relations, grouped.
        own_source: position, among ``sources``, of the node type of the seeds.
        sources: node types of the row inputs.
    """

    def __init__(
        self,
        tower: SageTower,
        relations: Sequence[EdgeType],
        blocks: Sequence[RelationBlock],
        sources: Sequence[str],
        node_type: str,
    ) -> None:
        super().__init__()
        self.dim = tower.combine.out_features
        self._own_source = sources.index(node_type)
        self._source_of_block = [sources.index(block.source) for block in blocks]
        self.combine = nn.Linear(tower.combine.in_features, self.dim)
        order = [relations.index(edge_type) for block in blocks for edge_type in block.edge_types]
        with torch.no_grad():
            columns = tower.combine.weight.reshape(self.dim, 1 + len(relations), self.dim)
            grouped = columns[:, [0, *(1 + position for position in order)]]
            self.combine.weight.copy_(grouped.reshape(self.dim, -1))
            self.combine.bias.copy_(tower.combine.bias)

    def forward(
        self, rows: list[Tensor], own: Tensor, neighbors: list[Tensor], weights: list[Tensor]
    ) -> Tensor:
        """Return unit vectors, float32 [B, dim].

        Args:
            rows: for each source type float32 [U, dim].
            own: int64 [B], positions of the seeds in the rows of their type.
            neighbors: for each block int64 [B, R, F], positions in the rows of its source type.
            weights: for each block float32 [B, R, F], 0 where absent.
        """
        parts = [rows[self._own_source].index_select(0, own)]
        for source, table, weight in zip(self._source_of_block, neighbors, weights, strict=True):
            some_of_both = (torch.split(part, _RELATIONS_PER_GATHER, 1) for part in (table, weight))
            for some, factor in zip(*some_of_both, strict=True):
                # `rows[some]` would become GatherND, 15 % slower than the Gather that `embedding` becomes.
                gathered = functional.embedding(some, rows[source])
                total = torch.matmul(factor.unsqueeze(2), gathered)
                parts.append(total.reshape(-1, some.shape[1] * self.dim))
        return functional.normalize(self.combine(torch.cat(parts, dim=1)), dim=1)
