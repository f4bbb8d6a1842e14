"""Neighbour sampling on a device over a graph on disk: a whole pass of batches at once, hop by hop.

The twin of ``tiered_neighbor.py``. Edges are drawn by the kernel of graphs in memory, which needs no more
than where lists begin; then neighbours are read where they are: on the device, in pinned host memory, or on
disk, for which the host is asked once for each hop of the pass. The samples are the same, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from graphbox.native import Int64Array
from graphbox.sample.device import DeviceGraph
from graphbox.sample.device_lists import DeviceAdjacency
from graphbox.sample.disk_lists import DiskLists
from graphbox.sample.growing_sample import HopEdges, PassTypeNodes, RelationEdges
from graphbox.sample.hop_spans_gpu import DeviceRelation, Draws, Frontier, find_spans
from graphbox.sample.neighbor_gpu import check_most_neighbors, draw_edges, seed_tensors
from graphbox.sample.pinned import to_device
from graphbox.sample.relabel_gpu import NodePositions, lent_positions
from graphbox.sample.sampled import HeteroSample, SampledEdges, hetero_sample
from graphbox.sample.sampling_plan import SampleRequest, SamplingPlan

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024


@triton.jit
def _read_near(
    near, near_places, far, far_places, frontier, begins, owners, edge_ids, neighbors, size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Read the neighbours of edges whose lists are on the device or in pinned memory; -1 for others."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    owner = tl.load(owners + number, mask=inside, other=0)
    node = tl.load(frontier + owner, mask=inside, other=0)
    within = tl.load(edge_ids + number, mask=inside, other=0) - tl.load(begins + owner, mask=inside, other=0)
    near_place = tl.load(near_places + node, mask=inside, other=-1)
    is_near = inside & (near_place >= 0)
    far_place = tl.load(far_places + node, mask=inside & (near_place < 0), other=-1)
    is_far = inside & (near_place < 0) & (far_place >= 0)
    neighbor = tl.load(near + near_place + within, mask=is_near, other=-1)
    away = tl.load(far + far_place + within, mask=is_far, other=-1)
    tl.store(neighbors + number, tl.where(is_far, away, neighbor), mask=inside)


class DevicePassSample(Sequence[HeteroSample["Tensor"]]):
    """The samples of the batches of a pass, on a device, and their nodes in host memory, too.

    Args:
        samples: of each batch.
    """

    def __init__(self, samples: Sequence[HeteroSample[Tensor]]) -> None:
        self._samples = list(samples)
        self._nodes = _on_host(self._samples)

    @property
    def node_types(self) -> list[str]:
        """Names of the node types."""
        return list(self._samples[0].nodes) if self._samples else []

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        """Return the sample of a batch, or those of several."""
        return self._samples[index]

    def nodes(self, node_type: str) -> list[Int64Array]:
        """Return the nodes of a type in each batch, in host memory."""
        return self._nodes[node_type]

    @property
    def list_bytes(self) -> int:
        """None: whole lists are not chosen from."""
        return 0

    @property
    def size_bytes(self) -> int:
        """Bytes held on the device, and in host memory."""
        held = 0
        for sample in self._samples:
            for values in (sample.nodes, sample.row, sample.col, sample.edge_ids, sample.weight):
                held += sum(each.nbytes for each in values.values())
            held += sum(each.nbytes for each in sample.timestamp.values())
        return held + sum(each.nbytes for nodes in self._nodes.values() for each in nodes)


def _on_host(samples: Sequence[HeteroSample[Tensor]]) -> dict[str, list[Int64Array]]:
    """Return the nodes of samples by type, copied at once."""
    found = {}
    for name in samples[0].nodes if samples else ():
        nodes = [sample.nodes[name] for sample in samples]
        whole = torch.cat(nodes).cpu().numpy()
        found[name] = np.split(whole, np.cumsum([len(each) for each in nodes])[:-1])
    return found


class _HopEdges(NamedTuple):
    """The edges of one relation at one hop, of all batches.

    Attributes:
        neighbors: int32 or int64 [e], node indices.
        owners: int64 [e], which of the frontiers' nodes they were drawn for.
        positions: int64 [e], where they are on disk.
        bounds: [batches + 1], where the edges of each batch begin.
        begins: [batches], where the frontier of each begins.
    """

    neighbors: Tensor
    owners: Tensor
    positions: Tensor
    bounds: list[int]
    begins: list[int]


class _Pass:
    """A pass that is being sampled.

    Args:
        graph: what is sampled.
        relations: the lists of each edge type, and the numbers of its source and target type.
        seeds: int64, by node type, of each batch.
        positions: of each node type.
        replace: draw with replacement.
        keys: seed, epoch and number of each batch.
    """

    def __init__(
        self,
        graph: DeviceGraph,
        relations: Sequence[tuple[DiskLists, int, int]],
        seeds: Sequence[Sequence[Tensor]],
        positions: Sequence[NodePositions],
        *,
        replace: bool,
        keys: Sequence[tuple[int, int, int]],
    ) -> None:
        self.nodes = [
            [PassTypeNodes(*each) for each in zip(batch, positions, strict=True)] for batch in seeds
        ]
        self.edges = [[RelationEdges(graph.device) for _ in relations] for _ in seeds]
        self._graph = graph
        self._relations = relations
        self._replace = replace
        self._keys = keys

    def sample_hop(self, hop: int, wanted: Sequence[int]) -> None:
        """Sample a hop of all batches.

        Args:
            hop: its number.
            wanted: how many edges of a node, for each relation; -1: all.
        """
        found = [self._draw(number, hop, count) for number, count in enumerate(wanted)]
        for batch, types in enumerate(self.nodes):
            for number, (_, source, target) in enumerate(self._relations):
                edges, drawn = self.edges[batch][number], found[number]
                part = slice(0, 0) if drawn is None else slice(*drawn.bounds[batch : batch + 2])
                if drawn is None or part.start == part.stop:
                    edges.per_hop.append(0)
                    continue
                cols = drawn.owners[part] + (types[target].first_col - drawn.begins[batch])
                of_batch = HopEdges(drawn.neighbors[part], cols, drawn.positions[part])
                edges.append(types[source].insert(of_batch, types[target]), of_batch)
            for each in types:
                each.end_hop()

    def _draw(self, number: int, hop: int, wanted: int) -> _HopEdges | None:
        """Return the edges of a relation at a hop; None: there are none."""
        lists, _, target = self._relations[number]
        frontiers = [types[target].frontier.nodes for types in self.nodes]
        frontier = torch.cat(frontiers)
        if wanted == 0 or len(frontier) == 0:
            return None
        begins, degrees, ends = _spans(lists, frontier, wanted, replace=self._replace)
        firsts = np.concatenate([[0], np.cumsum([len(each) for each in frontiers])])
        with_none = torch.cat([ends.new_zeros(1), ends])
        bounds = with_none[to_device(firsts, frontier.device)].tolist()
        total = bounds[-1]
        if total == 0:
            return None
        if wanted < 0:
            counts = degrees.to(torch.int64)
            owners = torch.repeat_interleave(counts, output_size=total)
            drawn = torch.arange(total, device=frontier.device) + (begins - (ends - counts))[owners]
        else:
            owners, drawn = (torch.empty(total, dtype=torch.int64, device=frontier.device) for _ in range(2))
            for batch, key in enumerate(self._keys):
                part = slice(firsts[batch], firsts[batch + 1])
                if bounds[batch] < bounds[batch + 1]:
                    draw_edges(
                        frontier[part],
                        (begins[part], degrees[part], ends[part]),
                        drawn,
                        owners,
                        first_col=int(part.start),
                        wanted=wanted,
                        replace=self._replace,
                        key=key,
                        place=hop | number << 8,
                    )
        neighbors = self._neighbors(lists, frontier, begins, owners, drawn)
        return _HopEdges(neighbors, owners, drawn, bounds, firsts[:-1].tolist())

    def _neighbors(
        self, lists: DiskLists, frontier: Tensor, begins: Tensor, owners: Tensor, drawn: Tensor
    ) -> Tensor:
        """Return the neighbours at positions on disk, those that are nearer from there."""
        residents = self._graph.residents(lists)
        if residents is None:
            return lists.neighbors(drawn)
        near, far = residents
        neighbors = torch.empty(len(drawn), dtype=near.values.dtype, device=drawn.device)
        _read_near[triton.cdiv(len(drawn), _BLOCK),](
            near.values,
            near.places,
            far.values,
            far.places,
            frontier,
            begins,
            owners,
            drawn,
            neighbors,
            len(drawn),
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
        on_disk = (neighbors < 0).nonzero().squeeze(1)
        if len(on_disk):
            neighbors[on_disk] = lists.neighbors(drawn[on_disk])
        return neighbors


def _spans(
    lists: DiskLists, frontier: Tensor, wanted: int, *, replace: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the edges of nodes begin, how many there are, and where those that are drawn end."""
    if lists.near is not None and lists.indptr is not None:
        known = DeviceAdjacency(lists.indptr, lists.near.values, None, lists.near.uses)
        relation, draws = DeviceRelation(known, None, 0, 0, ()), Draws(wanted, replace, 0, 0)
        spans = find_spans(relation, Frontier(frontier, frontier), draws)
        return spans.begins, spans.degrees, spans.ends
    begins, degrees = lists.spans(frontier)
    if wanted < 0:
        counts = degrees
    else:
        counts = (degrees > 0) * wanted if replace else degrees.clamp(max=wanted)
    return begins, degrees.to(torch.int32), torch.cumsum(counts, 0)


def sample_disk_lists(
    graph: DeviceGraph, lists: Sequence[DiskLists], plan: SamplingPlan, requests: Sequence[SampleRequest]
) -> list[HeteroSample[Tensor]]:
    """Sample in-neighbours for a pass of batches, each edge of a node equally likely.

    Args:
        graph: what to sample.
        lists: what :meth:`DeviceGraph.disk_lists` gave for the edge types.
        plan: how, without trees, times and weights.
        requests: seeds and keys of each batch.

    Raises:
        UsageError: a seed that is no node of the graph.
        UnsupportedError: more than 512 distinct neighbours of a node, but not all.
        DoesNotFitError: 2^31 nodes of a batch, or edges of it at a hop, or more.
        DataError: the graph is damaged, or the disk does not give its bytes.
    """
    replace = plan.options.replace
    for hops in plan.hops.values():
        check_most_neighbors(max(hops, default=0), replace=replace)
    relations = [(each, *plan.ends(edge_type)) for each, edge_type in zip(lists, plan.hops, strict=True)]
    if not requests:
        return []
    seeds = [seed_tensors(graph, plan, request) for request in requests]
    keys = [plan.key(request) for request in requests]
    with graph.reading(), lent_positions(graph) as positions:
        sampled = _Pass(graph, relations, seeds, positions, replace=replace, keys=keys)
        for hop in range(plan.depth):
            sampled.sample_hop(hop, [hops[hop] for hops in plan.hops.values()])
    return _samples(sampled, plan, lists)


def _samples(sampled: _Pass, plan: SamplingPlan, lists: Sequence[DiskLists]) -> list[HeteroSample[Tensor]]:
    relations: list[list[SampledEdges]] = []  # by edge type, of each batch
    for number, (edge_type, each) in enumerate(zip(plan.hops, lists, strict=True)):
        own = [edges[number].sampled() for edges in sampled.edges]
        positions = [edges.edge_ids for edges in own]
        ids = each.edge_ids(positions)
        values: dict[str, Any] = {
            name: each.values(name, positions) for name, having in plan.columns.items() if edge_type in having
        }
        relations.append(
            [
                edges._replace(edge_ids=ids[batch], **{name: parts[batch] for name, parts in values.items()})
                for batch, edges in enumerate(own)
            ]
        )
    return [
        hetero_sample(
            plan.numbers,
            plan.hops,
            [each.sampled() for each in types],
            [of_batches[batch] for of_batches in relations],
        )
        for batch, types in enumerate(sampled.nodes)
    ]
