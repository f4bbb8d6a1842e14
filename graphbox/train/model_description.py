"""Description of a model in its checkpoints, for later trainings that start from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from graphbox.config import ModelSection, TaskConfig
from graphbox.durable import write_atomically
from graphbox.errors import FormatError
from graphbox.train.row_keys import RowKeys
from graphbox.train.trainer import Trainer
from graphbox.train.view import GraphView

_COLUMN = "id"


@dataclass(frozen=True, eq=False)
class ModelDescription:
    """Training data of a model, and the meaning of its rows and weights.

    Attributes:
        kind: kind of the model.
        held_out: task, seed and fold of the training; None: it saw the whole graph.
        inputs: names of the weights' inputs, in their order, see :meth:`graphbox.train.Trainer.inputs`.
        rows: keys of each table; None: the trainer does not describe them.
        nodes: original ids by node type, null for removed nodes: int64 or large_string [nodes].
        categories: names of the rows of weights that belong to names, by weight: large_string [rows].
    """

    kind: str
    held_out: Mapping[str, Any] | None
    inputs: Mapping[str, Sequence[str]]
    rows: Mapping[str, RowKeys] | None
    nodes: Mapping[str, pa.Array]
    categories: Mapping[str, pa.Array]

    @classmethod
    def of_trainer(
        cls, trainer: Trainer, config: ModelSection, task: TaskConfig | None, seed: int, view: GraphView
    ) -> ModelDescription:
        """Return the description of what a trainer trains.

        Args:
            trainer: the trainer.
            config: section of the model.
            task: section of its task, or None.
            seed: seed of the run, which decides what is held out.
            view: the graph as training sees it.
        """
        rows = trainer.row_keys()
        types = dict.fromkeys(name for keys in (rows or {}).values() for name in keys.first)
        held_out = None
        if task is not None:
            settings = task.model_dump(mode="json", exclude=set(task.EVALUATION_KEYS))
            held_out = {"task": settings, "seed": seed, "fold": view.fold}
        return cls(
            config.kind,
            held_out,
            {name: list(values) for name, values in trainer.inputs().items()},
            rows,
            {name: view.arrow_ids(name) for name in types},
            {
                name: pa.array(list(values), pa.large_string())
                for name, values in trainer.weight_categories().items()
            },
        )

    def save(self, folder: Path) -> dict[str, Any]:
        """Write ids and names into a folder, one file for each different content; return the rest as JSON.

        Raises:
            OSError: the system refuses to write.
        """
        return {
            "kind": self.kind,
            "held_out": None if self.held_out is None else dict(self.held_out),
            "inputs": {name: list(values) for name, values in self.inputs.items()},
            "rows": None
            if self.rows is None
            else {name: keys.document() for name, keys in self.rows.items()},
            "nodes": {name: _save(ids, folder) for name, ids in self.nodes.items()},
            "categories": {name: _save(names, folder) for name, names in self.categories.items()},
        }

    @classmethod
    def load(cls, document: Mapping[str, Any], folder: Path) -> ModelDescription:
        """Read what :meth:`save` wrote.

        Raises:
            FormatError: a file is missing or damaged.
        """
        rows = document["rows"]
        return cls(
            document["kind"],
            document["held_out"],
            document["inputs"],
            None if rows is None else {name: RowKeys.of_document(keys) for name, keys in rows.items()},
            {name: _load(file, folder) for name, file in document["nodes"].items()},
            {name: _load(file, folder) for name, file in document["categories"].items()},
        )


def _save(values: pa.Array, folder: Path) -> str:
    """Write an array, unless the folder has the same; return the name of the file: its SHA-256."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({_COLUMN: values}), sink, compression="zstd")
    content = sink.getvalue()
    name = f"{hashlib.sha256(content).hexdigest()}.parquet"
    if not (folder / name).exists():
        with write_atomically(folder / name) as stream:
            stream.write(content)
    return name


def _load(file: str, folder: Path) -> pa.Array:
    path = folder / file
    try:
        content = path.read_bytes()
        if f"{hashlib.sha256(content).hexdigest()}.parquet" != file:
            raise ValueError("it was changed or cut off")
        column = pq.read_table(pa.BufferReader(content)).column(_COLUMN)
    except (OSError, ValueError, KeyError) as error:
        raise FormatError(
            f"expected the ids of nodes of an earlier model, received an unreadable file: {error}",
            where=str(path),
            hint="start from another run, or leave `start_from` out",
        ) from error
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
