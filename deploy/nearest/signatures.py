"""Signatures of nearest nodes: of original ids, and of vectors that a client has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, TensorSpec
from graphbox.artifact.manifest import Datatype
from graphbox.deploy.nearest.nodes import NearestNodes
from graphbox.deploy.nearest.row_filter import RowFilter
from graphbox.deploy.protocol import Feeds
from graphbox.deploy.signature import (
    NEAREST_SUFFIX,
    NEAREST_VECTORS_SUFFIX,
    Outputs,
    Parameters,
    Signature,
    by_name,
    decoded_ids,
    node_indices,
)
from graphbox.errors import InvalidRequestError

__all__ = ["nearest_signatures"]

_VECTOR: Final = "vector"
_NEIGHBOR, _SCORE, _COUNT = "neighbor", "score", "count"
_ALLOW, _NUM_ALLOW, _DENY, _NUM_DENY = "allow", "num_allow", "deny", "num_deny"
_LISTS: Final = {_ALLOW: _NUM_ALLOW, _DENY: _NUM_DENY}
_NO_LIST: Final = -1
"""Value of ``num_allow`` for a query that has no allow-list."""
_DEFAULT_K: Final = 10
_MAX_K: Final = 1_000
_MAX_ANSWERS: Final = 1 << 20


def nearest_signatures(
    artifact: Artifact,
    nodes: NearestNodes,
    encode: Callable[[npt.NDArray[np.int64], str], npt.NDArray[np.float32]],
    *,
    joinable: bool,
) -> dict[str, Signature]:
    """Return the signatures of an encoder that ranks nodes; none where it ranks nothing.

    Both take n queries: ``NAME.nearest`` original ids, BYTES or INT64 [n], ``NAME.nearest_vectors`` the
    tensor ``vector``, FP32 [n, dim]. Both answer ``neighbor``, BYTES or INT64 [n, k], original ids, best
    first; ``score``, FP32 [n, k]; ``count``, INT64 [n], how many neighbours a query has: behind them are
    empty texts or -1, with the score 0.

    Inputs that may be left out: ``allow`` and ``deny``, original ids of all queries, one query after the
    other, with their numbers in ``num_allow`` (-1: the query has no allow-list) and ``num_deny``, INT64 [n].
    Ids that the model lacks are ignored.

    Parameters: ``k``, 10 by default; ``node_type`` of the queries, by default the first; for ids ``linked``,
    false to leave out nodes that a known link joins to the query.

    Args:
        artifact: the model version.
        nodes: ranks its nodes.
        encode: returns the embeddings of node indices (int64 [n]) of a node type, float32 [n, dim].
        joinable: whether vectors that are computed together are those that are computed alone.
    """
    manifest = artifact.manifest
    if not manifest.targets:
        return {}
    (ids,) = manifest.inputs
    types = {manifest.tables[target.table].node_type for target in manifest.targets.values()}
    are_integers = all(artifact.ids(each).kind == "int64" for each in types)
    datatype: Datatype = "INT64" if are_integers else "BYTES"
    filters = [
        TensorSpec(name=name, datatype=datatype if name in _LISTS else "INT64", shape=(-1,))
        for name in (_ALLOW, _NUM_ALLOW, _DENY, _NUM_DENY)
    ]
    outputs = by_name(
        [
            TensorSpec(name=_NEIGHBOR, datatype=datatype, shape=(-1, -1)),
            TensorSpec(name=_SCORE, datatype="FP32", shape=(-1, -1)),
            TensorSpec(name=_COUNT, datatype="INT64", shape=(-1,)),
        ]
    )
    dims = {nodes.dim(query_type) for query_type in manifest.targets}
    vector = TensorSpec(name=_VECTOR, datatype="FP32", shape=(-1, dims.pop() if len(dims) == 1 else -1))

    def of_ids(inputs: Feeds, parameters: Parameters) -> Outputs:
        query_type = _query_type(artifact, parameters)
        indices = node_indices(inputs[ids.name], artifact.ids(query_type), ids.name)
        linked = _linked(parameters)
        of_row = _filters(nodes, inputs, len(indices), query_type)
        filters = [of_row(row, node=node, linked=linked) for row, node in enumerate(indices.tolist())]
        return _answer(nodes, query_type, encode(indices, query_type), parameters, filters, are_integers)

    def of_vectors(inputs: Feeds, parameters: Parameters) -> Outputs:
        query_type = _query_type(artifact, parameters)
        vectors = inputs[_VECTOR]
        of_row = _filters(nodes, inputs, len(vectors), query_type)
        filters = [of_row(row) for row in range(len(vectors))]
        return _answer(nodes, query_type, vectors, parameters, filters, are_integers)

    shared = partial(
        Signature,
        platform="graphbox",
        outputs=outputs,
        work=lambda inputs: sum(len(array) for array in inputs.values()),
        lists=_LISTS,
        defaults={_ALLOW: 0, _NUM_ALLOW: _NO_LIST, _DENY: 0, _NUM_DENY: 0},
    )
    return {
        NEAREST_SUFFIX: shared(
            inputs=by_name([ids, *filters]),
            answer=of_ids,
            parameters=frozenset({"k", "linked", "node_type"}),
            joinable=joinable,
        ),
        NEAREST_VECTORS_SUFFIX: shared(
            inputs=by_name([vector, *filters]),
            answer=of_vectors,
            parameters=frozenset({"k", "node_type"}),
            joinable=True,
        ),
    }


def _query_type(artifact: Artifact, parameters: Parameters) -> str:
    targets = artifact.manifest.targets
    node_type = parameters.get("node_type", next(iter(targets)))
    if node_type not in targets:
        raise InvalidRequestError(
            f"expected one of the node types {', '.join(targets)}, received {node_type!r:.64}",
            where="parameters.node_type",
        )
    return str(node_type)


def _linked(parameters: Parameters) -> bool:
    linked = parameters.get("linked", True)
    if not isinstance(linked, bool):
        raise InvalidRequestError(
            f"expected true or false, received {linked!r:.64}", where="parameters.linked"
        )
    return linked


def _filters(nodes: NearestNodes, inputs: Feeds, rows: int, query_type: str) -> Callable[..., RowFilter]:
    """Return the function that makes the filter of a row, given its number."""
    allow = _split(nodes, inputs, rows, query_type, _ALLOW, _NO_LIST)
    deny = _split(nodes, inputs, rows, query_type, _DENY, 0)

    def of_row(row: int, node: int | None = None, *, linked: bool = True) -> RowFilter:
        denied = deny[row]
        return nodes.row_filter(
            query_type, node, allow[row], np.empty(0, np.int64) if denied is None else denied, linked=linked
        )

    return of_row


def _split(
    nodes: NearestNodes, inputs: Feeds, rows: int, query_type: str, name: str, least: int
) -> list[npt.NDArray[np.int64] | None]:
    """Return the list of each row as node indices; None: it has none."""
    ids, counts = inputs[name], inputs[_LISTS[name]]
    if not len(ids) and len(counts) == rows and (counts == least).all():
        return [None] * rows
    if len(counts) != rows:
        raise InvalidRequestError(
            f"expected {rows} counts, one for each query, received {len(counts)}",
            where=f"input `{_LISTS[name]}`",
        )
    lengths = np.maximum(counts, 0)
    if (counts < least).any() or (lengths > len(ids)).any() or int(lengths.sum()) != len(ids):
        raise InvalidRequestError(
            f"expected counts of at least {least} with the sum {len(ids)}, the number of ids in `{name}`, "
            "received others",
            where=f"input `{_LISTS[name]}`",
        )
    targets = nodes.target_ids(query_type)
    found = targets.index(decoded_ids(ids, targets, name), missing=-1)
    ends = np.cumsum(lengths)
    parts = [found[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return [
        None if count < 0 else part[part >= 0] for count, part in zip(counts.tolist(), parts, strict=True)
    ]


def _answer(
    nodes: NearestNodes,
    query_type: str,
    vectors: npt.NDArray[np.float32],
    parameters: Parameters,
    filters: list[RowFilter],
    are_integers: bool,
) -> Outputs:
    k = parameters.get("k", _DEFAULT_K)
    if type(k) is not int or not 1 <= k <= _MAX_K:
        raise InvalidRequestError(
            f"expected an integer between 1 and {_MAX_K}, received {k!r:.64}", where="parameters.k"
        )
    if len(vectors) * k > _MAX_ANSWERS:
        raise InvalidRequestError(
            f"expected at most {_MAX_ANSWERS} neighbours in one answer, received {len(vectors)} queries "
            f"with k = {k}",
            hint="send fewer queries in one request",
        )
    neighbors = np.full(
        (len(vectors), k), -1 if are_integers else b"", np.int64 if are_integers else np.object_
    )
    scores = np.zeros((len(vectors), k), np.float32)
    counts = np.zeros(len(vectors), np.int64)
    if len(vectors):
        found = nodes.nearest(vectors, k, query_type, filters)
        named = nodes.target_ids(query_type).take(np.concatenate([index for index, _ in found]))
        texts = named if are_integers else [str(each).encode() for each in named]
        start = 0
        for row, (index, score) in enumerate(found):
            count = len(index)
            neighbors[row, :count] = texts[start : start + count]
            scores[row, :count], counts[row] = score, count
            start += count
    return {_NEIGHBOR: neighbors, _SCORE: scores, _COUNT: counts}
