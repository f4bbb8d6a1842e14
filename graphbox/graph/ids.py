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

from graphbox import _core
from graphbox.errors import DataError, FormatError, NotFoundError, UsageError
from graphbox.graph.schema import IdType, Int64Array
from graphbox.id_index import HashIndex, IdBuffers, build_index, find_ids, id_buffers, valid_rows
from graphbox.native import thread_count
from graphbox.words import counted

IdsLike: TypeAlias = Sequence[str] | Sequence[int] | npt.NDArray[Any] | pa.Array
"""Original ids as callers pass them."""

_EXAMPLES = 5
_MAX_CANDIDATES = 2000
_MAX_SUGGESTED_FROM = 1 << 20


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
    """

    kind: IdType

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type large_string or int64."""

    @property
    def hash_index(self) -> HashIndex:
        """The hash index of the ids: int32 or int64 slots (docs/formats/graph.md)."""
        return hash_index_of(self.values)

    @abstractmethod
    def take(self, index: Int64Array) -> npt.NDArray[Any]:
        """Return the ids at ``index``: an object array of str, or int64."""

    @abstractmethod
    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id (of the Arrow type of :attr:`values`), -1 for an unknown id or null."""

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
                hint=self.suggest(absent[0]) or f"this type has {counted(len(self), 'node')}",
            )
        return found


class _IndexedIds(Ids):
    """Ids in buffers, as the native core takes them, with a hash index that may be on disk."""

    def __init__(self, buffers: IdBuffers, hash_index: HashIndex | None, where: str) -> None:
        self._buffers = buffers
        self._given_index = hash_index
        self._where = where

    @cached_property
    def hash_index(self) -> HashIndex:
        """The hash index of the ids: int32 or int64 slots (docs/formats/graph.md)."""
        return hash_index_of(self.values) if self._given_index is None else self._given_index

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id, -1 for an unknown id or null."""
        asked = id_buffers(ids)
        return find_ids(
            self.hash_index, self._buffers, asked, valid_rows(ids), thread_count(None), self._where
        )

    def suggest(self, value: Any) -> str | None:
        """Return None: a number has no close spelling, only neighbours that mean something else."""
        del value
        return None


class StringIds(_IndexedIds):
    """Ids that are strings, compared by their UTF-8 bytes.

    Args:
        offsets: int64 [n + 1], where each id starts in ``text``, and where the last one ends.
        text: uint8, all ids one after the other, UTF-8.
        hash_index: the hash index of the ids; made when it is first used if not given.
        where: file that messages about damage name.
    """

    kind: IdType = "string"

    def __init__(
        self,
        offsets: Int64Array,
        text: npt.NDArray[np.uint8],
        hash_index: HashIndex | None = None,
        *,
        where: str = "",
    ) -> None:
        super().__init__((offsets, text), hash_index, where)
        self._offsets, self._text = offsets, text

    @classmethod
    def of(cls, values: pa.Array) -> StringIds:
        """Return ids of a large_string array without nulls, unique."""
        return cls(*string_buffers(values))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @cached_property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type large_string."""
        return string_array(self._offsets, self._text)

    def take(self, index: Int64Array) -> npt.NDArray[Any]:
        """Return the ids at ``index`` as an object array of str."""
        asked = np.ascontiguousarray(index, np.int64)
        offsets, text = _core.take_strings(self._offsets, self._text, asked, self._where)
        taken: npt.NDArray[Any] = string_array(offsets, text).to_numpy(zero_copy_only=False)
        return taken

    def suggest(self, value: Any) -> str | None:
        """Return ``did you mean `x`?`` for the closest id that starts or ends like ``value``.

        Of many ids only the first are looked at.
        """
        text = str(value)
        if not text:
            return None
        values = pa.array(self.take(np.arange(min(len(self), _MAX_SUGGESTED_FROM))), pa.large_string())
        near = pc.less_equal(pc.abs(pc.subtract(pc.utf8_length(values), len(text))), 2)
        alike = pc.or_(pc.starts_with(values, text[:2]), pc.ends_with(values, text[-3:]))
        candidates = values.filter(pc.and_(near, alike)).slice(0, _MAX_CANDIDATES).to_pylist()
        matches = difflib.get_close_matches(text, candidates, n=1, cutoff=0.6)
        return f"did you mean `{matches[0]}`?" if matches else None


class IntegerIds(_IndexedIds):
    """Ids that are 64-bit integers; 0 and negative ones are ids like any other.

    Args:
        values: int64 [n], unique.
        hash_index: the hash index of the ids; made when it is first used if not given.
        where: file that messages about damage name.
    """

    kind: IdType = "int64"

    def __init__(self, values: Int64Array, hash_index: HashIndex | None = None, *, where: str = "") -> None:
        super().__init__((values, None), hash_index, where)
        self._numbers = values

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type int64."""
        return pa.array(self._numbers)

    def take(self, index: Int64Array) -> Int64Array:
        """Return the ids at ``index`` as int64."""
        return np.asarray(self._numbers[index])


class NumberedIds(Ids):
    """The ids 0 to ``num_nodes - 1``, each the index of its node. They take no memory.

    Args:
        num_nodes: number of nodes.
    """

    kind: IdType = "int64"

    def __init__(self, num_nodes: int) -> None:
        self._size = num_nodes

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> pa.Array:
        """All ids as an Arrow array of type int64."""
        return pa.array(np.arange(self._size, dtype=np.int64))

    def take(self, index: Int64Array) -> Int64Array:
        """Return the ids at ``index`` as int64."""
        asked = np.asarray(index, np.int64)
        if len(asked) and (asked.min() < 0 or asked.max() >= self._size):
            wrong = asked[(asked < 0) | (asked >= self._size)][0]
            raise UsageError(f"expected indices from 0 to {self._size - 1}, received {wrong}")
        return asked.copy()

    def find(self, ids: pa.Array) -> Int64Array:
        """Return the index of each id, -1 for an unknown id or null."""
        asked, _ = id_buffers(ids)
        found = np.where((asked >= 0) & (asked < self._size), asked, -1)
        valid = valid_rows(ids)
        return found if valid is None else np.where(valid, found, -1)

    def suggest(self, value: Any) -> str | None:
        """Return None: a number has no close spelling."""
        del value
        return None


def hash_index_of(values: pa.Array, valid: npt.NDArray[np.bool_] | None = None) -> HashIndex:
    """Return the hash index of ids (docs/formats/graph.md, Ids).

    Args:
        values: int64 or large_string [n].
        valid: bool [n], the ids that can be found; by default all.
    """
    rows = None if valid is None else np.ascontiguousarray(valid, np.bool_).view(np.uint8)
    return build_index(values, thread_count(None), rows)[0]


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
    index, count, again = build_index(values, thread_count(None))
    if again is not None:
        raise DataError(
            f"expected each node id once, received {count:,} again: {_repeated_ids(values)}",
            where=where if row_place is None else row_place(again),
            hint="one row per node; edges belong into a table of their own",
        )
    if pa.types.is_int64(values.type):
        return IntegerIds(values.to_numpy(), index)
    return StringIds(*string_buffers(values), index)


def _repeated_ids(values: pa.Array) -> str:
    """Return the first ids that occur more than once."""
    counted = values.value_counts()
    repeated = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    named = ", ".join(f"`{value}`" for value in repeated.slice(0, _EXAMPLES).to_pylist())
    return named + (", ..." if len(repeated) > _EXAMPLES else "")


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
