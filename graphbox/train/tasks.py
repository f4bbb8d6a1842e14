"""What a task holds out, as arrays; :mod:`graphbox.train.splitting` decides it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphbox.errors import FormatError

__all__ = [
    "FOLDS",
    "ClassifySplit",
    "Fold",
    "RecommendSplit",
    "Split",
    "load_split",
    "pair_keys",
    "save_split",
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
        split_feature: the feature that says which node is held out, if one does; not seen either.
        classes: names of the classes.
        labels: int64 [num_nodes], class of each node, -1 where unknown.
        fold: int8 [num_nodes], position in :data:`FOLDS`, -1 where the class is unknown.
        digest: hex digest of everything that made the split.
    """

    node_type: str
    label: str
    split_feature: str | None
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

    Held out are whole pairs of groups: all edges between the nodes of the one group and the nodes of the
    other, whatever their relation and direction, so that no sibling gives an answer away.

    Attributes:
        node_type: type of queries.
        target_type: type of candidates.
        relations: relations from queries to candidates whose edges are the answers.
        held_out_relations: those of them that are held out as a whole: their edge types are never seen.
        exclude_relations: relations that keep the pairs of groups they join from being held out.
        group: int64 [nodes of node_type], the group of each query.
        target_group: int64 [nodes of target_type], the group of each candidate.
        train: int64 [e, 2], distinct (query, target) of the train fold.
        validation: int64 [e, 2], distinct (query, target) to find in validation.
        test: int64 [e, 2], distinct (query, target) to find in test.
        validation_pairs: uint64, ascending keys (:meth:`pair_keys`) of the pairs of groups held out for
            validation.
        test_pairs: uint64, the same for test.
        ignored_pairs: uint64, the same of what is in no fold.
        linked_pairs: uint64, ascending keys of the pairs that an excluded relation joins: never held out.
        repeated: edges of validation or test that are known before; they are not to be found.
        digest: hex digest of everything that made the split.
    """

    node_type: str
    target_type: str
    relations: tuple[str, ...]
    held_out_relations: tuple[str, ...]
    exclude_relations: tuple[str, ...]
    group: NDArray[np.int64]
    target_group: NDArray[np.int64]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    validation_pairs: NDArray[np.uint64]
    test_pairs: NDArray[np.uint64]
    ignored_pairs: NDArray[np.uint64]
    linked_pairs: NDArray[np.uint64]
    repeated: int
    digest: str

    @property
    def within_one_type(self) -> bool:
        """Whether queries and candidates are nodes of one type."""
        return self.node_type == self.target_type

    def edges(self, fold: Fold) -> NDArray[np.int64]:
        """Return the distinct (query, target) of a fold: int64 [e, 2]."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[fold]

    def known(self, fold: Fold) -> NDArray[np.int64]:
        """Return the distinct (query, target) that are known when ``fold`` is predicted: int64 [e, 2]."""
        return np.concatenate([self.train, self.validation]) if fold == "test" else self.train

    def pair_keys(self, queries: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the key of the pair of groups of each (query, target): uint64 [n]."""
        return pair_keys(self.group[queries], self.target_group[targets], ordered=not self.within_one_type)

    def hidden_pairs(self, fold: Fold) -> NDArray[np.uint64]:
        """Return the pairs of groups that must not be seen while ``fold`` is predicted, ascending keys.

        Training and validation see neither validation nor test; what is measured on test sees validation.
        """
        hidden = np.union1d(self.test_pairs, self.ignored_pairs)
        return hidden if fold == "test" else np.union1d(hidden, self.validation_pairs)


Split: TypeAlias = ClassifySplit | RecommendSplit


def pair_keys(
    first: NDArray[np.int64], second: NDArray[np.int64], *, ordered: bool = False
) -> NDArray[np.uint64]:
    """Return one key for each pair of groups (numbers below 2^32): uint64 [n].

    Args:
        first: int64 [n].
        second: int64 [n].
        ordered: the groups are of two types; else a pair is the same both ways round.
    """
    low, high = (first, second) if ordered else (np.minimum(first, second), np.maximum(first, second))
    return (low.astype(np.uint64) << np.uint64(32)) | high.astype(np.uint64)


# ----------------------------------------------------------------------------------- on disk


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
