"""Original ids of one node type, strings or 64-bit integers, mapped to node indices and back by column."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.errors import DataError, FormatError, NotFoundError, UsageError
from graphbox.graph.schema import IdType, Int64Array

__all__ = [
    "Ids",
    "IdsLike",
    "IntegerIds",
    "StringIds",
    "as_arrow",
    "make_ids",
    "string_array",
    "string_buffers",
]

IdsLike: TypeAlias = Sequence[str] | Sequence[int] | npt.NDArray[Any] | pa.Array
"""What a caller may give as original ids."""

_HASH_LOOKUP_SHARE = 8
"""A hash of all ids is built when at least this share (1/8) of them is asked for."""
_MAX_ARROW_INDEX = 2**31 - 1
_EXAMPLES = 5
_MAX_CANDIDATES = 2000


def string_array(offsets: Int64Array, text: npt.NDArray[np.uint8]) -> pa.LargeStringArray:
    """Return the strings ``text[offsets[i]:offsets[i + 1]]`` (UTF-8) without copying.

    Args:
        offsets: int64 [n + 1], ascending from 0 to ``len(text)``.
        text: uint8, all strings one after the other.

    Raises:
        FormatError: the offsets are none.
    """
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
        raise FormatError(
            f"expected offsets ascending from 0 to {len(text)}, received other ones",
            hint="import the graph again",
        )
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))


def string_buffers(strings: pa.Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return the offsets and the text that :func:`string_array` takes."""
    # A slice starts in the middle of its buffers; concat_arrays and take make compact ones.
    strings = strings.cast(pa.large_string()).take(pa.array(np.arange(len(strings))))
    _, offsets, text = strings.buffers()
    if not len(strings):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64, len(strings) + 1)
    content = np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8, int(bounds[-1]))
    return bounds, content


class Ids(ABC):
    """The original ids of one node type, in the order of the node indices.

    Attributes:
        kind: ``string`` or ``int64``.
        order: int64 or int32 [n], the node indices in ascending order of their ids.
    """

    kind: IdType
    order: npt.NDArray[np.integer[Any]]

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type large_string or int64."""

    @abstractmethod
    def take(self, index: Int64Array) -> npt.NDArray[Any]:
        """Return the ids at ``index``: an object array of str, or int64."""

    @abstractmethod
    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id (of the Arrow type of :attr:`values`), -1 where it is none or null."""

    @abstractmethod
    def suggest(self, value: Any) -> str | None:
        """Return ``did you mean `x`?`` for the closest id, or None when nothing is close."""

    def index(self, ids: IdsLike, *, node_type: str, missing: Literal["raise", -1] = "raise") -> Int64Array:
        """Return the node index of each original id.

        Args:
            ids: a list or array of ids.
            node_type: named in messages.
            missing: ``"raise"``, or -1 to give -1 for an id that is not there.

        Returns:
            int64 [len(ids)].

        Raises:
            NotFoundError: ids are not there; the message has the first of them.
            UsageError: the ids are of another kind.
        """
        asked = as_arrow(ids, self.kind, node_type)
        found = self.find(asked)
        if missing == "raise" and (found < 0).any():
            absent = asked.take(pa.array(np.flatnonzero(found < 0))).unique().to_pylist()
            named = ", ".join(f"`{value}`" for value in absent[:_EXAMPLES])
            more = f" and {len(absent) - _EXAMPLES:,} more" if len(absent) > _EXAMPLES else ""
            raise NotFoundError(
                f"expected ids of nodes of type `{node_type}`, received {named}{more}",
                hint=self.suggest(absent[0]) or f"there are {len(self):,} nodes of this type",
            )
        return found


class StringIds(Ids):
    """Ids that are strings, compared by their UTF-8 bytes.

    Args:
        values: large_string array, without nulls, unique.
        order: the node indices in ascending order of the ids; found by sorting when not given.
    """

    kind: IdType = "string"

    def __init__(self, values: pa.Array, order: npt.NDArray[np.integer[Any]] | None = None) -> None:
        self._size = len(values)
        self._load: Callable[[], pa.Array] = lambda: values
        self.order = pc.sort_indices(values).to_numpy().astype(np.int64) if order is None else order

    @classmethod
    def mapped(
        cls, offsets: Int64Array, text: npt.NDArray[np.uint8], order: npt.NDArray[np.integer[Any]]
    ) -> StringIds:
        """Return ids over memory-mapped arrays (see :func:`string_array`), which are read on first use."""
        ids = cls(pa.array([], pa.large_string()), order)
        ids._size = len(offsets) - 1
        ids._load = lambda: string_array(offsets, text)
        return ids

    def __len__(self) -> int:
        return self._size

    @cached_property
    def _values(self) -> pa.Array:
        return self._load()

    @property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type large_string."""
        return self._values

    def take(self, index: Int64Array) -> npt.NDArray[Any]:
        """Return the ids at ``index`` as an object array of str."""
        taken: npt.NDArray[Any] = self._values.take(pa.array(index)).to_numpy(zero_copy_only=False)
        return taken

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id, -1 where it is none or null."""
        return _find_by_hash(ids, self._values) if _is_bulk(ids, self) else self._search(ids)

    def _search(self, ids: pa.Array) -> Int64Array:
        """Binary search of all ids at once: one step of all of them for each halving."""
        low = np.zeros(len(ids), np.int64)
        high = np.full(len(ids), len(self), np.int64)
        ids = ids.fill_null("")  # the empty string is no id
        for _ in range(len(self).bit_length()):
            middle = np.minimum((low + high) // 2, len(self) - 1)
            before = pc.less(self._values.take(pa.array(self.order[middle])), ids)
            open_ = low < high
            less = before.to_numpy(zero_copy_only=False) & open_
            low = np.where(less, middle + 1, low)
            high = np.where(open_ & ~less, middle, high)
        index = self.order[np.minimum(low, len(self) - 1)].astype(np.int64)
        equal = pc.equal(self._values.take(pa.array(index)), ids).to_numpy(zero_copy_only=False)
        return np.where(equal, index, -1)

    def suggest(self, value: Any) -> str | None:
        """Return ``did you mean `x`?`` for the closest id that starts or ends like ``value``."""
        text = str(value)
        if not text:
            return None
        length = pc.utf8_length(self._values)
        near = pc.less_equal(pc.abs(pc.subtract(length, len(text))), 2)
        alike = pc.or_(pc.starts_with(self._values, text[:2]), pc.ends_with(self._values, text[-3:]))
        candidates = self._values.filter(pc.and_(near, alike)).slice(0, _MAX_CANDIDATES).to_pylist()
        matches = difflib.get_close_matches(text, candidates, n=1, cutoff=0.6)
        return f"did you mean `{matches[0]}`?" if matches else None


class IntegerIds(Ids):
    """Ids that are 64-bit integers; 0 and negative ones are ids like any other.

    Args:
        values: int64 [n], unique.
        order: the node indices in ascending order of the ids; found by sorting when not given.
    """

    kind: IdType = "int64"

    def __init__(self, values: Int64Array, order: npt.NDArray[np.integer[Any]] | None = None) -> None:
        self._numbers = values
        self.order = np.argsort(values, kind="stable") if order is None else order

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type int64."""
        return pa.array(self._numbers)

    @cached_property
    def _sorted(self) -> Int64Array:
        return np.asarray(self._numbers[self.order])

    def take(self, index: Int64Array) -> Int64Array:
        """Return the ids at ``index`` as int64."""
        return np.asarray(self._numbers[index])

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id, -1 where it is none or null."""
        return _find_by_hash(ids, self.values) if _is_bulk(ids, self) else self._search(ids)

    def _search(self, ids: pa.Array) -> Int64Array:
        asked = ids.fill_null(0).to_numpy(zero_copy_only=False)
        position = np.minimum(np.searchsorted(self._sorted, asked), len(self) - 1)
        found = (self._sorted[position] == asked) & ids.is_valid().to_numpy(zero_copy_only=False)
        return np.where(found, self.order[position], -1).astype(np.int64, copy=False)

    def suggest(self, value: Any) -> str | None:
        """Return None: a number has no close spelling, only neighbours that mean something else."""
        del value
        return None


def make_ids(values: pa.Array, where: str, row_place: Callable[[int], str] | None = None) -> Ids:
    """Return the ids of one node type.

    Args:
        values: large_string or int64 Arrow array, without nulls.
        where: named in messages.
        row_place: names the place of a row, for the message about a repeated id.

    Raises:
        DataError: there is none, or one occurs twice.
    """
    if not len(values):
        raise DataError("expected at least one node, received none", where=where)
    order = pc.sort_indices(values)
    ascending = values.take(order)
    repeated = pc.equal(ascending.slice(1), ascending.slice(0, len(values) - 1))
    count = pc.sum(repeated).as_py()
    if count:
        first = ascending.slice(1).filter(repeated).unique().slice(0, _EXAMPLES).to_pylist()
        if row_place is not None:
            where = row_place(_second_row(values, first[0]))
        raise DataError(
            f"expected each node id once, received {count:,} again: "
            + ", ".join(f"`{value}`" for value in first)
            + (", ..." if count > _EXAMPLES else ""),
            where=where,
            hint="one row per node; edges belong into a table of their own",
        )
    positions = order.to_numpy().astype(np.int64)
    if pa.types.is_int64(values.type):
        return IntegerIds(values.to_numpy(), positions)
    return StringIds(values, positions)


def _second_row(values: pa.Array, value: str | int) -> int:
    """Return the row of the second occurrence of a value that occurs more than once."""
    first: int = pc.index(values, value).as_py()
    after: int = pc.index(values.slice(first + 1), value).as_py()
    return first + 1 + after


def _is_bulk(asked: pa.Array, ids: Ids) -> bool:
    """Return whether so many ids are asked for that hashing all of them first is faster than searching."""
    return len(asked) * _HASH_LOOKUP_SHARE >= len(ids) and len(ids) <= _MAX_ARROW_INDEX


def _find_by_hash(asked: pa.Array, values: pa.Array) -> Int64Array:
    found: Int64Array = pc.fill_null(pc.index_in(asked, value_set=values), -1).to_numpy().astype(np.int64)
    return found


def as_arrow(ids: IdsLike, kind: IdType, node_type: str) -> pa.Array:
    """Return the ids as an Arrow array of the type that ``kind`` is kept in."""
    if isinstance(ids, str | bytes | int | np.generic):
        raise UsageError(
            f"expected a list of ids, received the single {type(ids).__name__} {ids!r}",
            where=f"ids of `{node_type}`",
            hint=f"pass [{ids!r}]",
        )
    wanted = pa.large_string() if kind == "string" else pa.int64()
    array = _listed(ids)
    if array is not None:
        if not len(array):
            return pa.array([], wanted)
        is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        if is_text if kind == "string" else pa.types.is_integer(array.type):
            try:
                return array.cast(wanted)
            except pa.ArrowInvalid:  # unsigned integers beyond int64
                array = None
    raise UsageError(
        f"expected {'strings' if kind == 'string' else '64-bit integers'}, received "
        + ("values of several types or beyond 64 bits" if array is None else f"values of type {array.type}"),
        where=f"ids of `{node_type}`",
    )


def _listed(ids: Any) -> pa.Array | None:
    """Return a sequence as one Arrow array, or None when its values have no common type."""
    if isinstance(ids, pa.ChunkedArray):
        return ids.combine_chunks()
    if isinstance(ids, pa.Array):
        return ids
    if hasattr(ids, "detach"):  # a torch tensor
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "U":
        ids = ids.astype(object)
    try:
        return pa.array(ids)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
