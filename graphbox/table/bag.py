"""Sums and means of table rows over multi-valued slots, as torch modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from graphbox.errors import UsageError, did_you_mean
from graphbox.table.bag_input import BagInput, bag_input
from graphbox.table.key_bags import KeyBags, offsets_of
from graphbox.table.lookup import Plan, RowLookup
from graphbox.table.module import TableModule, padding_checked, table_checked, warn_of_other_processes
from graphbox.table.ordered_sum import sums_of_ranges
from graphbox.table.protocol import Table
from graphbox.table.salt import salted_tensor

BagMode: TypeAlias = Literal["sum", "mean"]
SlotInput: TypeAlias = Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class BagSlot:
    """A multi-valued slot of a :class:`TableEmbeddingBagCollection`.

    Attributes:
        table: where its rows are.
        mode: ``sum`` of the rows of a bag, or their ``mean``.
        salt: makes the slot's keys its own, see :func:`salted_keys`; None: slots over one table share rows.
        padding_idx: this key stands for nothing.
    """

    table: Table
    mode: BagMode = "sum"
    salt: str | None = None
    padding_idx: int | None = None

    def __post_init__(self) -> None:
        table_checked(self.table)
        _check_mode(self.mode)
        padding_checked(self.padding_idx)
        if self.salt is not None and not isinstance(self.salt, str):
            raise UsageError(f"expected a text or None, received {self.salt!r}", where="salt")


class TableEmbeddingBag(TableModule):
    """Sums or averages the rows of each bag of keys, and trains them when gradients come back.

    In the place of ``torch.nn.EmbeddingBag``, with any int64 as a key; see :class:`TableModule` for what
    differs. The rows of the keys are nowhere in memory but in the table, unless the weights want a
    gradient. A bag without keys gives zeros.

    Args:
        table: where the rows are. Several modules may share it.
        mode: ``sum`` or ``mean``.
        include_last_offset: offsets end with the number of keys.
        padding_idx: this key stands for nothing: it adds nothing, does not count in the mean, gets no row and
            learns nothing.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        table: Table,
        mode: BagMode = "mean",
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.table = table_checked(table)
        self.mode = _check_mode(mode)
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_checked(padding_idx)
        warn_of_other_processes(self.tables)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table."""
        return (self.table,)

    def extra_repr(self) -> str:
        """Describe the table in ``repr``."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        last = ", include_last_offset=True" if self.include_last_offset else ""
        return f"{self.table!r}, mode={self.mode!r}{last}{padding}"

    def forward(
        self,
        input: Tensor,  # noqa: A002 - as torch.nn.EmbeddingBag calls it
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Return a row for each bag.

        Args:
            input: the keys: integers [bags, keys of each], or nested, one bag after another, or [keys] with
                offsets.
            offsets: integers [bags], where each bag begins; [bags + 1] with ``include_last_offset``.
            per_sample_weights: as ``input``, floating: factors of the rows, with ``mode="sum"`` only.

        Returns:
            float32 [bags, dim] on the device of ``input``.

        Raises:
            UsageError: arguments that do not fit each other.
            DoesNotFitError: new rows would exceed the table's ``memory_bytes``; none was created.
        """
        rows: Tensor = self._look_up(input, offsets, per_sample_weights)
        return rows

    def plan(self, *arguments: Any) -> Plan:
        """Return the lookup of ``forward``'s bags."""
        values, offsets, weights = (*arguments, None, None)[:3]
        bags = bag_input(
            values,
            offsets,
            weights,
            table=self.table,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
        merged = _MergedBags([bags], [self.mode], ["input"])
        lookup = merged.lookup(self.table, [bags.keys])

        def finish(results: Sequence[Tensor]) -> Tensor:
            return merged.sums(results[0])

        return Plan([lookup], finish, bags.device)


class TableEmbeddingBagCollection(TableModule):
    """Sums or averages the rows of many slots; those over one table are merged into one pull and one push.

    Args:
        slots: by name, each slot's table, or a :class:`BagSlot` that says more.
        include_last_offset: offsets end with the number of keys.
        concatenate: give one tensor, the slots side by side in their order, instead of one for each.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        slots: Mapping[str, BagSlot | Table],
        *,
        include_last_offset: bool = False,
        concatenate: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(slots, Mapping):
            raise UsageError(
                f"expected tables by the names of slots, received {type(slots).__name__}", where="slots"
            )
        if not slots:
            raise UsageError("expected one slot at least, received none", where="slots")
        self.slots = {
            name: slot if isinstance(slot, BagSlot) else BagSlot(slot) for name, slot in slots.items()
        }
        self.include_last_offset = include_last_offset
        self.concatenate = concatenate
        warn_of_other_processes(self.tables)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, each once."""
        return tuple(dict.fromkeys(slot.table for slot in self.slots.values()))

    @property
    def dim(self) -> int:
        """Length of all slots' rows side by side."""
        return sum(slot.table.dim for slot in self.slots.values())

    def extra_repr(self) -> str:
        """Describe the tables, each once, and the slots in ``repr``."""
        numbers = {table: number for number, table in enumerate(self.tables)}
        tables = [f"table {number}: {table!r}" for table, number in numbers.items()]
        slots = [
            f"{name}: table {numbers[slot.table]}, {slot.mode}"
            + ("" if slot.salt is None else f", salt={slot.salt!r}")
            + ("" if slot.padding_idx is None else f", padding_idx={slot.padding_idx}")
            for name, slot in self.slots.items()
        ]
        return "\n".join([*tables, *slots])

    def forward(self, batch: Mapping[str, SlotInput]) -> dict[str, Tensor] | Tensor:
        """Return a row for each bag of each slot.

        Args:
            batch: by slot, the keys as :class:`TableEmbeddingBag` takes them: a tensor, a tuple of keys and
                offsets, or of keys, offsets and weights.

        Returns:
            By slot, float32 [bags, dim] on the device of its keys; with ``concatenate`` one
            float32 [bags, sum of dims].

        Raises:
            UsageError: slots that are missing or unknown, or arguments that do not fit each other.
            DoesNotFitError: new rows would exceed a table's ``memory_bytes``; that table got none.
        """
        rows: dict[str, Tensor] | Tensor = self._look_up(batch)
        return rows

    def plan(self, *arguments: Any) -> Plan:
        """Return the lookups of ``forward``'s bags, one for each table."""
        (batch,) = arguments
        self._check_names(batch)
        bags = {name: self._bags(name, batch[name]) for name in self.slots}
        if self.concatenate and len({len(each.offsets) for each in bags.values()}) > 1:
            counts = ", ".join(f"{name}: {len(each.offsets) - 1}" for name, each in bags.items())
            raise UsageError(f"expected as many bags in each slot, received {counts}", where="batch")
        names_of: dict[Table, list[str]] = {}
        for name, slot in self.slots.items():
            names_of.setdefault(slot.table, []).append(name)
        merged = [
            _MergedBags([bags[name] for name in names], [self.slots[name].mode for name in names], names)
            for names in names_of.values()
        ]
        lookups = [
            each.lookup(table, [self._keys(name, bags[name]) for name in names])
            for each, (table, names) in zip(merged, names_of.items(), strict=True)
        ]
        devices = {name: each.device for name, each in bags.items()}

        def finish(results: Sequence[Tensor]) -> dict[str, Tensor] | Tensor:
            by_name: dict[str, Tensor] = {}
            for each, names, result in zip(merged, names_of.values(), results, strict=True):
                parts = torch.split(each.sums(result), [len(bags[name].offsets) - 1 for name in names])
                by_name |= {name: part.to(devices[name]) for name, part in zip(names, parts, strict=True)}
            if self.concatenate:
                return torch.cat([by_name[name] for name in self.slots], dim=1)
            return {name: by_name[name] for name in self.slots}

        return Plan(lookups, finish, next(iter(devices.values())))

    def _check_names(self, batch: object) -> None:
        if not isinstance(batch, Mapping):
            raise UsageError(
                f"expected a mapping of slots to keys, received {type(batch).__name__}", where="batch"
            )
        for name in batch:
            if name not in self.slots:
                raise UsageError(
                    f"expected the slots {', '.join(self.slots)}, received {name}",
                    where="batch",
                    hint=did_you_mean(str(name), self.slots),
                )
        missing = [name for name in self.slots if name not in batch]
        if missing:
            raise UsageError(
                f"expected keys for each slot, received none for {', '.join(missing)}",
                where="batch",
                hint="a slot without values has empty bags",
            )

    def _bags(self, name: str, values: SlotInput) -> BagInput:
        parts: tuple[Any, ...] = values if isinstance(values, tuple) else (values,)
        if not 1 <= len(parts) <= 3:
            raise UsageError(
                f"expected keys, offsets and weights at most, received {len(parts)} parts", where=name
            )
        keys, offsets, weights = (*parts, None, None)[:3]
        return bag_input(
            keys,
            offsets,
            weights,
            table=self.slots[name].table,
            include_last_offset=self.include_last_offset,
            padding_idx=self.slots[name].padding_idx,
            where=name,
        )

    def _keys(self, name: str, bags: BagInput) -> Tensor:
        salt = self.slots[name].salt
        return bags.keys if salt is None else salted_tensor(bags.keys, salt)


class _MergedBags:
    """The bags of several slots as those of one lookup, one slot after another."""

    def __init__(self, bags: Sequence[BagInput], modes: Sequence[BagMode], names: Sequence[str]) -> None:
        for each, mode, name in zip(bags, modes, names, strict=True):
            if each.weights is not None and mode != "sum":
                raise UsageError(
                    f"expected weights with mode sum only, received them with {mode}",
                    where=f"{name}: per_sample_weights",
                )
        if len(bags) == 1:
            self._offsets = bags[0].offsets
        else:
            lengths = torch.cat([torch.diff(each.offsets) for each in bags])
            self._offsets = offsets_of(lengths)
        device = self._offsets.device
        self._divisors = None
        if "mean" in modes:
            self._divisors = torch.cat(
                [
                    torch.diff(each.offsets).clamp(min=1).float()
                    if mode == "mean"
                    else torch.ones(len(each.offsets) - 1, device=device)
                    for each, mode in zip(bags, modes, strict=True)
                ]
            )
        self._weights = None
        if any(each.weights is not None for each in bags):
            self._weights = torch.cat(
                [
                    torch.ones(len(each.keys), device=device)
                    if each.weights is None
                    else each.weights.to(device, torch.float32)
                    for each in bags
                ]
            )
        self._sums_here = (
            self._weights is not None and self._weights.requires_grad and torch.is_grad_enabled()
        )

    def lookup(self, table: Table, keys: Sequence[Tensor]) -> RowLookup:
        """Return the lookup of the bags' sums, or of the rows alone where weights want a gradient."""
        joined = keys[0] if len(keys) == 1 else torch.cat(list(keys))
        if self._sums_here:
            return table.lookup(joined)
        weights = None if self._weights is None else self._weights.detach()
        return table.lookup(joined, KeyBags(self._offsets, weights, self._divisors))

    def sums(self, result: Tensor) -> Tensor:
        """Return the sums of all bags from what the lookup gave."""
        if not self._sums_here or self._weights is None:
            return result
        lengths = torch.diff(self._offsets)
        weighted = result * self._weights.to(result.device).unsqueeze(1)
        sums = sums_of_ranges(weighted, lengths)
        if self._divisors is not None:
            sums = sums / self._divisors.to(result.device).unsqueeze(1)
        return sums


def _check_mode(mode: BagMode) -> BagMode:
    if mode not in get_args(BagMode):
        raise UsageError(
            f"expected the mode sum or mean, received {mode!r}",
            where="mode",
            hint="anything else can be made of the rows that TableEmbedding gives",
        )
    return mode
