"""Embedding tables as torch modules."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from graphbox.errors import ConflictError, UnsupportedError, UsageError
from graphbox.table.gradients import Gradients
from graphbox.table.key_bags import KeyBags
from graphbox.table.lookup import Plan, look_up
from graphbox.table.protocol import Table


class TableModule(torch.nn.Module, abc.ABC):
    """Base class of all modules over tables.

    Rows are no parameters: a table applies its own optimizer to them at the end of ``backward()``, to each
    row once, with the sum of its gradients over all lookups of the backward pass. :class:`TableOptimizer`
    applies them at its ``step()`` instead, so that several backward passes count as one.

    In training mode unknown keys get a row. In evaluation mode, and while gradients are off, they get their
    initial values and the table stays as it is.

    ``state_dict()`` holds no rows: it names the checkpoint of the table that has them, if any. Loading it
    beside a table with other rows is refused; beside rows that were in no checkpoint then, it warns.

    Rows come on the device of the keys; where these are in host memory, on the one that the module was moved
    to. They are float32, or of the dtype that the module was given by ``to()``, ``half()`` or ``bfloat16()``;
    the table keeps its own.

    ``torch.compile`` breaks the graph at these modules and compiles the code around them. Copies and pickles
    of a module are refused, as they would share the table or lose it.
    """

    _place: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._gradients: Gradients | None = None
        # Nothing but the device and dtype that the module was moved to.
        self.register_buffer("_place", torch.empty(0), persistent=False)
        self._note_place()

    @property
    @abc.abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The tables, each once."""

    @abc.abstractmethod
    def plan(self, *arguments: Any) -> Plan:
        """Return what ``forward`` with these arguments looks up."""

    def get_extra_state(self) -> list[dict[str, Any]]:
        """Return what the ``state_dict`` holds of the tables: which checkpoints have their rows."""
        return [table.reference() for table in self.tables]

    def set_extra_state(self, state: object) -> None:
        """Compare the tables with those that a ``state_dict`` was made beside.

        Raises:
            UsageError: tables of other shapes.
            ConflictError: tables with other rows.
        """
        tables = self.tables
        if not isinstance(state, list) or len(state) != len(tables):
            raise UsageError(
                f"expected references to {len(tables)} tables, received {state!r}", where="state_dict"
            )
        for table, each in zip(tables, state, strict=True):
            table.check_reference(each)

    def __getstate__(self) -> NoReturn:
        raise UnsupportedError(
            f"{type(self).__name__} can be neither copied nor pickled: its rows are in a table",
            hint="save the table by its own save(), the rest of the model by its state_dict()",
        )

    def _look_up(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            from graphbox.table.uncompiled import look_up as look_up_uncompiled

            return look_up_uncompiled(self, arguments)
        return self._rows_of(arguments)

    def _rows_of(self, arguments: tuple[Any, ...]) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            plan = self.plan(*arguments)
            rows = [each.pull(create=False).tensor().to(plan.device) for each in plan.lookups]
            return self._moved(plan.finish(rows))
        if self._gradients is None:
            self._check_optimizer()
        plan = self.plan(*arguments)
        rows = [look_up(each.pull(), plan.device, self._gradients) for each in plan.lookups]
        return self._moved(plan.finish(rows))

    def _check_optimizer(self) -> None:
        for table in self.tables:
            if table.is_collective:
                raise UsageError(
                    "expected a TableOptimizer for a table in several processes: a backward pass that comes "
                    "to it in one process alone would wait for the others",
                    where=repr(table),
                    hint="make TableOptimizer(model) and call its step()",
                )

    def _moved(self, rows: Any) -> Any:
        """Return rows as the module was moved to have them: a tensor, or several by name."""
        if not self._is_moved:
            return rows
        place = self._place
        if isinstance(rows, dict):
            return {name: self._moved(each) for name, each in rows.items()}
        is_movable = rows.device.type == "cpu" and place.device.type != "meta"
        return rows.to(place.device if is_movable else rows.device, place.dtype)

    def _note_place(self) -> None:
        self._is_moved = self._place.dtype != torch.float32 or self._place.device.type not in ("cpu", "meta")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the module; behind ``to()``, ``half()`` and their like."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._note_place()
        return self


class TableEmbedding(TableModule):
    """Looks rows up in an :class:`EmbeddingTable`, and trains them when gradients come back.

    In the place of ``torch.nn.Embedding``, with any int64 as a key. :class:`TableModule` says what differs.

    Args:
        table: where the rows are, in this process or in several, or on a device: then keys, rows and
            gradients stay there. Several modules may share it.
        padding_idx: this key stands for nothing: it gives zeros, gets no row and learns nothing.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(self, table: Table, *, padding_idx: int | None = None) -> None:
        super().__init__()
        self.table = table_checked(table)
        self.padding_idx = padding_checked(padding_idx)
        warn_of_other_processes(self.tables)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table."""
        return (self.table,)

    def set_table(self, table: Table) -> None:
        """Look rows up in another table from now on.

        Raises:
            UsageError: ``table`` is no embedding table.
            ConflictError: a :class:`TableOptimizer` has gradients of the present one: ``close()`` it first.
        """
        if self._gradients is not None:
            raise ConflictError(
                "expected a module without a TableOptimizer, which has gradients of its present table",
                where=repr(self),
                hint="close() the TableOptimizer, and make another one",
            )
        self.table = table_checked(table)

    def extra_repr(self) -> str:
        """Describe the table in ``repr``."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.table!r}{padding}"

    def forward(self, keys: Tensor) -> Tensor:
        """Return the rows of ``keys``.

        Args:
            keys: integers [...], on any device.

        Returns:
            float32 [..., dim] on the device of ``keys``.

        Raises:
            UsageError: keys that are no integers.
            DoesNotFitError: new rows would exceed the table's ``memory_bytes``; none was created.
        """
        rows: Tensor = self._look_up(keys)
        return rows

    def plan(self, *arguments: Any) -> Plan:
        """Return the lookup of ``forward``'s keys."""
        (keys,) = arguments
        if not isinstance(keys, Tensor):
            raise UsageError(f"expected a tensor, received {type(keys).__name__}", where="keys")
        shape = (*keys.shape, self.table.dim)
        flat, bags = self.table.lookup_keys(keys, "keys").reshape(-1), None
        if self.padding_idx is not None:  # bags of one key or none
            is_key = flat != self.padding_idx
            if not is_key.all():
                flat, bags = flat[is_key], KeyBags.of_lengths(is_key)

        def finish(results: Sequence[Tensor]) -> Tensor:
            return results[0] if len(shape) == 2 else results[0].view(shape)

        return Plan([self.table.lookup(flat, bags)], finish, keys.device)


def warn_of_other_processes(tables: Sequence[Table]) -> None:
    """Warn of tables of this process alone where several train; for constructors of modules."""
    if all(table.is_collective for table in tables):
        return
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        processes = torch.distributed.get_world_size()
        if processes > 1:
            warnings.warn(
                f"each of the {processes} processes has tables of its own, which learn from its own batches "
                "alone: DistributedDataParallel averages gradients of parameters, not of rows. Divide the "
                "rows among the processes with graphbox.table.ShardedTable, or train in one process",
                stacklevel=3,
            )


def table_checked(table: Table) -> Table:
    """Return the table, or refuse what is none."""
    if not hasattr(type(table), "lookup"):
        raise UsageError(f"expected an EmbeddingTable, received {type(table).__name__}", where="table")
    return table


def padding_checked(padding_idx: object) -> int | None:
    """Return the key that stands for nothing, or refuse what is no key."""
    if padding_idx is None:
        return None
    if isinstance(padding_idx, bool) or not isinstance(padding_idx, int | np.integer):
        raise UsageError(f"expected a key or None, received {padding_idx!r}", where="padding_idx")
    return int(padding_idx)
