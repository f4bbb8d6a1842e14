"""A loader of batches around links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError, did_you_mean
from graphbox.native import Int64Array, integer_array, is_torch
from graphbox.sample.adjacency import EdgeType, GraphLike, edge_type_name
from graphbox.sample.device import DeviceGraph
from graphbox.sample.loader.arguments import (
    graph_to_sample,
    node_times_of,
    times_of,
    untiered,
)
from graphbox.sample.loader.base import Drawn, Loader, digest
from graphbox.sample.loader.batch import LinkSeeds
from graphbox.sample.loader.leakage import excluded_links, leaking_types
from graphbox.sample.loader.negatives import LinkNegatives, NegativeSamplingLike, negative_sampling
from graphbox.sample.loader.options import LoaderKeywords, split_keywords
from graphbox.sample.loader.stages import Neighborhood
from graphbox.sample.sampling_plan import SampleRequest

if TYPE_CHECKING:
    from graphbox.graph.tiered_graph import TieredGraph

Array = npt.NDArray[Any]


class _Ends(NamedTuple):
    """The ends of a batch's links and negatives, before equal nodes become one.

    Attributes:
        sources: int64 [s] node indices.
        targets: int64 [t].
        source_link: int64 [s], the link each belongs to, by position in the batch.
        target_link: int64 [t].
        pairs: int64 [2, p], all pairs with a label, as positions in sources and targets.
    """

    sources: Int64Array
    targets: Int64Array
    source_link: Int64Array
    target_link: Int64Array
    pairs: Int64Array


class LinkNeighborLoader(Loader):
    """Iterates over batches of links, with the sampled neighbourhoods of their ends, for link prediction.

    Batches have the attributes PyTorch Geometric's own loader sets: ``edge_label_index`` and ``edge_label``
    (without negatives, or with pairs as negatives), or ``src_index``, ``dst_pos_index`` and ``dst_neg_index``
    (targets as negatives), ``input_id``, and everything of :class:`NeighborLoader`, which it is like in all
    else: threads, bounded memory, resuming.

    **Leakage control.** In training the links are mostly edges of the graph. Message passing along the very
    edge whose existence is to be predicted lets a model read the label off the batch; it then learns nothing
    and fails on new links. So by default no pair of nodes with a label in the batch has its edge, in either
    direction, in the batch's subgraph: parallel edges and edges of the reverse edge type are excluded too,
    and so are those of negatives that happen to be edges. Nodes draw among their other edges as if they had
    no more. PyTorch Geometric's loader does not do this.

    Args:
        graph: as in :class:`NeighborLoader`.
        num_neighbors: how many neighbours at each hop, for all edge types or by edge type; -1: all.
        edge_label_index: the links: (edge type, integers [2, n]), or the integers where there is one edge
            type, or an edge type or None for all its edges. They need not be edges of the graph.
        edge_label: [n, ...], numbers, a label for each link. With negatives of mode ``binary`` classes are
            counted from 1 (they become that if the least is 0) and negatives are 0; without labels links
            have 1.0.
        edge_label_time: int64 [n], a time for each link: only what is not later is sampled. A negative has
            the time of a link. Batches are disjoint. Needs ``time_attr``.
        batch_size: links in a batch, negatives not counted.
        time_attr: ``timestamp``: edges have times by this name; or an integer feature of nodes, as in
            :class:`NeighborLoader`.
        neg_sampling: negatives: :class:`graphbox.sample.NegativeSampling` or PyTorch Geometric's; ``binary``
            or ``triplet``; or a mapping with ``mode``, ``amount``, ``src_weight``, ``dst_weight``.
        neg_sampling_ratio: pairs for each link, in place of ``neg_sampling``.
        avoid_known_positives: negatives are neither edges of the graph nor among ``edge_label_index``, and no
            node is paired with itself. False: they may be, by chance, as in PyTorch Geometric. Of a graph in
            tiers this takes the CSR on disk (``csr: true`` at its import).
        exclude_seed_edges: leakage control, see above. The edge types in which pairs must not be seen, in
            both directions; True: that of the links and its reverse; False: none.
        options: as in :class:`NeighborLoader`. Of disjoint batches each end has a tree of its own, and
            ``batch`` is the link of the batch that a node belongs to. Plain batches have ``LinkSeeds``.

    Raises:
        UsageError: a wrong argument, a link to what is no node, or a node that is a positive of all others
            when a negative is to be drawn for it.
        NotFoundError: the graph has no such feature, or what a graph in tiers must read is not on disk.
        BackendMissingError: PyTorch Geometric or torch is needed for ``output`` and not installed.
        UnsupportedError: what loaders on a device do not know, see :class:`NeighborLoader`.
    """

    def __init__(
        self,
        graph: GraphLike | TieredGraph | DeviceGraph,
        num_neighbors: Mapping[EdgeType, Sequence[int]] | Sequence[int],
        edge_label_index: tuple[EdgeType, Any] | EdgeType | npt.ArrayLike | None = None,
        edge_label: npt.ArrayLike | None = None,
        edge_label_time: npt.ArrayLike | None = None,
        batch_size: int = 1,
        *,
        time_attr: str | None = None,
        neg_sampling: NegativeSamplingLike = None,
        neg_sampling_ratio: float | None = None,
        avoid_known_positives: bool = False,
        exclude_seed_edges: bool | Collection[EdgeType] = True,
        **options: Unpack[LoaderKeywords],
    ) -> None:
        neighbors, loading = split_keywords(options, LinkNeighborLoader.__init__.__annotations__)
        graph = graph_to_sample(graph)
        whole = untiered(graph)
        self._edge_type, self._links = links_of(whole, edge_label_index)
        node_times = node_times_of(whole, time_attr)
        self._times = times_of(
            edge_label_time, time_attr, node_times, self._links.shape[1], "edge_label_time"
        )
        if self._times is None and node_times is not None:
            raise UsageError(
                f"expected a time for each link, since time_attr names the `{node_times.name}` of nodes",
                where="edge_label_time",
            )
        self._disjoint = neighbors.disjoint or self._times is not None
        sampling = negative_sampling(neg_sampling, neg_sampling_ratio)
        self._labels = _labels_of(
            edge_label, self._links.shape[1], None if sampling is None else sampling.mode
        )
        self._leaking = leaking_types(whole, self._edge_type, exclude_seed_edges)
        # Not even backwards, or in another type that is asked for.
        self._negatives_are_no_edges = (
            avoid_known_positives and self._edge_type[0] != self._edge_type[2] and exclude_seed_edges is True
        )
        self._negatives: LinkNegatives | None = None
        if sampling is not None:
            known = self._links if avoid_known_positives else None
            self._negatives = LinkNegatives(graph, self._edge_type, sampling, known, neighbors.seed)
        self._negative_settings = (
            f"{sampling and (sampling.mode, sampling.amount)}, "
            f"avoid_known_positives={avoid_known_positives}, exclude_seed_edges={[*self._leaking]}"
        )
        super().__init__(
            graph,
            batch_size,
            Neighborhood(num_neighbors, neighbors, node_times),
            loading,
            fetched_lists=None if self._negatives is None else self._negatives.fetched_lists,
            has_times=self._times is not None,
        )

    @property
    def _num_seeds(self) -> int:
        return len(self._links[0])

    def _seed_digest(self) -> str:
        sampling = None if self._negatives is None else self._negatives.sampling
        weights = () if sampling is None else (sampling.src_weight, sampling.dst_weight)
        return digest(
            edge_type_name(self._edge_type),
            self._links,
            self._labels,
            self._times,
            self._negative_settings,
            *(None if weight is None else np.asarray(weight) for weight in weights),
        )

    # The first stage

    def _draw(self, chosen: Int64Array, epoch: int, batch: int) -> Drawn:
        ends = self._ends(self._links[:, chosen], epoch, batch)
        times = None if self._times is None else self._times[chosen]
        tree_labels = groups = None
        if self._disjoint:
            seeds, (sources, targets), tree_labels = self._own_trees(ends)
            groups = ends.target_link[ends.pairs[1]], tree_labels
        else:
            seeds, (sources, targets) = self._shared_nodes(ends)
        pairs = np.stack([ends.sources[ends.pairs[0]], ends.targets[ends.pairs[1]]])
        if self._negatives_are_no_edges:
            pairs = pairs[:, : len(chosen)]
            groups = groups and (groups[0][: len(chosen)], groups[1])
        excluded = excluded_links(self._leaking, self._edge_type, pairs, groups)
        request = SampleRequest(
            seeds=seeds,
            times=None if times is None else self._times_of_seeds(ends, times),
            epoch=epoch,
            batch=batch,
            excluded_edges=excluded,
        )
        return Drawn(request, self._link_seeds(chosen, ends, sources, targets, times), tree_labels)

    def _ends(self, links: Int64Array, epoch: int, batch: int) -> _Ends:
        count = links.shape[1]
        own = np.arange(count)
        if self._negatives is None:
            return _Ends(links[0], links[1], own, own, np.stack([own, own]))
        if self._negatives.sampling.mode == "binary":
            drawn = self._negatives.pairs(count, epoch, batch)
            both = np.concatenate([links, drawn], axis=1)
            all_pairs = np.arange(both.shape[1])
            of_link = np.concatenate([own, np.arange(drawn.shape[1]) % max(count, 1)])
            return _Ends(both[0], both[1], of_link, of_link, np.stack([all_pairs, all_pairs]))
        targets = self._negatives.targets(links[0], epoch, batch)
        of_link = np.concatenate([own, np.repeat(own, targets.shape[1])])
        return _Ends(
            links[0],
            np.concatenate([links[1], targets.reshape(-1)]),
            own,
            of_link,
            np.stack([of_link, np.arange(len(of_link))]),
        )

    def _shared_nodes(self, ends: _Ends) -> tuple[dict[str, Int64Array], tuple[Int64Array, Int64Array]]:
        """Return distinct seeds by node type, and where sources and targets are among them."""
        source, _, target = self._edge_type
        if source == target:
            nodes, places = np.unique(np.concatenate([ends.sources, ends.targets]), return_inverse=True)
            return {source: nodes}, (places[: len(ends.sources)], places[len(ends.sources) :])
        sources, source_places = np.unique(ends.sources, return_inverse=True)
        targets, target_places = np.unique(ends.targets, return_inverse=True)
        return {source: sources, target: targets}, (source_places, target_places)

    def _own_trees(
        self, ends: _Ends
    ) -> tuple[dict[str, Int64Array], tuple[Int64Array, Int64Array], Int64Array]:
        """Return a seed for each end, where sources and targets are, and the link of each tree."""
        source, _, target = self._edge_type
        sources, targets = np.arange(len(ends.sources)), np.arange(len(ends.targets))
        links = [ends.source_link, ends.target_link]
        if source == target:
            nodes = np.concatenate([ends.sources, ends.targets])
            return {source: nodes}, (sources, targets + len(sources)), np.concatenate(links)
        types = list(self._graph.node_types)
        if types.index(source) > types.index(target):  # trees are numbered in the order of node types
            links.reverse()
        return {source: ends.sources, target: ends.targets}, (sources, targets), np.concatenate(links)

    def _times_of_seeds(self, ends: _Ends, times: Int64Array) -> dict[str, Int64Array]:
        source, _, target = self._edge_type
        of_sources, of_targets = times[ends.source_link], times[ends.target_link]
        if source == target:
            return {source: np.concatenate([of_sources, of_targets])}
        return {source: of_sources, target: of_targets}

    def _link_seeds(
        self,
        chosen: Int64Array,
        ends: _Ends,
        sources: Int64Array,
        targets: Int64Array,
        times: Int64Array | None,
    ) -> LinkSeeds[Any]:
        count = len(chosen)
        if self._negatives is not None and self._negatives.sampling.mode == "triplet":
            negatives = targets[count:].reshape(count, -1)
            return LinkSeeds(
                self._edge_type,
                chosen,
                src_index=sources,
                dst_pos_index=targets[:count],
                dst_neg_index=negatives[:, 0] if negatives.shape[1] == 1 else negatives,
                seed_time=times,
            )
        label = None if self._labels is None else self._labels[chosen]
        if self._negatives is not None:
            label = np.ones(count, np.float32) if label is None else label
            zeros = np.zeros((len(ends.sources) - count, *label.shape[1:]), label.dtype)
            label = np.concatenate([label, zeros])
        return LinkSeeds(
            self._edge_type,
            chosen,
            edge_label_index=np.stack([sources, targets]),
            edge_label=label,
            edge_label_time=None if times is None else times[ends.source_link],
        )


# Arguments


def links_of(graph: GraphLike, edge_label_index: Any) -> tuple[EdgeType, Int64Array]:
    """Return the edge type and the links, int64 [2, n], that ``edge_label_index`` stands for.

    Raises:
        UsageError: it stands for none, or an end is no node.
    """
    edge_type, index = _split(graph, edge_label_index)
    if index is None:
        csc = graph.csc(edge_type)
        targets = np.repeat(np.arange(len(csc.indptr) - 1), np.diff(csc.indptr))
        return edge_type, np.stack([csc.indices.astype(np.int64), targets])
    links = integer_array(index, "edge_label_index", dimensions=2)
    if len(links) != 2:
        raise UsageError(
            f"expected integers [2, links], received shape {list(links.shape)}", where="edge_label_index"
        )
    for row, node_type in zip(links, (edge_type[0], edge_type[2]), strict=True):
        nodes = graph.num_nodes(node_type)
        wrong = (row < 0) | (row >= nodes)
        if wrong.any():
            position = int(np.argmax(wrong))
            raise UsageError(
                f"expected node indices of type `{node_type}` in [0, {nodes}), received {row[position]} at "
                f"position {position}",
                where="edge_label_index",
                hint="original ids become node indices by graph.index(node_type, ids)",
            )
    return edge_type, links


def _split(graph: GraphLike, given: Any) -> tuple[EdgeType, Any]:
    known = [tuple(each) for each in graph.edge_types]
    names = ", ".join(edge_type_name(each) for each in graph.edge_types)
    edge_type: Any = None
    index = given
    if isinstance(given, tuple | list) and given and all(isinstance(each, str) for each in given):
        edge_type, index = given, None
    elif isinstance(given, tuple) and len(given) == 2 and _is_edge_type(given[0]):
        edge_type, index = given
    if edge_type is None:
        if len(known) != 1:
            raise UsageError(f"expected (edge type, links) with one of: {names}", where="edge_label_index")
        return graph.edge_types[0], index
    if tuple(edge_type) not in known:
        text = " ".join(edge_type)
        raise UsageError(
            f"unknown edge type `{text}`; the graph has: {names}",
            where="edge_label_index",
            hint=did_you_mean(text, names.split(", ")),
        )
    return graph.edge_types[known.index(tuple(edge_type))], index


def _is_edge_type(value: Any) -> bool:
    return value is None or (
        isinstance(value, tuple | list) and len(value) > 0 and all(isinstance(each, str) for each in value)
    )


def _labels_of(edge_label: Any, links: int, mode: str | None) -> Array | None:
    if edge_label is None:
        return None
    if mode == "triplet":
        raise UsageError(
            "expected no labels with negatives of mode triplet, received some: src_index, dst_pos_index and "
            "dst_neg_index say what is positive",
            where="edge_label",
            hint="leave edge_label out, or take mode binary",
        )
    labels = edge_label.detach().cpu().numpy() if is_torch(edge_label) else np.asarray(edge_label)
    if labels.ndim == 0 or len(labels) != links or labels.dtype.kind not in "biuf":
        raise UsageError(
            f"expected a number for each of {links} links, received {labels.dtype} {list(labels.shape)}",
            where="edge_label",
        )
    if mode != "binary" or not links or labels.min() != 0:
        return labels
    if labels.dtype.kind in "iu" and labels.max() == np.iinfo(labels.dtype).max:
        raise UsageError(
            f"expected labels that leave room for counting from 1, received {labels.max()} as {labels.dtype}",
            where="edge_label",
            hint="give a wider integer type",
        )
    return labels + 1
