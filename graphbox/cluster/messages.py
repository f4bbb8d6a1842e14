"""Messages between trainers and shards: what an Arrow record batch and its metadata say.

Each message is one record batch. Numbers are in its columns, used where Arrow put them; what says how to read
them is JSON beside it. A pull has the keys of all tables in one column, a push all keys, gradients and counts
in lists of one row: tables differ in the length of their rows, so values are flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from graphbox import errors
from graphbox.errors import FormatError, GraphboxError
from graphbox.native import Int64Array

PROTOCOL: Final = 1
"""Version of the messages; shards and trainers have the same."""

Float32Array: TypeAlias = npt.NDArray[np.float32]
Kind: TypeAlias = Literal["push", "erase", "end_pass", "shrink"]
"""Operations that change tables."""

KINDS: Final[tuple[Kind, ...]] = ("push", "erase", "end_pass", "shrink")
LARGEST_FLOAT16: Final = 65504.0

PULL_SCHEMA: Final = pa.schema([("keys", pa.int64())])
PUSH_SCHEMA: Final = pa.schema(
    [("keys", pa.list_(pa.int64())), ("values", pa.list_(pa.float32())), ("counts", pa.list_(pa.float32()))]
)
ACK_SCHEMA: Final = pa.schema([])


@dataclass(frozen=True, slots=True)
class TablePart:
    """Keys of one table in a message.

    Attributes:
        table: name of the table.
        keys: how many keys of it there are.
        lr: learning rate of a push; None: that of the table.
        counts: numbers beside each key's gradient, shows and clicks: 0 to 2.
    """

    table: str
    keys: int
    lr: float | None = None
    counts: int = 0


@dataclass(frozen=True, slots=True)
class Pull:
    """A request for rows.

    Attributes:
        incarnation: of the shard that is asked.
        trainer: who asks.
        after: number of the trainer's operations that must have been applied before.
        create: give unknown keys a row.
        parts: tables, in the order of ``keys``.
        keys: int64 [keys of all parts].
        life: number of the client that asks.
    """

    incarnation: int
    trainer: int
    after: int
    create: bool
    parts: tuple[TablePart, ...]
    keys: Int64Array
    life: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer to a pull.

    Attributes:
        values: the rows of all parts one after the other, flat; float16 where that was agreed on.
        clipped: values that exceeded what float16 holds.
        ack: what the shard has applied of the trainer's operations.
    """

    values: npt.NDArray[Any]
    clipped: int
    ack: Ack


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of tables by a trainer, applied once.

    Attributes:
        incarnation: of the shard that it is for.
        trainer: who sends it.
        sequence: number among the trainer's operations for this shard, from 1.
        kind: what is done.
        parts: tables, in the order of ``keys``.
        keys: int64 [keys of all parts].
        values: float32, gradients of a push, flat.
        counts: float32, shows and clicks of a push, flat: those of the first key, then the second's.
        life: number of the client that sends it.
    """

    incarnation: int
    trainer: int
    sequence: int
    kind: Kind
    parts: tuple[TablePart, ...]
    keys: Int64Array
    values: Float32Array
    counts: Float32Array
    life: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self.keys.nbytes + self.values.nbytes + self.counts.nbytes


@dataclass(frozen=True, slots=True)
class Ack:
    """Operations of a trainer that a shard has.

    Attributes:
        incarnation: of the shard.
        applied: number of the last operation that was applied.
        durable: number of the last one that the trainer need not keep: it survives the shard, or the shard
            keeps nothing that would.
    """

    incarnation: int
    applied: int
    durable: int


# ---------------------------------------------------------------------------------------------- on the wire


def encode_pull(pull: Pull) -> tuple[pa.RecordBatch, bytes]:
    """Return a pull as a record batch and its metadata."""
    batch = pa.record_batch([pa.array(pull.keys)], schema=PULL_SCHEMA)
    head: dict[str, Any] = {
        "incarnation": pull.incarnation,
        "trainer": pull.trainer,
        "after": pull.after,
    }
    head |= {"create": pull.create, "parts": _parts(pull.parts), "life": pull.life}
    return batch, orjson.dumps(head)


def decode_pull(batch: pa.RecordBatch, metadata: bytes) -> Pull:
    """Return a pull that came.

    Raises:
        FormatError: the message is malformed.
    """
    head = read_head(metadata)
    keys = _numbers(_column(batch, "keys"), pa.int64())
    pull = Pull(
        read_number(head, "incarnation"),
        read_number(head, "trainer"),
        read_number(head, "after"),
        bool(head.get("create")),
        _read_parts(head),
        keys,
        read_number(head, "life"),
    )
    _check_keys(pull.parts, keys)
    return pull


def rows_schema(is_half: bool) -> pa.Schema:
    """Return the schema of answers to pulls."""
    return pa.schema([("values", pa.float16() if is_half else pa.float32())])


def encode_rows(rows: Rows) -> tuple[pa.RecordBatch, bytes]:
    """Return the answer to a pull as a record batch, whose memory is that of the values, and its metadata."""
    schema = rows_schema(rows.values.dtype == np.float16)
    buffers = [None, pa.py_buffer(rows.values)]
    column = pa.Array.from_buffers(schema.field(0).type, rows.values.size, buffers)
    return pa.record_batch([column], schema=schema), orjson.dumps(
        {**asdict(rows.ack), "clipped": rows.clipped}
    )


def decode_rows(batch: pa.RecordBatch, metadata: bytes) -> Rows:
    """Return the answer to a pull; its values are where Arrow put them, and cannot be written to.

    Raises:
        GraphboxError: what the shard answered instead.
        FormatError: the message is malformed.
    """
    head = read_head(metadata)
    column = _column(batch, "values")
    values = _numbers(column, column.type)
    return Rows(values, read_number(head, "clipped"), _read_ack(head))


def encode_operation(operation: Operation) -> tuple[pa.RecordBatch, bytes]:
    """Return an operation as a record batch of one row and its metadata."""
    columns = [
        pa.ListArray.from_arrays(pa.array([0, each.size], pa.int32()), pa.array(each))
        for each in (operation.keys, operation.values, operation.counts)
    ]
    head = {
        "incarnation": operation.incarnation,
        "trainer": operation.trainer,
        "sequence": operation.sequence,
        "kind": operation.kind,
        "life": operation.life,
        "parts": _parts(operation.parts),
    }
    return pa.record_batch(columns, schema=PUSH_SCHEMA), orjson.dumps(head)


def decode_operation(batch: pa.RecordBatch, metadata: bytes) -> Operation:
    """Return an operation that came.

    Raises:
        FormatError: the message is malformed.
    """
    head = read_head(metadata)
    kind = head.get("kind")
    if kind not in KINDS:
        raise FormatError(f"expected an operation of {', '.join(KINDS)}, received {kind!r}", where="kind")
    operation = Operation(
        read_number(head, "incarnation"),
        read_number(head, "trainer"),
        read_number(head, "sequence"),
        kind,
        _read_parts(head),
        _list(batch, "keys", pa.int64()),
        _list(batch, "values", pa.float32()),
        _list(batch, "counts", pa.float32()),
        read_number(head, "life"),
    )
    _check_keys(operation.parts, operation.keys)
    return operation


def encode_ack(ack: Ack) -> bytes:
    """Return the metadata of an answer to an operation."""
    return orjson.dumps(asdict(ack))


def decode_ack(metadata: bytes) -> Ack:
    """Return the answer to an operation.

    Raises:
        GraphboxError: what the shard answered instead.
    """
    return _read_ack(read_head(metadata))


def encode_error(error: GraphboxError) -> bytes:
    """Return the metadata of an answer that is an error."""
    said = {"kind": type(error).__name__, "message": error.message, "where": error.where, "hint": error.hint}
    return orjson.dumps({"error": said})


def decode_error(said: Mapping[str, Any]) -> GraphboxError:
    """Return the error that an answer says, of the class that was raised."""
    kind = getattr(errors, str(said.get("kind")), GraphboxError)
    if not (isinstance(kind, type) and issubclass(kind, GraphboxError)):
        kind = GraphboxError
    where, hint = said.get("where"), said.get("hint")
    return kind(
        str(said.get("message")),
        where=None if where is None else str(where),
        hint=None if hint is None else str(hint),
    )


def read_head(metadata: bytes | None) -> Mapping[str, Any]:
    """Return what the JSON of a message says.

    Raises:
        FormatError: the message is malformed.
        GraphboxError: the error that it says.
    """
    try:
        head = orjson.loads(b"" if metadata is None else memoryview(metadata))
    except orjson.JSONDecodeError as error:
        raise FormatError(f"expected a message in JSON, received {error}", where="metadata") from None
    if not isinstance(head, dict):
        raise FormatError(f"expected a message, received {type(head).__name__}", where="metadata")
    if "error" in head and isinstance(head["error"], dict):
        raise decode_error(head["error"])
    return head


def read_number(head: Mapping[str, Any], name: str) -> int:
    """Return a number of 0 or more.

    Raises:
        FormatError: there is no such number.
    """
    value = head.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FormatError(f"expected a number of 0 or more, received {value!r}", where=name)
    return value


def _parts(parts: Sequence[TablePart]) -> list[list[Any]]:
    return [[each.table, each.keys, each.lr, each.counts] for each in parts]


def _read_parts(head: Mapping[str, Any]) -> tuple[TablePart, ...]:
    try:
        found = tuple(TablePart(*each) for each in head["parts"])
    except (KeyError, TypeError):
        raise FormatError("expected a list of tables", where="parts") from None
    for each in found:
        is_right = (
            isinstance(each.table, str)
            and type(each.keys) is int
            and each.keys >= 0
            and (each.lr is None or isinstance(each.lr, int | float))
            and each.counts in (0, 1, 2)
        )
        if not is_right:
            raise FormatError(f"expected a table and numbers, received {each!r}", where="parts")
    return found


def _check_keys(parts: Sequence[TablePart], keys: Int64Array) -> None:
    named = sum(each.keys for each in parts)
    if named != len(keys):
        raise FormatError(f"expected {named} keys, as the tables say, received {len(keys)}", where="keys")


def _read_ack(head: Mapping[str, Any]) -> Ack:
    return Ack(read_number(head, "incarnation"), read_number(head, "applied"), read_number(head, "durable"))


def _column(batch: pa.RecordBatch | None, name: str) -> pa.Array:
    index = -1 if batch is None else batch.schema.get_field_index(name)
    if batch is None or index < 0:
        raise FormatError("expected a column of numbers, received none", where=name)
    column = batch.column(index)
    try:
        column.validate()
    except pa.ArrowInvalid as error:
        raise FormatError(f"the message is damaged: {error}", where=name) from None
    return column


def _numbers(column: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    if column.type != kind or column.null_count or kind not in (pa.int64(), pa.float32(), pa.float16()):
        raise FormatError(f"expected numbers of {kind} without gaps, received {column.type}", where="column")
    numbers: npt.NDArray[Any] = column.to_numpy()
    return numbers


def _list(batch: pa.RecordBatch | None, name: str, kind: pa.DataType) -> npt.NDArray[Any]:
    """Return the numbers of a column with one list."""
    column = _column(batch, name)
    if column.type != pa.list_(kind) or len(column) != 1 or column.null_count:
        raise FormatError(f"expected one list of {kind}, received {len(column)} of {column.type}", where=name)
    return _numbers(column.flatten(), kind)
