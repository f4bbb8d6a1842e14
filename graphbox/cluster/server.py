"""A shard's server: streams of pulls and operations, and calls for everything else, by Arrow Flight."""

from __future__ import annotations

import hmac
import ipaddress
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, NoReturn, Self

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import flight

from graphbox.cluster.messages import (
    ACK_SCHEMA,
    PROTOCOL,
    Ack,
    decode_operation,
    decode_pull,
    encode_ack,
    encode_error,
    encode_rows,
    read_head,
    read_number,
    rows_schema,
)
from graphbox.cluster.shard import Buffer, TableShard
from graphbox.errors import ConflictError, FormatError, GraphboxError, UsageError
from graphbox.memory import keep_freed_messages
from graphbox.native import Int64Array

__all__ = ["DURABLE_EVERY_SECONDS", "ShardServer"]

DURABLE_EVERY_SECONDS: Final = 10.0
"""The longest time that trainers keep what they sent, unless the disk is full."""
_SHUTDOWN_SECONDS: Final = 2.0
_LONG_CALLS: Final = ("save", "load")
"""Calls that have a stream of their own, which the trainer can cancel."""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ShardServer:
    """Serves a shard to trainers until it is closed.

    Args:
        shard: the rows.
        host: address to listen on.
        port: to listen on; 0: one that is free.
        token: which callers must send; None: none, on the loopback interface alone.
        durable_every_s: how often what has changed is made durable.

    Attributes:
        location: address for trainers.
        warning: why the last attempt to make it durable failed; None: it did not.

    Raises:
        UsageError: an address beyond loopback without a token, or an empty one.
        ConflictError: the port is taken, or the address is none of this host.
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
        if not token and (token is not None or not _is_loopback(host)):
            raise UsageError(
                f"expected a token for a shard that others can reach, received {host} without one",
                where="token",
                hint="give all hosts of the cluster the same token",
            )
        keep_freed_messages()
        self._shard = shard
        place = f"[{host}]" if ":" in host else host
        try:
            self._flight = _Flight(shard, f"grpc://{place}:{port}", token)
        except (pa.ArrowException, OSError) as error:
            raise ConflictError(
                f"cannot listen on {host}, port {port}: {' '.join(str(error).split())}",
                where=shard.name,
                hint="choose another port, or 0 for one that is free",
            ) from None
        self.location = f"grpc://{place}:{self._flight.port}"
        self._ends = threading.Event()
        self._durable_every_s = durable_every_s
        self.warning: GraphboxError | None = None
        self._saving = threading.Thread(target=self._make_durable, name=f"{shard.name}: disk", daemon=True)
        self._saving.start()

    def close(self) -> None:
        """Make durable what the shard has, and serve no more: trainers wait for a successor.

        Raises:
            DoesNotFitError: the disk is full; the shard serves no more all the same.
        """
        self._ends.set()
        self._saving.join()
        try:
            if self._shard.lease.holds:
                self._shard.make_durable()
        finally:
            self._shard.lease.end()
            # Streams of trainers that do not end them would let it wait for good.
            stopping = threading.Thread(target=self._flight.shutdown, daemon=True)
            stopping.start()
            stopping.join(_SHUTDOWN_SECONDS)

    def run(self) -> NoReturn:
        """Serve until the process is asked to end (SIGTERM, or Ctrl-C), and end it, also if it cannot close.

        The exit code is that of the error, 0 without one. Call it in the main thread.
        """
        is_asked = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: is_asked.set())
        is_asked.wait()
        code = 0
        try:
            self.close()
        except GraphboxError as error:
            sys.stderr.write(f"error: {error}\n")
            code = error.exit_code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # the interpreter would wait for the streams of trainers that are still connected

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_durable(self) -> None:
        while not self._ends.wait(self._durable_every_s):
            try:
                self._shard.make_durable()
                self.warning = None
            except GraphboxError as error:  # trainers keep what they sent, and say so when it is too much
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
        """Answer pulls, operations or one long call until the trainer ends the stream."""
        try:
            head = read_head(descriptor.command)
            _check_protocol(head)
            streams = {"pull": self._answer_pulls, "push": self._answer_operations, "call": self._answer_call}
            stream = streams.get(str(head.get("stream")))
            if stream is None:
                raise FormatError(
                    f"expected a stream of {', '.join(streams)}, received {head.get('stream')!r}"
                )
        except GraphboxError as error:
            writer.begin(ACK_SCHEMA)
            writer.write_metadata(pa.py_buffer(encode_error(error)))
            return
        stream(reader, writer, head)

    def _answer_call(self, reader: Any, writer: Any, head: Mapping[str, Any]) -> None:
        writer.begin(ACK_SCHEMA)
        for message in reader:
            try:
                call = self._call_named(str(head.get("call")), _LONG_CALLS)
                found = orjson.dumps(call(read_head(message.app_metadata), np.zeros(0, np.int64)))
            except GraphboxError as error:
                found = encode_error(error)
            writer.write_metadata(pa.py_buffer(found))

    def _call_named(
        self, name: str, known: Collection[str]
    ) -> Callable[[Mapping[str, Any], Int64Array], Any]:
        if name not in known:
            raise FormatError(f"expected a call of {', '.join(known)}, received {name!r}")
        return self._calls[name]

    def _answer_pulls(self, reader: Any, writer: Any, head: Mapping[str, Any]) -> None:
        is_half = head.get("wire") == "float16"
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

    def _answer_operations(self, reader: Any, writer: Any, _: Mapping[str, Any]) -> None:
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
            call = self._call_named(action.type, self._calls)
            text, _, keys = action.body.to_pybytes().partition(b"\n")
            if len(keys) % 8:
                raise FormatError(f"expected keys of 8 bytes, received {len(keys)} bytes", where=action.type)
            found = call(read_head(text), np.frombuffer(keys, np.int64))
            yield found if isinstance(found, bytes) else orjson.dumps(found)
        except GraphboxError as error:
            yield encode_error(error)

    def _hello(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        _check_protocol(asked)
        shard = self._shard
        ack = shard.greet(
            *(read_number(asked, name) for name in ("incarnation", "trainer", "life", "session"))
        )
        there = {"index": shard.index, "shards": shard.shards, "keeps": shard.keeps}
        return {**there, "applied": ack.applied, "durable": ack.durable}

    def _ready(self, asked: Mapping[str, Any]) -> Ack:
        """Return what the shard has of a trainer, when all that it sent before has been applied."""
        return self._shard.wait(*(read_number(asked, name) for name in ("incarnation", "trainer", "after")))

    def _make(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._ready(asked)
        settings = asked.get("settings")
        if not isinstance(settings, dict):
            raise FormatError("expected the settings of a table", where="settings")
        self._shard.make(_text(asked, "table"), settings)
        return {}

    def _contains(self, asked: Mapping[str, Any], keys: Int64Array) -> bytes:
        self._ready(asked)
        return self._shard.contains(_text(asked, "table"), keys).tobytes()

    def _rows(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._ready(asked)
        return {"rows": {name: len(table) for name, table in self._shard.tables.items()}}

    def _make_durable(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._ready(asked)
        self._shard.make_durable()
        return asdict(self._shard.ack(read_number(asked, "trainer")))

    def _save(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._ready(asked)
        self._shard.save(_text(asked, "table"), _text(asked, "place"))
        return {}

    def _load(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._ready(asked)
        self._shard.load(_text(asked, "table"), _text(asked, "place"))
        return {}

    def _shrink_report(self, asked: Mapping[str, Any], _: Int64Array) -> dict[str, Any]:
        self._ready(asked)
        return asdict(self._shard.shrink_report(_text(asked, "table")))


def _check_protocol(head: Mapping[str, Any]) -> None:
    if head.get("protocol") != PROTOCOL:
        raise FormatError(
            f"expected messages of version {PROTOCOL}, received {head.get('protocol')!r}",
            where="protocol",
            hint="install the same version of graphbox on all hosts",
        )


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str):
        raise FormatError(f"expected a text, received {value!r}", where=name)
    return value
