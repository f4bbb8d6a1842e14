"""Shorter neighbour lists: at most so many neighbours of a node in a relation, the others are left out.

A version with shorter lists is smaller, and reads fewer rows for an embedding. The kept neighbours have a
mean close to that of the whole list: they are chosen by kernel herding (Chen, Welling and Smola,
"Super-Samples from Kernel Herding", UAI 2010) with the rows of the tables as features. On the model of
`graphbox demo` embeddings change less than with as many random or popular neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import Artifact, NeighborLists, PaddedBlockForm, RelationGroup
from graphbox.errors import UnsupportedError

__all__ = ["ShortenedLists", "closest_to_mean", "neighbor_choices", "shortened"]

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float32]
RowsOf = Callable[[Int64], Float]
"""Returns the rows of nodes, float32 [n, dim]."""

_BOUNDS: Final = (32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
_LEAST_LEFT_OUT: Final = 0.05
_BLOCK_ELEMENTS: Final = 1 << 22
_EQUAL: Final = 1 + 1e-4
"""Ratio up to which errors count as equal: both of two neighbours are equally far from their mean."""
_LEAST_WEIGHT: Final = np.float32(1e-12)
_AGGREGATION_OF_LAYER: Final = {"gin": "add", "gine": "add", "sage": "mean", "rgcn": "mean"}
"""Layers that aggregate as `layer_options.aggr` says, with its default; others read weights, or attend."""
_SUMS: Final = ("add", "sum")


def neighbor_choices(artifact: Artifact, given: int | None = None) -> tuple[int | None, ...]:
    """Return the most neighbours of a node in a relation that a version can be written with; None: all.

    Bounds that leave out hardly any neighbours are no choice.

    Args:
        artifact: the model version.
        given: the only number that is wanted.

    Raises:
        UnsupportedError: ``given`` is a number, and the lists cannot be shorter.
    """
    if given is not None:
        _form_of(artifact)
        return (given,)
    try:
        form = _form_of(artifact)
    except UnsupportedError:
        return (None,)
    counts = np.concatenate([artifact.neighbor_lists(group).counts.reshape(-1) for group in form.groups])
    kept = {bound: int(np.minimum(counts, bound).sum(dtype=np.int64)) for bound in _BOUNDS}
    most = (1 - _LEAST_LEFT_OUT) * int(counts.sum(dtype=np.int64))
    return (None, *(bound for bound in _BOUNDS if kept[bound] < most))


class ShortenedLists:
    """Neighbour lists of a model version, shortened: called with a group, it returns those of the group.

    Args:
        artifact: the model version.
        most: neighbours that are kept of a node in a relation; see `shortened`.

    Attributes:
        most: neighbours that are kept of a node in a relation.
        left_out: number of neighbours that were left out.

    Raises:
        UnsupportedError: the model reads no neighbour lists, or sums over all neighbours.
    """

    def __init__(self, artifact: Artifact, most: int) -> None:
        form = _form_of(artifact)
        self.most = most
        self.left_out = 0
        self._lists: dict[str, NeighborLists] = {}
        for group in form.groups:
            lists = artifact.neighbor_lists(group)
            shorter = shortened(lists, group, _rows_of(artifact, form, group.source), most)
            self._lists[group.neighbors] = shorter
            self.left_out += len(lists.neighbors) - len(shorter.neighbors)

    def __call__(self, group: RelationGroup) -> NeighborLists:
        """Return the shortened lists of a group."""
        return self._lists[group.neighbors]


def shortened(lists: NeighborLists, group: RelationGroup, rows_of: RowsOf, most: int) -> NeighborLists:
    """Return lists with at most ``most`` neighbours each, in their order.

    Weights that follow from the number of neighbours follow from that of the kept ones, as where training
    draws some. Weights that degrees normalize are multiplied so that those of a list have the sum they had;
    other weights describe edges and stay as they are. A node that is its own neighbour stays so, on top.

    Args:
        lists: of the group.
        group: the relations.
        rows_of: returns rows of the source type.
        most: neighbours that are kept.
    """
    shape = lists.counts.shape
    counts = lists.counts.reshape(-1).astype(np.int64)
    list_of = np.repeat(np.arange(len(counts)), counts)
    is_own = np.zeros(len(list_of), np.bool_)
    if group.self_loops:
        is_own = lists.neighbors == list_of // shape[1]
    others = np.flatnonzero(~is_own)
    sums = None if lists.weights is None or group.source_scales is None else lists.weights[others]
    of_others = np.bincount(list_of[others], minlength=len(counts))
    kept = is_own.copy()
    kept[others] = _herded(lists.neighbors[others], of_others, sums, rows_of, most)
    weights = lists.weights
    if weights is not None and sums is not None:
        weights = weights.copy()
        weights[others] *= _scales(sums, kept[others], list_of[others], len(counts))
    short = np.bincount(list_of[kept], minlength=len(counts))
    return NeighborLists(
        (np.cumsum(short) - short).reshape(shape),
        short.astype(np.uint16).reshape(shape),
        lists.neighbors[kept],
        None if weights is None else weights[kept],
        None if lists.edges is None else lists.edges[kept],
    )


def closest_to_mean(vectors: Float, weights: Float | None, most: int) -> npt.NDArray[np.bool_]:
    """Return which vectors of each list are chosen, bool [lists, n].

    One after the other is chosen, each so that the mean of the chosen ones comes closest to that of all; of
    equals the first.

    Args:
        vectors: float32 [lists, n, dim].
        weights: float32 [lists, n], of the means, not negative; None: all are 1.
        most: vectors that are chosen; at most n.
    """
    weight = np.ones(vectors.shape[:2], np.float32) if weights is None else np.maximum(weights, _LEAST_WEIGHT)
    mean = np.einsum("ln,lnd->ld", weight, vectors) / weight.sum(axis=1, keepdims=True)
    offsets = weight[..., None] * (vectors - mean[:, None])
    squares = np.einsum("lnd,lnd->ln", offsets, offsets)
    each = np.arange(len(vectors))
    total, total_weight = np.zeros_like(mean), np.zeros(len(vectors), np.float32)
    chosen = np.zeros(vectors.shape[:2], np.bool_)
    for _ in range(most):
        error = squares + 2 * np.einsum("lnd,ld->ln", offsets, total)
        error += np.einsum("ld,ld->l", total, total)[:, None]
        error = np.maximum(error, 0) / np.square(total_weight[:, None] + weight)
        error[chosen] = np.inf
        best = (error <= error.min(axis=1, keepdims=True) * _EQUAL).argmax(axis=1)
        chosen[each, best] = True
        total += offsets[each, best]
        total_weight += weight[each, best]
    return chosen


def _herded(
    neighbors: npt.NDArray[np.int32], counts: Int64, weights: Float | None, rows_of: RowsOf, most: int
) -> npt.NDArray[np.bool_]:
    """Return which neighbours are kept, bool [sum of counts]; lists of equal length are handled together."""
    first = np.cumsum(counts) - counts
    kept = np.repeat(counts <= most, counts)
    for length in np.unique(counts[counts > most]):
        of_length = np.flatnonzero(counts == length)
        dim = rows_of(np.zeros(1, np.int64)).shape[1]
        lists_at_once = max(1, _BLOCK_ELEMENTS // (int(length) * dim))
        for start in range(0, len(of_length), lists_at_once):
            places = first[of_length[start : start + lists_at_once], None] + np.arange(length)
            vectors = rows_of(neighbors[places].ravel().astype(np.int64)).reshape(*places.shape, dim)
            chosen = closest_to_mean(vectors, None if weights is None else weights[places], most)
            kept[places[chosen]] = True
    return kept


def _scales(weights: Float, kept: npt.NDArray[np.bool_], list_of: Int64, lists: int) -> Float:
    """Return by edge the factor that gives the kept weights of its list the sum of all."""
    total = np.bincount(list_of, weights, minlength=lists)
    of_kept = np.bincount(list_of[kept], weights[kept], minlength=lists)
    is_whole = (total == of_kept) | (of_kept <= 0)
    scale = np.where(is_whole, 1.0, total / np.where(is_whole, 1.0, of_kept))
    return scale.astype(np.float32)[list_of]


def _rows_of(artifact: Artifact, form: PaddedBlockForm, node_type: str) -> RowsOf:
    """Return what reads the rows of a type; of types that enter without rows all are zero."""
    names = form.rows[node_type].tables if node_type in form.rows else ()
    tables = [artifact.table(name) for name in names]
    if not tables:
        return lambda nodes: np.zeros((len(nodes), 1), np.float32)
    return lambda nodes: np.concatenate([table.rows(nodes) for table in tables], axis=1)


def _form_of(artifact: Artifact) -> PaddedBlockForm:
    """Return the form of a version whose lists can be shorter.

    Raises:
        UnsupportedError: they cannot.
    """
    form = artifact.preprocess
    if not isinstance(form, PaddedBlockForm):
        reason = "reads no neighbour lists"
    elif any(group.window is not None for group in form.groups):
        reason = "reads histories in their order: train it with a smaller `window` instead"
    elif any(group.normalization == "none" for group in form.groups) and _sums_vectors(artifact):
        reason = "adds up the vectors of all neighbours"
    else:
        return form
    raise UnsupportedError(
        f"expected a model whose neighbour lists can be shorter for `max_neighbors`, this one {reason}",
        where=str(artifact.path),
        hint="leave `max_neighbors` (`--max-neighbors`) out",
    )


def _sums_vectors(artifact: Artifact) -> bool:
    """Return whether layers of the network that the version is made of add neighbours up without weights."""
    if artifact.manifest.network is None:
        return False
    section = json.loads((artifact.path / artifact.manifest.network / "network.json").read_bytes())["section"]
    default = _AGGREGATION_OF_LAYER.get(section.get("layer"))
    return default is not None and section.get("layer_options", {}).get("aggr", default) in _SUMS
