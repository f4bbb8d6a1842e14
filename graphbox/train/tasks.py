"""What embeddings are for, and which part of the graph is held out to measure it.

A split is a function of the original ids, the task and the seed alone: a keyed hash of each group's id (or of
a pair of ids) falls into test, validation or train. Adding nodes or reordering files moves nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphbox.config import ClassifyTaskConfig, RecommendTaskConfig, TaskConfig
from graphbox.errors import DataError, FormatError, UsageError
from graphbox.graph import Graph
from graphbox.graph.schema import EdgeType, edge_type_text

__all__ = [
    "FOLDS",
    "ClassifySplit",
    "Fold",
    "RecommendSplit",
    "Split",
    "load_split",
    "make_split",
    "pair_keys",
    "save_split",
    "unit_hash",
]

Fold = Literal["train", "validation", "test"]
FOLDS: tuple[Fold, ...] = ("train", "validation", "test")
_FORMAT = "graphbox-split"
_FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class ClassifySplit:
    """Nodes with a known class, in three folds.

    Attributes:
        node_type: type of the nodes.
        label: categorical feature to predict; models of the task do not see it.
        classes: names of the classes.
        labels: int64 [num_nodes], class of each node, -1 where unknown.
        fold: int8 [num_nodes], position in :data:`FOLDS`, -1 where the class is unknown.
        digest: hex digest of everything that made the split.
    """

    node_type: str
    label: str
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    fold: NDArray[np.int8]
    digest: str

    def nodes(self, *folds: Fold) -> NDArray[np.int64]:
        """Return the nodes of the given folds, ascending: int64 [n]."""
        return np.flatnonzero(np.isin(self.fold, [FOLDS.index(fold) for fold in folds]))


@dataclass(frozen=True, eq=False)
class RecommendSplit:
    """Edges whose targets are to be found, in three folds, and which nodes are candidates.

    Held out are whole pairs of groups: all edges of the task's relations between the nodes of the one group
    and the nodes of the other, in both directions, so that no sibling gives an answer away.

    Attributes:
        node_type: type of queries and candidates.
        relations: relations whose edges are the answers.
        exclude_relations: relations that keep the pairs of groups they join from being held out.
        group: int64 [num_nodes], the group of each node.
        train: int64 [e, 2], distinct (query, target) of the train fold.
        validation: int64 [e, 2], distinct (query, target) to find in validation.
        test: int64 [e, 2], distinct (query, target) to find in test.
        validation_pairs: uint64, ascending :func:`pair_keys` of the pairs of groups held out for validation.
        test_pairs: uint64, the same for test.
        linked_pairs: uint64, ascending keys of the pairs that an excluded relation joins: never held out.
        digest: hex digest of everything that made the split.
    """

    node_type: str
    relations: tuple[str, ...]
    exclude_relations: tuple[str, ...]
    group: NDArray[np.int64]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    validation_pairs: NDArray[np.uint64]
    test_pairs: NDArray[np.uint64]
    linked_pairs: NDArray[np.uint64]
    digest: str

    def edges(self, fold: Fold) -> NDArray[np.int64]:
        """Return the distinct (query, target) of a fold: int64 [e, 2]."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[fold]

    def hidden_pairs(self, fold: Fold) -> NDArray[np.uint64]:
        """Return the pairs of groups that must not be seen while ``fold`` is predicted, ascending keys.

        Training and validation see neither validation nor test; what is measured on test sees validation.
        """
        if fold == "test":
            return self.test_pairs
        return np.union1d(self.validation_pairs, self.test_pairs)


Split: TypeAlias = ClassifySplit | RecommendSplit


def make_split(graph: Graph, task: TaskConfig, seed: int) -> Split:
    """Split the nodes or edges of a task into train, validation and test.

    Args:
        graph: the imported graph.
        task: the task's section of the run file.
        seed: seed of the hash.

    Raises:
        UsageError: the task names a feature or edge type that the graph does not have.
        DataError: a node has several groups, or a fold stays empty.
    """
    if isinstance(task, ClassifyTaskConfig):
        return _split_classify(graph, task, seed)
    return _split_recommend(graph, task, seed)


def pair_keys(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return one key for each unordered pair of groups (numbers below 2^32): uint64 [n]."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    return (low.astype(np.uint64) << np.uint64(32)) | high.astype(np.uint64)


def unit_hash(seed: int, texts: Iterable[str]) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each text: its 64-bit BLAKE2b keyed with the seed, as a fraction."""
    key = seed.to_bytes(8, "little")
    digests = b"".join(
        hashlib.blake2b(text.encode(), digest_size=8, key=key, person=b"graphbox").digest() for text in texts
    )
    return (np.frombuffer(digests, dtype="<u8") >> np.uint64(11)).astype(np.float64) / 2.0**53


def _fold_of(number: NDArray[np.float64], task: TaskConfig) -> NDArray[np.int8]:
    """Return 2 (test) below the test fraction, then 1 (validation) for its share of the rest, else 0."""
    validation_end = task.test_fraction + (1.0 - task.test_fraction) * task.validation_fraction
    return np.where(number < task.test_fraction, 2, np.where(number < validation_end, 1, 0)).astype(np.int8)


# ------------------------------------------------------------------------------------- groups


def _groups(graph: Graph, node_type: str, edge_type: EdgeType | None) -> tuple[NDArray[np.int64], list[str]]:
    """Return the group of each node and the text by which each group is hashed.

    A node without a group is one of its own. The texts of the two kinds cannot be equal.
    """
    num_nodes = graph.num_nodes(node_type)
    if edge_type is None:
        return np.arange(num_nodes), [f"node {node}" for node in graph.ids(node_type).tolist()]
    csr = graph.csr(edge_type)
    degree = np.diff(csr.indptr)
    if (degree > 1).any():
        node = int(np.flatnonzero(degree > 1)[0])
        raise DataError(
            f"expected at most one group for each {node_type}, received {int(degree[node])}",
            where=f"{node_type} {graph.ids(node_type, [node])[0]}, edge type {edge_type_text(edge_type)}",
            hint="group by an edge type with one target for each node, or leave `group` out",
        )
    group = np.full(num_nodes, -1, dtype=np.int64)
    group[degree == 1] = csr.indices
    used, group[degree == 1] = np.unique(csr.indices, return_inverse=True)
    alone = np.flatnonzero(group < 0)
    group[alone] = len(used) + np.arange(len(alone))
    texts = [f"group {name}" for name in graph.ids(edge_type[2], used.astype(np.int64)).tolist()]
    return group, texts + [f"node {name}" for name in graph.ids(node_type, alone).tolist()]


# ----------------------------------------------------------------------------------- classify


def _split_classify(graph: Graph, task: ClassifyTaskConfig, seed: int) -> ClassifySplit:
    spec = graph.features(task.node_type).get(task.label)
    if spec is None or spec.categories is None:
        raise UsageError(
            f"expected a categorical feature of {task.node_type} as label, received `{task.label}`"
            f"{'' if spec is None else f' ({spec.kind})'}",
            where="label",
        )
    labels = np.asarray(graph.feature(task.node_type, task.label)).astype(np.int64)
    group, texts = _groups(graph, task.node_type, task.group)
    fold = _fold_of(unit_hash(seed, texts), task)[group]
    fold = np.where(labels < 0, -1, fold).astype(np.int8)
    for position, name in enumerate(FOLDS):
        if not (fold == position).any():
            raise DataError(
                f"expected nodes with a `{task.label}` in each fold, received none in {name}",
                where=f"node type {task.node_type}",
                hint="a group is never split: use more groups, or larger fractions",
            )
    return ClassifySplit(
        node_type=task.node_type,
        label=task.label,
        classes=tuple(spec.categories),
        labels=labels,
        fold=fold,
        digest=_digest(task.model_dump_json(), seed, labels, fold),
    )


# ---------------------------------------------------------------------------------- recommend


def _split_recommend(graph: Graph, task: RecommendTaskConfig, seed: int) -> RecommendSplit:
    group, texts = _groups(graph, task.node_type, task.group)
    linked = [np.empty(0, np.uint64)]
    for relation in task.exclude_relations:
        source, target = graph.csc((task.node_type, relation, task.node_type)).coo()
        linked.append(pair_keys(group[source], group[target]))
    linked_pairs = np.unique(np.concatenate(linked))

    edges, single = _answers(graph, task)
    keys = pair_keys(group[edges[:, 0]], group[edges[:, 1]])
    eligible = (group[edges[:, 0]] != group[edges[:, 1]]) & ~np.isin(keys, linked_pairs)
    pairs, pair_of_edge = np.unique(keys, return_inverse=True)
    pair_fold = _fold_of(unit_hash(seed, _pair_texts(pairs, texts)), task)
    fold = np.where(eligible, pair_fold[pair_of_edge], 0)

    found = {}
    for position, name in enumerate(FOLDS):
        chosen = fold == position
        found[name] = np.unique(edges[chosen if position == 0 else chosen & single], axis=0)
        if not len(found[name]):
            raise DataError(
                f"expected edges of {', '.join(task.relations)} in each fold, received none in {name}",
                where=f"node type {task.node_type}",
                hint="only pairs of groups without an excluded relation are held out: use larger fractions",
            )
    return RecommendSplit(
        node_type=task.node_type,
        relations=task.relations,
        exclude_relations=task.exclude_relations,
        group=group,
        train=found["train"],
        validation=found["validation"],
        test=found["test"],
        validation_pairs=np.unique(keys[fold == 1]),
        test_pairs=np.unique(keys[fold == 2]),
        linked_pairs=linked_pairs,
        digest=_digest(
            task.model_dump_json(), seed, group, found["train"], found["validation"], found["test"]
        ),
    )


def _answers(graph: Graph, task: RecommendTaskConfig) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the edges of the task's relations, int64 [e, 2], and which are single alternatives."""
    edges, single = [], []
    for relation in task.relations:
        edge_type = (task.node_type, relation, task.node_type)
        source, target = graph.csc(edge_type).coo()
        edges.append(np.stack([source, target], axis=1))
        if task.alternative is None:
            single.append(np.ones(len(source), dtype=bool))
            continue
        clause = np.asarray(graph.edge_feature(edge_type, task.alternative)).astype(np.int64)
        _, position, count = np.unique(
            np.stack([source, clause], axis=1), axis=0, return_inverse=True, return_counts=True
        )
        single.append(count[position] == 1)
    return np.concatenate(edges), np.concatenate(single)


def _pair_texts(pairs: NDArray[np.uint64], texts: list[str]) -> Iterable[str]:
    low = (pairs >> np.uint64(32)).astype(np.int64).tolist()
    high = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64).tolist()
    for first, second in zip(low, high, strict=True):
        # Group numbers depend on the order of the nodes, the names do not.
        yield "\0".join(sorted((texts[first], texts[second])))


# ----------------------------------------------------------------------------------- on disk


def _digest(text: str, seed: int, *arrays: NDArray[Any]) -> str:
    digest = hashlib.blake2b(f"{text} {seed}".encode(), digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save_split(split: Split, path: Path) -> None:
    """Write a split as ``.npz``: beside, synced, then moved into place."""
    from graphbox.train.storage import write_atomically

    kind = "classify" if isinstance(split, ClassifySplit) else "recommend"
    arrays: dict[str, Any] = {name: value for name, value in vars(split).items() if _is_array(value)}
    fields = {name: value for name, value in vars(split).items() if not _is_array(value)}
    header = json.dumps({"format": _FORMAT, "version": _FORMAT_VERSION, "kind": kind, "fields": fields})
    with write_atomically(path) as stream:
        np.savez_compressed(stream, header=np.frombuffer(header.encode(), np.uint8), **arrays)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def load_split(path: Path) -> Split:
    """Read a split written by :func:`save_split`.

    Raises:
        FormatError: the file is no split, damaged or of another version.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
            arrays: dict[str, Any] = {name: data[name] for name in data.files}
        header = json.loads(arrays.pop("header").tobytes())
        kind, version = header["kind"], header["version"]
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy, zipfile, zlib and json raise all kinds on damaged files
        raise FormatError(
            f"expected a split, received a file that cannot be read ({type(error).__name__}: {error})",
            where=str(path),
            hint="delete it: it is made again from the graph and the seed",
        ) from error
    if header.get("format") != _FORMAT or version != _FORMAT_VERSION:
        raise FormatError(
            f"expected {_FORMAT} {_FORMAT_VERSION}, received {header.get('format')} {version}",
            where=str(path),
            hint="delete it: it is made again from the graph and the seed",
        )
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header["fields"].items()
    }
    return ClassifySplit(**fields, **arrays) if kind == "classify" else RecommendSplit(**fields, **arrays)
