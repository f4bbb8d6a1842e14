"""Counting the distinct nodes and edges of tables of edges: in all rows, or in blocks from all over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.graph.distinct import (
    DistinctSketch,
    Estimate,
    Hashes,
    continued,
    distinct_hashes,
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
"""Cost of reading the rows of a compressed text, in multiples of its bytes."""
_BATCH_BYTES = 4 << 20
_PLACES = 128
_FEWEST_BLOCKS = 16
"""With fewer blocks than that, what is in one of them alone says little."""

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


@dataclass(frozen=True)
class Counted:
    """A number of distinct values.

    Attributes:
        distinct: the number.
        text_bytes: mean bytes of the texts, where ids are compared as text.
        looked: where the rows were read that it is from.
    """

    distinct: Estimate
    text_bytes: float
    looked: Looked


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
    pairs, rows = {}, {}
    for each in tables:
        pairs[each.type] = DistinctSketch()
        rows[each.type] = 0
        for block in _all_blocks(each):
            for name in dict.fromkeys(each.type[::2]):
                nodes[name].add(block.of(name, each.type))
            pairs[each.type].add(block.pairs())
            rows[each.type] += block.rows
    return EndCounts(
        {name: _sketched(sketch) for name, sketch in nodes.items()},
        {edge_type: _sketched(sketch) for edge_type, sketch in pairs.items()},
        rows,
    )


def _sketched(sketch: DistinctSketch) -> Counted:
    return Counted(sketch.count(), text_bytes(sketch.kept()), "everywhere")


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
    """Sample of a table: blocks from all over it, or its beginning where it cannot be divided."""

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
    if not ends.is_whole:
        places = max(_FEWEST_BLOCKS, round(_PLACES * weight))
        blocks = [
            _hashed(ends, columns)
            for columns in ends.table.blocks(
                ends.columns, [place / places for place in range(places)], block_bytes=block_bytes
            )
        ]
        if len(blocks) >= _FEWEST_BLOCKS:
            return _Part(ends, blocks, "in places")
    table = ends.beginning.combine_chunks()
    batches = table.to_batches(max_chunksize=max(1, -(-table.num_rows // _PLACES)))
    slices = [_hashed(ends, {name: batch.column(name) for name in ends.columns}) for batch in batches]
    return _Part(ends, slices, "everywhere" if ends.is_whole else "at the beginning")


def _nodes_from_parts(name: str, parts: Sequence[_Part]) -> Counted:
    parts = [part for part in parts if name in part.ends.type[::2]]
    share = min(part.share for part in parts)
    blocks = [block.of(name, part.ends.type) for part in parts for block in part.thinned(share)]
    most = sum(part.ends.rows.high * part.ends.type[::2].count(name) for part in parts)
    return _from_parts(blocks, share, most, parts)


def _pairs_from_part(part: _Part) -> Counted:
    return _from_parts([block.pairs() for block in part.blocks], part.share, part.ends.rows.high, [part])


def _from_parts(blocks: list[Hashes], share: float, most: int, parts: Sequence[_Part]) -> Counted:
    """Estimate from blocks.

    Args:
        blocks: the hashes of each.
        share: of all rows, those in the blocks.
        most: how many hashes there would be of all rows.
        parts: where the blocks are from.
    """
    known = np.concatenate([np.empty(0, np.uint64), *blocks])
    distinct = distinct_hashes(known)
    looks = {part.looked for part in parts}
    if "at the beginning" not in looks or share >= 1:
        looked: Looked = "in places" if "in places" in looks else "everywhere"
        return Counted(from_blocks(blocks, share), text_bytes(distinct), looked)
    # After the beginning the same values may come, or all new ones.
    high = len(distinct) + max(0, most - len(known))
    likely = min(continued(blocks, share).likely, high)
    return Counted(Estimate(len(distinct), likely, high), text_bytes(distinct), "at the beginning")
