"""Records of a table's settings and of what its policies counted, beside its segments."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from graphbox import _core
from graphbox.durable import write_atomically
from graphbox.table.atomic_folder import system_errors

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable

_FORMAT: Final = "graphbox table state"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")  # checksum of the rest; bytes of the JSON text that follows
_MOST_RECORDS: Final = 32


class StateDamage(Exception):  # noqa: N818 - never leaves this package: older records or segments are read instead
    """A record cannot be read. The message says why."""


@dataclass(frozen=True, slots=True)
class RecordedState:
    """State that all records together restore.

    Attributes:
        numbers: numbers of the records.
        settings: settings of the table in the last record.
        policy_states: state of the policies in each record, for the core; only the first one is complete.
    """

    numbers: tuple[int, ...]
    settings: dict[str, Any]
    policy_states: tuple[bytes, ...]


class StateRecords:
    """The records of a table's folder.

    A record holds all that the policies counted, or what changed since the records that it names. So a flush
    writes about as much as was counted since the last one, and a lost catalogue does not take this along.

    Args:
        path: their folder; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self._path = path
        self._numbers: tuple[int, ...] = ()
        self._settings: dict[str, Any] | None = None
        self._all_bytes = 0
        self._changed_bytes = 0
        self._next = max(self._present(), default=0) + 1

    def read(self, numbers: tuple[int, ...]) -> RecordedState:
        """Return what the records say that the catalogue names.

        Raises:
            StateDamage: one of them is missing or damaged.
        """
        if not numbers:
            raise StateDamage("the catalogue names no record")
        state = self._read_with_earlier(numbers[-1])
        if state.numbers != numbers:
            raise StateDamage(f"record {numbers[-1]} follows others than the catalogue says")
        return state

    def read_newest(self) -> RecordedState:
        """Return what the newest record says that can be read with those before it.

        Raises:
            StateDamage: there is none.
        """
        damage = "there is none"
        for number in sorted(self._present(), reverse=True):
            try:
                return self._read_with_earlier(number)
            except StateDamage as error:
                damage = str(error)
        raise StateDamage(damage)

    def write(self, table: EmbeddingTable, settings: dict[str, Any]) -> tuple[int, ...]:
        """Record what changed of a table, and return the numbers of the records that count then.

        The catalogue must name them; then :meth:`confirm`. Where any of this fails, :meth:`restore`.
        """
        is_whole = (
            not self._numbers or len(self._numbers) >= _MOST_RECORDS or self._changed_bytes > self._all_bytes
        )
        state = table._current.take_state(is_whole)
        if state is None and settings == self._settings:
            return self._numbers
        earlier = () if is_whole else self._numbers
        content = state or b""
        self._write(self._next, settings, earlier, content)
        self._settings = settings
        self._all_bytes = len(content) if is_whole else self._all_bytes
        self._changed_bytes = 0 if is_whole else self._changed_bytes + len(content)
        self._numbers = (*earlier, self._next)
        self._next += 1
        return self._numbers

    def confirm(self, table: EmbeddingTable) -> None:
        """Remove records that the catalogue names no more."""
        table._current.confirm_state()
        for number in self._present() - set(self._numbers):
            self._file(number).unlink(missing_ok=True)

    def restore(self, table: EmbeddingTable) -> None:
        """Begin anew with the next record, for the last one does not count."""
        self._numbers = ()
        table._current.restore_state()

    def _write(self, number: int, settings: dict[str, Any], earlier: tuple[int, ...], state: bytes) -> None:
        text = json.dumps(
            {"format": _FORMAT, "version": _VERSION, "settings": settings, "after": earlier}, default=float
        ).encode()
        rest = struct.pack("<I", len(text)) + text + state
        path = self._file(number)
        with system_errors(path), write_atomically(path) as stream:
            stream.write(struct.pack("<I", _core.crc32c(np.frombuffer(rest, np.uint8))) + rest)

    def _read_with_earlier(self, number: int) -> RecordedState:
        described, state = self._read(number)
        earlier = tuple(described["after"])
        states = [self._read(each)[1] for each in earlier]
        return RecordedState((*earlier, number), described["settings"], (*states, state))

    def _read(self, number: int) -> tuple[dict[str, Any], bytes]:
        path = self._file(number)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StateDamage(f"{path}: {error.strerror}") from error
        rest = content[4:]
        if len(content) < _HEAD.size or struct.unpack_from("<I", content)[0] != _core.crc32c(
            np.frombuffer(rest, np.uint8)
        ):
            raise StateDamage(f"{path} has another checksum than when it was written")
        end = _HEAD.size + _HEAD.unpack_from(content)[1]
        described = json.loads(content[_HEAD.size : end])
        if described.get("format") != _FORMAT or described.get("version") != _VERSION:
            raise StateDamage(f"{path} is none of version {_VERSION}")
        return described, content[end:]

    def _present(self) -> set[int]:
        names = [path.name.removesuffix(".state") for path in self._path.glob("*.state")]
        return {
            int(name, 16) for name in names if len(name) == 16 and not set(name) - set("0123456789abcdef")
        }

    def _file(self, number: int) -> Path:
        return self._path / f"{number:016x}.state"
