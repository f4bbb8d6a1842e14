"""Changes of tables by trainers: what an operation does to each table, alone or with others of its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graphbox.cluster.messages import Float32Array, Kind, Operation
from graphbox.errors import ConflictError, FormatError, NotFoundError
from graphbox.native import Int64Array
from graphbox.table import EmbeddingTable

__all__ = ["Change", "Steps", "changes_of"]


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of an operation on one table.

    Attributes:
        keys: int64 [n].
        values: float32 [n, dim], gradients; of other operations than a push [0, dim].
        counts: float32 [n, 0 to 2], shows and clicks.
        lr: learning rate; None: that of the table.
    """

    keys: Int64Array
    values: Float32Array
    counts: Float32Array
    lr: float | None


Changes: TypeAlias = Mapping[str, Change]
"""Effect of an operation, by the name of the table."""


def changes_of(operation: Operation, tables: Mapping[str, EmbeddingTable]) -> Changes:
    """Return what an operation does to each table that it names.

    Raises:
        NotFoundError: there is no such table.
        FormatError: a table comes twice, or the arrays have other sizes than its parts say.
    """
    _check_tables(operation, tables)
    is_push = operation.kind == "push"
    dims = [tables[part.table].dim for part in operation.parts]
    sizes = [part.keys * dim if is_push else 0 for part, dim in zip(operation.parts, dims, strict=True)]
    counted = [part.keys * part.counts for part in operation.parts]
    if (sum(sizes), sum(counted)) != (operation.values.size, operation.counts.size):
        raise FormatError(
            f"expected {sum(sizes)} values and {sum(counted)} counts, as the tables say, received "
            f"{operation.values.size} and {operation.counts.size}",
            where="values",
        )
    found: dict[str, Change] = {}
    keys = values = counts = 0
    for part, dim, size, count in zip(operation.parts, dims, sizes, counted, strict=True):
        found[part.table] = Change(
            operation.keys[keys : keys + part.keys],
            operation.values[values : values + size].reshape(-1, dim),
            operation.counts[counts : counts + count].reshape(part.keys, part.counts),
            part.lr,
        )
        keys, values, counts = keys + part.keys, values + size, counts + count
    return found


def _check_tables(operation: Operation, tables: Mapping[str, EmbeddingTable]) -> None:
    names = [part.table for part in operation.parts]
    for name in names:
        if name not in tables:
            raise NotFoundError(f"expected one of the tables {sorted(tables)}, received `{name}`")
        if names.count(name) > 1:
            raise FormatError("expected each table once in an operation, received it twice", where=name)


class Steps:
    """Operations of trainers that learn in step, until those of the others have come.

    Attributes:
        trainers: how many trainers there are; their numbers are their ranks, 0 to ``trainers`` - 1.
    """

    def __init__(self, trainers: int) -> None:
        self.trainers = trainers
        self._waiting: dict[int, dict[int, tuple[Kind, Changes]]] = {}

    def received(self, trainer: int, applied: int) -> int:
        """Return the number of the last operation of a trainer that is here or was applied."""
        return max((step for step, parts in self._waiting.items() if trainer in parts), default=applied)

    def add(self, trainer: int, step: int, kind: Kind, changes: Changes) -> None:
        """Keep an operation, in memory of its own, until those of the others have come."""
        owned = {
            name: Change(each.keys.copy(), each.values.copy(), each.counts.copy(), each.lr)
            for name, each in changes.items()
        }
        self._waiting.setdefault(step, {})[trainer] = (kind, owned)

    def clear(self) -> None:
        """Drop everything that waits."""
        self._waiting.clear()

    def take(self, step: int) -> tuple[Kind, Changes] | None:
        """Return the operations of a step as one, in the order of ranks; None: some have not come.

        Raises:
            ConflictError: trainers do different things in one step.
        """
        if self.missing(step):
            return None
        parts = self._waiting.pop(step)
        kinds = {rank: kind for rank, (kind, _) in sorted(parts.items())}
        if len(set(kinds.values())) > 1:
            said = ", ".join(f"{kind} of rank {rank}" for rank, kind in kinds.items())
            raise ConflictError(
                f"expected one operation of all trainers, received {said}",
                where=f"step {step}",
                hint="all trainers do the same operations in the same order",
            )
        return kinds[0], _joined([parts[rank][1] for rank in range(self.trainers)])

    def missing(self, step: int) -> list[int]:
        """Return the ranks whose operation of a step has not come."""
        parts = self._waiting.get(step, {})
        return [rank for rank in range(self.trainers) if rank not in parts]


def _joined(parts: Sequence[Changes]) -> Changes:
    """Return changes as one: of each table those of the first, then those of the second."""
    found: dict[str, Change] = {}
    for name in dict.fromkeys(name for each in parts for name in each):
        given = [each[name] for each in parts if name in each]
        found[name] = Change(
            np.concatenate([each.keys for each in given]),
            np.concatenate([each.values for each in given]),
            np.concatenate([each.counts for each in given]),
            given[0].lr,
        )
    return found
