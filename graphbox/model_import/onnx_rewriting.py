"""Makes an ONNX file self-contained, and declares the shapes of its inputs and outputs.

An ONNX file may keep the data of its tensors in other files. graphbox loads self-contained models alone
(`graphbox.artifact.onnx_inspection`), so data in other files is moved in, once, when a model is added.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from math import prod
from pathlib import Path

from graphbox.artifact.onnx_inspection import (
    CHILDREN,
    MAX_DEPTH,
    MODEL_GRAPH,
    Dimension,
    OnnxSummary,
)
from graphbox.artifact.protobuf import WireReader, integer_field, message_field, text_field, varint
from graphbox.errors import DataError, FormatError, NotFoundError, UnsupportedError

__all__ = ["MAX_ONNX_BYTES", "self_contained_model", "with_shapes"]

MAX_ONNX_BYTES = (1 << 31) - 1
"""Most bytes of one protobuf message, and so of an ONNX file that holds its own data."""

_GRAPH_INPUT, _GRAPH_OUTPUT, _VALUE_NAME = 11, 12, 1
_TENSOR_SIZES, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_KEY, _VALUE = 1, 2
# Bytes of an element, by TensorProto.DataType; strings cannot be external, and types of 4 bits share bytes.
_ELEMENT_BYTES = {
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20), 1),
    **dict.fromkeys((4, 5, 10, 16), 2),
    **dict.fromkeys((1, 6, 12), 4),
    **dict.fromkeys((7, 11, 13, 14), 8),
    15: 16,
}


def self_contained_model(path: Path) -> bytes:
    """Return the content of an ONNX file with the data of all its tensors inside.

    Args:
        path: of the file; data in other files has to be in its folder or below.

    Raises:
        NotFoundError: the file, or one with its data, does not exist.
        FormatError: the bytes are no ONNX model.
        DataError: data lies outside the folder, behind a link, or is shorter than its tensor.
        UnsupportedError: the model is larger than an ONNX file can be.
    """
    size = path.stat().st_size
    if size > MAX_ONNX_BYTES:
        raise _too_large(size, path)
    content = path.read_bytes()
    embedding = _Embedding(content, path)
    parts = embedding.rewritten(0, len(content), "Model", 0)
    return content if parts is None else b"".join(parts)


def with_shapes(
    model: bytes, summary: OnnxSummary, shapes: Mapping[str, tuple[Dimension, ...]], where: str
) -> bytes:
    """Return a model that declares other shapes.

    Args:
        model: an ONNX file's content.
        summary: of it.
        shapes: new ones of inputs and outputs of the main graph, by name; a dimension of any size is a name.
        where: the file, named in messages.
    """
    return _Shapes(model, summary, shapes, where).rewritten() if shapes else model


class _Embedding(WireReader):
    """Replaces references to data in other files by the data."""

    def __init__(self, model: bytes, path: Path) -> None:
        super().__init__(model, str(path))
        self._folder = path.parent
        self._bytes = len(model)

    def rewritten(self, start: int, stop: int, message: str, depth: int) -> list[bytes] | None:
        """Return the parts of a message with its data inside; None: it is there already."""
        if depth > MAX_DEPTH:
            raise FormatError(
                f"expected at most {MAX_DEPTH} nested messages, received more", where=self._where
            )
        if message == "Tensor":
            return self._tensor(start, stop)
        children = CHILDREN[message]
        parts: list[bytes] = []
        copied = start
        position = start
        for field, wire_type, _, body, end in self._fields(start, stop):
            if wire_type == 2 and field in children:
                inner = self.rewritten(body, end, children[field], depth + 1)
                if inner is not None:
                    parts.append(bytes(self._data[copied:position]))
                    parts.append(varint(field << 3 | 2) + varint(sum(map(len, inner))))
                    parts += inner
                    copied = end
            position = end
        if not parts:
            return None
        return [*parts, bytes(self._data[copied:stop])]

    def _tensor(self, start: int, stop: int) -> list[bytes] | None:
        entries: dict[str, str] = {}
        sizes: list[int] = []
        element_type, name, is_external = 0, "", False
        kept: list[bytes] = []
        position = start
        for field, wire_type, value, body, end in self._fields(start, stop):
            if field == _TENSOR_EXTERNAL and wire_type == 2:
                key, text = self._entry(body, end)
                entries[key] = text
            elif field == _TENSOR_LOCATION and wire_type == 0:
                is_external = bool(value)
            else:
                kept.append(bytes(self._data[position:end]))
            if field == _TENSOR_SIZES:
                sizes += [value] if wire_type == 0 else self._packed(body, end)
            elif field == _TENSOR_TYPE and wire_type == 0:
                element_type = value
            elif field == _TENSOR_NAME and wire_type == 2:
                name = self._text(body, end)
            position = end
        if not is_external and not entries:
            return None
        where = f"{self._where}, tensor `{name}`"
        if element_type not in _ELEMENT_BYTES:
            raise UnsupportedError(
                f"expected external data of numbers, received the type {element_type} of ONNX",
                where=where,
                hint="save the model with its data inside (onnx.save without save_as_external_data)",
            )
        data = self._read(entries, prod(sizes) * _ELEMENT_BYTES[element_type], where)
        return [*kept, varint(_TENSOR_RAW << 3 | 2) + varint(len(data)), data]

    def _read(self, entries: Mapping[str, str], size: int, where: str) -> bytes:
        """Return the data of a tensor of ``size`` bytes."""
        file = self._file(entries.get("location", ""), where)
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(size)))
        except ValueError:
            offset, length = -1, -1
        if offset < 0 or length != size:
            raise DataError(
                f"expected an offset and {size} bytes of data, received offset {entries.get('offset')!r:.40} "
                f"and length {entries.get('length')!r:.40}",
                where=where,
            )
        if offset + size > file.stat().st_size:
            raise DataError(
                f"expected {size} bytes at {offset}, the file has {file.stat().st_size} bytes",
                where=f"{where}, data in {file}",
            )
        self._bytes += size
        if self._bytes > MAX_ONNX_BYTES:
            raise _too_large(self._bytes, Path(self._where))
        with file.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(size)
        if len(data) != size:
            raise DataError(f"expected {size} bytes, the file became shorter", where=str(file))
        return data

    def _file(self, location: str, where: str) -> Path:
        parts = location.split("/")
        if not location or "\0" in location or location.startswith("/") or ".." in parts:
            raise DataError(
                f"expected data in the folder of the model, received the location {location!r:.200}",
                where=where,
                hint="put the file with the data beside the model, and name it without a folder",
            )
        path = self._folder
        for part in parts:
            path = path / part
            try:
                mode = path.lstat().st_mode
            except (OSError, ValueError) as error:
                raise NotFoundError(
                    f"expected the data of a tensor in {location!r:.200}, found no such file", where=where
                ) from error
            if stat.S_ISLNK(mode):
                raise DataError(
                    f"expected a plain file beside the model, {part!r:.200} is a symbolic link",
                    where=where,
                    hint="copy the model with its data to a folder of its own: cp -rL",
                )
        if not stat.S_ISREG(mode):
            raise DataError(f"expected a plain file, {location!r:.200} is none", where=where)
        return path

    def _entry(self, start: int, stop: int) -> tuple[str, str]:
        found = {_KEY: "", _VALUE: ""}
        for field, wire_type, _, body, end in self._fields(start, stop):
            if wire_type == 2 and field in found:
                found[field] = self._text(body, end)
        return found[_KEY], found[_VALUE]

    def _packed(self, start: int, stop: int) -> list[int]:
        values = []
        while start < stop:
            value, start = self._varint(start, stop)
            values.append(value)
        return values


class _Shapes(WireReader):
    """Replaces the declarations of inputs and outputs."""

    def __init__(
        self, model: bytes, summary: OnnxSummary, shapes: Mapping[str, tuple[Dimension, ...]], where: str
    ) -> None:
        super().__init__(model, where)
        self._types = summary.element_types
        self._shapes = shapes

    def rewritten(self) -> bytes:
        """Return the model with the new declarations."""
        parts: list[bytes] = []
        position = 0
        for field, wire_type, _, body, end in self._fields(0, len(self._data)):
            if (field, wire_type) == (MODEL_GRAPH, 2):
                graph = self._graph(body, end)
                parts += [varint(field << 3 | 2) + varint(sum(map(len, graph))), *graph]
            else:
                parts.append(bytes(self._data[position:end]))
            position = end
        return b"".join(parts)

    def _graph(self, start: int, stop: int) -> list[bytes]:
        parts: list[bytes] = []
        position = copied = start
        for field, wire_type, _, body, end in self._fields(start, stop):
            if field in {_GRAPH_INPUT, _GRAPH_OUTPUT} and wire_type == 2:
                name = self._name(body, end)
                if name in self._shapes:
                    parts += [bytes(self._data[copied:position]), self._declaration(field, name)]
                    copied = end
            position = end
        return [*parts, bytes(self._data[copied:stop])]

    def _name(self, start: int, stop: int) -> str:
        name = ""
        for field, wire_type, _, body, end in self._fields(start, stop):
            if (field, wire_type) == (_VALUE_NAME, 2):
                name = self._text(body, end)
        return name

    def _declaration(self, field: int, name: str) -> bytes:
        sizes = (
            text_field(2, size) if isinstance(size, str) else integer_field(1, size)
            for size in self._shapes[name]
        )
        dimensions = b"".join(message_field(1, size) for size in sizes)
        tensor = integer_field(1, self._types[name]) + message_field(2, dimensions)
        return message_field(field, text_field(1, name) + message_field(2, message_field(1, tensor)))


def _too_large(size: int, path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"expected an ONNX model of at most {MAX_ONNX_BYTES:,} bytes with its data, the most that a file of "
        f"its format can hold, received {size:,}",
        where=str(path),
        hint="save it in float16 or int8, or add its embeddings as a table of rows of their own",
    )
