"""Features and ids from arrays, as callers have them in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphbox.errors import UsageError
from graphbox.graph.columns import Column
from graphbox.graph.ids import Ids, make_ids

_EXPECTED = (
    "one value per row (numbers, integers, booleans or strings), numbers [n, dim], integers [n, values], or "
    "slots as (offsets, values)"
)


def feature_columns(features: Mapping[str, Any] | None, num_rows: int, what: str) -> dict[str, Column]:
    """Return features by name, see :func:`feature_column`.

    Args:
        features: arrays by name; None for none.
        num_rows: number of nodes or edges.
        what: named in messages, such as ``nodes of type `paper```.

    Raises:
        UsageError: an array has no form as a feature, or another number of rows.
    """
    return {
        name: feature_column(values, num_rows, f"feature `{name}` of {what}")
        for name, values in (features or {}).items()
    }


def feature_column(values: Any, num_rows: int, where: str) -> Column:
    """Return an array as a feature; its type says of which kind.

    Floats [n] are numbers and floats [n, dim] vectors, both kept as float32; integers [n] are integers,
    booleans [n] booleans, strings [n] categories. Slots are integers [n, values], or a pair of int64 [n + 1]
    offsets and the values of all rows one after the other.

    Args:
        values: the array, or the pair.
        num_rows: number of rows it must have.
        where: named in messages.

    Raises:
        UsageError: it is none of these, or has another number of rows.
    """
    if isinstance(values, tuple) and len(values) == 2:
        return _slots(np.asarray(values[0]), np.asarray(values[1]), num_rows, where)
    array = np.asarray(values)
    if array.ndim not in (1, 2) or len(array) != num_rows:
        raise UsageError(f"expected {num_rows} rows, received shape {list(array.shape)}", where=where)
    maker = _MAKERS.get((array.dtype.kind, array.ndim))
    if maker is not None:
        return maker(array, where)
    if array.ndim == 1 and all(isinstance(each, str) for each in array):
        categories, codes = np.unique(array.astype(str), return_inverse=True)
        return Column("categorical", codes.astype(np.int32), pa.array(categories.tolist(), pa.large_string()))
    raise UsageError(f"expected {_EXPECTED}, received {array.dtype} {list(array.shape)}", where=where)


def _integers(array: npt.NDArray[Any], where: str) -> Column:
    return Column("integer", _int64(array, where))


def _equal_slots(array: npt.NDArray[Any], where: str) -> Column:
    offsets = np.arange(len(array) + 1, dtype=np.int64) * array.shape[1]
    return Column("slots", _int64(array.reshape(-1), where), None, offsets)


_MAKERS: dict[tuple[str, int], Callable[[npt.NDArray[Any], str], Column]] = {
    ("b", 1): lambda array, _: Column("boolean", array.copy()),
    ("f", 1): lambda array, _: Column("number", array.astype(np.float32)),
    ("f", 2): lambda array, _: Column("vector", array.astype(np.float32)),
    ("i", 1): _integers,
    ("u", 1): _integers,
    ("i", 2): _equal_slots,
    ("u", 2): _equal_slots,
}
"""Conversions of arrays to features, by kind of dtype and number of dimensions."""


def _slots(offsets: npt.NDArray[Any], values: npt.NDArray[Any], num_rows: int, where: str) -> Column:
    sound = (
        offsets.shape == (num_rows + 1,)
        and offsets.dtype.kind in "iu"
        and values.ndim == 1
        and (values.dtype.kind in "iu" or not len(values))
        and offsets[0] == 0
        and offsets[-1] == len(values)
        and (np.diff(offsets.astype(np.int64)) >= 0).all()
    )
    if not sound:
        raise UsageError(
            f"expected {num_rows + 1} rising offsets from 0 to the number of values, and integers, received "
            f"offsets {offsets.dtype} {list(offsets.shape)} and values {values.dtype} {list(values.shape)}",
            where=where,
        )
    return Column("slots", _int64(values, where), None, offsets.astype(np.int64))


def _int64(array: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise UsageError(f"expected 64-bit signed integers, received {array.max()}", where=where)
    return array.astype(np.int64)


def ids_of(values: Any, num_nodes: int, where: str) -> Ids:
    """Return original ids from a list or array of strings or integers.

    Raises:
        UsageError: they are of another kind, or not as many as there are nodes.
        DataError: one is there twice.
    """
    given = values.tolist() if isinstance(values, np.ndarray) else values
    listed = [each.item() if isinstance(each, np.generic) else each for each in given]
    if len(listed) != num_nodes:
        raise UsageError(f"expected {num_nodes} ids, received {len(listed)}", where=where)
    for kind, arrow in ((int, pa.int64()), (str, pa.large_string())):
        if all(isinstance(each, kind) and not isinstance(each, bool) for each in listed):
            try:
                return make_ids(pa.array(listed, arrow), where)
            except (OverflowError, pa.ArrowInvalid):
                break
    raise UsageError(
        "expected ids that are all strings or all 64-bit integers, received "
        + ", ".join(sorted({type(each).__name__ for each in listed})),
        where=where,
        hint="name the nodes by strings: str(id)",
    )
