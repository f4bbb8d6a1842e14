"""Counting the distinct nodes and edges of tables of edges: in all rows, or in blocks from all over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.distinct import (
    DistinctSketch,
    Estimate,
    Hashes,
    distinct_hashes,
    extrapolate,
    from_blocks,
    hash_ids,
    hash_pairs,
    text_bytes,
)
from graphbox.graph.schema import EdgeType
from graphbox.graph.source import Table

SCAN_BYTES = 512 << 20
"""Bytes of all tables up to which every row is read: a second or two at the rates that imports read with."""
BLOCK_BYTES = 1 << 20
_EXPANSION = 8
"""How many times the bytes of a compressed text its rows cost to read."""
_BATCH_BYTES = 4 << 20
_PLACES = 128
_FEWEST_BLOCKS = 16
"""With fewer blocks than that, what is in one of them alone says little."""
_PARTS = (0.125, 0.25, 0.5, 1.0)

Looked: TypeAlias = Literal["everywhere", "in places", "at the beginning"]
"""Where rows were read."""


@dataclass(frozen=True, eq=False)
class EdgeEnds:
    """A table of edges of which the distinct ends and pairs are counted.

    Attributes:
        type: the edge type.
        table: its table.
        columns: the columns of the sources and of the targets.
        as_text: whether their ids are compared as text, or as integers.
        rows: how many rows there are.
        beginning: the first rows.
        is_whole: whether these are all.
        compressed: whether the files are compressed text.
    """

    type: EdgeType
    table: Table
    columns: tuple[str, str]
    as_text: tuple[bool, bool]
    rows: Estimate
    beginning: pa.Table
    is_whole: bool
    compressed: bool


Growth: TypeAlias = tuple[float, ...]
"""At which share of all values each further part, of equal parts, of the distinct ones has been met."""
_GROWTH_PARTS = 64
_GROWTH_SAMPLE = np.uint64(0x3F000)
"""Of hashes that have none of these bits, one in 64, it is noted where they were first met."""


@dataclass(frozen=True)
class Counted:
    """A number of distinct values.

    Attributes:
        distinct: the number.
        text_bytes: mean bytes of the texts, where ids are compared as text.
        looked: where the rows were read that it is from.
        growth: how they were met, see `Growth`; empty where that is not known.
    """

    distinct: Estimate
    text_bytes: float
    looked: Looked
    growth: Growth = ()


@dataclass(frozen=True)
class EndCounts:
    """Distinct ids by node type, distinct pairs of ends by edge type, and rows where all were read."""

    nodes: Mapping[str, Counted]
    pairs: Mapping[EdgeType, Counted]
    rows: Mapping[EdgeType, int]


@dataclass(frozen=True, eq=False)
class _Block:
    """Hashes of some rows in which both ends are there, and how many rows there were."""

    sources: Hashes
    targets: Hashes
    rows: int

    def pairs(self) -> Hashes:
        return hash_pairs(self.sources, self.targets)

    def of(self, node_type: str, edge_type: EdgeType) -> Hashes:
        ends = ((edge_type[0], self.sources), (edge_type[2], self.targets))
        hashes = [hashes for name, hashes in ends if name == node_type]
        return hashes[0] if len(hashes) == 1 else np.column_stack(hashes).ravel()

    def first(self, share: float) -> _Block:
        rows = round(share * len(self.sources))
        return _Block(self.sources[:rows], self.targets[:rows], round(share * self.rows))


def count_ends(
    tables: Sequence[EdgeEnds], *, scan_bytes: int = SCAN_BYTES, block_bytes: int = BLOCK_BYTES
) -> EndCounts:
    """Count distinct nodes and edges.

    Args:
        tables: the tables of edges.
        scan_bytes: bytes of all tables up to which all rows are read.
        block_bytes: bytes of one block of rows where only some are read.

    Raises:
        DataError: a table is damaged.
    """
    to_read = [each for each in tables if not each.is_whole]
    sizes = [each.table.size_bytes for each in to_read]
    cost = sum(
        math.inf if size is None else size * (_EXPANSION if each.compressed else 1)
        for each, size in zip(to_read, sizes, strict=True)
    )
    if cost <= scan_bytes and all(each.table.reiterable for each in to_read):
        return _count_all(tables)
    return _count_parts(tables, block_bytes)


def _names(tables: Iterable[EdgeEnds]) -> list[str]:
    return list(dict.fromkeys(name for each in tables for name in each.type[::2]))


# All rows


def _count_all(tables: Sequence[EdgeEnds]) -> EndCounts:
    nodes = {name: DistinctSketch() for name in _names(tables)}
    growth = {name: _GrowthSketch() for name in nodes}
    pairs, rows = {}, {}
    for each in tables:
        pairs[each.type] = DistinctSketch()
        rows[each.type] = 0
        for block in _all_blocks(each):
            for name in dict.fromkeys(each.type[::2]):
                ends = block.of(name, each.type)
                nodes[name].add(ends)
                growth[name].add(ends)
            pairs[each.type].add(block.pairs())
            rows[each.type] += block.rows
    return EndCounts(
        {name: replace(_sketched(sketch), growth=growth[name].shares()) for name, sketch in nodes.items()},
        {edge_type: _sketched(sketch) for edge_type, sketch in pairs.items()},
        rows,
    )


def _sketched(sketch: DistinctSketch) -> Counted:
    return Counted(sketch.count(), text_bytes(sketch.kept()), "everywhere")


class _GrowthSketch:
    """Notes where the values of a sample were first met."""

    def __init__(self) -> None:
        self._values: list[Hashes] = []
        self._places: list[npt.NDArray[np.int64]] = []
        self._total = 0

    def add(self, hashes: Hashes) -> None:
        chosen = np.flatnonzero((hashes & _GROWTH_SAMPLE) == 0)
        self._values.append(hashes[chosen])
        self._places.append(chosen + self._total)
        self._total += len(hashes)

    def shares(self) -> Growth:
        if not self._total:
            return ()
        _, first = np.unique(np.concatenate(self._values), return_index=True)
        if not len(first):
            return ()
        places = np.sort(np.concatenate(self._places)[first]) / self._total
        parts = np.linspace(0, 1, _GROWTH_PARTS + 1)
        shares = np.interp(parts, np.linspace(0, 1, len(places)), places)
        return tuple(shares.tolist())


def _all_blocks(ends: EdgeEnds) -> Iterator[_Block]:
    if ends.is_whole:
        for batch in ends.beginning.to_batches():
            yield _hashed(ends, {name: batch.column(name) for name in ends.columns})
        return
    for read in ends.table.batches(ends.columns, batch_bytes=_BATCH_BYTES):
        if read.num_rows:
            yield _hashed(ends, read.columns)


def _hashed(ends: EdgeEnds, columns: Mapping[str, pa.Array]) -> _Block:
    sources, targets = (columns[name] for name in ends.columns)
    rows = len(sources)
    if sources.null_count or targets.null_count:
        present = pc.and_(sources.is_valid(), targets.is_valid())
        sources, targets = sources.filter(present), targets.filter(present)
    return _Block(
        hash_ids(sources, as_text=ends.as_text[0]), hash_ids(targets, as_text=ends.as_text[1]), rows
    )


# Some rows


@dataclass(frozen=True, eq=False)
class _Part:
    """What was read of a table: blocks from all over it, or where it has none the beginning."""

    ends: EdgeEnds
    blocks: list[_Block]
    looked: Looked

    @property
    def share(self) -> float:
        """The share of the rows that were read."""
        return min(1.0, sum(block.rows for block in self.blocks) / max(self.ends.rows.likely, 1))

    def thinned(self, share: float) -> list[_Block]:
        """Return so much of the blocks that they are this share of the table."""
        kept = share / max(self.share, 1e-12)
        return self.blocks if kept >= 1 else [block.first(kept) for block in self.blocks]


def _count_parts(tables: Sequence[EdgeEnds], block_bytes: int) -> EndCounts:
    rows = sum(each.rows.likely for each in tables)
    parts = [_part(each, each.rows.likely / max(rows, 1), block_bytes) for each in tables]
    return EndCounts(
        {name: _nodes_from_parts(name, parts) for name in _names(tables)},
        {part.ends.type: _pairs_from_part(part) for part in parts},
        {},
    )


def _part(ends: EdgeEnds, weight: float, block_bytes: int) -> _Part:
    """Read blocks of a table, more of it the larger its ``weight`` among all is."""
    if ends.is_whole:
        rows = max(1, -(-ends.beginning.num_rows // _PLACES))
        table = ends.beginning.combine_chunks()
        batches = table.to_batches(max_chunksize=rows)
        slices = [{name: batch.column(name) for name in ends.columns} for batch in batches]
        return _Part(ends, [_hashed(ends, each) for each in slices], "everywhere")
    places = max(_FEWEST_BLOCKS, round(_PLACES * weight))
    blocks = [
        _hashed(ends, columns)
        for columns in ends.table.blocks(
            ends.columns, [place / places for place in range(places)], block_bytes=block_bytes
        )
    ]
    if len(blocks) >= _FEWEST_BLOCKS:
        return _Part(ends, blocks, "in places")
    batches = ends.beginning.to_batches()
    return _Part(
        ends,
        [_hashed(ends, {name: batch.column(name) for name in ends.columns}) for batch in batches],
        "at the beginning",
    )


def _nodes_from_parts(name: str, parts: Sequence[_Part]) -> Counted:
    parts = [part for part in parts if name in part.ends.type[::2]]
    share = min(part.share for part in parts)
    if any(part.looked == "at the beginning" for part in parts):
        counts = []
        for fraction in _PARTS:
            first = [_first_rows(part, share * fraction).of(name, part.ends.type) for part in parts]
            counts.append(np.concatenate(first))
        ends = sum(part.ends.rows.high * part.ends.type[::2].count(name) for part in parts)
        return _from_beginning(counts, share, ends)
    blocks = [block.of(name, part.ends.type) for part in parts for block in part.thinned(share)]
    return _from_places(blocks, share, parts)


def _pairs_from_part(part: _Part) -> Counted:
    if part.looked == "at the beginning":
        counts = [_first_rows(part, part.share * fraction).pairs() for fraction in _PARTS]
        return _from_beginning(counts, part.share, part.ends.rows.high)
    return _from_places([block.pairs() for block in part.blocks], part.share, [part])


def _from_places(blocks: list[Hashes], share: float, parts: Sequence[_Part]) -> Counted:
    found = from_blocks(blocks, share)
    everywhere = all(part.looked == "everywhere" for part in parts)
    known = np.concatenate(blocks) if blocks else np.empty(0, np.uint64)
    return Counted(found, text_bytes(distinct_hashes(known)), "everywhere" if everywhere else "in places")


def _from_beginning(beginnings: Sequence[Hashes], share: float, most: int) -> Counted:
    """Estimate from the growth within the beginning: after it the same values may come, or all new ones.

    Args:
        beginnings: the hashes of an eighth, a quarter, a half and all of the beginning.
        share: of all rows, those in the beginning.
        most: how many hashes there would be of all rows.
    """
    known = distinct_hashes(beginnings[-1])
    found = extrapolate([len(distinct_hashes(each)) for each in beginnings], 1 / max(share, 1e-12))
    if share < 1:
        rest = max(0, most - len(beginnings[-1]))
        found = Estimate(len(known), min(found.likely, len(known) + rest), len(known) + rest)
    return Counted(found, text_bytes(known), "at the beginning")


def _first_rows(part: _Part, share: float) -> _Block:
    """Return the first rows of a table, so many as are a share of it."""
    left = round(share * part.ends.rows.likely)
    kept = []
    for block in part.blocks:
        if left <= 0:
            break
        kept.append(block.first(min(1.0, left / max(block.rows, 1))))
        left -= block.rows
    if not kept:
        empty = np.empty(0, np.uint64)
        return _Block(empty, empty, 0)
    return _Block(
        np.concatenate([block.sources for block in kept]),
        np.concatenate([block.targets for block in kept]),
        sum(block.rows for block in kept),
    )
