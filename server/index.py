"""Nearest neighbours of a node: exact search, which is fastest up to some ten thousand rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphbox.errors import NotFoundError
from graphbox.server.slot import ServedModel

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


def nearest(served: ServedModel, query_type: str, index: int, k: int, linked: bool = True) -> Found:
    """Return the ``k`` best neighbours of the node ``index`` of ``query_type``, itself left out.

    Without ``linked`` those that a known link joins to it are left out too, as a recommendation wants it.

    Raises:
        InvalidRequestError: the model gives no embeddings.
        NotFoundError: the model has nothing to rank for queries of that type.
    """
    model = served.encoder
    manifest = served.artifact.manifest
    target = manifest.targets.get(query_type)
    if target is None:
        raise NotFoundError(
            f"the model `{served.name}` ranks nothing for queries of the node type `{query_type}`",
            where="query parameter `type`",
            hint=f"it ranks for: {', '.join(manifest.targets)}",
        )
    node_type = model.target_type(query_type)
    candidates = manifest.tables[target.table].rows - (node_type == query_type)
    if not candidates:
        return Found(node_type, np.empty(0, np.int64), np.empty(0, np.float32))
    ranked = min(k, candidates)
    while True:
        found, score = model.neighbors_of_indices(
            np.array([index]), ranked, exclude_self=True, node_type=query_type
        )
        if linked:
            return Found(node_type, found[0], score[0])
        links = served.artifact.links.between(query_type, index, node_type, found[0])
        new = np.flatnonzero([not between for between in links])
        if len(new) >= k or ranked == candidates:
            return Found(node_type, found[0][new[:k]], score[0][new[:k]])
        # How many of the best are linked is seen only when they are looked up.
        ranked = min(2 * ranked, candidates)
