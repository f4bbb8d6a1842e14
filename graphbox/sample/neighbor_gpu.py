"""Neighbour sampling in Triton kernels: the twin of ``csrc/sample/neighbor.cpp``, bit for bit.

A hop of an edge type is a row of kernels: the edges of each frontier node are counted, their places in the
sample are the running sum, each node's choice is made by one row of a tile, and the neighbours get their
positions (``relabel_gpu.py``). Nothing but the sizes of a hop comes to the host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import triton
import triton.language as tl

from graphbox import _core
from graphbox.device import on_device
from graphbox.errors import UnsupportedError
from graphbox.philox_gpu import bounded, draw_words
from graphbox.sample.device import node_tensor
from graphbox.sample.edge_reads_gpu import copy_elements, list_begin, load_edges, tiered_reads
from graphbox.sample.excluded_gpu import ExcludedLists, excluded_lists, find_row, skip_excluded
from graphbox.sample.relabel_gpu import NodePositions, lent_positions
from graphbox.sample.resident_lists import SECTOR_BYTES
from graphbox.sample.sampled import HeteroSample
from graphbox.sample.weighted_choice_gpu import choose_weighted

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.adjacency import EdgeColumnName, EdgeType
    from graphbox.sample.device import DeviceAdjacency, DeviceGraph, DeviceWeights
    from graphbox.sample.excluded import ExcludedPairs

__all__ = [
    "DeviceRelation",
    "HopEdges",
    "SampledHops",
    "check_most_neighbors",
    "draw_edges",
    "find_spans",
    "read_edge_values",
    "sample_device_graph",
    "sample_hop",
    "sample_hops",
]

_NEIGHBOR_STREAM = 1  # Stream::kNeighbor of csrc/random/philox.h
_ROW_BLOCK = 1024
_TILE = 1024  # draws of a program
_MOST_WITHOUT_REPLACEMENT = 512


class DeviceRelation(NamedTuple):
    """An edge type that is sampled on a device.

    Attributes:
        adjacency: in-neighbours of its target type.
        weights: draw in proportion to these; None: every edge is equally likely.
        source: number of its source type.
        target: number of its target type.
        num_neighbors: for each hop, -1: all.
        excluded: edges that must not be sampled; None: there are none. Not with weights.
    """

    adjacency: DeviceAdjacency
    weights: DeviceWeights | None
    source: int
    target: int
    num_neighbors: Sequence[int]
    excluded: ExcludedLists | None = None


class SampledHops(NamedTuple):
    """A sample, by the numbers of node types and relations; see :class:`graphbox.sample.HeteroSample`."""

    nodes: list[Tensor]
    nodes_per_hop: list[list[int]]
    rows: list[Tensor]
    cols: list[Tensor]
    edge_ids: list[Tensor]
    edges_per_hop: list[list[int]]


@triton.jit
def _find_spans(
    nodes, indptr, uses, excluded_rows, removed, num_excluded, begins, degrees, counts, slots, size, wanted,
    sector_edges, REPLACE: tl.constexpr, COUNTS_USES: tl.constexpr, EXCLUDES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0)
    begin = tl.load(indptr + node, mask=inside, other=0)
    degree = tl.load(indptr + node + 1, mask=inside, other=0) - begin
    if EXCLUDES:
        slot = find_row(excluded_rows, num_excluded, node, inside)
        tl.store(slots + number, slot, mask=inside)
        degree -= tl.load(removed + slot, mask=inside & (slot >= 0), other=0)
    if REPLACE:
        count = tl.where(degree > 0, wanted, 0)
    else:
        count = tl.minimum(degree, wanted)
    if COUNTS_USES:
        sectors = tl.minimum(count, (degree + sector_edges - 1) // sector_edges).to(tl.int32)
        tl.atomic_add(uses + node, sectors, mask=inside & (sectors > 0), sem="relaxed")
    tl.store(begins + number, begin, mask=inside)
    tl.store(degrees + number, degree.to(tl.int32), mask=inside)
    tl.store(counts + number, count.to(tl.int32), mask=inside)


@triton.jit
def _distinct(drawn, last, wanted, DRAWS: tl.constexpr):
    """Return Floyd's choices, as ``csrc/sample/choice.cpp``: where a number was taken the last stands in."""
    draw = tl.arange(0, DRAWS)[None, :]
    choice = drawn
    for number in range(1, wanted):
        here = draw == number
        value = tl.sum(tl.where(here, drawn, 0), axis=1)[:, None]
        is_taken = tl.max(((choice == value) & (draw < number)).to(tl.int32), axis=1)[:, None] > 0
        choice = tl.where(here & is_taken, last, choice)
    return choice


@triton.jit
def _choose_uniform(
    nodes, begins, degrees, ends, indices, residents, places, edges, edge_ids, cols, neighbors, size,
    first_col, wanted, key, place, REPLACE: tl.constexpr, TIERED: tl.constexpr, READS: tl.constexpr,
    DRAWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    first_draw = tl.program_id(1) * DRAWS
    draw = tl.arange(0, DRAWS)[None, :] + first_draw
    node = tl.load(nodes + number, mask=inside, other=0)
    begin = tl.load(begins + number, mask=inside, other=0)
    degree = tl.load(degrees + number, mask=inside, other=0)
    if REPLACE:
        count = tl.where(degree > 0, wanted, 0)
        draws = degree > 0
    else:
        count = tl.minimum(degree, wanted)
        draws = degree > wanted
    is_wanted = draw < count[:, None]
    choice = tl.zeros([BLOCK, DRAWS], tl.int32) + draw
    if tl.max(draws.to(tl.int32)) > 0:
        first_block = first_draw // 4
        words = draw_words(key, place, first_block, node, 0, DRAWS)
        is_drawn = is_wanted & draws[:, None]
        if REPLACE:
            ranges = tl.zeros_like(draw) + degree[:, None]
        else:
            ranges = degree[:, None] - wanted + draw + 1
        ranges = tl.where(is_drawn, ranges, 1).to(tl.uint32)
        drawn = bounded(words, ranges, key, place, first_block, node, is_drawn, DRAWS).to(tl.int32)
        if not REPLACE:
            drawn = _distinct(drawn, degree[:, None] - wanted + draw, wanted, DRAWS)
        choice = tl.where(is_drawn, drawn, choice)
    out = (tl.load(ends + number, mask=inside, other=0) - count)[:, None] + draw
    edge = begin[:, None] + choice
    is_wanted &= inside[:, None]
    tl.store(edge_ids + out, edge, mask=is_wanted)
    tl.store(cols + out, tl.zeros_like(edge) + (first_col + number)[:, None], mask=is_wanted)
    if READS:
        read_at = list_begin(places, node, begin, edges, inside, TIERED)[:, None] + choice
        neighbor = load_edges(indices, residents, edges, read_at, is_wanted, 0, TIERED)
        tl.store(neighbors + out, neighbor, mask=is_wanted)


@triton.jit
def _read_neighbors(
    indices, residents, places, edges, nodes, begins, owners, edge_ids, neighbors, size,
    TIERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    edge = tl.load(edge_ids + number, mask=inside, other=0)
    if TIERED:
        owner = tl.load(owners + number, mask=inside, other=0)
        node = tl.load(nodes + owner, mask=inside, other=0)
        begin = tl.load(begins + owner, mask=inside, other=0)
        edge += list_begin(places, node, begin, edges, inside, TIERED) - begin
    tl.store(neighbors + number, load_edges(indices, residents, edges, edge, inside, 0, TIERED), mask=inside)


class _Spans(NamedTuple):
    """The edges of each frontier node.

    Attributes:
        begins: int64, where they begin in the adjacency.
        degrees: int32, how many there are.
        ends: int64, where those that are sampled end among those of the hop.
    """

    begins: Tensor
    degrees: Tensor
    ends: Tensor


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


class _Draws(NamedTuple):
    """What the draws of one relation at one hop have in common."""

    wanted: int
    replace: bool
    key: int
    place: int  # hop | number of the relation << 8


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
    check_most_neighbors(max(relation.num_neighbors, default=0), replace=replace)
    draws = _Draws(relation.num_neighbors[0], replace, _core.philox_key(_NEIGHBOR_STREAM, *key), 0)
    return _sample_hop(relation, frontier, 0, draws)


def _sample_hop(relation: DeviceRelation, frontier: Tensor, first_col: int, draws: _Draws) -> HopEdges:
    """Sample the in-neighbours of ``frontier``, the first of which is at ``first_col`` in the sample."""
    spans, slots = _spans_of(relation, frontier, draws)
    edges = int(spans.ends[-1])
    adjacency, excluded = relation.adjacency, relation.excluded
    neighbors = torch.empty(edges, dtype=adjacency.indices.dtype, device=frontier.device)
    cols, edge_ids = (torch.empty(edges, dtype=torch.int64, device=frontier.device) for _ in range(2))
    if edges == 0:
        return HopEdges(neighbors, cols, edge_ids)
    if draws.wanted > 0 and relation.weights is None:
        found = HopEdges(neighbors, cols, edge_ids)
        _launch_uniform(frontier, spans, adjacency, found, first_col, draws)
        if excluded is None:
            return found
        owners = cols - first_col
    else:
        counts = torch.diff(spans.ends, prepend=spans.ends.new_zeros(1))
        owners = torch.repeat_interleave(counts, output_size=edges)
        if relation.weights is None or draws.wanted < 0:
            first_edges = spans.begins - (spans.ends - counts)
            edge_ids = torch.arange(edges, device=frontier.device) + first_edges[owners]
        else:
            _choose_weighted(relation, frontier, spans, edge_ids, draws)
    if excluded is not None:
        skip_excluded(excluded, slots, spans.begins, owners, edge_ids)
    _read_neighbors[triton.cdiv(edges, _ROW_BLOCK),](
        *tiered_reads(adjacency.indices, adjacency.residents, adjacency.indptr),
        frontier,
        spans.begins,
        owners,
        edge_ids,
        neighbors,
        edges,
        TIERED=adjacency.residents is not None,
        BLOCK=_ROW_BLOCK,
        enable_fp_fusion=False,
    )
    return HopEdges(neighbors, owners + first_col, edge_ids)


def _spans_of(relation: DeviceRelation, frontier: Tensor, draws: _Draws) -> tuple[_Spans, Tensor]:
    """Return the edges of each frontier node, and which excluded row each is; without any, anything."""
    adjacency, excluded = relation.adjacency, relation.excluded
    size = len(frontier)
    begins = torch.empty(size, dtype=torch.int64, device=frontier.device)
    degrees, counts = (torch.empty(size, dtype=torch.int32, device=frontier.device) for _ in range(2))
    slots = degrees if excluded is None else torch.empty_like(degrees)
    takes_all = draws.wanted < 0
    _find_spans[triton.cdiv(size, _ROW_BLOCK),](
        frontier,
        adjacency.indptr,
        degrees if adjacency.uses is None else adjacency.uses,
        frontier if excluded is None else excluded.rows,
        degrees if excluded is None else excluded.removed,
        0 if excluded is None else len(excluded.rows),
        begins,
        degrees,
        counts,
        slots,
        size,
        2**31 - 1 if takes_all else draws.wanted,
        SECTOR_BYTES // adjacency.indices.element_size(),
        REPLACE=draws.replace and not takes_all,
        COUNTS_USES=adjacency.uses is not None,
        EXCLUDES=excluded is not None,
        BLOCK=_ROW_BLOCK,
        enable_fp_fusion=False,
    )
    return _Spans(begins, degrees, torch.cumsum(counts, 0, dtype=torch.int64)), slots


def _launch_uniform(
    frontier: Tensor,
    spans: _Spans,
    adjacency: DeviceAdjacency | None,
    out: HopEdges,
    first_col: int,
    draws: _Draws,
) -> None:
    """Choose edges of nodes, and read their neighbours; without an adjacency these stay where they are."""
    residents = None if adjacency is None else adjacency.residents
    indices, indptr = (out.edge_ids,) * 2 if adjacency is None else (adjacency.indices, adjacency.indptr)
    width = min(max(triton.next_power_of_2(draws.wanted), 4), _MOST_WITHOUT_REPLACEMENT)
    block = max(_TILE // width, 1)
    _choose_uniform[triton.cdiv(len(frontier), block), triton.cdiv(draws.wanted, width)](
        frontier,
        *spans,
        *tiered_reads(indices, residents, indptr),
        out.edge_ids,
        out.cols,
        out.neighbors,
        len(frontier),
        first_col,
        draws.wanted,
        draws.key,
        draws.place,
        REPLACE=draws.replace,
        TIERED=residents is not None,
        READS=adjacency is not None,
        DRAWS=width,
        BLOCK=block,
        enable_fp_fusion=False,
    )


def find_spans(
    adjacency: DeviceAdjacency, frontier: Tensor, wanted: int, *, replace: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the spans of nodes as :func:`draw_edges` takes them, and count what is to be read of lists."""
    relation = DeviceRelation(adjacency, None, 0, 0, ())
    return _spans_of(relation, frontier, _Draws(wanted, replace, 0, 0))[0]


def draw_edges(
    frontier: Tensor,
    spans: Sequence[Tensor],
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
    draws = _Draws(wanted, replace, _core.philox_key(_NEIGHBOR_STREAM, *key), place)
    _launch_uniform(frontier, _Spans(*spans), None, HopEdges(edge_ids, cols, edge_ids), first_col, draws)


def check_most_neighbors(most: int, *, replace: bool) -> None:
    """Raise for more neighbours of a node than a device draws at once.

    Raises:
        UnsupportedError: more than 512 distinct ones, but not all.
    """
    if not replace and most > _MOST_WITHOUT_REPLACEMENT:
        raise UnsupportedError(
            f"expected at most {_MOST_WITHOUT_REPLACEMENT} neighbours of a node, or all (-1), "
            f"where a device samples without replacement, received {most}",
            where="num_neighbors",
            hint="sample the graph itself instead of its DeviceGraph",
        )


def _choose_weighted(
    relation: DeviceRelation, frontier: Tensor, spans: _Spans, edge_ids: Tensor, draws: _Draws
) -> None:
    weights = cast("DeviceWeights", relation.weights)
    choose_weighted(
        frontier,
        spans,
        relation.adjacency.indptr,
        weights,
        edge_ids,
        draws.wanted,
        draws.key,
        draws.place,
        replace=draws.replace,
    )


class _TypeNodes:
    """The nodes of one type in the sample that is being made."""

    def __init__(self, seeds: Tensor, positions: NodePositions) -> None:
        self.chunks = [seeds]
        self.frontier = seeds
        self.first_col = 0
        self.per_hop = [len(seeds)]
        self._positions = positions
        self._added: list[Tensor] = []
        positions.start(seeds)

    def insert(self, neighbors: Tensor) -> Tensor:
        """Return the positions of neighbours; those that are new belong to the next hop."""
        rows, new_nodes = self._positions.insert(neighbors)
        self._added.append(new_nodes)
        return rows

    def end_hop(self) -> None:
        self.first_col += len(self.frontier)
        self.frontier = torch.cat([self.frontier[:0], *self._added])
        self.chunks.append(self.frontier)
        self.per_hop.append(len(self.frontier))
        self._added = []


class _RelationEdges:
    """The edges of one relation in the sample that is being made."""

    def __init__(self, device: torch.device) -> None:
        none = torch.empty(0, dtype=torch.int64, device=device)
        self.rows, self.cols, self.edge_ids = [none], [none], [none]
        self.per_hop: list[int] = []

    def append(self, rows: Tensor, edges: HopEdges) -> None:
        self.rows.append(rows)
        self.cols.append(edges.cols)
        self.edge_ids.append(edges.edge_ids)
        self.per_hop.append(len(rows))


def sample_hops(
    relations: Sequence[DeviceRelation],
    positions: Sequence[NodePositions],
    seeds: Sequence[Tensor],
    hops: int,
    *,
    replace: bool,
    key: tuple[int, int, int],
) -> SampledHops:
    """Sample in-neighbours hop by hop, as :func:`graphbox.sample.sample_heterogeneous` does.

    Args:
        relations: what is sampled, in the order of their turns.
        positions: of each node type.
        seeds: int64, of each node type; nodes that exist.
        hops: how many.
        replace: draw with replacement.
        key: seed, epoch, batch.

    Raises:
        UnsupportedError: more than 512 distinct neighbours of a node, but not all.
        DoesNotFitError: 2^31 nodes, or edges of a hop, or more.
    """
    for relation in relations:
        check_most_neighbors(max(relation.num_neighbors, default=0), replace=replace)
    philox_key = _core.philox_key(_NEIGHBOR_STREAM, *key)
    types = [_TypeNodes(*each) for each in zip(seeds, positions, strict=True)]
    found = [_RelationEdges(each.device) for each in (seeds[relation.source] for relation in relations)]
    for hop in range(hops):
        for number, (relation, edges) in enumerate(zip(relations, found, strict=True)):
            target = types[relation.target]
            if len(target.frontier) == 0 or relation.num_neighbors[hop] == 0:
                edges.per_hop.append(0)
                continue
            draws = _Draws(relation.num_neighbors[hop], replace, philox_key, hop | number << 8)
            sampled = _sample_hop(relation, target.frontier, target.first_col, draws)
            edges.append(types[relation.source].insert(sampled.neighbors), sampled)
        for each in types:
            each.end_hop()
    return SampledHops(
        nodes=[torch.cat(each.chunks) for each in types],
        nodes_per_hop=[each.per_hop for each in types],
        rows=[torch.cat(each.rows) for each in found],
        cols=[torch.cat(each.cols) for each in found],
        edge_ids=[torch.cat(each.edge_ids) for each in found],
        edges_per_hop=[each.per_hop for each in found],
    )


def sample_device_graph(
    graph: DeviceGraph,
    seeds: Mapping[str, object],
    num_neighbors: Mapping[EdgeType, Sequence[int]],
    *,
    replace: bool,
    weighted: Collection[EdgeType],
    key: tuple[int, int, int],
    excluded: Sequence[ExcludedPairs] = (),
) -> HeteroSample[Tensor]:
    """Sample a graph on its device; see :func:`graphbox.sample.sample_heterogeneous`.

    Args:
        graph: what to sample.
        seeds: node indices by node type.
        num_neighbors: how many neighbours at each hop, for each edge type that is sampled.
        replace: draw with replacement.
        weighted: the edge types that are drawn in proportion to their weights.
        key: seed, epoch, batch.
        excluded: edges that must not be sampled, by the number of their edge type, without groups.

    Raises:
        UsageError: a seed that is no node of the graph, no weights, or excluded edges of lists that do not
            ascend.
        UnsupportedError: more than 512 distinct neighbours of a node, but not all; or excluded edges among
            weighted ones.
        DoesNotFitError: 2^31 nodes, or edges of a hop, or more.
    """
    numbers = {node_type: number for number, node_type in enumerate(graph.node_types)}
    seed_nodes = [
        node_tensor(seeds.get(each, ()), graph.num_nodes(each), graph.device, f"seeds[{each!r}]")
        for each in numbers
    ]
    most_hops = max((len(hops) for hops in num_neighbors.values()), default=0)
    graph.hold([(each, "in") for each in num_neighbors], [(each, "in") for each in weighted])
    pairs = {each[0]: each for each in excluded}
    with graph.reading():
        relations = [
            DeviceRelation(
                graph.csc(edge_type),
                graph.weights(edge_type, "in") if edge_type in weighted else None,
                numbers[edge_type[0]],
                numbers[edge_type[2]],
                hops,
                _excluded(graph, edge_type, pairs[number], is_weighted=edge_type in weighted)
                if number in pairs
                else None,
            )
            for number, (edge_type, hops) in enumerate(num_neighbors.items())
        ]
        with lent_positions(graph) as positions:
            sampled = sample_hops(relations, positions, seed_nodes, most_hops, replace=replace, key=key)
    return HeteroSample(
        nodes=dict(zip(numbers, sampled.nodes, strict=True)),
        rows=dict(zip(num_neighbors, sampled.rows, strict=True)),
        cols=dict(zip(num_neighbors, sampled.cols, strict=True)),
        edge_ids=dict(zip(num_neighbors, sampled.edge_ids, strict=True)),
        nodes_per_hop=dict(zip(numbers, sampled.nodes_per_hop, strict=True)),
        edges_per_hop=dict(zip(num_neighbors, sampled.edges_per_hop, strict=True)),
    )


def _excluded(
    graph: DeviceGraph, edge_type: EdgeType, pairs: ExcludedPairs, *, is_weighted: bool
) -> ExcludedLists | None:
    if is_weighted:
        raise UnsupportedError(
            "samplers on a device know no excluded edges among those that are drawn by weight",
            where=f"excluded_edges[{edge_type!r}]",
            hint="sample the graph itself instead of its DeviceGraph",
        )
    graph.most_parallel(edge_type, "in")  # which says where lists do not ascend
    _, targets, sources, *_ = pairs
    return excluded_lists(graph.csc(edge_type), targets, sources, graph.num_nodes(edge_type[0]), graph.device)


def read_edge_values(
    graph: DeviceGraph, edge_types: Iterable[EdgeType], name: EdgeColumnName, sample: HeteroSample[Tensor]
) -> dict[EdgeType, Tensor]:
    """Return the weight or timestamp of each sampled edge, of the edge types that have it."""
    values = {}
    for edge_type in edge_types:
        if graph.has_values(edge_type, "in", name):
            column = graph.edge_values(edge_type, "in", name)
            edge_ids = sample.edge_ids[edge_type]
            values[edge_type] = torch.empty(len(edge_ids), dtype=column.dtype, device=graph.device)
            places = torch.arange(len(edge_ids), device=graph.device)
            with on_device(graph.device):
                copy_elements(column, edge_ids, values[edge_type], places)
    return values
