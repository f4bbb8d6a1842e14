"""Durable states of a shard: rows together with what was applied to them, each built on the one before."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from graphbox.errors import ConflictError, FormatError, NotFoundError
from graphbox.table import EmbeddingTable
from graphbox.table.atomic_folder import atomic_folder, system_errors, write_durably

__all__ = ["Generations"]

_STATE: Final = "shard.json"
_INCARNATION_DIGITS: Final = 8
_NAME: Final = re.compile(r"[0-9]{8}-[0-9]{8}")
_UNFINISHED: Final = re.compile(r"\.([0-9]{8})-[0-9]{8}\..*\.partial")
_MOST_DELTAS: Final = 20
"""Generations after a whole one that build on each other: a successor loads them all."""


@dataclass(frozen=True, slots=True)
class _State:
    """Description of a generation.

    Attributes:
        previous: name of the generation it builds on; None: it is whole.
        applied: number of the last operation of each trainer that is in it.
        tables: folder of each table's checkpoint in it, and whether that is a base.
    """

    previous: str | None
    applied: Mapping[str, int]
    tables: Mapping[str, Mapping[str, Any]]


class Generations:
    """Folder with the durable states of a shard.

    A generation appears whole or not at all, and names the one it builds on. Each process begins with one
    that builds on none, so that a process that was replaced and does not know it yet may write and remove
    what it likes: its generations are older than its successor's, whatever the clock says.

    Args:
        folder: of this shard alone.
        incarnation: number of this process among those that had the folder.

    Raises:
        ConflictError: a process with this incarnation or a higher one had the folder.
        GraphboxError: the system refuses to make it.
    """

    def __init__(self, folder: Path, incarnation: int) -> None:
        self._folder = folder
        self._incarnation = incarnation
        self._number = 0
        self._chain: list[str] = []
        self._saved: dict[str, EmbeddingTable] = {}
        with system_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            newest = self._names()[-1:]
        before = max((int(name[:_INCARNATION_DIGITS]) for name in newest), default=0)
        if before >= incarnation:
            raise ConflictError(
                f"expected an incarnation above {before}, that of the folder, received {incarnation}",
                where=str(folder),
                hint="start each process of a shard with a higher incarnation than the one before",
            )

    def load(self, threads: int | None = None) -> tuple[dict[str, EmbeddingTable], dict[int, int]]:
        """Return the tables of the newest generation and the last operation of each trainer in it.

        Args:
            threads: of each table.

        Raises:
            FormatError: it is damaged, or one that it builds on is.
        """
        while names := self._names():
            try:
                return self._load(names[-1], threads)
            except (FormatError, NotFoundError):
                if self._names()[-1:] == names[-1:]:  # else a predecessor that still runs has removed it
                    raise
        return {}, {}

    def _load(self, name: str, threads: int | None) -> tuple[dict[str, EmbeddingTable], dict[int, int]]:
        chain = self._chain_of(name)
        tables = {
            table: EmbeddingTable.load(base, deltas=deltas, threads=threads)
            for table, (base, *deltas) in _checkpoints(self._folder, chain).items()
        }
        return tables, {int(trainer): sequence for trainer, sequence in chain[-1][1].applied.items()}

    def save(self, tables: Mapping[str, EmbeddingTable], applied: Mapping[int, int]) -> None:
        """Write a generation: rows that changed since the last one, or all; durable when this returns.

        Args:
            tables: which nobody changes meanwhile.
            applied: number of the last operation of each trainer that is in them.

        Raises:
            DoesNotFitError: the disk is full; the next generation has all rows.
            GraphboxError: the system refuses.
        """
        chain = self._chain if len(self._chain) <= _MOST_DELTAS else []
        saved = self._saved if chain else {}
        # Until this one is there: deltas of some tables would be of it alone.
        self._chain = []
        self._number += 1
        name = f"{self._incarnation:08d}-{self._number:08d}"
        made: dict[str, dict[str, Any]] = {}
        with atomic_folder(self._folder / name, _is_generation, "a state of a shard") as beside:
            for table_name, table in tables.items():
                place = beside / f"table-{len(made)}"
                is_base = saved.get(table_name) is not table
                if is_base:
                    table.save_base(place)
                else:
                    table.save_delta(place)
                made[table_name] = {"folder": place.name, "is_base": is_base}
            state = _State(chain[-1] if chain else None, {str(each): applied[each] for each in applied}, made)
            write_durably(beside / _STATE, json.dumps(asdict(state)).encode())
        self._chain = [*chain, name]
        self._saved = dict(tables)
        with system_errors(self._folder):
            self._remove_older()

    def _names(self) -> list[str]:
        """Return the names of generations, the newest last."""
        found = [each.name for each in self._folder.iterdir() if _NAME.fullmatch(each.name)]
        return sorted(found)

    def _chain_of(self, name: str) -> list[tuple[str, _State]]:
        """Return a generation and those it builds on, the whole one first."""
        chain: list[tuple[str, _State]] = []
        wanted: str | None = name
        while wanted is not None:
            state = _read(self._folder / wanted)
            chain.insert(0, (wanted, state))
            wanted = state.previous
            if wanted is not None and (not _NAME.fullmatch(wanted) or wanted >= chain[0][0]):
                raise FormatError(
                    f"expected the name of an earlier generation, received {wanted!r}",
                    where=str(self._folder / chain[0][0] / _STATE),
                )
        return chain

    def _remove_older(self) -> None:
        """Remove generations on which the present one does not build."""
        for name in self._names():
            if name < self._chain[0]:
                shutil.rmtree(self._folder / name, ignore_errors=True)
        for each in self._folder.iterdir():
            unfinished = _UNFINISHED.fullmatch(each.name)
            if unfinished and int(unfinished[1]) < self._incarnation:  # of a process that was killed
                shutil.rmtree(each, ignore_errors=True)


def _checkpoints(folder: Path, chain: list[tuple[str, _State]]) -> dict[str, list[Path]]:
    """Return the checkpoints of each table, its base first."""
    found: dict[str, list[Path]] = {}
    for name, state in chain:
        for table, saved in state.tables.items():
            place = folder / name / saved["folder"]
            if saved["is_base"]:
                found[table] = [place]
            else:
                found[table].append(place)
    return found


def _is_generation(path: Path) -> bool:
    return (path / _STATE).is_file()


def _read(path: Path) -> _State:
    """Return what a generation is.

    Raises:
        FormatError: it is damaged or not there.
    """
    try:
        content = json.loads((path / _STATE).read_bytes())
        state = _State(**content)
        for each in state.tables.values():
            if not re.fullmatch(r"table-[0-9]+", each["folder"]) or not isinstance(each["is_base"], bool):
                raise ValueError(f"no folder of a table: {each!r}")
        if not all(isinstance(each, int) for each in state.applied.values()):
            raise ValueError("`applied` holds no numbers")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(
            f"expected the state of a shard: {error}",
            where=str(path / _STATE),
            hint="restore the folder, or remove it and resume from the run's last checkpoint",
        ) from None
    return state
