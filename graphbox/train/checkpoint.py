"""Checkpoints: what is needed to go on with a training as if it had never stopped.

A checkpoint is a folder: ``state.json`` (position, figures, digests of the other files),
``dense.safetensors`` (parameters and optimizer state) and a folder for each embedding table. It is written
beside and moved into place, and moved out of it before it is removed, so a killed process leaves whole
checkpoints alone. The last two are kept, and the one after which the model was best, where that is looked
for. ``nodes`` beside them has the original ids of the nodes whose rows they hold.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from graphbox.durable import flush_to_disk, replace_durably
from graphbox.errors import ConflictError, FormatError, NotFoundError
from graphbox.table import EmbeddingTable, Table
from graphbox.table.host_table import host_table
from graphbox.table.manifest import read_manifest
from graphbox.train.model_description import ModelDescription
from graphbox.train.processes import ALONE, TrainingProcesses
from graphbox.train.storage import save_tensors

NODES = "nodes"
"""Folder of the ids of nodes beside the checkpoints of a model."""

_FORMAT = "graphbox-checkpoint"
_FORMAT_VERSION = 2
_KEPT = 2
_STATE = "state.json"
_DENSE = "dense.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training between two batches.

    Attributes:
        step: number of batches trained so far.
        state: plain values, as JSON keeps them.
        dense: tensors by name.
        tables: embedding tables by name.
        model: of a loaded checkpoint, what :meth:`ModelDescription.save` returned; None: it has none.
    """

    step: int
    state: Mapping[str, Any]
    dense: Mapping[str, Tensor]
    tables: Mapping[str, Table]
    model: Mapping[str, Any] | None = None


class CheckpointStore:
    """The checkpoints of one model in one run.

    Args:
        folder: where they are; made when the first is written.
        settings: digest of everything that must be the same when the training goes on; None: checkpoints of
            any settings are loaded, and none is saved.
        processes: which train together: all call the same, each has its rows, rank 0 writes the rest.
        description: what checkpoints record for later trainings that start from them; None: nothing.
    """

    def __init__(
        self,
        folder: Path,
        settings: str | None,
        processes: TrainingProcesses = ALONE,
        description: ModelDescription | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._processes = processes
        self._description = description
        self._model: dict[str, Any] | None = None

    def save(self, checkpoint: Checkpoint, *, also_keep: int | None = None) -> Path:
        """Write a checkpoint, then remove all but the last two; return its folder.

        Args:
            checkpoint: what to write.
            also_keep: step of a checkpoint that stays too.
        """
        place = self._folder / f"{checkpoint.step:010d}"
        beside = self._folder / f".{place.name}.partial"
        with self._processes.failing():
            if self._processes.is_first:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._remove_partial()
                beside.mkdir()
            for name, table in checkpoint.tables.items():
                table.save(beside / _table_folder(name))
            if self._processes.is_first:
                self._finish(checkpoint, beside, place, also_keep)
        self._processes.barrier("checkpoint")
        return place

    def _finish(self, checkpoint: Checkpoint, beside: Path, place: Path, also_keep: int | None) -> None:
        """Write what is beside the tables, and move the checkpoint into place."""
        save_tensors(checkpoint.dense, beside / _DENSE)
        files = {_DENSE: _digest(beside / _DENSE)}
        tables = {name: read_manifest(beside / _table_folder(name)).digest for name in checkpoint.tables}
        if self._model is None and self._description is not None:
            self._model = self._description.save(self._folder / NODES)
        header = {
            "format": _FORMAT,
            "version": _FORMAT_VERSION,
            "settings": self._settings,
            "files": files,
            "tables": tables,
            "step": checkpoint.step,
            "state": dict(checkpoint.state),
            "model": self._model,
        }
        (beside / _STATE).write_text(json.dumps({**header, "digest": _header_digest(header)}, indent=1))
        for name in (*files, _STATE):
            flush_to_disk(beside / name)
        flush_to_disk(beside)
        if place.exists():  # the same position, reached again; until the next step the one before it counts
            place.rename(self._folder / f".{place.name}.replaced.partial")
        replace_durably(beside, place)
        for old in self._places()[:-_KEPT]:
            if int(old.name) != also_keep:
                old.rename(self._folder / f".{old.name}.old.partial")
        self._remove_partial()

    def load(
        self,
        threads: int | None = None,
        *,
        step: int | None = None,
        instead_of: Mapping[str, Table] | None = None,
        whole: bool = False,
    ) -> Checkpoint | None:
        """Return the last checkpoint or that of a step, or None when there is none.

        Args:
            threads: threads of the embedding tables.
            step: which one; None: the last.
            instead_of: the tables that the restored ones take the place of; those with rows on SSD get a
                folder beside theirs and the same budget.
            whole: all rows, for this process alone.

        Raises:
            FormatError: it is damaged; the message says which file, and how to go on from the one before.
            ConflictError: it was made with other settings.
        """
        places = [place for place in self._places() if step is None or int(place.name) <= step]
        if not places or (step is not None and int(places[-1].name) != step):
            return None
        place = places[-1]
        before = f"that of step {int(places[-2].name)}" if len(places) > 1 else "the beginning"
        hint = f"delete the folder {place} to go on from {before}"
        header = _read_state(place / _STATE, hint)
        if self._settings is not None and header.get("settings") != self._settings:
            raise ConflictError(
                "expected a checkpoint of the same task, model and seed, received one made with others",
                where=str(place),
                hint="start a new run, or give back the settings that the checkpoint was made with",
            )
        for name, digest in header["files"].items():
            path = place / name
            if not path.is_file() or _digest(path) != digest:
                state = "is damaged or cut off" if path.is_file() else "is missing"
                raise FormatError(
                    f"expected the file as it was written, received one that {state}",
                    where=str(path),
                    hint=hint,
                )
        try:
            dense = load_file(place / _DENSE)
        except SafetensorError as error:
            raise FormatError(
                f"expected safetensors, received: {error}", where=str(place / _DENSE), hint=hint
            ) from error
        processes = ALONE if whole else self._processes
        tables = {
            name: processes.table(
                _load_table(
                    place / _table_folder(name),
                    digest,
                    hint,
                    threads=threads,
                    shard=processes.shard,
                    **_place_beside((instead_of or {}).get(name), int(header["step"])),
                ),
                name,
            )
            for name, digest in header["tables"].items()
        }
        return Checkpoint(int(header["step"]), header["state"], dense, tables, header.get("model"))

    def load_final(
        self, threads: int | None = None, *, instead_of: Mapping[str, Table] | None = None
    ) -> Checkpoint | None:
        """Return the state that a finished training ended in, with all rows; None: there is none.

        Args:
            threads: see :meth:`load`.
            instead_of: see :meth:`load`.

        Raises:
            FormatError: it is damaged.
        """
        places = self._places()
        if not places:
            return None
        state = _read_state(places[-1] / _STATE, f"delete the folder {places[-1]}")["state"]
        if not state.get("finished"):
            return None
        return self.load(threads, step=state.get("best_step"), instead_of=instead_of, whole=True)

    def last_step(self) -> int | None:
        """Return the step of the last checkpoint; None when there is none."""
        places = self._places()
        return int(places[-1].name) if places else None

    def remove(self) -> None:
        """Remove all checkpoints."""
        if self._processes.is_first:
            for place in self._places():
                place.rename(self._folder / f".{place.name}.old.partial")
            self._remove_partial()
            shutil.rmtree(self._folder / NODES, ignore_errors=True)
        self._processes.barrier("checkpoints are removed")

    def keep_last(self) -> None:
        """Remove all checkpoints but the last."""
        for old in self._places()[:-1]:
            old.rename(self._folder / f".{old.name}.old.partial")
        self._remove_partial()

    def _places(self) -> list[Path]:
        """Return the checkpoints' folders, oldest first."""
        if not self._folder.exists():
            return []
        return sorted(path for path in self._folder.iterdir() if path.name.isdecimal())

    def _remove_partial(self) -> None:
        for path in self._folder.glob(".*.partial"):
            shutil.rmtree(path)


def _table_folder(name: str) -> str:
    return f"{name}.table"


def _place_beside(table: Table | None, step: int) -> dict[str, Any]:
    """Return where the rows of a restored table go: beside those of the one it takes the place of."""
    if table is None or table.path is None:
        return {}
    name = f"{table.path.name.partition('.step-')[0]}.step-{step}"
    if name == table.path.name:  # the same step again: that of a resumed training was its best
        name += "-again"
    budget = host_table(table, "rows on SSD").memory_bytes
    return {"path": table.path.with_name(name), "memory_bytes": budget}


def _load_table(saved: Path, digest: str, hint: str, **place: Any) -> EmbeddingTable:
    """Return the table whose checkpoint has this digest."""
    try:
        if read_manifest(saved).digest != digest:
            raise FormatError("expected the table of this checkpoint, received another one", where=str(saved))
        return EmbeddingTable.load(saved, **place)
    except (FormatError, NotFoundError) as error:
        raise FormatError(error.message, where=error.where, hint=hint) from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimizer's state by name: ``<parameter number>.<name>``."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _read_state(path: Path, hint: str) -> dict[str, Any]:
    try:
        header = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FormatError(
            f"expected the state of a checkpoint, received a file that cannot be read ({error})",
            where=str(path),
            hint=hint,
        ) from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise FormatError(f"expected a {_FORMAT}, received something else", where=str(path), hint=hint)
    if header.get("version") != _FORMAT_VERSION:
        raise FormatError(
            f"expected version {_FORMAT_VERSION} of {_FORMAT}, received {header.get('version')}",
            where=str(path),
            hint=hint,
        )
    content = {name: value for name, value in header.items() if name != "digest"}
    if header.get("digest") != _header_digest(content):
        raise FormatError(
            "expected the file as it was written, received one that was changed", where=str(path), hint=hint
        )
    return header


def _header_digest(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
