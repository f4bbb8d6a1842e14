"""Nearest neighbours of a node: exact search, which is fastest up to some ten thousand rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphbox.errors import NotFoundError
from graphbox.server.repository import ServedModel

__all__ = ["Found", "nearest"]


@dataclass(frozen=True, slots=True)
class Found:
    """The neighbours of one query, best first.

    Attributes:
        node_type: of the neighbours.
        index: int64[k], their node indices; fewer than asked for when there are no more.
        score: float32[k].
    """

    node_type: str
    index: npt.NDArray[np.int64]
    score: npt.NDArray[np.float32]


def nearest(served: ServedModel, query_type: str, index: int, k: int) -> Found:
    """Return the ``k`` best neighbours of the node ``index`` of ``query_type``, itself left out.

    Raises:
        NotFoundError: the model has nothing to rank for queries of that type.
    """
    manifest = served.artifact.manifest
    target = manifest.targets.get(query_type)
    if target is None:
        raise NotFoundError(
            f"the model `{served.name}` ranks nothing for queries of the node type `{query_type}`",
            where="query parameter `type`",
            hint=f"it ranks for: {', '.join(manifest.targets)}",
        )
    node_type = served.model.target_type(query_type)
    candidates = manifest.tables[target.table].rows - (node_type == query_type)
    if not candidates:
        return Found(node_type, np.empty(0, np.int64), np.empty(0, np.float32))
    found, score = served.model.neighbors_of_indices(
        np.array([index]), min(k, candidates), exclude_self=True, node_type=query_type
    )
    return Found(node_type, found[0], score[0])
