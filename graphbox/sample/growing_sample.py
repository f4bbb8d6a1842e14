"""A sample on a device while it is made: the nodes of each type, in trees or shared, and edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from graphbox.errors import DoesNotFitError
from graphbox.sample.hop_spans_gpu import Frontier
from graphbox.sample.sampled import SampledEdges, SampledNodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from graphbox.sample.relabel_gpu import NodePositions


class HopEdges(NamedTuple):
    """The edges of one relation at one hop.

    Attributes:
        neighbors: int32 or int64 [e], node indices.
        cols: int64 [e], positions of the nodes they were sampled for.
        edge_ids: int64 [e], positions in the adjacency.
    """

    neighbors: Tensor
    cols: Tensor
    edge_ids: Tensor


class TypeNodes:
    """The nodes of one type.

    Args:
        seeds: int64 [s].
        positions: of the type.
    """

    def __init__(self, seeds: Tensor, positions: NodePositions) -> None:
        self.chunks = [seeds]
        self.frontier = Frontier(seeds, seeds)
        self.first_col = 0
        self.per_hop = [len(seeds)]
        self._positions = positions
        self._added: list[Tensor] = []

    def start(self) -> None:
        """Give the seeds their positions."""
        self._positions.start(self._names(self.chunks[0], None))

    def insert(self, edges: HopEdges, target: TypeNodes) -> Tensor:
        """Return the positions of the neighbours of ``target``; those that are new belong to the next hop."""
        trees = target.frontier.trees
        owners = None if trees is None else trees[edges.cols - target.first_col]
        rows, new_nodes = self._positions.insert(self._names(edges.neighbors, owners))
        self._added.append(new_nodes)
        return rows

    def end_hop(self) -> None:
        """Let the nodes that were added be those whose neighbours are sampled next."""
        self.first_col += len(self.frontier.nodes)
        self._expand(torch.cat([self.frontier.nodes[:0], *self._added]))
        self.chunks.append(self.frontier.nodes)
        self.per_hop.append(len(self.frontier.nodes))
        self._added = []

    def sampled(self) -> SampledNodes:
        """Return the nodes, and the tree of each in a disjoint sample."""
        return SampledNodes(torch.cat(self.chunks), self.per_hop)

    def _names(self, nodes: Tensor, trees: Tensor | None) -> Tensor:  # noqa: ARG002 - trees have some
        """Return what tells nodes apart; ``trees`` None: they are the seeds."""
        return nodes

    def _expand(self, names: Tensor) -> None:
        self.frontier = Frontier(names, names)


class PassTypeNodes(TypeNodes):
    """The nodes of one type in a batch of a pass, whose batches have positions one after the other."""

    def insert(self, edges: HopEdges, target: TypeNodes) -> Tensor:
        """Return the positions of the neighbours of ``target``; those that are new belong to the next hop."""
        if not self._added:  # other batches had the positions since
            self._positions.start(torch.cat(self.chunks))
        return super().insert(edges, target)


class _TypeNodesInTrees(TypeNodes):
    """The nodes of one type in a disjoint sample: what several seeds reach is in the tree of each.

    A node is named tree * nodes of the type + node, and draws by its tree and its number within that.
    """

    def __init__(
        self, seeds: Tensor, positions: NodePositions, first_tree: int, trees: int, times: Tensor | None
    ) -> None:
        self._num_nodes = positions.num_nodes
        _check_names(self._num_nodes, trees)
        self._seed_trees = torch.arange(first_tree, first_tree + len(seeds), device=seeds.device)
        self._nodes_of_tree = torch.zeros(trees, dtype=torch.int64, device=seeds.device)
        self._nodes_of_tree[first_tree : first_tree + len(seeds)] = 1
        super().__init__(seeds, positions)
        self.frontier = Frontier(seeds, self._seed_trees << 32, self._seed_trees, times)
        self._tree_chunks = [self._seed_trees]

    def sampled(self) -> SampledNodes:
        return super().sampled()._replace(trees=torch.cat(self._tree_chunks))

    def _names(self, nodes: Tensor, trees: Tensor | None) -> Tensor:
        of_nodes = self._seed_trees if trees is None else trees
        return of_nodes * self._num_nodes + nodes

    def _expand(self, names: Tensor) -> None:
        trees = torch.div(names, max(self._num_nodes, 1), rounding_mode="floor")
        in_order, order = torch.sort(trees, stable=True)
        ranks = torch.empty_like(trees)
        ranks[order] = torch.arange(len(trees), device=trees.device) - torch.searchsorted(in_order, in_order)
        numbers = self._nodes_of_tree[trees] + ranks
        self._nodes_of_tree.index_add_(0, trees, torch.ones_like(trees))
        nodes = names - trees * self._num_nodes
        self.frontier = Frontier(nodes, trees << 32 | numbers, trees, self.frontier.times)
        self._tree_chunks.append(trees)


def seeded_types(
    seeds: Sequence[Tensor],
    positions: Sequence[NodePositions],
    *,
    disjoint: bool,
    tree_times: Tensor | None,
) -> list[TypeNodes]:
    """Return the nodes of each type, as yet the seeds.

    Args:
        seeds: int64, of each type.
        positions: of each type.
        disjoint: a tree for each seed, numbered over all types.
        tree_times: int64 [trees], the time of each; None: they have none.

    Raises:
        DoesNotFitError: too many seeds for so many nodes.
    """
    types: list[TypeNodes] = []
    trees = sum(map(len, seeds))
    first_tree = 0
    for nodes, its_positions in zip(seeds, positions, strict=True):
        if disjoint:
            types.append(_TypeNodesInTrees(nodes, its_positions, first_tree, trees, tree_times))
        else:
            types.append(TypeNodes(nodes, its_positions))
        types[-1].start()
        first_tree += len(nodes)
    return types


def _check_names(num_nodes: int, trees: int) -> None:
    if num_nodes * trees >= 2**63:
        raise DoesNotFitError(
            f"disjoint samples need seeds times nodes below 2^63, received {trees} seeds and {num_nodes} "
            "nodes",
            hint="ask for fewer seeds",
        )


class RelationEdges:
    """The edges of one relation.

    Args:
        device: where they are.
    """

    def __init__(self, device: torch.device) -> None:
        none = torch.empty(0, dtype=torch.int64, device=device)
        self.rows, self.cols, self.edge_ids = [none], [none], [none]
        self.per_hop: list[int] = []

    def append(self, rows: Tensor, edges: HopEdges) -> None:
        """Add the edges of a hop, whose neighbours are at ``rows`` in the sample."""
        self.rows.append(rows)
        self.cols.append(edges.cols)
        self.edge_ids.append(edges.edge_ids)
        self.per_hop.append(len(rows))

    def sampled(self) -> SampledEdges:
        """Return the edges, with their positions in the adjacency as ids; they keep nothing of the pass."""
        return SampledEdges(
            torch.cat(self.rows), torch.cat(self.cols), torch.cat(self.edge_ids), self.per_hop
        )
