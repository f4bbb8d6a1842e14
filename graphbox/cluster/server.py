"""A shard's server: streams of pulls and operations, and calls for everything else, by Arrow Flight."""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, Self

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import flight

from graphbox.cluster.messages import (
    ACK_SCHEMA,
    PROTOCOL,
    decode_operation,
    decode_pull,
    encode_ack,
    encode_error,
    encode_rows,
    rows_schema,
)
from graphbox.cluster.shard import Buffer, TableShard
from graphbox.errors import FormatError, GraphboxError, UsageError
from graphbox.memory import keep_freed_messages
from graphbox.native import Int64Array

__all__ = ["DURABLE_EVERY_SECONDS", "ShardServer"]

DURABLE_EVERY_SECONDS: Final = 10.0
"""The longest time that trainers keep what they sent, as long as the disk has room."""


class ShardServer:
    """Serves a shard to trainers until it is closed.

    Args:
        shard: the rows.
        host: address to listen on.
        port: to listen on; 0: one that is free.
        token: which callers must send; None: none, on the loopback interface alone.
        durable_every_s: how often what has changed is made durable.

    Raises:
        UsageError: an address beyond loopback without a token.
        ConflictError: the port is taken.
    """

    def __init__(
        self,
        shard: TableShard,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        durable_every_s: float = DURABLE_EVERY_SECONDS,
    ) -> None:
        if token is None and not ipaddress.ip_address(host).is_loopback:
            raise UsageError(
                f"expected a token for a shard that others can reach, received {host} without one",
                where="token",
                hint="give all hosts of the cluster the same token",
            )
        keep_freed_messages()
        self._shard = shard
        self._flight = _Flight(shard, f"grpc://{host}:{port}", token)
        self.location = f"grpc://{host}:{self._flight.port}"
        self._ends = threading.Event()
        self._durable_every_s = durable_every_s
        self.warning: GraphboxError | None = None
        self._saving = threading.Thread(target=self._make_durable, name=f"{shard.name}: disk", daemon=True)
        self._saving.start()

    def close(self) -> None:
        """Stop serving, when the streams of trainers have ended, and make durable what the shard has."""
        self._ends.set()
        self._saving.join()
        self._flight.shutdown()
        if self._shard.lease.holds:
            self._shard.make_durable()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_durable(self) -> None:
        while not self._ends.wait(self._durable_every_s):
            try:
                self._shard.make_durable()
                self.warning = None
            except GraphboxError as error:  # trainers keep what they sent, and wait when that is too much
                self.warning = error


class _Token(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses callers without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:  # noqa: ARG002
        given = next(iter(headers.get("authorization", [])), "")
        if not hmac.compare_digest(given.encode(), self._expected):
            raise flight.FlightUnauthenticatedError("expected the token of the cluster, received another")


class _Flight(flight.FlightServerBase):  # type: ignore[misc]
    """The server of pyarrow: each stream is a thread."""

    def __init__(self, shard: TableShard, location: str, token: str | None) -> None:
        middleware = {} if token is None else {"token": _Token(token)}
        super().__init__(location, middleware=middleware)
        self._shard = shard
        self._calls: Mapping[str, Callable[[Mapping[str, Any], Int64Array], Any]] = {
            "hello": self._hello,
            "make": self._make,
            "contains": self._contains,
            "rows": self._rows,
            "make_durable": self._make_durable,
            "save": self._save,
            "load": self._load,
            "shrink_report": self._shrink_report,
        }

    # --- Streams

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
        """Answer pulls or operations until the trainer ends the stream."""
        try:
            head = _read_head(descriptor.command)
            _check_protocol(head)
            stream = {"pull": self._answer_pulls, "push": self._answer_operations}.get(head.get("stream", ""))
            if stream is None:
                raise FormatError(f"expected a stream of pulls or pushes, received {head.get('stream')!r}")
        except GraphboxError as error:
            writer.begin(ACK_SCHEMA)
            writer.write_metadata(pa.py_buffer(encode_error(error)))
            return
        stream(reader, writer, is_half=head.get("wire") == "float16")

    def _answer_pulls(self, reader: Any, writer: Any, *, is_half: bool) -> None:
        writer.begin(rows_schema(is_half))
        buffer = Buffer()
        for message in reader:
            try:
                asked = decode_pull(message.data, message.app_metadata)
                batch, metadata = encode_rows(self._shard.pull(asked, buffer, is_half=is_half))
            except GraphboxError as error:
                writer.write_metadata(pa.py_buffer(encode_error(error)))
            else:
                writer.write_with_metadata(batch, metadata)

    def _answer_operations(self, reader: Any, writer: Any, *, is_half: bool) -> None:  # noqa: ARG002
        writer.begin(ACK_SCHEMA)
        for message in reader:
            try:
                operation = decode_operation(message.data, message.app_metadata)
                metadata = encode_ack(self._shard.apply(operation))
            except GraphboxError as error:
                metadata = encode_error(error)
            writer.write_metadata(pa.py_buffer(metadata))

    # --- Calls

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:  # noqa: ARG002
        """Answer a call: JSON, then a line end and keys where it has some."""
        try:
            call = self._calls.get(action.type)
            if call is None:
                raise FormatError(f"expected a call of {', '.join(self._calls)}, received {action.type!r}")
            text, _, keys = action.body.to_pybytes().partition(b"\n")
            if len(keys) % 8:
                raise FormatError(f"expected keys of 8 bytes, received {len(keys)} bytes", where=action.type)
            found = call(_read_head(text), np.frombuffer(keys, np.int64))
            yield found if isinstance(found, bytes) else orjson.dumps(found)
        except GraphboxError as error:
            yield encode_error(error)

    def _hello(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        _check_protocol(asked)
        shard = self._shard
        ack = shard.wait(_number(asked, "incarnation"), _number(asked, "trainer"), 0)
        return {"index": shard.index, "shards": shard.shards, "applied": ack.applied, "durable": ack.durable}

    def _make(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        settings = asked.get("settings")
        if not isinstance(settings, dict):
            raise FormatError("expected the settings of a table", where="settings")
        self._shard.make(_text(asked, "table"), settings)
        return {}

    def _contains(self, asked: Mapping[str, Any], keys: Int64Array) -> bytes:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        return self._shard.contains(_text(asked, "table"), keys).tobytes()

    def _rows(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        return {"rows": {name: len(table) for name, table in self._shard.tables.items()}}

    def _make_durable(self, asked: Mapping[str, Any], _: Int64Array) -> bytes:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        self._shard.make_durable()
        return encode_ack(self._shard.ack(_number(asked, "trainer")))

    def _save(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        self._shard.save(_text(asked, "table"), _text(asked, "place"))
        return {}

    def _load(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        self._shard.load(_text(asked, "table"), _text(asked, "place"))
        return {}

    def _shrink_report(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._shard.wait(_number(asked, "incarnation"), 0, 0)
        return asdict(self._shard.shrink_report(_text(asked, "table")))


def _read_head(text: bytes) -> Mapping[str, Any]:
    try:
        head = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"expected a call in JSON, received {error}") from None
    if not isinstance(head, dict):
        raise FormatError(f"expected a call, received {type(head).__name__}")
    return head


def _check_protocol(head: Mapping[str, Any]) -> None:
    if head.get("protocol") != PROTOCOL:
        raise FormatError(
            f"expected messages of version {PROTOCOL}, received {head.get('protocol')!r}",
            where="protocol",
            hint="install the same version of graphbox on all hosts",
        )


def _number(asked: Mapping[str, Any], name: str) -> int:
    value = asked.get(name)
    if type(value) is not int or value < 0:
        raise FormatError(f"expected a number of 0 or more, received {value!r}", where=name)
    return value


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise FormatError(f"expected a text, received {value!r}", where=name)
    return value
