"""Wire format of protobuf: reads fields in place and encodes them, without the packages protobuf and onnx."""

from __future__ import annotations

from collections.abc import Iterator

from graphbox.errors import FormatError

__all__ = ["WireReader", "integer_field", "message_field", "text_field", "varint"]


class WireReader:
    """Reads the fields of messages in place.

    Args:
        data: the outermost message.
        where: the file, named in messages.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self._data = memoryview(data)
        self._where = where

    def _fields(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield the fields of the message in ``data[start:stop]``.

        Yields:
            Number, wire type, value (of varints, else 0), start of the body, end of the field.

        Raises:
            FormatError: the bytes are no message.
        """
        while start < stop:
            field, wire_type, value, body, start = self._field(start, stop)
            yield field, wire_type, value, body, start

    def _text(self, start: int, stop: int) -> str:
        """Return a text.

        Raises:
            FormatError: it is not UTF-8; runtimes fail on such names when they are asked for them.
        """
        try:
            return bytes(self._data[start:stop]).decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"expected an ONNX model with names in UTF-8, received other bytes ({error})",
                where=self._where,
            ) from error

    def _field(self, position: int, stop: int) -> tuple[int, int, int, int, int]:
        """Read one field: its number, wire type, value when it is a varint, start of its body, end."""
        key, body = self._varint(position, stop)
        field, wire_type, value = key >> 3, key & 7, 0
        if wire_type == 0:
            value, end = self._varint(body, stop)
        elif wire_type == 2:
            length, body = self._varint(body, stop)
            end = body + length
        elif wire_type in {1, 5}:
            end = body + (8 if wire_type == 1 else 4)
        else:
            raise FormatError(
                f"expected an ONNX model, received the protobuf wire type {wire_type}", where=self._where
            )
        if end > stop or key >> 32:
            raise FormatError(
                "expected a whole ONNX model, received a truncated or damaged one", where=self._where
            )
        return field, wire_type, value, body, end

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if position >= stop:
                break
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise FormatError(
            "expected a whole ONNX model, received a truncated or damaged one", where=self._where
        )


def text_field(number: int, value: str) -> bytes:
    """Return a field of text."""
    return message_field(number, value.encode())


def message_field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, or of an encoded message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def integer_field(number: int, value: int) -> bytes:
    """Return a field of an integer; a negative one as its two's complement of 64 bits."""
    return varint(number << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def varint(value: int) -> bytes:
    """Return an integer of at least 0 in groups of 7 bits, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
