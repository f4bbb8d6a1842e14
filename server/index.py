"""Nearest nodes of nodes and of vectors, among those that a client allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphbox.artifact.ids import Id
from graphbox.deploy.nearest.row_filter import RowFilter
from graphbox.errors import InvalidRequestError, NotFoundError
from graphbox.server.slot import ServedModel

__all__ = ["Found", "Question", "nearest"]


@dataclass(frozen=True, slots=True)
class Question:
    """A query.

    Attributes:
        node_type: of the node, or that the vector stands for.
        asked: index of the node, or float32 [dim].
        allow: original ids of the nodes that may be among its neighbours; None: all.
        deny: original ids of nodes that may not; ids that the model lacks are ignored in both.
        where: name of the query in messages.
    """

    node_type: str
    asked: int | npt.NDArray[np.float32]
    allow: Sequence[Id] | None = None
    deny: Sequence[Id] = ()
    where: str | None = None


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


def nearest(served: ServedModel, questions: Sequence[Question], k: int, linked: bool = True) -> list[Found]:
    """Return the ``k`` best neighbours of each query, a node itself left out.

    Without ``linked`` those that a known link joins to a node are left out too, as a recommendation wants it.

    Raises:
        InvalidRequestError: the model gives no embeddings, or a vector or an id is not what it reads.
        NotFoundError: the model has nothing to rank for queries of a type.
    """
    found: dict[int, Found] = {}
    by_type: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        by_type.setdefault(question.node_type, []).append(number)
    for query_type, numbers in by_type.items():
        asked = [questions[number] for number in numbers]
        found |= dict(zip(numbers, _nearest_of_type(served, query_type, asked, k, linked), strict=True))
    return [found[number] for number in range(len(questions))]


def _nearest_of_type(
    served: ServedModel, query_type: str, questions: Sequence[Question], k: int, linked: bool
) -> list[Found]:
    model = served.encoder
    targets = served.artifact.manifest.targets
    if query_type not in targets:
        raise NotFoundError(
            f"the model `{served.name}` ranks nothing for queries of the node type `{query_type}`",
            where="query parameter `type`",
            hint=f"it ranks for: {', '.join(targets)}",
        )
    filters = [_filter(served, question, linked) for question in questions]
    vectors = np.empty((len(questions), model.nearest.dim(query_type)), np.float32)
    nodes = [place for place, question in enumerate(questions) if isinstance(question.asked, int)]
    if nodes:
        indices = np.array([questions[place].asked for place in nodes], np.int64)
        vectors[nodes] = model.encode_indices(indices, query_type)
    for place, question in enumerate(questions):
        if isinstance(question.asked, int):
            continue
        if question.asked.shape != vectors.shape[1:] or not np.isfinite(question.asked).all():
            raise InvalidRequestError(
                f"expected a vector of {vectors.shape[1]} finite numbers, received other values",
                where=question.where,
            )
        vectors[place] = question.asked
    node_type = model.target_type(query_type)
    return [Found(node_type, *each) for each in model.nearest.nearest(vectors, k, query_type, filters)]


def _filter(served: ServedModel, question: Question, linked: bool) -> RowFilter:
    nodes = served.encoder.nearest
    ids = nodes.target_ids(question.node_type)
    try:
        allow = None if question.allow is None else [ids.from_text(str(each)) for each in question.allow]
        deny = [ids.from_text(str(each)) for each in question.deny]
    except InvalidRequestError as error:
        raise InvalidRequestError(
            error.message, where=question.where or error.where, hint=error.hint
        ) from error
    return nodes.row_filter(
        question.node_type,
        question.asked if isinstance(question.asked, int) else None,
        None if allow is None else nodes.rows_of(allow, question.node_type),
        nodes.rows_of(deny, question.node_type),
        linked=linked,
    )
