"""The least budget of the tables of a training: a smaller one is refused before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphbox.config import ModelSection
from graphbox.table.least_budget import least_budget_bytes
from graphbox.train.memory import TABLE_BUFFER_BYTES
from graphbox.train.plan.footprint import Footprint, TableRows
from graphbox.words import counted, counted_bytes

_MEBIBYTE = 1 << 20


def table_budget_problem(name: str, footprint: Footprint[ModelSection]) -> tuple[str, str] | None:
    """Return why the budget of tables is too small for a model, and the least that would do; None: it is not.

    Args:
        name: of the model.
        footprint: of its training.
    """
    budget, tables = footprint.memory.tables, footprint.table_rows()
    if budget is None or not tables:
        return None
    needed = least_budget(tables, with_batches=False)
    if budget >= needed:
        return None
    enough = math.ceil(least_budget(tables, with_batches=True) / _MEBIBYTE)
    rows = counted(sum(each.rows for each in tables), "row")
    message = (
        f"expected `memory.tables` of {counted_bytes(needed)} or more to train `{name}`, for the indexes of "
        f"{rows} and buffers, received {counted_bytes(budget)}"
    )
    return message, f"`memory.tables={enough}MiB` would do, with room for the rows of a batch"


def least_budget(tables: Sequence[TableRows], *, with_batches: bool) -> int:
    """Return the least bytes of a budget that tables share as :meth:`TrainingMemory.shares` divides it.

    Args:
        tables: all that have the budget together.
        with_batches: count room for the rows of a batch, too.
    """
    least = [_least(each, with_batches=with_batches) for each in tables]
    if max(least) <= TABLE_BUFFER_BYTES:
        return len(tables) * max(least)
    sizes = [max(1, each.rows) * each.dim for each in tables]
    beyond = max(
        (needed - TABLE_BUFFER_BYTES) * sum(sizes) / size for needed, size in zip(least, sizes, strict=True)
    )
    return len(tables) * TABLE_BUFFER_BYTES + math.ceil(beyond)


def _least(table: TableRows, *, with_batches: bool) -> int:
    if not with_batches:
        return least_budget_bytes(table.dim, table.optimizer, table.rows if table.are_certain else 0, 0)
    batch_rows = math.ceil(min(table.batch_rows, table.rows))
    return least_budget_bytes(table.dim, table.optimizer, table.rows, batch_rows)
