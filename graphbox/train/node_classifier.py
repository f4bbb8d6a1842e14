"""Classifies nodes by logistic regression on frozen embeddings, and on what is known around the nodes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.train.neighbor_classes import shares_of_known_classes
from graphbox.train.recommendation.queries import adjacency
from graphbox.train.tasks import ClassifySplit, Fold
from graphbox.train.view import GraphView

Columns: TypeAlias = NDArray[np.float32] | sp.csr_array

_TOLERANCE = 1e-3
MOST_ITERATIONS = 200
"""Steps of a logistic regression."""
_PENALTY = 1.0
_PENALTY_WITH_NEIGHBORS = 10.0
"""Strength of the L2 penalty: with neighbours there are several times the columns."""
_SCALE_OF_SHARES = 6.0
"""Factor of shares of classes, beside columns of deviation 1. They are not standardized: those of rare
classes would be huge where they are not zero."""


def class_probabilities(
    view: GraphView,
    split: ClassifySplit,
    embeddings: Mapping[str, NDArray[np.float32]],
    fold: Fold,
    *,
    neighbors: bool,
    neighbor_classes_by_group: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Return the probabilities of classes by a classifier that is trained on the folds before a fold.

    The classifier is :func:`fit_classes` on standardized columns, with an L2 penalty of strength 1, or 10
    with anything of the neighbours.

    Args:
        view: the graph as it is known when ``fold`` is predicted.
        split: the split of the task.
        embeddings: float32 [nodes, dim] by node type.
        fold: validation or test.
        neighbors: give the classifier :func:`mean_of_neighbors` of each node type, too.
        neighbor_classes_by_group: int64 [nodes of the task's type], the group of each node: give the
            classifier :func:`graphbox.train.neighbor_classes.shares_of_known_classes`, too. None: do not.

    Returns:
        float32 [nodes of the fold, classes].
    """
    known = split.nodes("train", "validation") if fold == "test" else split.nodes("train")
    nodes = split.nodes(fold)
    columns = [embeddings[split.node_type]]
    if neighbors:
        columns += mean_of_neighbors(view, split.node_type, embeddings).values()
    both = [_standardized(each, known) for each in columns]
    if neighbor_classes_by_group is not None:
        shares = shares_of_known_classes(view, split, known, neighbor_classes_by_group)
        both += [each * np.float32(_SCALE_OF_SHARES) for each in shares]
    alone = not neighbors and neighbor_classes_by_group is None
    penalty = _PENALTY if alone else _PENALTY_WITH_NEIGHBORS
    learnt, asked = (np.concatenate([each[rows] for each in both], axis=1) for rows in (known, nodes))
    members = split.members(known)[known]
    return fit_classes(learnt, asked, members, 1.0 / penalty, one_each=not split.has_several)


def fit_classes(
    learnt: Columns, asked: Columns, members: sp.csr_array, strength: float, *, one_each: bool = True
) -> NDArray[np.float32]:
    """Return the probabilities of classes by logistic regression.

    Args:
        learnt: float32 [known nodes, columns], dense or sparse.
        asked: float32 [n, columns], of the nodes to classify.
        members: 0/1 [known nodes, classes], their classes.
        strength: inverse of the strength of the L2 penalty.
        one_each: each node has one class: the regression is multinomial, and probabilities add up to 1. Else
            each class has a regression of its own, one versus the rest.

    Returns:
        float32 [n, classes]; the classes of no known node, or of all, have probability 0, or 1.
    """
    found = np.zeros((asked.shape[0], members.shape[1]), np.float32)
    if one_each:
        labels = members.indices.astype(np.int64)
        classes = np.unique(labels)
        found[:, classes] = _probabilities(learnt, asked, labels, strength)
        return found
    by_class = sp.csc_array(members)
    for number in range(members.shape[1]):
        is_member = np.zeros(members.shape[0], bool)
        is_member[by_class.indices[by_class.indptr[number] : by_class.indptr[number + 1]]] = True
        if is_member.any():
            found[:, number] = _probabilities(learnt, asked, is_member, strength)[:, -1]
    return found


def _probabilities(
    learnt: Columns, asked: Columns, labels: NDArray[np.int64] | NDArray[np.bool_], strength: float
) -> NDArray[np.float32]:
    """Return the probabilities of the labels that occur, ascending: float32 [n, labels]."""
    if (labels == labels[0]).all():  # nothing to separate
        return np.ones((asked.shape[0], 1), np.float32)
    # Here, as trainings load this module, and 70 MB of that one only where it is used.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classifier = LogisticRegression(C=strength, tol=_TOLERANCE, max_iter=MOST_ITERATIONS)
    with warnings.catch_warnings():
        # Its accuracy has long settled where the optimizer has not; the number of steps is bounded anyway.
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(learnt, labels)
    return np.asarray(classifier.predict_proba(asked), np.float32)


def mean_of_neighbors(
    view: GraphView, node_type: str, embeddings: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Return the mean embedding of the neighbours of each node, by the neighbours' type.

    An edge of any type joins its ends both ways; a neighbour counts for each edge type that joins it, by one
    over the root of its own number of such edges, so that those which everything is joined to say little.
    Nodes without neighbours of a type get zeros.

    Args:
        view: the graph.
        node_type: the nodes.
        embeddings: float32 [nodes, dim] by node type; those of types without are left out.

    Returns:
        float32 [nodes, dim] by node type, of those that edges join to ``node_type``.
    """
    joined: dict[str, sp.csr_array] = {}
    for edge_type in view.edge_types:
        if view.is_reverse(edge_type):
            continue
        incoming = adjacency(view.csc(edge_type))
        for target, source, links in (
            (edge_type[2], edge_type[0], incoming),
            (edge_type[0], edge_type[2], sp.csr_array(incoming.T)),
        ):
            if target == node_type and source in embeddings:
                joined[source] = sp.csr_array(joined[source] + links) if source in joined else links
    return {
        name: _weighted_mean(joined[name], embeddings[name]) for name in view.node_types if name in joined
    }


def _weighted_mean(links: sp.csr_array, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    degree = np.asarray(links.sum(axis=0)).ravel()
    weight = (1.0 / np.sqrt(np.maximum(degree, 1.0))).astype(np.float32)
    total = np.asarray(links @ weight).ravel()
    means = np.asarray(links @ (rows * weight[:, None])) / np.where(total > 0, total, 1.0)[:, None]
    return np.asarray(means, dtype=np.float32)


def _standardized(columns: NDArray[np.float32], known: NDArray[np.int64]) -> NDArray[np.float32]:
    mean = columns[known].mean(axis=0, dtype=np.float64)
    deviation = columns[known].std(axis=0, dtype=np.float64)
    return np.asarray((columns - mean) / np.where(deviation > 0, deviation, 1.0), dtype=np.float32)
