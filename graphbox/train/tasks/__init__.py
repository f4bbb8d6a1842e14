"""What a task holds out, as arrays: one module for each kind; :mod:`graphbox.train.splitting` decides it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphbox.errors import FormatError
from graphbox.train.tasks.classify import ClassifySplit
from graphbox.train.tasks.click import ClickSplit
from graphbox.train.tasks.complete import CompleteSplit
from graphbox.train.tasks.predict_links import LinkPart, LinkSplit
from graphbox.train.tasks.recommend import RecommendSplit, distinct_keys, ends_of_keys, pair_keys
from graphbox.train.tasks.split import FOLDS, Fold, Split

__all__ = [
    "FOLDS",
    "SPLITS",
    "ClassifySplit",
    "ClickSplit",
    "CompleteSplit",
    "Fold",
    "LinkPart",
    "LinkSplit",
    "RecommendSplit",
    "Split",
    "distinct_keys",
    "ends_of_keys",
    "load_split",
    "pair_keys",
    "save_split",
]

SPLITS: Mapping[str, type[Split]] = {
    split.KIND: split for split in (ClassifySplit, CompleteSplit, RecommendSplit, LinkSplit, ClickSplit)
}
"""The class of what is held out, by kind of task."""

_FORMAT = "graphbox-split"
_FORMAT_VERSION = 1


def save_split(split: Split, path: Path) -> None:
    """Write a split as ``.npz``: beside, synced, then moved into place."""
    from graphbox.durable import write_atomically

    arrays: dict[str, Any] = {name: value for name, value in vars(split).items() if _is_array(value)}
    fields = {name: value for name, value in vars(split).items() if not _is_array(value)}
    header = json.dumps({"format": _FORMAT, "version": _FORMAT_VERSION, "kind": split.KIND, "fields": fields})
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
    if header.get("format") != _FORMAT or version != _FORMAT_VERSION or kind not in SPLITS:
        raise FormatError(
            f"expected {_FORMAT} {_FORMAT_VERSION}, received {header.get('format')} {version} of kind {kind}",
            where=str(path),
            hint="delete it: it is made again from the graph and the seed",
        )
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header["fields"].items()
    }
    split: Split = SPLITS[kind](**fields, **arrays)
    return split
