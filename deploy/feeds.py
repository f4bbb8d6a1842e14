"""Turns node indices into the feeds of an encoder in padded-block form (`graphbox.artifact.preprocess`)."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, LayerSpec, NeighborLists, PaddedBlockForm, RelationGroup, RowTable
from graphbox.deploy.unseen import UnseenFeeds
from graphbox.errors import DoesNotFitError

__all__ = ["PaddedBlockFeeds"]

Nodes = npt.NDArray[np.int64]
_ABSENT = -1
_ABSENT_NODE: Nodes = np.array([_ABSENT])
_NO_NODES: Nodes = np.empty(0, np.int64)
# Marking every node costs one pass over the node type, sorting costs m log m of the nodes read.
_SORTED_BELOW_SHARE = 16
# Up to these, a binary search for each node is faster than sorting with positions.
_FEW_NODES = 512


class PaddedBlockFeeds:
    """Builds feeds; safe to use from several threads.

    Args:
        artifact: the model version, of kind ``encoder``.
        form: its preprocess.

    Attributes:
        lists: the neighbours of all nodes, by the ``neighbors`` path of their group.
    """

    def __init__(self, artifact: Artifact, form: PaddedBlockForm) -> None:
        self._form = form
        self._count = {node_type: len(artifact.ids(node_type)) for node_type in _node_types(form)}
        self._tables = _tables_of(artifact, form)
        widths = [sum(table.dim for table in tables) for tables in self._tables.values()]
        self._vector_bytes = 4 * max(artifact.manifest.dim, *widths)
        self.lists: dict[str, NeighborLists] = {
            group.neighbors: artifact.neighbor_lists(group) for group in form.groups
        }

    def with_rows(self, artifact: Artifact) -> PaddedBlockFeeds:
        """Return the same for the model version with other rows of the same nodes."""
        view = copy.copy(self)
        view._tables = _tables_of(artifact, self._form)
        return view

    def build(
        self, queries: Nodes, most_bytes: int | None = None, unseen: UnseenFeeds | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the feeds for query nodes.

        Args:
            queries: int64 [n], node indices of the form's node type, all valid; the i-th of ``unseen`` has
                the index ``nodes of the type + i``.
            most_bytes: of the vectors that a group gathers, padding included; None: any number.
            unseen: nodes that the model was never given.

        Returns:
            One array for each ONNX input.

        Raises:
            DoesNotFitError: a group would gather more than ``most_bytes``; nothing was allocated for it.
        """
        feeds: dict[str, npt.NDArray[Any]] = {}
        frontier: dict[str, Nodes] = {self._form.node_type: queries}
        for layer in reversed(self._form.layers):
            frontier = self._descend(layer, frontier, feeds, most_bytes, unseen)
        for node_type, rows in self._form.rows.items():
            nodes = frontier.get(node_type, np.array([_ABSENT]))
            own = unseen if node_type == self._form.node_type else None
            feeds[rows.input] = self._rows(node_type, nodes, own)
        return feeds

    def _descend(
        self,
        layer: LayerSpec,
        frontier: dict[str, Nodes],
        feeds: dict[str, npt.NDArray[Any]],
        most_bytes: int | None,
        unseen: UnseenFeeds | None,
    ) -> dict[str, Nodes]:
        """Write the feeds of one layer; return the frontier below it, whose first node is the absent one."""
        reads: dict[str, list[tuple[str, npt.NDArray[np.integer]]]] = {}
        for group in layer.groups:
            targets = frontier.get(group.target, _NO_NODES)
            neighbors = self._neighbor_block(group, targets, feeds, most_bytes, unseen)
            reads.setdefault(group.source, []).append((group.neighbors_input, neighbors))
        for node_type, name in layer.self_inputs.items():
            own = frontier.get(node_type, _NO_NODES)
            reads.setdefault(node_type, []).append((name, own))
        below: dict[str, Nodes] = {}
        for node_type, blocks in reads.items():
            nodes = np.concatenate([_ABSENT_NODE, *[block.ravel() for _, block in blocks]])
            count = self._count[node_type] + (0 if unseen is None else len(unseen.rows))
            below[node_type], positions = _unique(nodes, count)
            start = 1
            for name, block in blocks:
                feeds[name] = positions[start : start + block.size].reshape(block.shape)
                start += block.size
        return below

    def _neighbor_block(
        self,
        group: RelationGroup,
        targets: Nodes,
        feeds: dict[str, npt.NDArray[Any]],
        most_bytes: int | None,
        unseen: UnseenFeeds | None,
    ) -> Nodes:
        """Return the neighbours of ``targets``, int64 [n, R, F], -1 = absent.

        The weights and features of the edges are written into the feeds.
        """
        lists = self.lists[group.neighbors]
        more = None if unseen is None else unseen.lists.get(group.neighbors)
        counts = _both(lists.counts, None if more is None else more.counts, targets)
        start = _both(lists.start, None if more is None else more.start + len(lists.neighbors), targets)
        if len(targets) and targets[0] == _ABSENT:
            counts[0] = 0
        longest = max(1, int(np.maximum.reduce(counts, axis=None, initial=0)))
        slot_bytes = self._vector_bytes + 4 * (0 if group.edges is None else group.edges.mapped_columns)
        if most_bytes is not None and counts.size * longest * slot_bytes > most_bytes:
            raise DoesNotFitError(
                f"expected neighbours whose vectors take at most {most_bytes} bytes, received lists of up to "
                f"{longest} of {group.source} for {len(targets)} nodes of {group.target}",
                hint="export it with `max_neighbors`, or as stored vectors (`form: vectors`)",
            )
        slots = np.arange(longest)
        present = slots < counts[..., None]
        positions = start[..., None] + slots
        listed = None if more is None else more.neighbors
        neighbors = _listed(lists.neighbors, listed, positions, present, _ABSENT)
        if group.edges is not None and lists.edges is not None:
            features = np.zeros((*present.shape, group.edges.columns), np.float32)
            features[present] = _both(lists.edges, None if more is None else more.edges, positions[present])
            feeds[group.edges.input] = features
        if group.weights_input is None:
            return neighbors
        if lists.weights is not None:
            weighed = None if more is None else more.weights
            weights = _listed(lists.weights, weighed, positions, present, 0)
        else:
            weights = present * _weight_of_count(group.normalization == "mean").take(counts)[..., None]
        feeds[group.weights_input] = weights
        return neighbors

    def _rows(
        self, node_type: str, nodes: Nodes, unseen: UnseenFeeds | None = None
    ) -> npt.NDArray[np.float32]:
        """Return a zero row followed by the rows of ``nodes[1:]``, of which the unseen ones are the last."""
        tables = self._tables[node_type]
        rows = np.empty((len(nodes), sum(table.dim for table in tables)), np.float32)
        rows[0] = 0
        stored = len(nodes) if unseen is None else int(np.searchsorted(nodes, self._count[node_type]))
        start = 0
        for table in tables:
            table.rows(nodes[1:stored], out=rows[1:stored, start : start + table.dim])
            start += table.dim
        if unseen is not None:
            rows[stored:] = unseen.rows[nodes[stored:] - self._count[node_type]]
        return rows


@functools.cache
def _weight_of_count(is_mean: bool) -> npt.NDArray[np.float32]:
    """Return the weight of each neighbour by their number: its inverse, or the inverse of its square root."""
    number = np.maximum(np.arange(1 << 16), 1).astype(np.float32)
    return np.reciprocal(number if is_mean else np.sqrt(number))


def _listed(
    stored: npt.NDArray[Any],
    unseen: npt.NDArray[Any] | None,
    positions: npt.NDArray[np.integer],
    present: npt.NDArray[np.bool_],
    absent: int,
) -> npt.NDArray[Any]:
    """Return what is found at positions where there is something, else ``absent``; see `_both`."""
    if unseen is None and len(stored):
        return np.where(present, stored.take(positions, mode="clip"), absent)
    found = np.full(present.shape, absent, stored.dtype)
    found[present] = _both(stored, unseen, positions[present])
    return found


def _both(
    stored: npt.NDArray[Any], unseen: npt.NDArray[Any] | None, index: npt.NDArray[np.integer]
) -> npt.NDArray[Any]:
    """Return what an index finds in two arrays, one after the other."""
    if unseen is None:
        taken: npt.NDArray[Any] = stored.take(index, axis=0)
        return taken
    is_unseen = index >= len(stored)
    found = np.zeros((*index.shape, *stored.shape[1:]), stored.dtype)
    found[~is_unseen] = stored[index[~is_unseen]]
    found[is_unseen] = unseen[index[is_unseen] - len(stored)]
    return found


def _unique(nodes: Nodes, count: int) -> tuple[Nodes, npt.NDArray[np.int64]]:
    """Return the unique nodes in order, and the position of each of ``nodes`` in that.

    Args:
        nodes: node indices in [-1, count); at least one.
        count: nodes of the type.
    """
    if len(nodes) * _SORTED_BELOW_SHARE >= count:
        seen = np.zeros(count + 1, np.bool_)
        seen[nodes + 1] = True
        rank = np.cumsum(seen) - 1
        return np.flatnonzero(seen) + _ABSENT, rank[nodes + 1]
    # `np.unique` is slower: it is general in several ways.
    are_few = len(nodes) <= _FEW_NODES
    order = _NO_NODES if are_few else nodes.argsort()
    ordered = np.sort(nodes) if are_few else nodes[order]
    is_first = np.empty(len(nodes), np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    unique = ordered[is_first]
    if are_few:
        return unique, unique.searchsorted(nodes)
    positions = np.empty(len(nodes), np.int64)
    positions[order] = is_first.cumsum() - 1
    return unique, positions


def _tables_of(artifact: Artifact, form: PaddedBlockForm) -> dict[str, list[RowTable]]:
    return {
        node_type: [artifact.table(name) for name in rows.tables] for node_type, rows in form.rows.items()
    }


def _node_types(form: PaddedBlockForm) -> set[str]:
    groups = [group for layer in form.layers for group in layer.groups]
    ends = {group.source for group in groups} | {group.target for group in groups}
    return ends | set(form.rows) | {form.node_type}
