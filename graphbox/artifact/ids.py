"""The original ids of one node type: strings or 64-bit integers, in the order of the node indices."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from graphbox.artifact.array_bundle import Arrays
from graphbox.errors import FormatError, InvalidRequestError, NotFoundError
from graphbox.id_index import IdBuffers, build_index, find_ids, id_buffers, text_buffers, valid_rows

Id = str | int

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_BUCKETS = 48
_MOST_IDS_FOR_SUGGESTIONS = 4_000_000
_LONGEST_SUGGESTED_FOR = 256
_CANDIDATES = 64
_COMPARED_IDS = 1 << 12
_ITERATED_IDS = 1 << 16
# Python refuses to print integers of thousands of digits.
_MOST_SHOWN_BITS = 256


class Ids:
    """Maps original ids to node indices and back.

    Args:
        values: strings or int64, unique, without nulls; position = node index.
        node_type: named in messages.
        where: the file, named in messages.

    Raises:
        FormatError: on another type, a null or a duplicate.
    """

    kind: Literal["string", "int64"]

    def __init__(self, values: pa.Array | pa.ChunkedArray, node_type: str, where: str | None = None) -> None:
        self.node_type = node_type
        if pa.types.is_int64(values.type):
            self.kind = "int64"
        elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            self.kind = "string"
            values = values.cast(pa.large_string())
        else:
            raise FormatError(f"expected ids of type string or int64, received {values.type}", where=where)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if values.null_count:
            raise FormatError(f"expected an id in every row, received {values.null_count} nulls", where=where)
        self._values = values
        self._index, duplicates, _ = build_index(values, threads=1)
        if duplicates:
            raise FormatError(f"expected unique ids, received {duplicates} duplicates", where=where)

    @classmethod
    def of_arrays(cls, arrays: Arrays, node_type: str) -> Self:
        """Return the ids whose `to_arrays` these are, without copying or checking them.

        Args:
            arrays: as returned by `to_arrays`, stay in use.
            node_type: named in messages.
        """
        ids = cls.__new__(cls)
        ids.node_type = node_type
        ids._index = arrays["index"]
        if "text" in arrays:
            ids.kind = "string"
            buffers = [None, pa.py_buffer(arrays["offsets"]), pa.py_buffer(arrays["text"])]
            count = len(arrays["offsets"]) - 1
            ids._values = pa.Array.from_buffers(pa.large_string(), count, buffers)
        else:
            ids.kind = "int64"
            values = arrays["values"]
            ids._values = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
        return ids

    def to_arrays(self) -> Arrays:
        """Return ids and their index as arrays, for `of_arrays`."""
        values, text = self._buffers
        if text is None:
            return {"values": values, "index": self._index}
        return {"offsets": values, "text": text, "index": self._index}

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Id:
        identifier: Id = self._values[index].as_py()
        return identifier

    def __iter__(self) -> Iterator[Id]:
        for start in range(0, len(self), _ITERATED_IDS):
            yield from self._values[start : start + _ITERATED_IDS].to_pylist()

    def take(self, indices: npt.ArrayLike) -> list[Id]:
        """Return the ids at ``indices``.

        Raises:
            InvalidRequestError: an index is outside ``[0, n)``; negative indices do not wrap.
        """
        wanted = np.asarray(indices, np.int64)
        if wanted.ndim != 1:
            raise InvalidRequestError(f"expected indices [n], received {list(wanted.shape)}")
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise InvalidRequestError(
                f"expected indices of a {self.node_type} in [0, {len(self)}), received "
                f"{wanted.min()} to {wanted.max()}"
            )
        taken: list[Id] = self._values.take(pa.array(wanted)).to_pylist()
        return taken

    def to_arrow(self) -> pa.Array:
        """Return all ids as an Arrow array of type large_string or int64."""
        return self._values

    def take_arrow(self, indices: npt.NDArray[np.int64]) -> pa.Array:
        """Return the ids at ascending ``indices`` as an Arrow array of type large_string or int64."""
        return self._values.take(pa.array(indices))

    def find(self, value: Id) -> int | None:
        """Return the index of one id, or None.

        Raises:
            InvalidRequestError: the id is of the wrong type.
        """
        index = int(self._found([value])[0])
        return None if index < 0 else index

    def from_text(self, text: str) -> Id:
        """Return the id that ``text`` writes: itself, or its integer where ids are integers.

        Raises:
            InvalidRequestError: when ids are integers and the text is none.
        """
        if self.kind == "string":
            return text
        if not _INTEGER.fullmatch(text):
            raise InvalidRequestError(
                f"expected an integer id of a node of type `{self.node_type}`, received {text[:120]!r}"
            )
        return int(text)

    def index(
        self, ids: Sequence[Id] | npt.NDArray[np.int64], missing: Literal["raise", -1] = "raise"
    ) -> npt.NDArray[np.int64]:
        """Return the node index of each id.

        Args:
            ids: original ids.
            missing: ``"raise"``, or -1 to give -1 for ids that are not there.

        Returns:
            int64 [len(ids)].

        Raises:
            NotFoundError: naming the ids that are not there.
            InvalidRequestError: when an id is of the wrong type.
        """
        if isinstance(ids, np.ndarray) and ids.dtype == np.int64 and self.kind == "int64":
            found = self._found_buffers((np.ascontiguousarray(ids), None))
        else:
            found = self._found(ids.tolist() if isinstance(ids, np.ndarray) else ids)
        if missing == "raise" and found.min(initial=0) < 0:
            values: Sequence[Id] = ids.tolist() if isinstance(ids, np.ndarray) else ids
            raise self._unknown([values[each] for each in np.flatnonzero(found < 0).tolist()], len(values))
        return found

    def find_texts(self, texts: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """Return the node index of each id that is given as text in UTF-8, int64 [n]; -1: it is no id.

        Args:
            texts: any bytes; ids have to be strings.
        """
        return self._found_buffers(text_buffers(texts))

    def index_of(self, others: Ids) -> npt.NDArray[np.int64]:
        """Return the node index of each of other ids of the same kind, int64 [n]; -1: it is not there."""
        return self._found_buffers(others._buffers)

    def _found_buffers(
        self, asked: IdBuffers, valid: npt.NDArray[np.uint8] | None = None
    ) -> npt.NDArray[np.int64]:
        return find_ids(self._index, self._buffers, asked, valid, threads=1)

    def _found(self, ids: Sequence[Id]) -> npt.NDArray[np.int64]:
        """Return the node index of each id, -1 for those that are not there."""
        try:
            types = set(map(type, ids))
            if types <= {str} and self.kind == "string":
                return self.find_texts([each.encode() for each in cast("Sequence[str]", ids)])
            if types <= {int} and self.kind == "int64":
                return self._found_buffers((np.array(ids, np.int64), None))
        except (OverflowError, UnicodeEncodeError):
            pass  # beyond 64 bits, or half a surrogate pair: no id is such
        expected = str if self.kind == "string" else (int, np.integer)
        for position, value in enumerate(ids):
            if not isinstance(value, expected) or isinstance(value, bool):
                raise InvalidRequestError(
                    f"expected ids of type {self.kind}, received {type(value).__name__} {_shown(value)}",
                    where=f"id {position}",
                )
        kind = pa.large_string() if self.kind == "string" else pa.int64()
        asked = pa.array([each if _can_be_id(each) else None for each in ids], kind)
        return self._found_buffers(id_buffers(asked), valid_rows(asked))

    def suggest(self, value: Id) -> str | None:
        """Return ``did you mean `x`?`` for the closest id, or None when nothing is close."""
        if (
            self.kind == "int64"
            or not isinstance(value, str)
            or len(value) > _LONGEST_SUGGESTED_FOR
            or len(self) > _MOST_IDS_FOR_SUGGESTIONS
            or not len(self)
            or not _can_be_id(value)
        ):
            return None
        # Ids that are about as long and end or begin as it does; of many the first, those that end so before.
        near = pc.less_equal(pc.abs(pc.subtract(pc.utf8_length(self._values), len(value))), 2)
        alike = (
            pc.ends_with(self._values, value[-3:]),
            pc.starts_with(self._values, value[:2]),
            pc.or_(pc.starts_with(self._values, value[:1]), pc.ends_with(self._values, value[-1:])),
        )
        found = [self._values.filter(pc.and_(near, each))[:_COMPARED_IDS] for each in alike]
        values = pa.concat_arrays(found).unique()
        if not len(values):
            return None
        asked = _letter_counts(pa.array([value], pa.large_string()))
        distance = np.abs(_letter_counts(values) - asked).sum(axis=1)
        closest = np.argpartition(distance, min(_CANDIDATES, len(values)) - 1)[:_CANDIDATES]
        candidates = values.take(pa.array(np.sort(closest))).to_pylist()
        matches = difflib.get_close_matches(value, candidates, n=1, cutoff=0.6)
        return f"did you mean `{matches[0]}`?" if matches else None

    def with_prefix(self, prefix: str, limit: int) -> npt.NDArray[np.int64]:
        """Return the indices of at most ``limit`` ids that start with ``prefix``, shortest first."""
        if not _can_be_id(prefix):
            return np.empty(0, np.int64)
        text = self._values if self.kind == "string" else self._values.cast(pa.large_string())
        indices = np.flatnonzero(pc.starts_with(text, prefix).to_numpy(zero_copy_only=False))
        matches = text.take(pa.array(indices))
        found = pa.table({"length": pc.utf8_length(matches), "text": matches})
        order = pc.select_k_unstable(
            found, min(limit, len(found)), sort_keys=[("length", "ascending"), ("text", "ascending")]
        )
        return np.asarray(indices[order.to_numpy()], np.int64)

    def _unknown(self, absent: list[Id], asked: int) -> NotFoundError:
        first = ", ".join(f"`{_shown(value)}`" for value in absent[:5])
        named = first + (", ..." if len(absent) > 5 else "")
        count = "" if asked == 1 else f" ({len(absent)} of {asked} ids are unknown)"
        return NotFoundError(
            f"expected the id of a node of type `{self.node_type}`, received {named}{count}",
            hint=self.suggest(absent[0]) or f"there are {len(self)} ids of the node type `{self.node_type}`",
        )

    @cached_property
    def _buffers(self) -> IdBuffers:
        return id_buffers(self._values)


def ids_of_kind(texts: pa.Array, kind: Literal["string", "int64"]) -> pa.Array:
    """Return ids that were given as text as ids of a kind are kept; texts that cannot be one are left out.

    Args:
        texts: large_string.
        kind: ``string`` returns them as they are, ``int64`` the integers that they write.
    """
    if kind == "string":
        return texts.cast(pa.large_string())
    numbers = (int(text) for text in texts.to_pylist() if _INTEGER.fullmatch(text))
    return pa.array([number for number in numbers if -(1 << 63) <= number < 1 << 63], pa.int64())


def _shown(value: object) -> str:
    """Return an id as a message names it."""
    if isinstance(value, int) and value.bit_length() > _MOST_SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    return str(value)[:128]


def _can_be_id(value: Id) -> bool:
    """Return whether an id of the right type can be one of a table: 64 bits, or text that has bytes."""
    if not isinstance(value, str):
        return -(1 << 63) <= value < 1 << 63
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _letter_counts(text: pa.Array) -> npt.NDArray[np.int16]:
    """Count the bytes of each string by value modulo ``_BUCKETS``: int16 [n, _BUCKETS].

    Half the L1 distance of two counts is a lower bound of the edit distance, cheap enough to scan
    every id for the few that are worth a real comparison.
    """
    _, offsets_buffer, data_buffer = text.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    row = np.repeat(np.arange(len(text)), np.diff(offsets))
    counts = np.bincount(row * _BUCKETS + data % _BUCKETS, minlength=len(text) * _BUCKETS)
    return counts.reshape(len(text), _BUCKETS).astype(np.int16)
