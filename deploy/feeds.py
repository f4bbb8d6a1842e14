"""Turns node indices into the feeds of an encoder in padded-block form (`graphbox.artifact.preprocess`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, LayerSpec, NeighborLists, PaddedBlockForm, RelationGroup, RowTable

__all__ = ["PaddedBlockFeeds"]

Nodes = npt.NDArray[np.int64]
_ABSENT = -1
_NO_NODES: Nodes = np.empty(0, np.int64)
# Marking every node costs one pass over the node type, sorting costs m log m of the nodes read.
_SORTED_BELOW_SHARE = 16


class PaddedBlockFeeds:
    """Builds feeds; safe to use from several threads.

    Args:
        artifact: the model version, of kind ``encoder``.
        form: its preprocess.
    """

    def __init__(self, artifact: Artifact, form: PaddedBlockForm) -> None:
        self._form = form
        self._count = {node_type: len(artifact.ids(node_type)) for node_type in _node_types(form)}
        self._tables: dict[str, list[RowTable]] = {
            node_type: [artifact.table(name) for name in rows.tables] for node_type, rows in form.rows.items()
        }
        self._lists: dict[str, NeighborLists] = {}
        for group in (group for layer in form.layers for group in layer.groups):
            if group.neighbors not in self._lists:
                self._lists[group.neighbors] = artifact.neighbor_lists(group)

    def build(self, queries: Nodes) -> dict[str, npt.NDArray[Any]]:
        """Return the feeds for query nodes.

        Args:
            queries: int64 [n], node indices of the form's node type, all valid.

        Returns:
            One array for each ONNX input.
        """
        feeds: dict[str, npt.NDArray[Any]] = {}
        frontier: dict[str, Nodes] = {self._form.node_type: queries}
        for layer in reversed(self._form.layers):
            frontier = self._descend(layer, frontier, feeds)
        for node_type, rows in self._form.rows.items():
            feeds[rows.input] = self._rows(node_type, frontier.get(node_type, np.array([_ABSENT])))
        return feeds

    def _descend(
        self, layer: LayerSpec, frontier: dict[str, Nodes], feeds: dict[str, npt.NDArray[Any]]
    ) -> dict[str, Nodes]:
        """Write the feeds of one layer; return the frontier below it, whose first node is the absent one."""
        reads: dict[str, list[tuple[str, npt.NDArray[np.integer]]]] = {}
        for group in layer.groups:
            neighbors = self._neighbor_block(group, frontier.get(group.target, _NO_NODES), feeds)
            reads.setdefault(group.source, []).append((group.neighbors_input, neighbors))
        for node_type, name in layer.self_inputs.items():
            own = frontier.get(node_type, _NO_NODES)
            reads.setdefault(node_type, []).append((name, own))
        below: dict[str, Nodes] = {}
        for node_type, blocks in reads.items():
            flat = np.concatenate([block.ravel() for _, block in blocks])
            below[node_type], positions = _unique_with_absent(flat, self._count[node_type])
            start = 0
            for name, block in blocks:
                feeds[name] = positions[start : start + block.size].reshape(block.shape)
                start += block.size
        return below

    def _neighbor_block(
        self, group: RelationGroup, targets: Nodes, feeds: dict[str, npt.NDArray[Any]]
    ) -> Nodes:
        """Return the neighbours of ``targets``, int64 [n, R, F], -1 = absent; write their weights."""
        lists = self._lists[group.neighbors]
        counts = lists.counts[targets]
        start = lists.start[targets]
        if len(targets) and targets[0] == _ABSENT:
            counts[0] = 0
        slots = np.arange(max(1, int(counts.max(initial=0))))
        present = slots < counts[..., None]
        neighbors = np.full(present.shape, _ABSENT, np.int64)
        positions = (start[..., None] + slots)[present]
        neighbors[present] = lists.neighbors[positions]
        if lists.weights is not None:
            weights = np.zeros(present.shape, np.float32)
            weights[present] = lists.weights[positions]
        else:
            number = np.maximum(counts, 1).astype(np.float32)[..., None]
            divisor = number if group.normalization == "mean" else np.sqrt(number)
            weights = np.divide(present, divisor, dtype=np.float32)
        feeds[group.weights_input] = weights
        return neighbors

    def _rows(self, node_type: str, nodes: Nodes) -> npt.NDArray[np.float32]:
        """Return a zero row followed by the rows of ``nodes[1:]``."""
        tables = self._tables[node_type]
        rows = np.empty((len(nodes), sum(table.dim for table in tables)), np.float32)
        rows[0] = 0
        start = 0
        for table in tables:
            table.rows(nodes[1:], out=rows[1:, start : start + table.dim])
            start += table.dim
        return rows


def _unique_with_absent(nodes: npt.NDArray[np.integer], count: int) -> tuple[Nodes, npt.NDArray[np.int64]]:
    """Return -1 followed by the unique nodes in order, and the position of each of ``nodes`` in that.

    Args:
        nodes: node indices in [-1, count).
        count: nodes of the type.
    """
    if len(nodes) * _SORTED_BELOW_SHARE < count:
        unique, positions = np.unique(np.concatenate([[_ABSENT], nodes]), return_inverse=True)
        return unique, positions[1:].astype(np.int64, copy=False)
    seen = np.zeros(count + 1, np.bool_)
    seen[nodes + 1] = True
    seen[0] = True
    rank = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + _ABSENT, rank[nodes + 1]


def _node_types(form: PaddedBlockForm) -> set[str]:
    groups = [group for layer in form.layers for group in layer.groups]
    ends = {group.source for group in groups} | {group.target for group in groups}
    return ends | set(form.rows) | {form.node_type}
