"""Sizes of a graph that the memory of trainings depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphbox.artifact.edge_features import CATEGORY_DIM
from graphbox.graph import Graph
from graphbox.graph.distinct import from_blocks
from graphbox.graph.schema import EdgeType

_BLOCK_ROWS = 8192
_BLOCKS = 24
"""Rows of slots that are looked at: so many blocks from all over, or all of them where there are fewer."""


@dataclass(frozen=True)
class GraphCounts:
    """Sizes of a graph that exists, or will after an import.

    Attributes:
        nodes: number of nodes by type.
        edges: number of edges by type, without reverse types.
        feature_bytes: bytes of the nodes' features on disk, by type.
        values: how many different values a feature has that is looked up in a table (categories, booleans,
            slots), by node type and feature.
        edge_widths: length of the vector that layers read of a feature of edges, by edge type and feature.
    """

    nodes: Mapping[str, int]
    edges: Mapping[EdgeType, int]
    feature_bytes: Mapping[str, int]
    values: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    edge_widths: Mapping[EdgeType, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> GraphCounts:
        """Return the counts of a graph that is there; of slots the values are estimated from blocks."""
        columns = {name: graph.node_columns(name) for name in graph.node_types}
        return cls(
            nodes={name: graph.num_nodes(name) for name in graph.node_types},
            edges={each: graph.num_edges(each) for each in graph.edge_types if not graph.is_reverse(each)},
            feature_bytes={
                name: sum(
                    each.values.nbytes + (0 if each.offsets is None else each.offsets.nbytes)
                    for each in found.values()
                )
                for name, found in columns.items()
            },
            values={
                name: {
                    feature: _slots(each.offsets, each.values)
                    if each.offsets is not None
                    else len(each.categories or (False, True))
                    for feature, each in found.items()
                    if each.kind in {"categorical", "boolean", "slots"}
                }
                for name, found in columns.items()
            },
            edge_widths={
                each: {
                    name: CATEGORY_DIM if spec.kind == "categorical" else spec.dim or 1
                    for name, spec in graph.edge_features(each).items()
                }
                for each in graph.edge_types
                if not graph.is_reverse(each)
            },
        )


def _slots(offsets: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    rows = len(offsets) - 1
    blocks = max(1, rows // _BLOCK_ROWS)
    chosen = np.unique(np.linspace(0, blocks - 1, min(_BLOCKS, blocks)).astype(np.int64))
    found = [
        values[offsets[block * rows // blocks] : offsets[(block + 1) * rows // blocks]].view(np.uint64)
        for block in chosen
    ]
    return from_blocks(found, len(chosen) / blocks).likely
