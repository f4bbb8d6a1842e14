"""Links that are known in training, which no negative may be: in memory, or in lists on disk."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from graphbox.graph.tier import TierOptions, open_lists
from graphbox.graph.tiered_edges import TieredEdges
from graphbox.graph.written_lists import Entries, block_edges, write_lists
from graphbox.train.compressed import CompressedRows
from graphbox.train.memory import TrainingMemory
from graphbox.train.recommendation.queries import known_links, link_blocks
from graphbox.train.splitting.predict_links import known_targets
from graphbox.train.tasks import LinkSplit, RecommendSplit
from graphbox.train.view import GraphView

Int64Array = NDArray[np.int64]

KNOWN_LINKS_SHARE = 0.125
"""Of the budget of edges, for the known links that are read from disk: most reads are those of neighbours."""


class KnownLinks(Protocol):
    """The targets that are no negatives of a source, since a known link joins them."""

    def take(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the targets of some sources, and first, for each, its position in ``rows``: int64 [m]."""
        ...


@dataclass(frozen=True, eq=False)
class _LinksOnDisk:
    """The known targets of each source, read from disk as they are asked for."""

    _lists: TieredEdges

    def take(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """See :class:`KnownLinks`."""
        offsets, targets = self._lists.neighbor_lists(rows)
        position = np.repeat(np.arange(len(rows)), np.diff(offsets))
        return position, targets.astype(np.int64)


def known_links_of(view: GraphView, split: RecommendSplit | LinkSplit, memory: TrainingMemory) -> KnownLinks:
    """Return which targets are no negatives of each source, because a known link joins them.

    Of a recommend task these are the ends of edges of any relation, in either direction.

    Args:
        view: the graph as training sees it.
        split: of the task.
        memory: says whether they are written to disk and read from it, and where.
    """
    if memory.graph_on_disk:
        return _links_on_disk(view, split, memory)
    if isinstance(split, RecommendSplit):
        return known_links(view, split)
    edges = split.known("train")
    known = known_targets(edges, split.sources, split.targets, within_one_type=split.within_one_type)
    return CompressedRows(known.indptr.astype(np.int64), known.indices.astype(np.int64))


def _links_on_disk(
    view: GraphView, split: RecommendSplit | LinkSplit, memory: TrainingMemory
) -> _LinksOnDisk:
    folder = memory.new_folder("known-links")

    def entries() -> Iterator[Entries]:
        for links in link_blocks(view, split, block_edges(memory.pass_bytes)):
            yield Entries(links[:, 0], links[:, 1], {})
            if split.within_one_type:
                yield Entries(links[:, 1], links[:, 0], {})

    count = view.num_nodes(split.node_type)
    lists = write_lists(folder / "lists", entries, count, {}, merge=True, memory_bytes=memory.pass_bytes)
    budget = memory.topology_bytes(KNOWN_LINKS_SHARE)
    opened = open_lists({0: lists.files}, budget_bytes=budget, options=TierOptions())
    found = _LinksOnDisk(TieredEdges(opened[0], None, None, backwards=False))
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found
