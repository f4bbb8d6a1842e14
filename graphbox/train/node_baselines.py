"""Baselines of tasks of kind `classify`: each scores the classes of all nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig
from graphbox.errors import UsageError
from graphbox.metrics import Measure, Watch
from graphbox.models.features import LearntFeature
from graphbox.models.propagation import propagated_features, propagated_labels
from graphbox.train.class_report import class_report, deciding_figure
from graphbox.train.node_classifier import fit_classes
from graphbox.train.recommendation.queries import adjacency
from graphbox.train.tasks import ClassifySplit, Fold
from graphbox.train.view import GraphView

SGC_STRENGTHS = (0.1, 1.0, 10.0, 100.0)
"""Inverse strengths of the penalty of SGC's logistic regression, of which the validation part chooses one."""
_SGC_STRENGTH = 1.0
"""Where the validation part is predicted itself, so that it can choose nothing."""
SGC_STEPS = 2
"""Number of times that SGC averages features over neighbours."""
_LEAST_LABEL = 1e-6
"""Of a label that is propagated: less decides nothing beside the shares of the classes."""

NodeBaseline = Callable[[GraphView, ClassifySplit, NDArray[np.int64]], NDArray[np.float32]]
"""Maps view, split and known nodes to scores of the classes of all nodes, float32 [num_nodes, classes]."""


def majority(view: GraphView, split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Score a class by its share of the known nodes, for every node alike."""
    shares = _shares_of_classes(split, known)
    return np.broadcast_to(shares, (view.num_nodes(split.node_type), len(shares)))


def neighbors_vote(view: GraphView, split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Score a class by the share of a node's known neighbours of the same type that are of it.

    A neighbour counts once for each edge type and direction that joins it. The shares of the classes decide
    ties, and nodes without such neighbours.
    """
    members = _members_and_known(split, known)
    votes = np.zeros(members.shape, dtype=np.float32)
    for edge_type in view.edge_types:
        if edge_type[0] == edge_type[2] == split.node_type:
            incoming = adjacency(view.csc(edge_type))
            votes += incoming @ members + incoming.T @ members
    return _shares_of(votes, 0.5, split, known)


def label_propagation(view: GraphView, split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Score classes by :func:`graphbox.models.propagation.propagated_labels` over the nodes of all types.

    The most frequent class is that of nodes which no label reaches.
    """
    first = _first_rows(view)[split.node_type]
    links = _links_of_all_types(view)
    labels = np.zeros((links.shape[0], len(split.classes) + 1), np.float32)
    rows = slice(first, first + view.num_nodes(split.node_type))
    labels[rows] = _members_and_known(split, known)
    return _shares_of(propagated_labels(links, labels)[rows], _LEAST_LABEL, split, known)


def sgc(view: GraphView, split: ClassifySplit, _known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Score classes by SGC: logistic regression on features that are averaged over neighbours twice.

    See :func:`graphbox.models.propagation.propagated_features`; the graph is that of all node types and
    relations, the features those of all types. Like a graph network it learns from training nodes alone; the
    validation part chooses the strength of the penalty, one of :data:`SGC_STRENGTHS`.

    Raises:
        UsageError: no node type has features that may be read.
    """
    features = _features_of_all_types(view)
    if not features.shape[1]:
        raise UsageError(
            "expected features of nodes for the baseline sgc, received none beside the label",
            where="baselines",
            hint="label_propagation reads none",
        )
    first = _first_rows(view)[split.node_type]
    columns = propagated_features(_links_of_all_types(view), features, SGC_STEPS)
    columns = sp.csr_array(columns[first : first + view.num_nodes(split.node_type)])
    train = split.nodes("train")
    length = float(np.sqrt(columns[train].power(2).sum() / max(len(train), 1)))
    columns *= np.float32(1.0 / (length or 1.0))
    return _fitted_scores(columns, split, view.fold)


def _fitted_scores(columns: sp.csr_array, split: ClassifySplit, fold: Fold) -> NDArray[np.float32]:
    """Return the probabilities of classes by logistic regression on columns, for all their rows."""
    train, validation = split.nodes("train"), split.nodes("validation")
    learnt, members = sp.csr_array(columns[train]), split.members(train)[train]
    fit = partial(fit_classes, learnt, members=members, one_each=not split.has_several)
    if fold != "test":
        return fit(columns, strength=_SGC_STRENGTH)
    asked = sp.csr_array(columns[validation])

    def right(strength: float) -> float:
        report = class_report(split, validation, fit(asked, strength=strength))
        return float(report[deciding_figure(split)])

    return fit(columns, strength=max(SGC_STRENGTHS, key=right))


CLASSIFY_BASELINES: dict[str, NodeBaseline] = {
    "majority": majority,
    "neighbors_vote": neighbors_vote,
    "label_propagation": label_propagation,
    "sgc": sgc,
}


def classify_baselines(
    view: GraphView,
    split: ClassifySplit,
    task: ClassifyTaskConfig,
    fold: Fold,
    seed: int,  # noqa: ARG001 - the interface of baselines
) -> dict[str, Measure]:
    """Return the measurements of the task's baselines on a fold, by name of the baseline."""
    known = split.nodes("train", "validation") if fold == "test" else split.nodes("train")
    nodes = split.nodes(fold)

    def measure(name: str, _: Watch) -> dict[str, float | int]:
        scores = CLASSIFY_BASELINES[name](view, split, known)
        return class_report(split, nodes, scores[nodes])

    return {name: partial(measure, name) for name in node_baselines_of(view, task)}


def node_baselines_of(view: GraphView, task: ClassifyTaskConfig) -> tuple[str, ...]:
    """Return the baselines to run: those that the task names, or all that find what they read."""
    if task.baselines is not None:
        return task.baselines
    names = list(CLASSIFY_BASELINES)
    if not any(view.features(node_type) for node_type in view.node_types):
        names.remove("sgc")
    return tuple(names)


def _shares_of_classes(split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return which share of the known nodes is of each class: float32 [classes]."""
    counts = np.asarray(split.members(known).sum(axis=0)).ravel()
    return np.asarray(counts / max(len(known), 1), np.float32)


def _members_and_known(split: ClassifySplit, known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the classes of known nodes, and in a last column which nodes these are: [nodes, classes + 1]."""
    is_known = np.zeros((len(split.labels), 1), np.float32)
    is_known[known] = 1.0
    return np.concatenate([split.members(known).toarray(), is_known], axis=1)


def _shares_of(
    votes: NDArray[np.float32], prior: float, split: ClassifySplit, known: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return votes for classes by votes at all, so that they are shares: float32 [nodes, classes].

    Args:
        votes: float32 [nodes, classes + 1], the last column what all votes come to.
        prior: weight of the shares of the classes among known nodes, which decide where there are no votes.
        split: the split of the task.
        known: int64 [n].
    """
    of_classes = votes[:, :-1] + np.float32(prior) * _shares_of_classes(split, known)
    return np.asarray(of_classes / (votes[:, -1:] + np.float32(prior)), np.float32)


def _first_rows(view: GraphView) -> dict[str, int]:
    """Return the row of the first node of each type, where those of all types follow one another."""
    counts = [view.num_nodes(name) for name in view.node_types]
    return dict(zip(view.node_types, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))


def _links_of_all_types(view: GraphView) -> sp.csr_array:
    """Return the simple undirected graph of all nodes and relations: 0/1 float32 [all nodes, all nodes]."""
    first = _first_rows(view)
    nodes = sum(view.num_nodes(name) for name in view.node_types)
    rows, columns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for edge_type in view.edge_types:
        if not view.is_reverse(edge_type):
            source, target = view.csc(edge_type).coo()
            rows.append(source + first[edge_type[0]])
            columns.append(target + first[edge_type[2]])
    row, column = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(2 * len(row), np.float32)
    ends = (np.concatenate([row, column]), np.concatenate([column, row]))
    links = sp.csr_array((ones, ends), shape=(nodes, nodes))
    links.data[:] = 1.0
    return links


def _features_of_all_types(view: GraphView) -> sp.csr_array:
    """Return the features of all nodes, float32 [all nodes, columns]; each type has columns of its own.

    A column for each category and each slot, 0 or 1; numbers standardized, missing ones 0; vectors as they
    are.
    """
    parts = [
        sp.hstack([sp.csr_array((view.num_nodes(name), 0), dtype=np.float32), *_columns_of(view, name)])
        for name in view.node_types
    ]
    return sp.csr_array(sp.block_diag(parts, format="csr"), dtype=np.float32)


def _columns_of(view: GraphView, node_type: str) -> list[sp.csr_array]:
    found = []
    nodes = np.arange(view.num_nodes(node_type))
    for name, spec in view.features(node_type).items():
        values = view.feature(node_type, name)
        learnt = LearntFeature.of(spec, values)
        if spec.kind == "slots":
            offsets, numbers = learnt.numbered(*view.slot_lists(node_type, name))
            width = 0 if learnt.slots is None else len(learnt.slots)
            column = sp.csr_array((np.ones(len(numbers), np.float32), numbers, offsets), (len(nodes), width))
            column.sum_duplicates()
            column.data[:] = 1.0
        elif spec.kind == "categorical":
            codes = learnt.codes(spec, values)
            there = codes > 0
            ends = (nodes[there], codes[there] - 1)
            column = sp.csr_array(
                (np.ones(int(there.sum()), np.float32), ends), (len(nodes), len(learnt.categories))
            )
        elif spec.kind == "vector":
            column = sp.csr_array(np.nan_to_num(np.asarray(values, np.float32)))
        else:
            column = sp.csr_array(learnt.standardized(values)[:, None])
        found.append(column)
    return found
