"""Server side of HTTP/2 connections that carry gRPC calls."""

from collections.abc import Sequence


OPENED: int = 0

MESSAGE: int = 1

CALL: int = 2

HALF_CLOSED: int = 3

CLOSED: int = 4

REFUSED: int = 5

class Http2Session:
    def __init__(self, *, streaming_paths: Sequence[str], large_paths: Sequence[str], announce_calls: bool, max_concurrent_calls: int, max_header_bytes: int, max_message_bytes: int, max_small_message_bytes: int, max_buffered_bytes: int) -> None: ...

    def receive(self, data: bytes) -> list: ...

    def output(self, max_bytes: int) -> bytes: ...

    def header(self, stream: int, name: str) -> bytes: ...

    def answer(self, stream: int, message: bytes, encoding: str = '') -> None: ...

    def send(self, stream: int, message: bytes) -> None: ...

    def finish(self, stream: int, status: int, text: str = '') -> None: ...

    def processed(self, stream: int, message_bytes: int) -> list: ...

    def refuse_incomplete(self, stalled_ns: int, status: int, text: str) -> list: ...

    def shut_down(self, last: bool) -> None: ...

    def ping(self) -> None: ...

    @property
    def buffered_bytes(self) -> int: ...

    @property
    def queued_bytes(self) -> int: ...

    @property
    def sent_bytes(self) -> int: ...

    @property
    def open_calls(self) -> int: ...

    @property
    def is_finished(self) -> bool: ...

    @property
    def failure(self) -> str: ...
