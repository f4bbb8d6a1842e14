"""Requests and responses of the infer route, to and from bytes.

This is the hot path of the server: one pass over the parsed JSON, no models of the fields, and tensors that
are views of the body where their encoding allows it.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import numpy as np
import orjson

from graphbox.artifact import TensorSpec
from graphbox.deploy.signature import Signature
from graphbox.errors import InvalidRequestError, did_you_mean
from graphbox.server.body import Body, parse_object, shorten
from graphbox.server.kserve.checks import (
    INPUT_PARAMETERS,
    OUTPUT_PARAMETERS,
    REQUEST_PARAMETERS,
    check_all_given,
    check_parameters,
    check_rows,
    check_shape,
    priority_of,
    refuse_classification,
    refuse_sequences,
    repeated,
    spec_of,
    timeout_s_of,
)
from graphbox.server.kserve.tensors import (
    DATATYPES,
    MAX_ELEMENT_BYTES,
    Tensor,
    datatype_of,
    decode_binary,
    decode_json,
    encode_binary,
    encode_json,
)
from graphbox.server.problem import RefusedError
from graphbox.server.settings import RequestLimits

__all__ = [
    "InferRequest",
    "InferResponse",
    "RequestedOutput",
    "decode_request",
    "decompress",
    "encode_response",
]

HEADER_LENGTH = "Inference-Header-Content-Length"

_REQUEST_FIELDS = frozenset({"id", "inputs", "outputs", "parameters"})
_INPUT_FIELDS = frozenset({"name", "shape", "datatype", "parameters", "data"})
_OUTPUT_FIELDS = frozenset({"name", "parameters"})
_MAX_DIGITS = 20
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
    """A valid request.

    Attributes:
        id: echoed in the response.
        inputs: a tensor for each input of the model.
        outputs: wanted outputs, in order.
        parameters: those that the model reads.
        timeout_s: time limit, or None.
        priority: requests of a lower one go first; 0: that of no wish.
    """

    id: str | None
    inputs: dict[str, Tensor]
    outputs: list[RequestedOutput]
    parameters: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    priority: int = 0


@dataclass(slots=True)
class InferResponse:
    """A response ready to send. ``header_length`` is None when the body is JSON alone."""

    body: bytes
    header_length: int | None


def decompress(body: Body, encoding: str, limit_bytes: int) -> Body:
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
            f"expected Content-Encoding gzip or deflate, received {encoding[:64]!r}",
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
    body: Body, header_length: str | None, signature: Signature, limits: RequestLimits
) -> InferRequest:
    """Parse and validate the body of an infer request.

    Args:
        body: the body, decompressed.
        header_length: the header ``Inference-Header-Content-Length``; None: the body is JSON alone; ``0``:
            the body is the only input of the model.
        signature: of the model.
        limits: on the request.

    Raises:
        InvalidRequestError: any deviation from the protocol or from the signature.
        NotFoundError: a shared memory region is named.
        RefusedError: 413, the JSON part is too large.
    """
    length = _json_length(header_length, len(body))
    if length == 0 and header_length is not None:
        return _decode_raw(body, signature, limits)
    view = memoryview(body)
    message = parse_object(view[:length], limits.max_json_bytes)
    _expect_fields(message, _REQUEST_FIELDS, "request")
    identifier = message.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidRequestError(f"expected a string, received {identifier!r:.64}", where="id")
    parameters = _parameters(message, "parameters", REQUEST_PARAMETERS | signature.parameters)
    refuse_sequences(parameters)
    binary_outputs = _flag(parameters, "binary_data_output", "parameters", False)
    return InferRequest(
        identifier,
        _decode_inputs(message, view[length:], signature, limits.max_rows),
        _decode_outputs(message.get("outputs"), signature.outputs, binary_outputs),
        {name: value for name, value in parameters.items() if name in signature.parameters},
        timeout_s_of(parameters),
        priority_of(parameters),
    )


def _json_length(header_length: str | None, body_bytes: int) -> int:
    """Return the size of the JSON part of the body."""
    if header_length is None:
        return body_bytes
    if not (header_length.isascii() and header_length.isdigit()):
        raise InvalidRequestError(
            f"expected a number of bytes, received {shorten(header_length)!r}", where=HEADER_LENGTH
        )
    if len(header_length) > _MAX_DIGITS or int(header_length) > body_bytes:
        raise InvalidRequestError(
            f"expected at most the body's {body_bytes} bytes, received {shorten(header_length)}",
            where=HEADER_LENGTH,
        )
    return int(header_length)


def _decode_raw(body: Body, signature: Signature, limits: RequestLimits) -> InferRequest:
    """Return the request of a body that is one tensor, whose shape follows from its size."""
    if len(signature.inputs) != 1:
        raise InvalidRequestError(
            f"expected a JSON part that names the inputs {', '.join(signature.inputs)}: only a model with "
            "one input can be sent its bytes alone",
            where=HEADER_LENGTH,
        )
    (spec,) = signature.inputs.values()
    fixed = math.prod(size for size in spec.shape if size >= 0)
    if spec.datatype == "BYTES":
        rows, rest = (1, int(fixed != 1))
    else:
        rows, rest = divmod(len(body), DATATYPES[spec.datatype].itemsize * max(fixed, 1))
    free = spec.shape.count(-1)
    if rest or free > 1 or (not free and rows != 1):
        raise InvalidRequestError(
            f"expected the bytes of a {spec.datatype} tensor of shape {list(spec.shape)} whose one free size "
            f"follows from them, received {len(body)} bytes",
            where=f"input `{spec.name}`",
            hint=f"name the shape in a JSON part, and its size in {HEADER_LENGTH}",
        )
    shape = [rows if size < 0 else size for size in spec.shape]
    check_rows(shape, spec, limits.max_rows, f"input `{spec.name}`")
    if spec.datatype != "BYTES":
        tensor = decode_binary(memoryview(body), spec.datatype, shape, f"input `{spec.name}`")
    elif len(body) > MAX_ELEMENT_BYTES:
        raise InvalidRequestError(
            f"expected an element of at most {MAX_ELEMENT_BYTES} bytes, received {len(body)}",
            where=f"input `{spec.name}`",
        )
    else:
        tensor = np.empty(shape, np.object_)
        tensor.fill(bytes(body))
    outputs = [RequestedOutput(name, True) for name in signature.outputs]
    return InferRequest(None, {spec.name: tensor}, outputs)


def _expect_fields(message: dict[str, Any], known: frozenset[str], where: str) -> None:
    if not message.keys() <= known:
        unknown = min(message.keys() - known)
        raise InvalidRequestError(
            f"expected the fields {', '.join(sorted(known))}, received `{shorten(unknown)}`",
            where=where,
            hint=did_you_mean(unknown, known),
        )


def _parameters(message: dict[str, Any], where: str, known: frozenset[str]) -> dict[str, Any]:
    parameters = message.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequestError("expected an object", where=where)
    check_parameters(parameters, where, known)
    return parameters


def _flag(parameters: dict[str, Any], name: str, where: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"expected true or false, received {value!r:.64}", where=f"{where}.{name}")
    return value


def _decode_inputs(
    message: dict[str, Any], binary: memoryview, signature: Signature, max_rows: int
) -> dict[str, Tensor]:
    specs = signature.inputs
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
        spec = spec_of(_name_of(entry, where), specs, where, "input")
        if spec.name in tensors:
            raise repeated(spec.name, where, "input")
        # The size of the body limits lists: several rows have one value each, or one row has many.
        limit = None if spec.name in signature.lists else max_rows
        shape = check_shape(entry.get("datatype"), entry.get("shape"), spec, limit, where)
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
    check_all_given(tensors, signature.required_inputs)
    return signature.completed(tensors) if signature.defaults else tensors


def _name_of(entry: dict[str, Any], where: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise InvalidRequestError("expected a string", where=f"{where}.name")
    return name


def _binary_size(entry: dict[str, Any], where: str) -> int | None:
    parameters = _parameters(entry, f"{where}.parameters", INPUT_PARAMETERS)
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in entry:
            raise InvalidRequestError("expected `data`, or the parameter binary_data_size", where=where)
        return None
    if type(size) is not int or size < 0:
        raise InvalidRequestError(
            f"expected a number of bytes, received {size!r:.64}", where=f"{where}.parameters.binary_data_size"
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
        name = spec_of(_name_of(entry, where), specs, where, "output").name
        if name in wanted:
            raise repeated(name, where, "output")
        parameters = _parameters(entry, f"{where}.parameters", OUTPUT_PARAMETERS)
        refuse_classification(parameters, where)
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
