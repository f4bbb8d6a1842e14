"""Conventions of PyTorch Geometric's data that training must know: masks of a split, reverse edge types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphbox.errors import UsageError

if TYPE_CHECKING:
    from graphbox.graph import Graph
    from graphbox.graph.columns import Column
    from graphbox.graph.tables import NodeTable, OwnEdges

_MASKS = ("train_mask", "val_mask", "test_mask")
_SPLIT = "split"
_PARTS = ("test", "train", "validation")
_PART_OF_MASK = (1, 2, 0)
"""Place in ``_PARTS``, which are in ascending order as imported categories are, of each mask's part."""
_REVERSE = "rev_"


def as_trained(graph: Graph) -> Graph:
    """Return a graph that was converted from PyTorch Geometric as training reads it.

    The booleans ``train_mask``, ``val_mask`` and ``test_mask`` of nodes become one feature ``split``, which
    tasks can name: models would read the masks as features. An edge type ``(b, rev_r, a)`` with the edges of
    ``(a, r, b)`` backwards, as ``ToUndirected`` adds it, becomes its reverse type: edges that are held out of
    one are held out of the other.

    Raises:
        UsageError: a node is in several masks.
    """
    from graphbox.graph import Graph

    nodes = {name: _with_split(graph.node_table(name), name) for name in graph.node_types}
    edges = {each: graph.own_edges(each) for each in graph.edge_types}
    for edge_type in list(edges):
        source, relation, target = edge_type
        reverse = (target, f"{_REVERSE}{relation}", source)
        if edge_type in edges and reverse in edges and _is_reverse(edges[edge_type], edges[reverse]):
            edges[edge_type] = edges[edge_type].reversed_as(reverse)
            del edges[reverse]
    return Graph(graph.name, nodes, edges)


def _is_reverse(table: OwnEdges, other: OwnEdges) -> bool:
    """Return whether ``other`` holds the edges of ``table`` backwards, with the same values."""
    forward, backward = table.csc, other.csc
    if forward.num_edges != backward.num_edges or table.features.keys() != other.features.keys():
        return False
    source, target = forward.coo()
    order = np.lexsort((target, source))
    back_source, back_target = backward.coo()
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = [(source, back_target), (target, back_source)]
    for mine, others in ((forward.weight, backward.weight), (forward.timestamp, backward.timestamp)):
        if (mine is None) != (others is None):
            return False
        if mine is not None and others is not None:
            pairs.append((mine, others))
    for name, column in table.features.items():
        pairs.append((column.values, other.features[name].values))
    return all(
        len(mine) == len(others) == len(order) and np.array_equal(mine[order], others)
        for mine, others in pairs
    )


def _with_split(table: NodeTable, node_type: str) -> NodeTable:
    """Return the nodes with their masks as one feature, where they have all three."""
    from graphbox.graph.tables import NodeTable

    masks = [table.features[name] for name in _MASKS if name in table.features]
    if _SPLIT in table.features or [mask.kind for mask in masks] != ["boolean"] * len(_MASKS):
        return table
    kept = {name: column for name, column in table.features.items() if name not in _MASKS}
    return NodeTable(table.ids, {**kept, _SPLIT: _split_column([mask.values for mask in masks], node_type)})


def _split_column(masks: list[NDArray[np.bool_]], node_type: str) -> Column:
    from graphbox.graph.columns import Column

    if (np.sum(masks, axis=0) > 1).any():
        raise UsageError(
            f"expected each node in one of {', '.join(_MASKS)}, received nodes in several",
            where=f"node type `{node_type}`",
            hint=f"give a feature `{_SPLIT}` with `train`, `validation` and `test` instead",
        )
    codes = np.full(len(masks[0]), -1, np.int32)
    for code, mask in enumerate(masks):
        codes[mask] = _PART_OF_MASK[code]
    return Column("categorical", codes, pa.array(_PARTS, pa.large_string()))
