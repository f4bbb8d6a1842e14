"""Positions of nodes in a sample, in the order of first appearance: the twin of ``csrc/sample/node_map.h``.

An array has an entry for each node of the type. Its high half names the sample that wrote it, later samples
smaller, so that one atomic minimum both replaces what earlier samples left and keeps the first of the edges
that lead to a node. Its low half is the node's position, or, above all positions, such an edge.

For a type with too many nodes for that, entries belong to the places of a hash table of the sample's nodes:
which place a node gets depends on who comes first, but its position does not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from graphbox.errors import DoesNotFitError

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.device import DeviceGraph

_BLOCK = 1024
_MOST_SAMPLES = 2**31 - 1
_FIRST_CANDIDATE = tl.constexpr(2**31)
_LOW_HALF = tl.constexpr(0xFFFFFFFF)
_FREE = tl.constexpr(-1)
_LEAST_PLACES = 1024


@triton.jit
def _note_seeds(entries, nodes, size, stamp, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0).to(tl.int64)
    tl.atomic_min(entries + node, stamp | number, mask=inside, sem="relaxed")


@triton.jit
def _note_candidates(entries, nodes, size, stamp, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0).to(tl.int64)
    tl.atomic_min(entries + node, stamp | (number + _FIRST_CANDIDATE), mask=inside, sem="relaxed")


@triton.jit
def _mark_first(entries, nodes, is_first, size, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0).to(tl.int64)
    low = tl.load(entries + node, mask=inside, other=0) & _LOW_HALF
    tl.store(is_first + number, (low == number + _FIRST_CANDIDATE).to(tl.int8), mask=inside)


@triton.jit
def _give_positions(
    entries, places, is_first, nodes, ranks, new_nodes, size, stamp, first_position, BLOCK: tl.constexpr
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    is_new = inside & (tl.load(is_first + number, mask=inside, other=0) != 0)
    place = tl.load(places + number, mask=is_new, other=0).to(tl.int64)
    node = tl.load(nodes + number, mask=is_new, other=0).to(tl.int64)
    rank = tl.load(ranks + number, mask=is_new, other=1) - 1
    tl.store(new_nodes + rank, node, mask=is_new)
    tl.store(entries + place, stamp | (first_position + rank), mask=is_new)


@triton.jit
def _look_up(entries, nodes, positions, size, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0).to(tl.int64)
    tl.store(positions + number, tl.load(entries + node, mask=inside, other=0) & _LOW_HALF, mask=inside)


@triton.jit
def _find_places(keys, nodes, places, size, last_place, BLOCK: tl.constexpr):
    """Write where nodes are among ``keys``, which has room for all; new ones claim a free place."""
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0).to(tl.int64)
    bits = node.to(tl.uint64, bitcast=True)  # mixed as by Stafford, "mix 13"
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    place = (bits ^ (bits >> 31)).to(tl.int64, bitcast=True) & last_place
    searching = inside
    while tl.max(searching.to(tl.int32)) > 0:
        # Who has a place compares it with its own node, which changes nothing.
        expected = tl.where(searching, _FREE, node)
        found = tl.atomic_cas(keys + place, expected, node, sem="relaxed")
        searching = searching & (found != _FREE) & (found != node)
        place = tl.where(searching, (place + 1) & last_place, place)
    tl.store(places + number, place, mask=inside)


class _NodeHash:
    """Places of nodes, by open addressing with linear probing; at most half of them are taken."""

    def __init__(self, device: torch.device) -> None:
        self.keys = torch.full((_LEAST_PLACES,), _FREE.value, dtype=torch.int64, device=device)

    def clear(self) -> None:
        self.keys.fill_(_FREE.value)

    def grow(self, nodes: int) -> Tensor | None:
        """Make room for so many nodes; return the keys there were before, if they are at other places now."""
        wanted = triton.next_power_of_2(2 * nodes)
        if wanted <= len(self.keys):
            return None
        before = self.keys
        self.keys = torch.full((wanted,), _FREE.value, dtype=torch.int64, device=before.device)
        return before

    def places(self, nodes: Tensor) -> Tensor:
        """Return the places of nodes, which new ones are given."""
        places = torch.empty(len(nodes), dtype=torch.int64, device=nodes.device)
        if len(nodes) > 0:
            grid = (triton.cdiv(len(nodes), _BLOCK),)
            _find_places[grid](
                self.keys,
                nodes,
                places,
                len(nodes),
                len(self.keys) - 1,
                BLOCK=_BLOCK,
                enable_fp_fusion=False,
            )
        return places


class NodePositions:
    """Where the nodes of a type are in the sample that is being made; used by one sample after the other.

    Args:
        num_nodes: of the type.
        device: where the nodes are.
        most_bytes: of the device, for entries of all nodes, 8 bytes each; if they take more, nodes of the
            sample have them, in a hash table: at most 64 bytes for each node that is looked up in a hop.
    """

    def __init__(self, num_nodes: int, device: torch.device, most_bytes: int | None = None) -> None:
        self.num_nodes = num_nodes
        self._hash = None if most_bytes is None or 8 * num_nodes <= most_bytes else _NodeHash(device)
        size = num_nodes if self._hash is None else len(self._hash.keys)
        self._entries = torch.empty(size, dtype=torch.int64, device=device)
        self._samples = _MOST_SAMPLES
        self._size = 0

    @property
    def held_bytes(self) -> int:
        """Bytes held on the device."""
        return self._entries.nbytes + (0 if self._hash is None else self._hash.keys.nbytes)

    @property
    def _stamp(self) -> int:
        return (_MOST_SAMPLES - self._samples) << 32

    def start(self, seeds: Tensor) -> None:
        """Forget all nodes, then give ``seeds`` their positions 0 to s - 1.

        Args:
            seeds: int64 [s]; of equal ones the first counts.
        """
        if self._samples == _MOST_SAMPLES:
            self._entries.fill_(torch.iinfo(torch.int64).max)
            self._samples = 0
        self._samples += 1
        self._size = 0
        if self._hash is not None:
            self._hash.clear()
        self._launch(_note_seeds, self._places(seeds), stamp=self._stamp)
        self._size = len(seeds)

    def insert(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions of ``nodes``, and those that had none: they come next, by first appearance.

        Args:
            nodes: int32 or int64 [n], node indices.

        Returns:
            int64 [n], and int64 [new].

        Raises:
            DoesNotFitError: 2^31 nodes or more, at once or in the sample.
        """
        positions = torch.empty(len(nodes), dtype=torch.int64, device=nodes.device)
        if len(nodes) == 0:
            return positions, positions
        _check_size(len(nodes))
        places = self._places(nodes)
        is_first = torch.empty(len(nodes), dtype=torch.int8, device=nodes.device)
        self._launch(_note_candidates, places, stamp=self._stamp)
        self._launch(_mark_first, places, is_first)
        ranks = torch.cumsum(is_first, 0)
        new_nodes = torch.empty(int(ranks[-1]), dtype=torch.int64, device=nodes.device)
        _check_size(self._size + len(new_nodes))
        arrays = is_first, nodes, ranks, new_nodes
        self._launch(_give_positions, places, *arrays, stamp=self._stamp, first_position=self._size)
        self._launch(_look_up, places, positions)
        self._size += len(new_nodes)
        return positions, new_nodes

    def _places(self, nodes: Tensor) -> Tensor:
        """Return where the entries of nodes are."""
        if self._hash is None:
            return nodes
        before = self._hash.grow(self._size + len(nodes))
        if before is not None:
            entries = self._entries
            self._entries = torch.full_like(self._hash.keys, torch.iinfo(torch.int64).max)
            taken = (before != _FREE.value).nonzero().squeeze(1)
            self._entries[self._hash.places(before[taken])] = entries[taken]
        return self._hash.places(nodes)

    def _launch(self, kernel: triton.JITFunction, nodes: Tensor, *arrays: Tensor, **numbers: int) -> None:
        if len(nodes) > 0:
            grid = (triton.cdiv(len(nodes), _BLOCK),)
            kernel[grid](
                self._entries,
                nodes,
                *arrays,
                size=len(nodes),
                **numbers,
                BLOCK=_BLOCK,
                enable_fp_fusion=False,
            )


def _check_size(nodes: int) -> None:
    if nodes >= 2**31:
        raise DoesNotFitError(
            f"a sample on a GPU holds fewer than 2^31 nodes and edges of a hop, this one would have {nodes}",
            hint="sample fewer seeds at a time",
        )


_lock = threading.Lock()
# Of each graph those that no sample uses, by the stream whose kernels may still be at them, and disjointness.
_free: weakref.WeakKeyDictionary[DeviceGraph, dict[tuple[int, bool], list[list[NodePositions]]]] = (
    weakref.WeakKeyDictionary()
)


@contextmanager
def lent_positions(graph: DeviceGraph, *, disjoint: bool = False) -> Iterator[list[NodePositions]]:
    """Lend one for each node type to a sample on the current stream, made anew where all are in use.

    Args:
        graph: what is sampled.
        disjoint: trees have nodes of their own, of which there are too many for an array.
    """
    is_cuda = graph.device.type == "cuda"
    stream = torch.cuda.current_stream(graph.device).cuda_stream if is_cuda else 0
    with _lock:
        free = _free.setdefault(graph, {}).setdefault((stream, disjoint), [])
        lent = free.pop() if free else None
    if lent is None:
        lent = [
            NodePositions(graph.num_nodes(each), graph.device, 0 if disjoint else graph.relabel_bytes)
            for each in graph.node_types
        ]
    yield lent
    with _lock:
        free.append(lent)  # but not after an error, which may leave half a sample
