"""Requests and responses of the infer route, to and from bytes.

The hot path of the server: one pass of a hand-written validator over the parsed JSON, no models
of the fields, and tensors as views into the body where their encoding allows it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from graphbox.artifact import TensorSpec
from graphbox.errors import InvalidRequestError, NotFoundError, did_you_mean
from graphbox.server.kserve.tensors import (
    Tensor,
    datatype_of,
    decode_binary,
    decode_json,
    encode_binary,
    encode_json,
)
from graphbox.server.problem import RefusedError

__all__ = [
    "InferRequest",
    "InferResponse",
    "RequestedOutput",
    "decode_request",
    "decompress",
    "encode_response",
]

_REQUEST_FIELDS = frozenset({"id", "inputs", "outputs", "parameters"})
_INPUT_FIELDS = frozenset({"name", "shape", "datatype", "parameters", "data"})
_OUTPUT_FIELDS = frozenset({"name", "parameters"})
_SCALARS = (str, int, float, bool)
# Below this, compression costs more than it saves.
_COMPRESS_FROM_BYTES = 1024
_GZIP, _ZLIB = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS


@dataclass(slots=True)
class RequestedOutput:
    """An output the client wants, and whether as bytes after the JSON."""

    name: str
    binary: bool


@dataclass(slots=True)
class InferRequest:
    """A valid request: a tensor for each input of the model, and the outputs wanted in order."""

    id: str | None
    parameters: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: list[RequestedOutput]


@dataclass(slots=True)
class InferResponse:
    """A response ready to send. ``header_length`` is None when the body is JSON alone."""

    body: bytes
    header_length: int | None


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Return the body of a request without its content encoding.

    Raises:
        RefusedError: 415 for an unknown encoding, 413 when the result exceeds ``limit_bytes``.
        InvalidRequestError: damaged or truncated data, or bytes after its end.
    """
    if encoding in {"", "identity"}:
        return body
    if encoding not in {"gzip", "deflate"}:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported_encoding",
            f"expected Content-Encoding gzip or deflate, received {encoding!r}",
            headers={"accept-encoding": "gzip, deflate"},
        )
    stream = zlib.decompressobj(_GZIP if encoding == "gzip" else _ZLIB)
    try:
        content = stream.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"expected a {encoding} body, received other data: {error}") from error
    if len(content) > limit_bytes:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "body_too_large",
            f"expected a body of at most {limit_bytes} bytes once decompressed, received a larger one",
        )
    if not stream.eof or stream.unused_data:
        state = "bytes after its end" if stream.eof else "a truncated one"
        raise InvalidRequestError(f"expected one complete {encoding} stream as body, received {state}")
    return content


def decode_request(
    body: bytes,
    header_length: str | None,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    max_rows: int | None,
) -> InferRequest:
    """Parse and validate the body of an infer request.

    Args:
        body: the body, decompressed.
        header_length: the header ``Inference-Header-Content-Length``; None: the body is JSON alone.
        inputs: the model's inputs by name.
        outputs: the model's outputs by name.
        max_rows: largest first dimension of an input whose first dimension is free.

    Raises:
        InvalidRequestError: any deviation from the protocol or from the model's inputs and outputs.
        NotFoundError: a shared memory region is named.
    """
    header, binary = _split(body, header_length)
    message = _parse(header)
    _expect_fields(message, _REQUEST_FIELDS, "request")
    identifier = message.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidRequestError(f"expected a string, received {identifier!r}", where="id")
    parameters = _parameters(message, "parameters")
    return InferRequest(
        identifier,
        parameters,
        _decode_inputs(message, binary, inputs, max_rows),
        _decode_outputs(
            message.get("outputs"), outputs, _flag(parameters, "binary_data_output", "parameters", False)
        ),
    )


def _split(body: bytes, header_length: str | None) -> tuple[memoryview, memoryview]:
    view = memoryview(body)
    if header_length is None:
        return view, view[len(view) :]
    where = "Inference-Header-Content-Length"
    if not (header_length.isascii() and header_length.isdigit()):
        raise InvalidRequestError(f"expected a number of bytes, received {header_length!r}", where=where)
    length = int(header_length)
    if length == 0:
        raise InvalidRequestError("expected the length of the JSON part, received 0", where=where)
    if length > len(view):
        raise InvalidRequestError(
            f"expected at most the body's {len(view)} bytes, received {length}", where=where
        )
    return view[:length], view[length:]


def _parse(header: memoryview) -> dict[str, Any]:
    if not header:
        raise InvalidRequestError("expected a JSON object, received an empty body")
    try:
        message = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(
            f"expected a JSON object, received text that is not JSON: {error}"
        ) from error
    if not isinstance(message, dict):
        raise InvalidRequestError(f"expected a JSON object, received {type(message).__name__}")
    return message


def _expect_fields(message: dict[str, Any], known: frozenset[str], where: str) -> None:
    if not message.keys() <= known:
        unknown = min(message.keys() - known)
        raise InvalidRequestError(
            f"expected the fields {', '.join(sorted(known))}, received `{shorten(unknown)}`",
            where=where,
            hint=did_you_mean(unknown, known),
        )


def _parameters(message: dict[str, Any], where: str) -> dict[str, Any]:
    parameters = message.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequestError("expected an object", where=where)
    for name, value in parameters.items():
        if not isinstance(value, _SCALARS):
            raise InvalidRequestError(
                "expected a string, a number, true or false", where=f"{where}.{shorten(name)}"
            )
    if "shared_memory_region" in parameters:
        raise NotFoundError(
            "no shared memory region is registered: this server does not offer shared memory",
            where=where,
            hint="send the tensor in the body",
        )
    return parameters


def _flag(parameters: dict[str, Any], name: str, where: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"expected true or false, received {value!r}", where=f"{where}.{name}")
    return value


def _decode_inputs(
    message: dict[str, Any], binary: memoryview, specs: Mapping[str, TensorSpec], max_rows: int | None
) -> dict[str, Tensor]:
    listed = message.get("inputs")
    if not isinstance(listed, list) or not listed:
        raise InvalidRequestError(
            f"expected a list of the inputs {', '.join(specs)},"
            f" received {'none' if not listed else 'another value'}",
            where="inputs",
        )
    tensors: dict[str, Tensor] = {}
    offset = 0
    for position, entry in enumerate(listed):
        where = f"inputs[{position}]"
        if not isinstance(entry, dict):
            raise InvalidRequestError("expected an object", where=where)
        _expect_fields(entry, _INPUT_FIELDS, where)
        spec = _spec_of(entry, specs, where, "input")
        if spec.name in tensors:
            raise InvalidRequestError(f"expected each input once, received `{spec.name}` twice", where=where)
        shape = _shape_of(entry, spec, max_rows, where)
        size = _binary_size(entry, where)
        if size is None:
            tensors[spec.name] = decode_json(entry.get("data"), spec.datatype, shape, f"{where}.data")
            continue
        if offset + size > len(binary):
            raise InvalidRequestError(
                f"expected {size} bytes after the JSON, received {len(binary) - offset}",
                where=f"{where}.parameters.binary_data_size",
            )
        tensors[spec.name] = decode_binary(binary[offset : offset + size], spec.datatype, shape, where)
        offset += size
    if offset != len(binary):
        raise InvalidRequestError(
            f"expected {offset} bytes after the JSON, as the inputs' binary_data_size say,"
            f" received {len(binary)}"
        )
    missing = [name for name in specs if name not in tensors]
    if missing:
        raise InvalidRequestError(
            f"expected the inputs {', '.join(specs)}; missing: {', '.join(missing)}", where="inputs"
        )
    return tensors


def _spec_of(entry: dict[str, Any], specs: Mapping[str, TensorSpec], where: str, kind: str) -> TensorSpec:
    name = entry.get("name")
    if not isinstance(name, str):
        raise InvalidRequestError("expected a string", where=f"{where}.name")
    spec = specs.get(name)
    if spec is None:
        raise InvalidRequestError(
            f"expected an {kind} of the model ({', '.join(specs)}), received `{shorten(name)}`",
            where=f"{where}.name",
            hint=did_you_mean(name, specs),
        )
    return spec


def _shape_of(entry: dict[str, Any], spec: TensorSpec, max_rows: int | None, where: str) -> list[int]:
    datatype = entry.get("datatype")
    if datatype != spec.datatype:
        raise InvalidRequestError(
            f"expected datatype {spec.datatype}, received {shorten(str(datatype))}", where=f"{where}.datatype"
        )
    shape = entry.get("shape")
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise InvalidRequestError("expected a list of sizes, integers from 0", where=f"{where}.shape")
    fits = len(shape) == len(spec.shape) and all(
        wanted in (-1, size) for size, wanted in zip(shape, spec.shape, strict=True)
    )
    if not fits:
        raise InvalidRequestError(
            f"expected shape {list(spec.shape)} (-1: any size), received {shape[:8]}", where=f"{where}.shape"
        )
    if max_rows is not None and shape and spec.shape[0] == -1 and shape[0] > max_rows:
        raise InvalidRequestError(
            f"expected at most {max_rows} rows in one request, received {shape[0]}", where=f"{where}.shape"
        )
    return shape


def _binary_size(entry: dict[str, Any], where: str) -> int | None:
    parameters = _parameters(entry, f"{where}.parameters")
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in entry:
            raise InvalidRequestError("expected `data`, or the parameter binary_data_size", where=where)
        return None
    if type(size) is not int or size < 0:
        raise InvalidRequestError(
            f"expected a number of bytes, received {size!r}", where=f"{where}.parameters.binary_data_size"
        )
    if "data" in entry:
        raise InvalidRequestError(
            "expected either `data` or the parameter binary_data_size, received both", where=where
        )
    return size


def _decode_outputs(listed: Any, specs: Mapping[str, TensorSpec], binary: bool) -> list[RequestedOutput]:
    if listed is None or listed == []:
        return [RequestedOutput(name, binary) for name in specs]
    if not isinstance(listed, list):
        raise InvalidRequestError("expected a list", where="outputs")
    wanted: dict[str, RequestedOutput] = {}
    for position, entry in enumerate(listed):
        where = f"outputs[{position}]"
        if not isinstance(entry, dict):
            raise InvalidRequestError("expected an object", where=where)
        _expect_fields(entry, _OUTPUT_FIELDS, where)
        name = _spec_of(entry, specs, where, "output").name
        if name in wanted:
            raise InvalidRequestError(f"expected each output once, received `{name}` twice", where=where)
        parameters = _parameters(entry, f"{where}.parameters")
        if parameters.get("classification"):
            raise InvalidRequestError(
                "the classification extension is not offered: the outputs are vectors, not class scores",
                where=f"{where}.parameters.classification",
            )
        wanted[name] = RequestedOutput(name, _flag(parameters, "binary_data", f"{where}.parameters", binary))
    return list(wanted.values())


def encode_response(
    model: str, version: str, request: InferRequest, tensors: Mapping[str, Tensor]
) -> InferResponse:
    """Return the response body with the outputs the request asked for, in its order."""
    pieces: list[bytes] = []
    outputs: list[dict[str, Any]] = []
    for wanted in request.outputs:
        tensor = tensors[wanted.name]
        entry: dict[str, Any] = {
            "name": wanted.name,
            "datatype": datatype_of(tensor.dtype),
            "shape": list(tensor.shape),
        }
        if wanted.binary:
            raw = encode_binary(tensor)
            entry["parameters"] = {"binary_data_size": len(raw)}
            pieces.append(raw)
        else:
            entry["data"] = encode_json(tensor)
        outputs.append(entry)
    message: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id is not None:
        message["id"] = request.id
    header = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
    if not pieces:
        return InferResponse(header, None)
    return InferResponse(b"".join([header, *pieces]), len(header))


def compress(body: bytes, accept_encoding: str) -> tuple[bytes, str | None]:
    """Return the body in an encoding the client accepts, and its name; None when left as it is."""
    if not accept_encoding or len(body) < _COMPRESS_FROM_BYTES:
        return body, None
    names: Sequence[str] = [part.partition(";")[0].strip() for part in accept_encoding.lower().split(",")]
    if "gzip" in names:
        return gzip.compress(body, 1, mtime=0), "gzip"
    if "deflate" in names:
        return zlib.compress(body, 1), "deflate"
    return body, None


def shorten(text: str, longest: int = 64) -> str:
    """Return ``text`` cut for a message."""
    return text if len(text) <= longest else text[:longest] + "…"
