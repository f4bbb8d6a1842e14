"""The nodes of a hop, and which of their edges may be chosen, found by a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from graphbox.sample.edge_reads_gpu import TieredReads, list_begin, lower_bound, tiered_reads, upper_bound
from graphbox.sample.excluded_gpu import ExcludedLists, find_row, ranges_of
from graphbox.sample.resident_lists import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from graphbox.sample.device import DeviceAdjacency, DeviceWeights
    from graphbox.sample.device_times import DeviceTimes

_BLOCK = 1024
_ALL = 2**31 - 1


class DeviceRelation(NamedTuple):
    """An edge type that is sampled on a device.

    Attributes:
        adjacency: in-neighbours of its target type.
        weights: draw in proportion to these; None: every edge is equally likely, or likely by ``times``.
        source: number of its source type.
        target: number of its target type.
        num_neighbors: for each hop, -1: all.
        excluded: edges that must not be sampled, by places in the order of ``times`` if there is one; None:
            there are none.
        times: only edges not later than the time of their tree are sampled, in proportion to their weights if
            ``times`` have sums of these; None: at any time.
    """

    adjacency: DeviceAdjacency
    weights: DeviceWeights | None
    source: int
    target: int
    num_neighbors: Sequence[int]
    excluded: ExcludedLists | None = None
    times: DeviceTimes | None = None


class Frontier(NamedTuple):
    """Nodes whose neighbours are sampled.

    Attributes:
        nodes: int64 [n].
        positions: int64 [n], by which they draw: the nodes; of disjoint samples tree and number within it.
        trees: int64 [n], the tree of each; None: the sample is not disjoint.
        times: int64 [trees], the time of each; None: they have none.
    """

    nodes: Tensor
    positions: Tensor
    trees: Tensor | None = None
    times: Tensor | None = None


class Draws(NamedTuple):
    """Settings of the draws of one relation at one hop.

    Attributes:
        wanted: edges of each node, -1: all.
        replace: draw with replacement.
        key: uint64, of :func:`graphbox._core.philox_key`.
        place: hop | number of the relation << 8.
        last: of edges with times the latest are taken.
    """

    wanted: int
    replace: bool
    key: int
    place: int
    last: bool = False


class Spans(NamedTuple):
    """The edges of each frontier node: positions, or places in the order of time.

    Attributes:
        begins: int64, where they begin in the adjacency.
        starts: int64, the first that may be chosen, by its rank among those that are not excluded.
        degrees: int32, how many may be chosen.
        lengths: int32, the same with those that are excluded, from ``begins`` on.
        ends: int64, where those that are sampled end among those of the hop.
        slots: int32, which row of what is excluded each is, -1: none; without any, anything.
    """

    begins: Tensor
    starts: Tensor
    degrees: Tensor
    lengths: Tensor
    ends: Tensor
    slots: Tensor

    def arguments(self, excluded: ExcludedLists | None) -> tuple[Tensor, ...]:
        """Return what kernels take that choose among these edges: all but ``starts``, and excluded ranges."""
        ranges = (self.begins, self.slots, self.slots)  # which nobody reads
        if excluded is not None:
            ranges = (excluded.first_ranges, excluded.begins, excluded.counts)
        return self.begins, self.degrees, self.lengths, self.ends, self.slots, *ranges


@triton.jit
def _find_spans(
    nodes, keys, trees, tree_times, indptr, uses, times, residents, places, edges, excluded_rows,
    num_excluded, first_ranges, range_begins, removed, begins, starts, degrees, lengths, counts, slots,
    size, wanted, sector_edges, REPLACE: tl.constexpr, COUNTS_USES: tl.constexpr,
    EXCLUDES: tl.constexpr, TIMED: tl.constexpr, TIERED: tl.constexpr,
    LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0)
    begin = tl.load(indptr + node, mask=inside, other=0)
    degree = (tl.load(indptr + node + 1, mask=inside, other=0) - begin).to(tl.int32)
    if TIMED:
        time = tl.load(tree_times + tl.load(trees + number, mask=inside, other=0), mask=inside, other=0)
        read_at = list_begin(places, node, begin, edges, inside, TIERED)
        degree = upper_bound(times, residents, edges, read_at, degree, time, inside, TIERED)
    if EXCLUDES:
        tl.store(lengths + number, degree, mask=inside)
        key = tl.load(keys + number, mask=inside, other=0)
        slot = find_row(excluded_rows, num_excluded, key, inside)
        tl.store(slots + number, slot, mask=inside)
        has_excluded = inside & (slot >= 0)
        if TIMED:
            first, ranges = ranges_of(first_ranges, slot, has_excluded)
            degree -= lower_bound(
                range_begins, range_begins, 0, first, ranges, degree.to(tl.int64), has_excluded, False
            )
        else:
            degree -= tl.load(removed + slot, mask=has_excluded, other=0).to(tl.int32)
    if LAST:
        latest = tl.minimum(degree, wanted)
        start = begin + degree - latest
        degree = latest
        tl.store(starts + number, start, mask=inside)
    if REPLACE:
        count = tl.where(degree > 0, wanted, 0)
    else:
        count = tl.minimum(degree, wanted)
    if COUNTS_USES:
        sectors = tl.minimum(count, (degree - 1) // sector_edges + 1)
        tl.atomic_add(uses + node, sectors, mask=inside & (count > 0), sem="relaxed")
    tl.store(begins + number, begin, mask=inside)
    tl.store(degrees + number, degree, mask=inside)
    tl.store(counts + number, count.to(tl.int32), mask=inside)


def find_spans(relation: DeviceRelation, frontier: Frontier, draws: Draws) -> Spans:
    """Return the edges of each frontier node that may be chosen, and count what will be read of its list."""
    adjacency, excluded, times = relation.adjacency, relation.excluded, relation.times
    nodes = frontier.nodes
    begins = torch.empty_like(nodes)
    degrees, counts = (torch.empty(len(nodes), dtype=torch.int32, device=nodes.device) for _ in range(2))
    starts = torch.empty_like(begins) if draws.last and times is not None else begins
    slots, lengths = (degrees if excluded is None else torch.empty_like(degrees) for _ in range(2))
    takes_all = draws.wanted < 0
    times_read = TieredReads(nodes, nodes, nodes, 0)
    if times is not None:
        times_read = tiered_reads(*times.times, adjacency.indptr)
    _find_spans[triton.cdiv(len(nodes), _BLOCK),](
        nodes,
        nodes if excluded is None else excluded.keys(nodes, frontier.trees),
        nodes if frontier.trees is None else frontier.trees,
        nodes if frontier.times is None else frontier.times,
        adjacency.indptr,
        degrees if adjacency.uses is None else adjacency.uses,
        *times_read,
        *((nodes, 0, nodes, degrees, nodes) if excluded is None else _of_rows(excluded)),
        begins,
        starts,
        degrees,
        lengths,
        counts,
        slots,
        len(nodes),
        _ALL if takes_all else draws.wanted,
        SECTOR_BYTES // adjacency.indices.element_size(),
        REPLACE=draws.replace and not takes_all,
        COUNTS_USES=adjacency.uses is not None,
        EXCLUDES=excluded is not None,
        TIMED=times is not None,
        TIERED=times is not None and times.times.residents is not None,
        LAST=draws.last and times is not None,
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )
    return Spans(begins, starts, degrees, lengths, torch.cumsum(counts, 0, dtype=torch.int64), slots)


def _of_rows(excluded: ExcludedLists) -> tuple[Tensor, int, Tensor, Tensor, Tensor]:
    return excluded.rows, len(excluded.rows), excluded.first_ranges, excluded.begins, excluded.removed
