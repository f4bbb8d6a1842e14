"""Random walks in Triton kernels: the twin of ``csrc/sample/walk.cpp``, bit for bit.

A lane is a walker and takes all its steps by itself. The lists of each step of a metapath are found by their
addresses in a table, so that one kernel walks along any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from graphbox import _core
from graphbox.philox_gpu import bounded_word, draw_block
from graphbox.sample.edge_reads_gpu import load_alias, load_edges
from graphbox.sample.node2vec_gpu import node2vec_parameters, node2vec_walks

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.device import DeviceAdjacency, DeviceWeights

WALK_STREAM = 2  # Stream::kWalk of csrc/random/philox.h
_BLOCK = 128
_RESTART_HOP = tl.constexpr(2)  # hops of the counter: see csrc/sample/walk.cpp
_PAIR_HOP = tl.constexpr(3)
_FIELDS = tl.constexpr(9)  # of a step in the table


class DeviceWalkStep(NamedTuple):
    """Edges and weights that a walker chooses from at one step.

    Attributes:
        lists: neighbour lists.
        weights: choose in proportion to these; None: every edge is equally likely.
    """

    lists: DeviceAdjacency
    weights: DeviceWeights | None


class DeviceWalk(NamedTuple):
    """Parameters of walks; see :func:`graphbox.sample.random_walk`.

    Attributes:
        paths: steps of each metapath.
        length: number of steps.
        p: return parameter of node2vec.
        q: in-out parameter.
        most_parallel: the most edges between two nodes; used with ``p`` and ``q``.
        restart_probability: probability of a restart.
    """

    paths: Sequence[Sequence[DeviceWalkStep]]
    length: int
    p: float
    q: float
    most_parallel: int
    restart_probability: float


class WalkerDraws(NamedTuple):
    """Random keys of walkers, where they are of several batches.

    Attributes:
        keys: int64 [n], the bits of the key of its batch, see :func:`graphbox.philox_gpu.batch_keys`.
        positions: int64 [n], its number in its batch.
    """

    keys: Tensor
    positions: Tensor


@triton.jit
def _neighbor(indices, residents, edges, position, is_wide, going, TIERED: tl.constexpr):
    """Return the neighbours at ``position``, from lists of int64 or int32 at the address ``indices``."""
    if is_wide != 0:
        node = load_edges(
            indices.to(tl.pointer_type(tl.int64)), residents.to(tl.pointer_type(tl.int64)), edges, position,
            going, -1, TIERED,
        )  # fmt: skip
    else:
        node = load_edges(
            indices.to(tl.pointer_type(tl.int32)), residents.to(tl.pointer_type(tl.int32)), edges, position,
            going, -1, TIERED,
        ).to(tl.int64)  # fmt: skip
    return node


@triton.jit
def _read_at(places, node, begin, edges, going, TIERED: tl.constexpr):
    """Return the position that lists are read at; ``places`` is an address, 0 if none are resident."""
    if TIERED:
        can_be = tl.where(going, places, 0) != 0
        place = tl.load(places.to(tl.pointer_type(tl.int64)) + node, mask=can_be, other=-1)
        begin = tl.where(place >= 0, place + edges, begin)
    return begin


@triton.jit
def _step(
    node, start, step, block, table, period, restart_below, key, position, word, restart_word,
    RESTARTS: tl.constexpr, TIERED: tl.constexpr, WORD: tl.constexpr,
):  # fmt: skip
    """Return where walkers are after a step; ``word`` is number ``WORD`` of the block of the step."""
    fields = table + step % period * _FIELDS
    indptr = tl.load(fields).to(tl.pointer_type(tl.int64))
    indices = tl.load(fields + 1)
    alias_address = tl.load(fields + 2)
    is_wide = tl.load(fields + 3)
    residents = indices
    edges = is_wide
    if TIERED:
        residents = tl.load(fields + 4)
        edges = tl.load(fields + 5)
    going = node >= 0
    begin = tl.load(indptr + node, mask=going, other=0)
    degree = (tl.load(indptr + node + 1, mask=going, other=0) - begin).to(tl.int32)
    returns = node < -1  # nobody
    if RESTARTS:
        returns = going & ((degree == 0) | (restart_word.to(tl.int64) < restart_below))
    going &= (degree > 0) & (returns == 0)
    ranges = tl.where(going, degree, 1).to(tl.uint32)
    if alias_address == 0:
        chosen = bounded_word(word, ranges, key, 0, block, position, going, WORD).to(tl.int64)
    else:
        pair0, pair1, pair2, pair3 = draw_block(key, _PAIR_HOP, step // 2, position, 0)
        if WORD % 2 == 0:
            column = bounded_word(pair0, ranges, key, _PAIR_HOP, step // 2, position, going, 0).to(tl.int64)
            fraction = pair1
        else:
            column = bounded_word(pair2, ranges, key, _PAIR_HOP, step // 2, position, going, 2).to(tl.int64)
            fraction = pair3
        alias_tables = alias_address.to(tl.pointer_type(tl.int32))
        alias_at = begin
        if TIERED:
            alias_at = _read_at(tl.load(fields + 7), node, begin, edges, going, TIERED)
        copies = residents.to(tl.pointer_type(tl.int32))
        threshold, alias = load_alias(alias_tables, copies, edges, alias_at + column, going, TIERED)
        chosen = tl.where(fraction < threshold, column, alias.to(tl.int64))
    read_at = begin
    if TIERED:
        read_at = _read_at(tl.load(fields + 6), node, begin, edges, going, TIERED)
        uses = tl.load(fields + 8)
        counts = tl.where(going, uses, 0) != 0
        tl.atomic_add(uses.to(tl.pointer_type(tl.int32)) + node, 1, mask=counts, sem="relaxed")
    arrived = _neighbor(indices, residents, edges, read_at + chosen, is_wide, going, TIERED)
    return tl.where(returns, start, arrived)


@triton.jit
def _walk(
    starts, path_of, number, keys, positions, out, size, length, table, period, restart_below, key,
    SEVERAL_PATHS: tl.constexpr, SEVERAL_KEYS: tl.constexpr, RESTARTS: tl.constexpr,
    TIERED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    walker = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = walker < size
    if SEVERAL_PATHS:
        inside &= tl.load(path_of + walker, mask=inside, other=-1) == number
    position = walker
    if SEVERAL_KEYS:
        key = tl.load(keys + walker, mask=inside, other=0).to(tl.uint64, bitcast=True)
        position = tl.load(positions + walker, mask=inside, other=0)
    start = tl.load(starts + walker, mask=inside, other=-1)
    row = out + walker * (length + 1)
    tl.store(row, start, mask=inside)
    node = start
    for block in range((length + 3) // 4):
        words = draw_block(key, 0, block, position, 0)
        restart_words = words
        if RESTARTS:
            restart_words = draw_block(key, _RESTART_HOP, block, position, 0)
        for word in tl.static_range(4):
            step = 4 * block + word
            if step < length:
                node = _step(
                    node, start, step, block, table, period, restart_below, key, position, words[word],
                    restart_words[word], RESTARTS, TIERED, word,
                )  # fmt: skip
                tl.store(row + step + 1, node, mask=inside)


class DeviceWalker:
    """Walks on a device; what kernels are told of the walk is there from the start.

    Args:
        walk: what walkers do.
        device: where its lists are.
    """

    def __init__(self, walk: DeviceWalk, device: torch.device) -> None:
        self._walk = walk
        self._tables = [_table(path, device) for path in walk.paths]
        looks_back = (walk.p, walk.q) != (1.0, 1.0)
        self._parameters = node2vec_parameters(walk).to(device) if looks_back else None
        self._restart_below = int(walk.restart_probability * 2.0**32 + 0.5)

    def walk(
        self, start: Tensor, path_of: Tensor | None, draws: tuple[int, int, int] | WalkerDraws
    ) -> Tensor:
        """Walk from each start; the host waits for nothing.

        Args:
            start: int64 [n], nodes that exist, of the type that the walker's metapath starts at.
            path_of: int64 [n], the number of each walker's metapath; None where there is one.
            draws: seed, epoch and batch of all walkers, or what each draws by.

        Returns:
            int64 [n, length + 1], -1 after a dead end.
        """
        walk = self._walk
        out = torch.empty(len(start), walk.length + 1, dtype=torch.int64, device=start.device)
        if len(start) == 0:
            return out
        several = draws if isinstance(draws, WalkerDraws) else None
        key = 0 if isinstance(draws, WalkerDraws) else _core.philox_key(WALK_STREAM, *draws)
        if self._parameters is not None:
            node2vec_walks(walk, start, out, self._parameters, self._restart_below, key, several)
            return out
        for number, path in enumerate(walk.paths):
            _walk[triton.cdiv(len(start), _BLOCK),](
                start,
                start if path_of is None else path_of,
                number,
                start if several is None else several.keys,
                start if several is None else several.positions,
                out,
                len(start),
                walk.length,
                self._tables[number],
                len(path),
                self._restart_below,
                key,
                SEVERAL_PATHS=path_of is not None,
                SEVERAL_KEYS=several is not None,
                RESTARTS=walk.restart_probability > 0,
                TIERED=any(_is_tiered(step) for step in path),
                BLOCK=_BLOCK,
                enable_fp_fusion=False,
            )
        return out


def _is_tiered(step: DeviceWalkStep) -> bool:
    """Return whether lists can be resident, or reads of them are counted."""
    return step.lists.uses is not None


def _table(path: Sequence[DeviceWalkStep], device: torch.device) -> Tensor:
    """Return the addresses of the arrays of each step, int64 [steps, fields]: they stay the graph's.

    All resident lists are at one address; alias tables, if a step has any, count as many edges as its lists.
    """
    rows = []
    for lists, weights in path:
        alias_residents = None if weights is None else weights.alias_residents
        residents = [each for each in (lists.residents, alias_residents) if each is not None]
        rows.append(
            [
                lists.indptr.data_ptr(),
                lists.indices.data_ptr(),
                0 if weights is None else weights.alias_tables.data_ptr(),
                int(lists.indices.dtype == torch.int64),
                residents[0].values.data_ptr() if residents else 0,
                len(lists.indices),
                0 if lists.residents is None else lists.residents.places.data_ptr(),
                0 if alias_residents is None else alias_residents.places.data_ptr(),
                0 if lists.uses is None else lists.uses.data_ptr(),
            ]
        )
    return torch.tensor(rows, dtype=torch.int64, device=device)
