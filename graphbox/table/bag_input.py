"""Bags as torch's modules take them, as keys and offsets: one-dimensional with offsets, padded, or nested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphbox.errors import UsageError
from graphbox.table.key_bags import offsets_of

if TYPE_CHECKING:
    from graphbox.table.protocol import Table


@dataclass(frozen=True, slots=True)
class BagInput:
    """Keys in bags.

    Attributes:
        keys: int64 [keys], where the table wants them, as offsets.
        offsets: int64 [bags + 1].
        weights: [keys], factors of the rows, differentiable; None: 1.
        device: of the input.
    """

    keys: Tensor
    offsets: Tensor
    weights: Tensor | None
    device: torch.device


def bag_input(
    values: Tensor,
    offsets: Tensor | None,
    weights: Tensor | None,
    *,
    table: Table,
    include_last_offset: bool,
    padding_idx: int | None,
    where: str = "input",
) -> BagInput:
    """Return the bags of a forward pass, without those keys that are ``padding_idx``.

    Args:
        values: integers [bags, keys of each], or [keys] with ``offsets``, or nested.
        offsets: integers, where each bag begins.
        weights: as ``values``.
        table: where the rows are.
        include_last_offset: ``offsets`` ends with the number of keys.
        padding_idx: a key that stands for nothing.
        where: what messages call the input.

    Raises:
        UsageError: arguments that do not fit each other.
    """
    if not isinstance(values, Tensor):
        raise UsageError(f"expected a tensor of keys, received {type(values).__name__}", where=where)
    if weights is not None:
        _check_weights(weights, values, f"{where}: per_sample_weights")
    device = values.device
    if values.is_nested or values.dim() == 2:
        if offsets is not None:
            raise UsageError("expected no offsets beside keys of two dimensions", where=f"{where}: offsets")
        lengths, flat = _rows_of(values)
        if weights is not None:
            weight_lengths, weights = _rows_of(weights)
            if not torch.equal(weight_lengths, lengths):
                raise UsageError("expected one weight for each key", where=f"{where}: per_sample_weights")
        keys = table.lookup_keys(flat, where)
        ends = offsets_of(lengths.to(keys.device))
    else:
        if values.dim() != 1 or offsets is None:
            raise UsageError(
                f"expected keys of two dimensions, or of one with offsets, received shape "
                f"{tuple(values.shape)} {'without' if offsets is None else 'with'} offsets",
                where=where,
            )
        keys = table.lookup_keys(values, where)
        begins = table.lookup_keys(offsets, f"{where}: offsets")
        ends = _ends(begins, len(values), include_last_offset, f"{where}: offsets")
    if weights is not None and len(weights) != len(keys):
        raise UsageError(
            f"expected one weight for each of {len(keys)} keys, received {len(weights)}",
            where=f"{where}: per_sample_weights",
        )
    if padding_idx is not None:
        is_key = keys != padding_idx
        if not is_key.all():
            ends = offsets_of(is_key)[ends]
            keys = keys[is_key]
            weights = None if weights is None else weights[is_key.to(weights.device)]
    return BagInput(keys, ends, weights, device)


def _check_weights(weights: Tensor, values: Tensor, where: str) -> None:
    if weights.is_nested != values.is_nested or weights.dim() != values.dim():
        raise UsageError(
            f"expected weights in the form of the keys, {_form(values)}, received {_form(weights)}",
            where=where,
        )
    if not weights.dtype.is_floating_point:
        raise UsageError(f"expected weights of a floating dtype, received {weights.dtype}", where=where)


def _form(values: Tensor) -> str:
    return "nested" if values.is_nested else f"of shape {tuple(values.shape)}"


def _rows_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the length of each row, and all values in one dimension."""
    if not values.is_nested:
        return torch.full((len(values),), values.shape[1]), values.reshape(-1)
    rows = values.unbind()
    if any(row.dim() != 1 for row in rows):
        raise UsageError("expected nested keys of one dimension in each bag", where="input")
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    if values.layout == torch.jagged and len(values.values()) == int(lengths.sum()):
        return lengths, values.values()
    return lengths, torch.cat(list(rows)) if rows else torch.empty(0, dtype=values.dtype)


def _ends(ends: Tensor, count: int, include_last_offset: bool, where: str) -> Tensor:
    if ends.dim() != 1:
        raise UsageError(f"expected 1 dimension(s), received shape {tuple(ends.shape)}", where=where)
    if not include_last_offset:
        ends = torch.nn.functional.pad(ends, (0, 1), value=count)
    if len(ends) == 0:
        raise UsageError("expected the number of keys as last offset, received none", where=where)
    begins_wrong = (ends[:1] != 0).any() if len(ends) > 1 else ends.new_zeros(())
    if bool(begins_wrong) or bool((ends[-1] != count) | (ends[1:] < ends[:-1]).any()):
        raise UsageError(
            f"expected offsets that begin with 0, never fall, and do not exceed the {count} keys"
            f"{', the last one their number' if include_last_offset else ''}",
            where=where,
        )
    return ends
