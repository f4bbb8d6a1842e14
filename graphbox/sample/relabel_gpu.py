"""Positions of nodes in a sample, in the order of first appearance: the twin of ``csrc/sample/node_map.h``.

An array has an entry for each node of the type. Its high half names the sample that wrote it, later samples
smaller, so that one atomic minimum both replaces what earlier samples left and keeps the first of the edges
that lead to a node. Its low half is the node's position, or, above all positions, such an edge.
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

__all__ = ["NodePositions", "lent_positions"]

_BLOCK = 1024
_MOST_SAMPLES = 2**31 - 1
_FIRST_CANDIDATE = tl.constexpr(2**31)
_LOW_HALF = tl.constexpr(0xFFFFFFFF)


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
    entries, nodes, is_first, ranks, new_nodes, size, stamp, first_position, BLOCK: tl.constexpr
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    is_new = inside & (tl.load(is_first + number, mask=inside, other=0) != 0)
    node = tl.load(nodes + number, mask=is_new, other=0).to(tl.int64)
    rank = tl.load(ranks + number, mask=is_new, other=1) - 1
    tl.store(new_nodes + rank, node, mask=is_new)
    tl.store(entries + node, stamp | (first_position + rank), mask=is_new)


@triton.jit
def _look_up(entries, nodes, positions, size, BLOCK: tl.constexpr):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < size
    node = tl.load(nodes + number, mask=inside, other=0).to(tl.int64)
    tl.store(positions + number, tl.load(entries + node, mask=inside, other=0) & _LOW_HALF, mask=inside)


class NodePositions:
    """Where the nodes of a type are in the sample that is being made; used by one sample after the other.

    Args:
        num_nodes: of the type; 8 bytes are held for each.
        device: where the nodes are.
    """

    def __init__(self, num_nodes: int, device: torch.device) -> None:
        self.num_nodes = num_nodes
        self._entries = torch.empty(num_nodes, dtype=torch.int64, device=device)
        self._samples = _MOST_SAMPLES
        self._size = 0

    @property
    def held_bytes(self) -> int:
        """Bytes held on the device."""
        return self._entries.nbytes

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
        self._size = len(seeds)
        self._launch(_note_seeds, seeds, stamp=self._stamp)

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
        is_first = torch.empty(len(nodes), dtype=torch.int8, device=nodes.device)
        self._launch(_note_candidates, nodes, stamp=self._stamp)
        self._launch(_mark_first, nodes, is_first)
        ranks = torch.cumsum(is_first, 0)
        new_nodes = torch.empty(int(ranks[-1]), dtype=torch.int64, device=nodes.device)
        _check_size(self._size + len(new_nodes))
        self._launch(
            _give_positions, nodes, is_first, ranks, new_nodes, stamp=self._stamp, first_position=self._size
        )
        self._launch(_look_up, nodes, positions)
        self._size += len(new_nodes)
        return positions, new_nodes

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
# Of each graph those that no sample uses, by the stream whose kernels may still be at them.
_free: weakref.WeakKeyDictionary[DeviceGraph, dict[int, list[list[NodePositions]]]] = (
    weakref.WeakKeyDictionary()
)


@contextmanager
def lent_positions(graph: DeviceGraph) -> Iterator[list[NodePositions]]:
    """Lend one for each node type to a sample on the current stream, made anew where all are in use."""
    is_cuda = graph.device.type == "cuda"
    stream = torch.cuda.current_stream(graph.device).cuda_stream if is_cuda else 0
    with _lock:
        free = _free.setdefault(graph, {}).setdefault(stream, [])
        lent = free.pop() if free else None
    if lent is None:
        lent = [NodePositions(graph.num_nodes(each), graph.device) for each in graph.node_types]
    yield lent
    with _lock:
        free.append(lent)  # but not after an error, which may leave half a sample
