"""Interface of every embedding table, wherever its rows are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graphbox.table.policy import ShrinkReport

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.table.key_bags import KeyBags
    from graphbox.table.lookup import RowLookup


class Table(Protocol):
    """Rows for int64 keys, pulled, and trained by what is pushed.

    They are in memory or on SSD (:class:`graphbox.table.EmbeddingTable`), on a device
    (:class:`graphbox.table.DeviceTable`) or divided among processes (:class:`graphbox.table.ShardedTable`).
    Modules over tables and their optimizer know a table by this alone. The methods are described there.
    """

    @property
    def is_collective(self) -> bool:
        """True: all processes call each method together, and rows learn by a :class:`TableOptimizer`."""
        ...

    @property
    def dim(self) -> int:
        """Values of a row."""
        ...

    @property
    def lr(self) -> float:
        """Learning rate."""
        ...

    @lr.setter
    def lr(self, value: float) -> None: ...

    @property
    def path(self) -> Path | None:
        """Folder of the rows of this process that are on SSD, or None."""
        ...

    @property
    def skipped_gradients(self) -> int:
        """Number of gradients left out for NaN or infinity."""
        ...

    def pull(self, keys: Any, out: Any = None, create: bool = True) -> Any:
        """Return the rows of ``keys``: float32 [*keys.shape, dim]."""
        ...

    def push(self, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None) -> None:
        """Apply gradients, float32 [*keys.shape, dim], those of equal keys summed."""
        ...

    def learn(self, gradients: Sequence[Any]) -> None:
        """Apply the gradients of lookups of this table, in their order, as one push.

        Args:
            gradients: see :class:`graphbox.table.gradients.RowGradient`; of a collective table maybe none.
        """
        ...

    def contains(self, keys: Any) -> Any:
        """Return which keys have a row: bool [*keys.shape]."""
        ...

    def erase(self, keys: Any) -> int:
        """Forget keys, and return how many had a row."""
        ...

    def end_pass(self) -> None:
        """Let a pass end, by which policies count."""
        ...

    def shrink(self) -> ShrinkReport:
        """Drop the rows that the policies say."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint of all rows, their state and the settings."""
        ...

    def reference(self) -> dict[str, Any]:
        """Return what a ``state_dict`` holds of the table: which checkpoint has its rows."""
        ...

    def check_reference(self, state: object) -> None:
        """Compare the table with the one that returned a :meth:`reference`; refuse other rows."""
        ...

    def lookup_keys(self, keys: Tensor, name: str) -> Tensor:
        """Return keys of a module's lookup, int64, where the table takes them.

        Raises:
            UsageError: they are no integers.
        """
        ...

    def lookup(self, keys: Tensor, bags: KeyBags | None = None) -> RowLookup:
        """Return what pulls the rows of keys, or the sums of bags, and makes gradients of their rows."""
        ...
