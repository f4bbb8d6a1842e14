"""Memory of skip-gram's rows on the device that trains them, and on the host; no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from graphbox.words import counted_bytes

ROOM_FOR_ROWS = (
    "raise `memory.tables` or `memory.hbm.tables`, lower dim, or train on the CPU with `device: cpu`, which "
    "takes rows from SSD"
)
"""Remedy where rows have no room."""

_MOST_OF_INT32 = 2**31
_TABLE_BYTES = 24 << 20
_INDEX_BYTES = 24


def device_row_bytes(dim: int) -> int:
    """Return what a row takes, with its state and whether it changed."""
    return 4 * dim + 4 + 1


def position_bytes(num_keys: int) -> int:
    """Return what is known of each key where some rows are in the device's memory and others not."""
    return 4 if num_keys <= _MOST_OF_INT32 else 8


@dataclass(frozen=True)
class RowRoom:
    """The room that budgets leave for the rows of a training.

    Attributes:
        num_keys: number of keys.
        tables: rows that each has.
        dim: values of a row.
        device_budget_bytes: of the device's memory, for rows and where they are; None: all have room there.
        host_budget_bytes: of host memory, for the tables and for rows that are pinned; None: there is none,
            and tables have no rows on SSD.
    """

    num_keys: int
    tables: int
    dim: int
    device_budget_bytes: int | None = None
    host_budget_bytes: int | None = None

    @property
    def hot_keys(self) -> int:
        """Of how many keys the rows are in the device's memory; all of them, if it has room."""
        row_bytes = self.tables * device_row_bytes(self.dim)
        budget = self.device_budget_bytes
        if budget is None or self.num_keys * row_bytes <= budget:
            return self.num_keys
        return max(0, (budget - position_bytes(self.num_keys) * self.num_keys) // row_bytes)

    @property
    def device_bytes(self) -> int:
        """Bytes of rows in the device's memory."""
        hot = self.hot_keys
        known = position_bytes(self.num_keys) * self.num_keys if 0 < hot < self.num_keys else 0
        return known + self.tables * hot * device_row_bytes(self.dim)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of rows in pinned host memory."""
        return self.tables * (self.num_keys - self.hot_keys) * device_row_bytes(self.dim)

    @property
    def least_table_bytes(self) -> int:
        """Least host memory of tables with rows on SSD: indexes, buffers, rows to move."""
        return self.tables * (_TABLE_BYTES + _INDEX_BYTES * self.num_keys)

    @property
    def lacking_bytes(self) -> int:
        """Bytes of host memory that are missing; 0: none."""
        if self.host_budget_bytes is None or not self.pinned_bytes:
            return 0
        return max(0, self.pinned_bytes + self.least_table_bytes - self.host_budget_bytes)


def rows_without_room(room: RowRoom) -> str:
    """Return what is said of rows that neither a device nor the budget of host memory has room for."""
    needed, budget = room.pinned_bytes + room.least_table_bytes, room.host_budget_bytes or 0
    return (
        f"expected room in host memory for {counted_bytes(needed)}: rows that the device has no room for, "
        f"and the tables that have them on SSD; received a budget of {counted_bytes(budget)}"
    )
