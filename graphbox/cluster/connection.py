"""The streams of a trainer to one shard, as long as they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import flight

from graphbox.cluster.deadlines import Deadlines
from graphbox.cluster.messages import (
    ACK_SCHEMA,
    PROTOCOL,
    PULL_SCHEMA,
    PUSH_SCHEMA,
    Ack,
    Operation,
    Pull,
    Rows,
    decode_ack,
    decode_rows,
    encode_operation,
    encode_pull,
    read_head,
)
from graphbox.errors import ConflictError, GraphboxError, TimeLimitError, UsageError
from graphbox.native import Int64Array

__all__ = ["ShardAddress", "ShardConnection", "ShardUnreachableError"]

_BROKEN: Final = (pa.ArrowException, OSError, StopIteration, EOFError)
"""Errors of pyarrow when a stream has ended or a shard cannot be reached."""

_HELLO_SECONDS: Final = 5.0
"""After which another address is looked for: the host may be behind a partition."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """Where a shard is.

    Attributes:
        location: as Flight has it, `grpc://host:port`.
        incarnation: of the shard there.
    """

    location: str
    incarnation: int


class ShardUnreachableError(Exception):
    """The connection has ended; what was sent may have arrived or not. Never leaves the client."""


class ShardConnection:
    """Streams and calls of a trainer to one incarnation of a shard.

    Args:
        address: of the shard.
        trainer: number of the trainer.
        deadlines: ends waits.
        deadline_s: the longest wait for an answer.
        name: what messages call the shard.
        token: of the cluster.
        is_half: rows come as float16.

    Attributes:
        keeps: whether the shard keeps its rows in a folder.

    Raises:
        UsageError: an address of another form.
    """

    def __init__(
        self,
        address: ShardAddress,
        trainer: int,
        deadlines: Deadlines,
        *,
        deadline_s: float,
        name: str,
        token: str | None,
        is_half: bool,
    ) -> None:
        self.address = address
        self.name = name
        self._trainer = trainer
        self._deadlines = deadlines
        self._deadline_s = deadline_s
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._headers = headers
        self._calls: set[Any] = set()
        self.keeps = False
        try:
            self._client = flight.FlightClient(address.location)
        except pa.ArrowInvalid as error:
            raise UsageError(
                f"expected an address like grpc://10.0.0.7:7100, received {address.location!r}: {error}",
                where=name,
            ) from None
        self._streams: list[tuple[Any, Any]] = []
        self._wire = "float16" if is_half else "float32"

    def greet(self, index: int, shards: int, life: int, session: int) -> Ack:
        """Open the streams; return what the shard has of this trainer.

        Args:
            index: number that the shard should have.
            shards: how many there should be.
            life: number of this client.
            session: how often the trainers in step were started.

        Raises:
            ShardUnreachableError: the shard does not answer.
            ConflictError: it is another shard than the one that was looked for.
        """
        hello = {"protocol": PROTOCOL, "life": life, "session": session}
        try:
            said = self.call("hello", hello, limit_s=min(_HELLO_SECONDS, self._deadline_s))
        except TimeLimitError as error:  # there may be a successor, which is somewhere else
            raise ShardUnreachableError(error.message) from None
        there = (said["index"], said["shards"])
        if there != (index, shards):
            raise ConflictError(
                f"expected shard {index} of {shards}, found shard {there[0]} of {there[1]}",
                where=self.address.location,
                hint="trainers and shards must belong to the same run",
            )
        self.keeps = bool(said["keeps"])
        self._pulls = self._stream({"stream": "pull", "wire": self._wire}, PULL_SCHEMA)
        self._pushes = self._stream({"stream": "push"}, PUSH_SCHEMA)
        self._streams = [self._pulls, self._pushes]
        return Ack(self.address.incarnation, said["applied"], said["durable"])

    def cancel(self) -> None:
        """Let waits for answers end, in other threads too."""
        for _, reader in (*self._streams, *self._calls):
            reader.cancel()

    def close(self) -> None:
        """End the streams."""
        self.cancel()
        for writer, _ in self._streams:
            try:
                writer.close()
            except _BROKEN:
                continue  # it has ended already
        self._client.close()

    # --- Rows

    def send_pull(self, pull: Pull) -> None:
        """Ask for rows."""
        batch, metadata = encode_pull(replace(pull, incarnation=self.address.incarnation))
        self._send(self._pulls, batch, metadata, "pull")

    def receive_rows(self) -> Rows:
        """Return the rows of the first pull that was not answered yet."""
        return self._receive(self._pulls, "pull", lambda said: decode_rows(said.data, said.app_metadata))

    # --- Operations

    def send(self, operation: Operation) -> None:
        """Send an operation."""
        batch, metadata = encode_operation(replace(operation, incarnation=self.address.incarnation))
        self._send(self._pushes, batch, metadata, operation.kind)

    def receive_ack(self) -> Ack:
        """Return the answer to the first operation that was not answered yet."""
        return self._receive(self._pushes, "push", lambda said: decode_ack(said.app_metadata))

    # --- Calls

    def make_durable(self, after: int) -> Ack:
        """Let the shard keep what was applied; return what it has of this trainer.

        Args:
            after: number of this trainer's operations that must have been applied before.
        """
        said = self.call("make_durable", {}, after=after)
        return Ack(self.address.incarnation, said["applied"], said["durable"])

    def call(
        self,
        name: str,
        asked: Mapping[str, Any],
        keys: Int64Array | None = None,
        *,
        after: int = 0,
        limit_s: float | None = None,
    ) -> Any:
        """Return the answer to a call: bytes if keys were given, else what the JSON says.

        Args:
            name: of the call.
            asked: its arguments.
            keys: int64 [n], of those that take keys.
            after: number of this trainer's operations that must have been applied before.
            limit_s: the longest wait; None: that of the connection.

        Raises:
            ShardUnreachableError: the connection has ended.
            TimeLimitError: the shard did not answer.
            GraphboxError: it refuses.
        """
        body = self._head(asked, after) + (
            b"" if keys is None else b"\n" + np.ascontiguousarray(keys).tobytes()
        )
        options = flight.FlightCallOptions(timeout=limit_s or self._deadline_s, headers=self._headers)
        try:
            answers = list(self._client.do_action(flight.Action(name, body), options))
        except flight.FlightTimedOutError:
            raise self._late(name) from None
        except flight.FlightUnauthenticatedError as error:
            raise self._refused(error) from None
        except _BROKEN as error:
            raise ShardUnreachableError(_reason_of(error)) from error
        content = answers[0].body.to_pybytes()
        if keys is not None and not content.startswith(b'{"error"'):
            return content
        return read_head(content)

    def long_call(self, name: str, asked: Mapping[str, Any], *, after: int, limit_s: float) -> None:
        """Wait for a call that may take long; :meth:`cancel` ends it.

        Raises:
            ShardUnreachableError: the connection has ended.
            TimeLimitError: it took longer than ``limit_s``.
            GraphboxError: the shard refuses.
        """
        stream = self._stream({"stream": "call", "call": name}, ACK_SCHEMA)
        self._calls.add(stream)
        try:
            stream[0].write_metadata(pa.py_buffer(self._head(asked, after)))
            self._receive(stream, name, lambda said: read_head(said.app_metadata), limit_s)
        except _BROKEN as error:
            raise ShardUnreachableError(_reason_of(error)) from error
        finally:
            self._calls.discard(stream)
            stream[1].cancel()

    # --- Details

    def _head(self, asked: Mapping[str, Any], after: int) -> bytes:
        head = {"incarnation": self.address.incarnation, "trainer": self._trainer, "after": after}
        return orjson.dumps({**head, **asked})

    def _stream(self, asked: Mapping[str, Any], schema: pa.Schema) -> tuple[Any, Any]:
        command = orjson.dumps({"protocol": PROTOCOL, **asked})
        try:
            writer, reader = self._client.do_exchange(
                flight.FlightDescriptor.for_command(command), flight.FlightCallOptions(headers=self._headers)
            )
            writer.begin(schema)
        except _BROKEN as error:
            raise ShardUnreachableError(_reason_of(error)) from error
        return writer, reader

    def _send(self, stream: tuple[Any, Any], batch: pa.RecordBatch, metadata: bytes, what: str) -> None:
        writer, reader = stream
        with self._deadlines.within(self._deadline_s, reader.cancel) as is_late:
            try:
                writer.write_with_metadata(batch, pa.py_buffer(metadata))
            except _BROKEN as error:
                raise self._failed(error, what, is_late=is_late()) from error

    def _receive(
        self,
        stream: tuple[Any, Any],
        what: str,
        decode: Callable[[flight.FlightStreamChunk], ResultT],
        limit_s: float | None = None,
    ) -> ResultT:
        _, reader = stream
        with self._deadlines.within(limit_s or self._deadline_s, reader.cancel) as is_late:
            try:
                said = reader.read_chunk()
            except _BROKEN as error:
                raise self._failed(error, what, is_late=is_late()) from error
        return decode(said)

    def _failed(self, error: BaseException, what: str, *, is_late: bool) -> Exception:
        if is_late:
            return self._late(what)
        if isinstance(error, flight.FlightUnauthenticatedError):
            return self._refused(error)
        return ShardUnreachableError(_reason_of(error))

    def _late(self, what: str) -> TimeLimitError:
        return TimeLimitError(
            f"waited {self._deadline_s:g} seconds for the answer to a {what}",
            where=f"trainer {self._trainer}, {self.name} at {self.address.location}",
            hint="look at that host; where it only takes longer, give the trainers a longer deadline",
        )

    def _refused(self, error: BaseException) -> GraphboxError:
        return GraphboxError(
            f"the shard refuses this trainer: {_reason_of(error)}",
            where=f"{self.name} at {self.address.location}",
            hint="give all hosts of the cluster the same token",
        )


def _reason_of(error: BaseException) -> str:
    """Return what pyarrow says of a failure in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
