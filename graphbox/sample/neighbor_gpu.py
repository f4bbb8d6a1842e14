"""Neighbour sampling in Triton kernels: the twin of ``csrc/sample/neighbor.cpp``, bit for bit.

A hop of an edge type is a row of kernels: the edges of each frontier node that may be chosen are counted
(``hop_spans_gpu.py``), their places in the sample are the running sum, each node's choice is made by one row
of a tile or a program (``*_choice_gpu.py``), and the neighbours get their positions (``relabel_gpu.py``).
Nothing but the sizes of a hop comes to the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from graphbox import _core
from graphbox.device import on_device
from graphbox.errors import UnsupportedError
from graphbox.sample.edge_reads_gpu import TieredReads, copy_elements, list_begin, load_edges, tiered_reads
from graphbox.sample.excluded_gpu import ExcludedLists, excluded_lists, excluded_places, skip_excluded
from graphbox.sample.growing_sample import HopEdges, RelationEdges, seeded_types
from graphbox.sample.hop_spans_gpu import DeviceRelation, Draws, Frontier, Spans, find_spans
from graphbox.sample.node_tensor import node_tensor
from graphbox.sample.pinned import to_device
from graphbox.sample.relabel_gpu import NodePositions, lent_positions
from graphbox.sample.sampled import HeteroSample, SampledEdges, SampledNodes, hetero_sample
from graphbox.sample.time_choice_gpu import choose_by_time
from graphbox.sample.uniform_choice_gpu import MOST_WITHOUT_REPLACEMENT, choose_uniform
from graphbox.sample.weighted_choice_gpu import choose_weighted

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.adjacency import EdgeColumnName, EdgeType
    from graphbox.sample.device import DeviceAdjacency, DeviceGraph
    from graphbox.sample.device_times import DeviceTimes
    from graphbox.sample.excluded import ExcludedPairs
    from graphbox.sample.sampling_plan import SampleRequest, SamplingPlan

__all__ = [
    "DeviceRelation",
    "HopEdges",
    "SampledHops",
    "check_most_neighbors",
    "draw_edges",
    "read_edge_values",
    "sample_device_graph",
    "sample_hop",
    "sample_hops",
    "seed_tensors",
]

_NEIGHBOR_STREAM = 1  # Stream::kNeighbor of csrc/random/philox.h
_ROW_BLOCK = 1024


class SampledHops(NamedTuple):
    """A sample, by the numbers of node types and relations."""

    nodes: list[SampledNodes]
    edges: list[SampledEdges]


@triton.jit
def _read_neighbors(
    indices, residents, places, edges, shifts, shift_residents, shift_places, shift_edges, nodes, begins,
    owners, edge_ids, neighbors, size, TIERED: tl.constexpr, TIMED: tl.constexpr,
    SHIFTS_TIERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the neighbours of edges; of places in the order of time these become positions first."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    edge = tl.load(edge_ids + number, mask=inside, other=0)
    if TIERED or SHIFTS_TIERED:
        owner = tl.load(owners + number, mask=inside, other=0)
        node = tl.load(nodes + owner, mask=inside, other=0)
        begin = tl.load(begins + owner, mask=inside, other=0)
    if TIMED:
        place = edge
        if SHIFTS_TIERED:
            place += list_begin(shift_places, node, begin, shift_edges, inside, SHIFTS_TIERED) - begin
        edge += load_edges(shifts, shift_residents, shift_edges, place, inside, 0, SHIFTS_TIERED)
        tl.store(edge_ids + number, edge, mask=inside)
    if TIERED:
        edge += list_begin(places, node, begin, edges, inside, TIERED) - begin
    tl.store(neighbors + number, load_edges(indices, residents, edges, edge, inside, 0, TIERED), mask=inside)


def sample_hop(
    relation: DeviceRelation, frontier: Tensor, *, replace: bool, key: tuple[int, int, int]
) -> HopEdges:
    """Sample the first hop of one relation and stop there: neighbours get no positions.

    Args:
        relation: what is sampled; its first number counts.
        frontier: int64 [n], n above 0: nodes that exist, whose neighbours are sampled.
        replace: draw with replacement.
        key: seed, epoch, batch.

    Raises:
        UnsupportedError: more than 512 distinct neighbours of a node, but not all.
    """
    check_most_neighbors(relation.num_neighbors[0], replace=replace)
    draws = Draws(relation.num_neighbors[0], replace, _core.philox_key(_NEIGHBOR_STREAM, *key), 0)
    return _sample_hop(relation, Frontier(frontier, frontier), 0, draws)


def _sample_hop(relation: DeviceRelation, frontier: Frontier, first_col: int, draws: Draws) -> HopEdges:
    """Sample the in-neighbours of ``frontier``, the first of which is at ``first_col`` in the sample."""
    spans = find_spans(relation, frontier, draws)
    edges = int(spans.ends[-1])
    adjacency, excluded, times = relation.adjacency, relation.excluded, relation.times
    device = frontier.nodes.device
    neighbors = torch.empty(edges, dtype=adjacency.indices.dtype, device=device)
    cols, edge_ids = (torch.empty(edges, dtype=torch.int64, device=device) for _ in range(2))
    if edges == 0:
        return HopEdges(neighbors, cols, edge_ids)
    by_weight = relation.weights is not None or (times is not None and times.sums is not None)
    gives_ranks = True  # among the edges that are not excluded, in place of edges
    if draws.wanted > 0 and not by_weight:
        drawn = HopEdges(neighbors, cols, edge_ids)
        read = adjacency if excluded is None and times is None else None
        choose_uniform(frontier, spans, read, drawn, first_col, draws)
        if read is not None:
            return drawn
        owners = cols - first_col
    else:
        counts = torch.diff(spans.ends, prepend=spans.ends.new_zeros(1))
        owners = torch.repeat_interleave(counts, output_size=edges)
        gives_ranks = draws.wanted < 0
        if draws.wanted < 0:
            first_edges = spans.begins - (spans.ends - counts)
            edge_ids = torch.arange(edges, device=device) + first_edges[owners]
        elif times is not None:
            choose_by_time(times, adjacency.indptr, excluded, frontier, spans, edge_ids, draws)
        elif relation.weights is not None:
            choose_weighted(relation.weights, adjacency.indptr, excluded, frontier, spans, edge_ids, draws)
    if excluded is not None and gives_ranks:
        skip_excluded(excluded, spans.slots, spans.begins, owners, edge_ids)
    _read(adjacency, times, frontier, spans, HopEdges(neighbors, owners, edge_ids))
    return HopEdges(neighbors, owners + first_col, edge_ids)


def _read(
    adjacency: DeviceAdjacency, times: DeviceTimes | None, frontier: Frontier, spans: Spans, edges: HopEdges
) -> None:
    """Write the neighbours of edges, whose ``cols`` are as yet numbers of frontier nodes."""
    size = len(edges.edge_ids)
    shifts = TieredReads(spans.slots, spans.slots, spans.begins, 0)
    if times is not None:
        shifts = tiered_reads(*times.shifts, adjacency.indptr)
    _read_neighbors[triton.cdiv(size, _ROW_BLOCK),](
        *tiered_reads(adjacency.indices, adjacency.residents, adjacency.indptr),
        *shifts,
        frontier.nodes,
        spans.begins,
        edges.cols,
        edges.edge_ids,
        edges.neighbors,
        size,
        TIERED=adjacency.residents is not None,
        TIMED=times is not None,
        SHIFTS_TIERED=times is not None and times.shifts.residents is not None,
        BLOCK=_ROW_BLOCK,
        enable_fp_fusion=False,
    )


def draw_edges(
    frontier: Tensor,
    spans: tuple[Tensor, Tensor, Tensor],
    edge_ids: Tensor,
    cols: Tensor,
    *,
    first_col: int,
    wanted: int,
    replace: bool,
    key: tuple[int, int, int],
    place: int,
) -> None:
    """Draw edges of nodes, each equally likely, and read nothing of them; see :func:`sample_hop`.

    Args:
        frontier: int64 [n], n above 0.
        spans: where the edges of each node begin, int64, how many there are, int32, and where those that are
            drawn end in ``edge_ids`` and ``cols``, int64; [n] each.
        edge_ids: int64 [any], gets the positions of the edges that are drawn.
        cols: int64 [any], gets for each the number of its node, from ``first_col`` on.
        first_col: number of the first node.
        wanted: how many edges of a node, above 0.
        replace: draw with replacement.
        key: seed, epoch, batch.
        place: the hop and the number of the relation in the bits from the 8th on.
    """
    draws = Draws(wanted, replace, _core.philox_key(_NEIGHBOR_STREAM, *key), place)
    begins, degrees, ends = spans
    all_spans = Spans(begins, begins, degrees, degrees, ends, degrees)
    out = HopEdges(edge_ids, cols, edge_ids)
    choose_uniform(Frontier(frontier, frontier), all_spans, None, out, first_col, draws)


def check_most_neighbors(most: int, *, replace: bool) -> None:
    """Raise for more neighbours of a node than a device draws at once.

    Raises:
        UnsupportedError: more than 512 distinct ones, but not all.
    """
    if not replace and most > MOST_WITHOUT_REPLACEMENT:
        raise UnsupportedError(
            f"expected at most {MOST_WITHOUT_REPLACEMENT} neighbours of a node, or all (-1), "
            f"where a device samples without replacement, received {most}",
            where="num_neighbors",
            hint="sample the graph itself instead of its DeviceGraph",
        )


def sample_hops(
    relations: Sequence[DeviceRelation],
    positions: Sequence[NodePositions],
    seeds: Sequence[Tensor],
    hops: int,
    *,
    replace: bool,
    key: tuple[int, int, int],
    disjoint: bool = False,
    tree_times: Tensor | None = None,
    last: bool = False,
) -> SampledHops:
    """Sample in-neighbours hop by hop, as :func:`graphbox.sample.sample_heterogeneous` does.

    Args:
        relations: what is sampled, in the order of their turns.
        positions: of each node type; of a disjoint sample those that have a hash table.
        seeds: int64, of each node type; nodes that exist.
        hops: how many.
        replace: draw with replacement.
        key: seed, epoch, batch.
        disjoint: a tree of its own for each seed.
        tree_times: int64 [trees], the time of each, where relations have times.
        last: of those take the latest edges.

    Raises:
        UnsupportedError: more than 512 distinct neighbours of a node, but not all.
        DoesNotFitError: 2^31 nodes, or edges of a hop, or more.
    """
    for relation in relations:
        check_most_neighbors(max(relation.num_neighbors, default=0), replace=replace)
    philox_key = _core.philox_key(_NEIGHBOR_STREAM, *key)
    types = seeded_types(seeds, positions, disjoint=disjoint, tree_times=tree_times)
    found = [RelationEdges(each.device) for each in (seeds[relation.source] for relation in relations)]
    for hop in range(hops):
        for number, (relation, edges) in enumerate(zip(relations, found, strict=True)):
            target = types[relation.target]
            if len(target.frontier.nodes) == 0 or relation.num_neighbors[hop] == 0:
                edges.per_hop.append(0)
                continue
            place = hop | number << 8
            draws = Draws(relation.num_neighbors[hop], replace, philox_key, place, last)
            sampled = _sample_hop(relation, target.frontier, target.first_col, draws)
            edges.append(types[relation.source].insert(sampled, target), sampled)
        for each in types:
            each.end_hop()
    return SampledHops([each.sampled() for each in types], [each.sampled() for each in found])


def sample_device_graph(
    graph: DeviceGraph, plan: SamplingPlan, request: SampleRequest
) -> HeteroSample[Tensor]:
    """Sample a graph on its device, without columns; see :func:`graphbox.sample.sample_heterogeneous`.

    Args:
        graph: what to sample.
        plan: how.
        request: seeds, times and excluded edges of a batch.

    Raises:
        UsageError: a seed that is no node of the graph, no weights, or excluded edges of lists that do not
            ascend.
        UnsupportedError: more than 512 distinct neighbours of a node, but not all.
        DoesNotFitError: 2^31 nodes, or edges of a hop, or more.
    """
    seeds = seed_tensors(graph, plan, request)
    tree_times = plan.tree_times(request)
    timed = [] if tree_times is None else plan.timed
    by_alias = [each for each in plan.weighted if each not in timed]
    graph.hold([(each, "in") for each in plan.hops], [(each, "in") for each in by_alias])
    edge_types = list(plan.hops)
    excluded = {edge_types[each.relation]: each for each in plan.excluded(request)}
    # Brought now: readers must not wait for who ends a pass.
    timestamps: dict[EdgeType, Tensor] = {}
    for edge_type in timed:
        own = _times(graph, plan, edge_type).node_time
        if edge_type in excluded:
            timestamps[edge_type] = graph.edge_values(edge_type, "in", "timestamp") if own is None else own
    with graph.reading():
        relations = []
        for edge_type, hops in plan.hops.items():
            relation = DeviceRelation(
                graph.csc(edge_type),
                graph.weights(edge_type, "in") if edge_type in by_alias else None,
                *plan.ends(edge_type),
                hops,
                times=_times(graph, plan, edge_type) if edge_type in timed else None,
            )
            if edge_type in excluded:
                lists = _excluded(graph, edge_type, excluded[edge_type], sum(map(len, seeds)))
                relation = _excluding(relation, lists, timestamps.get(edge_type))
            relations.append(relation)
        disjoint = plan.is_disjoint(request)
        with lent_positions(graph, disjoint=disjoint) as positions:
            sampled = sample_hops(
                relations,
                positions,
                seeds,
                plan.depth,
                replace=plan.options.replace,
                key=plan.key(request),
                disjoint=disjoint,
                tree_times=None if tree_times is None else to_device(tree_times, graph.device),
                last=plan.options.temporal_strategy == "last",
            )
    return hetero_sample(plan.numbers, plan.hops, sampled.nodes, sampled.edges)


def seed_tensors(graph: DeviceGraph, plan: SamplingPlan, request: SampleRequest) -> list[Tensor]:
    """Return the seeds of each node type on the device, int64.

    Raises:
        UsageError: a seed that is no node of the graph.
    """
    return [
        node_tensor(nodes, num_nodes, graph.device, where)
        for (where, nodes), num_nodes in zip(plan.seeds(request), plan.num_nodes.values(), strict=True)
    ]


def _times(graph: DeviceGraph, plan: SamplingPlan, edge_type: EdgeType) -> DeviceTimes:
    return graph.times(edge_type, "in", plan.node_time_of(edge_type), weighted=edge_type in plan.weighted)


def _excluded(
    graph: DeviceGraph, edge_type: EdgeType, pairs: ExcludedPairs, trees: int
) -> ExcludedLists | None:
    graph.most_parallel(edge_type, "in")  # which says where lists do not ascend
    return excluded_lists(graph.csc(edge_type), pairs, graph.num_nodes(edge_type[0]), trees, graph.device)


def _excluding(
    relation: DeviceRelation, excluded: ExcludedLists | None, timestamps: Tensor | None
) -> DeviceRelation:
    if excluded is not None and relation.times is not None and timestamps is not None:
        excluded = excluded_places(excluded, relation.adjacency, relation.times, timestamps)
    return relation._replace(excluded=excluded)


def read_edge_values(
    graph: DeviceGraph, edge_types: Iterable[EdgeType], name: EdgeColumnName, sample: HeteroSample[Tensor]
) -> dict[EdgeType, Tensor]:
    """Return the weight or timestamp of each sampled edge of edge types that have it."""
    values = {}
    for edge_type in edge_types:
        column = graph.edge_values(edge_type, "in", name)
        edge_ids = sample.edge_ids[edge_type]
        values[edge_type] = torch.empty(len(edge_ids), dtype=column.dtype, device=graph.device)
        places = torch.arange(len(edge_ids), device=graph.device)
        with on_device(graph.device):
            copy_elements(column, edge_ids, values[edge_type], places)
    return values
