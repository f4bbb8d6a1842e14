"""The classification extension: the highest values of an output as texts ``value:index[:label]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import InvalidRequestError

__all__ = ["classified", "count_of"]

_MAX_CLASSES = (1 << 32) - 1


def count_of(parameters: Mapping[str, Any], datatype: str, where: str) -> int:
    """Return how many classes an output is asked for; 0: the output itself.

    Args:
        parameters: of the output.
        datatype: of the output.
        where: the output, for messages.

    Raises:
        InvalidRequestError: the number is out of range, or values of the datatype have no order.
    """
    count = parameters.get("classification", 0)
    where = f"{where}.parameters.classification"
    if type(count) is not int or not 0 <= count <= _MAX_CLASSES:
        raise InvalidRequestError(
            f"expected a number of classes from 1 to {_MAX_CLASSES}, received {count!r:.64}", where=where
        )
    if count and datatype in {"BOOL", "BYTES"}:
        raise InvalidRequestError(
            f"expected an output of numbers, received one of datatype {datatype}, whose values have no order",
            where=where,
            hint="ask for this output without classification",
        )
    return count


def classified(
    tensor: npt.NDArray[Any], count: int, labels: Sequence[str], *, has_rows: bool
) -> npt.NDArray[np.object_]:
    """Return the highest values of each row with their indices, highest first, NaN last.

    Args:
        tensor: numbers [rows, ...] or [...].
        count: most classes of a row; there are no more than values.
        labels: of the values of a row, or none.
        has_rows: whether the first axis is that of rows; else all values are one row.

    Returns:
        ``bytes`` objects [rows, k] or [k]. Of equal values the one with the lowest index comes first.
    """
    rows = tensor.shape[0] if has_rows else 1
    width = tensor.size // rows if rows else int(np.prod(tensor.shape[1:], dtype=np.int64))
    values = tensor.reshape(rows, width)
    kept = min(count, width)
    order = _descending(values)[:, :kept]
    top = np.take_along_axis(values, order, axis=1)
    form = b"%f:%d" if tensor.dtype.kind == "f" else b"%d:%d"
    suffixes = [f":{label}".encode() for label in labels]
    texts = np.empty(rows * kept, np.object_)
    texts[:] = [
        form % (value, index) + (suffixes[index] if index < len(suffixes) else b"")
        for value, index in zip(top.ravel().tolist(), order.ravel().tolist(), strict=True)
    ]
    return texts.reshape((rows, kept) if has_rows else (kept,))


def _descending(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return for each row the indices of its values, highest first, of equal ones in their order."""
    if values.dtype.kind == "f":
        found: npt.NDArray[np.int64] = np.argsort(-values, axis=1, kind="stable")  # NaN is sorted to the end
        return found
    # Negated integers may overflow: sorted from the last one, and read backwards.
    from_last: npt.NDArray[np.int64] = np.argsort(values[:, ::-1], axis=1, kind="stable")
    order: npt.NDArray[np.int64] = values.shape[1] - 1 - from_last[:, ::-1]
    return order
