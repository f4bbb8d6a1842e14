"""Weights of an earlier model in the places of those of a new one, by name and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphbox.errors import UsageError


def matched_weights(
    own: Mapping[str, Tensor],
    earlier: Mapping[str, Tensor],
    names: Mapping[str, Sequence[str]],
    earlier_names: Mapping[str, Sequence[str]],
) -> dict[str, Tensor]:
    """Return the earlier weights by the names of the new ones.

    Rows of weights that belong to names, such as categories, are matched by these; rows of new names keep
    the values that they have.

    Args:
        own: weights of the new model before training.
        earlier: weights of the earlier model.
        names: names of the rows of weights of the new model, by weight.
        earlier_names: the same of the earlier model.

    Raises:
        UsageError: a weight is missing or has another shape; the message names it.
    """
    for name in own.keys() ^ earlier.keys():
        has, lacks = ("with", "without") if name in own else ("without", "with")
        raise UsageError(f"expected a model {has} the weight `{name}`, received one {lacks} it")
    found = {}
    for name, value in own.items():
        known = earlier[name].to(value.device)
        are_named = name in names and name in earlier_names
        same = known.shape[1:] == value.shape[1:] if are_named else known.shape == value.shape
        if not same:
            raise UsageError(
                f"expected the weight `{name}` of shape {_shape(value)}, received {_shape(known)}"
            )
        found[name] = _by_name(value, names[name], known, earlier_names[name]) if are_named else known
    return found


def _by_name(own: Tensor, names: Sequence[str], earlier: Tensor, earlier_names: Sequence[str]) -> Tensor:
    place = {name: row for row, name in enumerate(earlier_names)}
    pairs = [(row, place[name]) for row, name in enumerate(names) if name in place]
    rows, earlier_rows = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    found = own.clone()
    found[rows.to(own.device)] = earlier[earlier_rows.to(own.device)]
    return found


def _shape(value: Tensor) -> str:
    return "x".join(map(str, value.shape)) or "one number"
