"""Bags as torch's modules take them, as keys and offsets: one-dimensional with offsets, padded, or nested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array

__all__ = ["BagInput", "bag_input"]


@dataclass(frozen=True, slots=True)
class BagInput:
    """Keys in bags.

    Attributes:
        keys: int64 [keys].
        offsets: int64 [bags + 1].
        weights: [keys], factors of the rows, differentiable; None: 1.
        device: of the input.
    """

    keys: Int64Array
    offsets: Int64Array
    weights: Tensor | None
    device: torch.device


def bag_input(
    values: Tensor,
    offsets: Tensor | None,
    weights: Tensor | None,
    *,
    include_last_offset: bool,
    padding_idx: int | None,
    where: str = "input",
) -> BagInput:
    """Return the bags of a forward pass, without those keys that are ``padding_idx``.

    Args:
        values: integers [bags, keys of each], or [keys] with ``offsets``, or nested.
        offsets: integers, where each bag begins.
        weights: as ``values``.
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
            if not np.array_equal(weight_lengths, lengths):
                raise UsageError("expected one weight for each key", where=f"{where}: per_sample_weights")
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    else:
        if values.dim() != 1 or offsets is None:
            raise UsageError(
                f"expected keys of two dimensions, or of one with offsets, received shape "
                f"{tuple(values.shape)} {'without' if offsets is None else 'with'} offsets",
                where=where,
            )
        flat, ends = values, _ends(offsets, len(values), include_last_offset, f"{where}: offsets")
    keys = integer_array(flat, where)
    if weights is not None and len(weights) != len(keys):
        raise UsageError(
            f"expected one weight for each of {len(keys)} keys, received {len(weights)}",
            where=f"{where}: per_sample_weights",
        )
    if padding_idx is not None:
        is_key = keys != padding_idx
        if not is_key.all():
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_key)])[ends]
            keys = keys[is_key]
            weights = None if weights is None else weights[torch.from_numpy(is_key).to(weights.device)]
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


def _rows_of(values: Tensor) -> tuple[Int64Array, Tensor]:
    """Return the length of each row, and all values in one dimension."""
    if not values.is_nested:
        return np.full(len(values), values.shape[1], np.int64), values.reshape(-1)
    rows = values.unbind()
    if any(row.dim() != 1 for row in rows):
        raise UsageError("expected nested keys of one dimension in each bag", where="input")
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    if values.layout == torch.jagged and len(values.values()) == lengths.sum():
        return lengths, values.values()
    return lengths, torch.cat(list(rows)) if rows else torch.empty(0, dtype=values.dtype)


def _ends(offsets: Tensor, count: int, include_last_offset: bool, where: str) -> Int64Array:
    ends = integer_array(offsets, where)
    if not include_last_offset:
        begins, ends = ends, np.empty(len(ends) + 1, np.int64)
        ends[:-1], ends[-1] = begins, count
    if len(ends) == 0:
        raise UsageError("expected the number of keys as last offset, received none", where=where)
    if (len(ends) > 1 and ends[0] != 0) or ends[-1] != count or (ends[1:] < ends[:-1]).any():
        raise UsageError(
            f"expected offsets that begin with 0, never fall, and do not exceed the {count} keys"
            f"{', the last one their number' if include_last_offset else ''}",
            where=where,
        )
    return ends
