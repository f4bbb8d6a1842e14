"""Frames of HTTP/2 by hand, for requests that no client library sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _length(size: int) -> bytes:
    """A length of HPACK: 7 bits, then groups of 7."""
    if size < 127:
        return bytes((size,))
    rest, groups = size - 127, bytearray((127,))
    while rest >= 128:
        groups.append(rest & 127 | 128)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


def fields(headers: dict[str, str]) -> bytes:
    """Header fields as literals that are not stored."""
    return b"".join(
        b"\0" + _length(len(name)) + name.encode() + _length(len(value)) + value.encode()
        for name, value in headers.items()
    )


def call_headers(path: str = INFER, **more: str) -> dict[str, str]:
    standing = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    return {**standing, "content-type": "application/grpc", "te": "trailers", **more}


def message(content: bytes, announced: int | None = None) -> bytes:
    return struct.pack(">BI", 0, len(content) if announced is None else announced) + content


def call(stream: int, content: bytes, path: str = INFER) -> bytes:
    """A complete unary call."""
    head = frame(HEADERS, fields(call_headers(path)), flags=END_HEADERS, stream=stream)
    return head + frame(DATA, message(content), flags=END_STREAM, stream=stream)


@dataclass
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


def frames_of(data: bytes) -> Iterator[Frame]:
    """The complete frames of ``data``."""
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        if len(data) < 9 + size:
            return
        yield Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size])
        data = data[9 + size :]


def read_all(connection: socket.socket, timeout_s: float = 10.0) -> bytes:
    """Return all bytes that the server sends until it closes the connection.

    Raises:
        TimeoutError: it does not close it in time.
    """
    connection.settimeout(timeout_s)
    data = b""
    try:
        while received := connection.recv(65536):
            data += received
    except ConnectionResetError:
        pass
    return data
