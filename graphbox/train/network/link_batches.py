"""Batches of links whose sources share drawn candidates, and the loader that samples around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from graphbox.graph.schema import EdgeType
from graphbox.graph.tiered_graph import TieredGraph
from graphbox.sample import DeviceGraph
from graphbox.sample.adjacency import GraphLike
from graphbox.sample.loader.base import Drawn, Loader, digest
from graphbox.sample.loader.batch import Place
from graphbox.sample.loader.options import LoaderKeywords, split_keywords
from graphbox.sample.loader.stages import Neighborhood
from graphbox.sample.sampling_plan import SampleRequest
from graphbox.train.processes import TrainingProcesses
from graphbox.train.recommendation.candidates import Candidates, columns_among
from graphbox.train.recommendation.known_links import KnownLinks
from graphbox.train.tasks import LinkSplit, RecommendSplit

Array = TypeVar("Array")
Int64Array = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinkBatch(Generic[Array]):
    """Links of a batch and the candidates that their sources share; of several processes this one's slices.

    Places are those among the seeds of their node type.

    Attributes:
        num_links: how many links the batch has in all processes.
        row: int64 [links], which of the sources each link has.
        answers: int64 [links], the target of each.
        answer_place: int64 [links], its place.
        source_place: int64 [sources], the places of the distinct sources.
        candidates: int64 [slice of candidates], ascending.
        candidate_place: int64 [slice of candidates], their places.
        drawn: int64 [candidates], those of all processes, ascending.
        excluded_row: int64 [n], sources of which a candidate is no negative, ...
        excluded_column: int64 [n], ... and the position in ``drawn`` of the candidate.
        source_group: int64 [sources], of whose own group a source has no negatives; None: no groups.
        drawn_group: int64 [candidates], the same of the candidates.
    """

    num_links: int
    row: Array
    answers: Array
    answer_place: Array
    source_place: Array
    candidates: Array
    candidate_place: Array
    drawn: Array
    excluded_row: Array
    excluded_column: Array
    source_group: Array | None
    drawn_group: Array | None

    def attributes(self) -> Iterator[tuple[Place | None, str, Any]]:
        """Give the places of links and candidates, as PyTorch Geometric calls those of triplets."""
        yield None, "src_index", self.source_place
        yield None, "dst_pos_index", self.answer_place
        yield None, "dst_neg_index", self.candidate_place


class LinkDraws:
    """Draws the candidates of batches of links.

    Args:
        split: of the task.
        candidates: draws them.
        known: which of them are no negatives.
        group: int64 [nodes], the group of each source and target, whose nodes are no negatives of each other;
            None: sources and targets are of two types.
        processes: among which links and candidates of a batch are divided.
        threads: of a draw.
        in_batch: whether the targets of a batch's links are candidates beside those drawn.
    """

    def __init__(
        self,
        split: RecommendSplit | LinkSplit,
        candidates: Candidates,
        known: KnownLinks,
        group: Int64Array | None,
        processes: TrainingProcesses,
        threads: int | None,
        *,
        in_batch: bool = False,
    ) -> None:
        self._split = split
        self._candidates = candidates
        self._known = known
        self._group = group
        self._processes = processes
        self._threads = threads
        self._in_batch = in_batch

    def candidates(self, links: Int64Array, epoch: int, batch: int) -> Int64Array:
        """Return the candidates of a batch of links: int64, ascending; see :meth:`draw`."""
        drawn = self._candidates.draw(epoch, batch, self._threads)
        return np.unique(np.concatenate([drawn, links[:, 1]])) if self._in_batch else drawn

    def draw(
        self, links: Int64Array, epoch: int, batch: int
    ) -> tuple[LinkBatch[Int64Array], dict[str, Int64Array]]:
        """Return a batch, and its seeds by node type: each once, ascending.

        Args:
            links: int64 [n, 2], source and target of the links of all processes.
            epoch: part of the key of the draws.
            batch: part of the key of the draws.
        """
        drawn = self.candidates(links, epoch, batch)
        own = links[self._processes.slice_of(len(links))]
        candidates = drawn[self._processes.slice_of(len(drawn))]
        sources, row = np.unique(own[:, 0], return_inverse=True)
        seeds = self._seeds(sources, np.concatenate([own[:, 1], candidates]))
        of_sources, of_targets = seeds[self._split.node_type], seeds[self._split.target_type]
        excluded = columns_among(drawn, *self._known.take(sources))
        return LinkBatch(
            num_links=len(links),
            row=row,
            answers=np.ascontiguousarray(own[:, 1]),
            answer_place=np.searchsorted(of_targets, own[:, 1]),
            source_place=np.searchsorted(of_sources, sources),
            candidates=candidates,
            candidate_place=np.searchsorted(of_targets, candidates),
            drawn=drawn,
            excluded_row=excluded[0],
            excluded_column=excluded[1],
            source_group=None if self._group is None else self._group[sources],
            drawn_group=None if self._group is None else self._group[drawn],
        ), seeds

    def _seeds(self, sources: Int64Array, targets: Int64Array) -> dict[str, Int64Array]:
        split = self._split
        if split.within_one_type:
            return {split.node_type: np.unique(np.concatenate([sources, targets]))}
        return {split.node_type: sources, split.target_type: np.unique(targets)}


class LinkLoader(Loader):
    """Iterates over batches of links and candidates with their sampled neighbourhoods, in the order given.

    Args:
        graph: what is sampled: without the links, which are to be found.
        num_neighbors: how many neighbours at each hop by edge type.
        links: int64 [n, 2].
        batch_size: links of a batch, in all processes.
        draws: draws what belongs to a batch.
        options: as of :class:`graphbox.sample.NeighborLoader`.
    """

    def __init__(
        self,
        graph: GraphLike | TieredGraph | DeviceGraph,
        num_neighbors: Mapping[EdgeType, Sequence[int]],
        links: Int64Array,
        batch_size: int,
        draws: LinkDraws,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        neighbors, loading = split_keywords(options, LinkLoader.__init__.__annotations__)
        self._links = links
        self._draws = draws
        super().__init__(graph, batch_size, Neighborhood(num_neighbors, neighbors), loading)

    @property
    def _num_seeds(self) -> int:
        return len(self._links)

    def _seed_digest(self) -> str:
        return digest(self._links)

    def _draw(self, chosen: Int64Array, epoch: int, batch: int) -> Drawn:
        drawn, seeds = self._draws.draw(self._links[chosen], epoch, batch)
        return Drawn(SampleRequest(seeds, None, epoch, batch), drawn)
