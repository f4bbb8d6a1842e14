"""Outputs of runtimes that give arrays of their own."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from graphbox.deploy.protocol import Feeds
from graphbox.errors import InvalidRequestError

__all__ = ["written"]


def written(value: npt.NDArray[Any], name: str, out: Feeds | None) -> npt.NDArray[Any]:
    """Return an output: the array that was given for it, filled, or the value itself.

    Raises:
        InvalidRequestError: the array that was given has another shape.
    """
    if out is None or name not in out:
        return value
    array = out[name]
    if array.shape != value.shape:
        raise InvalidRequestError(
            f"expected an array of shape {list(value.shape)}, received {list(array.shape)}",
            where=f"output `{name}`",
        )
    array[...] = value
    return array
