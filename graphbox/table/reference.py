"""References to tables in a ``state_dict``: the checkpoint that has the rows, not the rows."""

from __future__ import annotations

import secrets
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from graphbox.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from graphbox.table.table import EmbeddingTable

_identities: Final[weakref.WeakKeyDictionary[EmbeddingTable, str]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Reference:
    """Attributes: the table's settings, its rows, and where they can be found again.

    Attributes:
        dim: values of a row.
        dtype: of the values.
        rows: number of them.
        checkpoint: folder of the last checkpoint that held just these rows; None: none did.
        digest: of that checkpoint's manifest.
        table: a random text, another one for each table of each process.
        changes: the table's count of changes.
    """

    dim: int
    dtype: str
    rows: int
    checkpoint: str | None
    digest: str | None
    table: str
    changes: int

    def __str__(self) -> str:
        where = "saved in no checkpoint" if self.checkpoint is None else f"checkpoint {self.checkpoint}"
        return f"{self.rows} rows of {self.dim} {self.dtype}, {where}"


def reference(table: EmbeddingTable) -> dict[str, Any]:
    """Return what a ``state_dict`` holds of a table, as plain values."""
    return asdict(_reference(table))


def check_reference(table: EmbeddingTable, state: object) -> None:
    """Compare a table with the one of a reference: see :meth:`EmbeddingTable.check_reference`."""
    _check(_reference(table), _read(state))


def _reference(table: EmbeddingTable) -> _Reference:
    changes, saved = table._current.changes, table._saved
    is_saved = saved is not None and saved.changes == changes
    return _Reference(
        table.dim,
        table.dtype,
        len(table),
        saved.path if saved is not None and is_saved else None,
        saved.digest if saved is not None and is_saved else None,
        _identities.setdefault(table, secrets.token_hex(16)),
        changes,
    )


def _read(state: object) -> _Reference:
    try:
        if not isinstance(state, Mapping):
            raise TypeError("no mapping")
        return _Reference(**state)
    except TypeError as error:
        raise UsageError(
            f"expected a reference to a table, received {state!r}: {error}", where="state_dict"
        ) from None


def _check(ours: _Reference, theirs: _Reference) -> None:
    if (ours.dim, ours.dtype) != (theirs.dim, theirs.dtype):
        raise UsageError(f"expected a table with {theirs}, received one with {ours}", where="state_dict")
    if (ours.table, ours.changes) == (theirs.table, theirs.changes):
        return
    if theirs.digest is None:
        if theirs.rows or ours.rows:
            warnings.warn(
                f"the state_dict was made beside a table whose rows were in no checkpoint then ({theirs}); "
                f"whether those of this table ({ours}) are the same cannot be told. Save tables before the "
                "state_dict is made",
                stacklevel=2,
            )
        return
    if ours.digest != theirs.digest:
        raise ConflictError(
            f"expected the table that the state_dict was made beside ({theirs}), received another ({ours})",
            where="state_dict",
            hint="make the module with the table that EmbeddingTable.load reads there; to combine the two "
            "all the same, leave the entries `_extra_state` out and load with strict=False",
        )
