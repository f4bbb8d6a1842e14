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

from graphbox.deploy.signature import Signature
from graphbox.errors import InvalidRequestError, did_you_mean
from graphbox.server.body import Body, accepts, parse_object, shorten
from graphbox.server.kserve.checks import (
    INPUT_PARAMETERS,
    OUTPUT_PARAMETERS,
    REQUEST_PARAMETERS,
    check_all_given,
    check_parameters,
    check_routing_key,
    check_rows,
    check_shape,
    priority_of,
    refuse_sequences,
    repeated,
    spec_of,
    timeout_s_of,
)
from graphbox.server.kserve.outputs import OutputOptions, delivered, options_of
from graphbox.server.kserve.shared_memory import REGION_PARAMETERS, SharedMemory, region_part
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
    "RequestHead",
    "RequestHeads",
    "RequestedOutput",
    "decode_request",
    "decompress",
    "encode_response",
    "routing_key_in",
]

HEADER_LENGTH = "Inference-Header-Content-Length"

_REQUEST_FIELDS = frozenset({"id", "inputs", "outputs", "parameters"})
_INPUT_FIELDS = frozenset({"name", "shape", "datatype", "parameters", "data"})
_OUTPUT_FIELDS = frozenset({"name", "parameters"})
_BINARY_ALONE = frozenset({"binary_data"})
_NOTHING: frozenset[str] = frozenset()
_MAX_DIGITS = 20
# Of valid requests with other JSON parts; the memory of one is about a kilobyte.
_MOST_CACHED_HEADS = 256
_LONGEST_CACHED_HEAD_BYTES = 1024
_Place = tuple[str, str, list[int], int, int, str]
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
        options: further wishes about single outputs, by name.
    """

    id: str | None
    inputs: dict[str, Tensor]
    outputs: list[RequestedOutput]
    parameters: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    priority: int = 0
    options: Mapping[str, OutputOptions] = field(default_factory=dict)


@dataclass(slots=True)
class InferResponse:
    """A response ready to send.

    Attributes:
        pieces: of the body, in order; large tensors are not copied.
        header_length: size of the JSON part; None when the body is JSON alone.
    """

    pieces: list[bytes | memoryview]
    header_length: int | None


@dataclass(slots=True)
class RequestHead:
    """The JSON part of a request whose tensors are all binary: equal ones mean the same for a signature.

    Attributes:
        tensors: name, datatype, shape, begin and end in the bytes after the JSON part, and field.
        binary_bytes: size of all of them.
        outputs, parameters, timeout_s, priority: see `InferRequest`.
    """

    tensors: list[_Place]
    binary_bytes: int
    outputs: list[RequestedOutput]
    parameters: dict[str, Any]
    timeout_s: float | None
    priority: int


RequestHeads = dict[bytes, RequestHead]
"""Request heads of one signature and its limits, by their JSON: clients repeat them byte by byte."""


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
    body: Body,
    header_length: str | None,
    signature: Signature,
    limits: RequestLimits,
    heads: RequestHeads | None = None,
    regions: SharedMemory | None = None,
) -> InferRequest:
    """Parse and validate the body of an infer request.

    Args:
        body: the body, decompressed.
        header_length: the header ``Inference-Header-Content-Length``; None: the body is JSON alone; ``0``:
            the body is the only input of the model.
        signature: of the model.
        limits: on the request.
        heads: JSON parts that were valid for the same signature and limits; read and added to.
        regions: of shared memory; None: the server offers none.

    Raises:
        InvalidRequestError: any deviation from the protocol or from the signature.
        NotFoundError: a shared memory region is named that is not registered.
        RefusedError: 413, the JSON part is too large.
    """
    length = _json_length(header_length, len(body))
    if length == 0 and header_length is not None:
        return _decode_raw(body, signature, limits)
    view = memoryview(body)
    if heads is None or header_length is None or length > _LONGEST_CACHED_HEAD_BYTES:
        return _decode_json(view[:length], view[length:], signature, limits, regions)[0]
    json_part = bytes(view[:length])
    head = heads.get(json_part)
    if head is not None and head.binary_bytes == len(body) - length:
        return _decode_known(head, view[length:], signature)
    request, head = _decode_json(json_part, view[length:], signature, limits, regions)
    if head is not None:
        if len(heads) >= _MOST_CACHED_HEADS:
            heads.clear()
        heads[json_part] = head
    return request


def _decode_known(head: RequestHead, binary: memoryview, signature: Signature) -> InferRequest:
    """Return the request of a JSON part that was valid before, and of as many bytes after it."""
    tensors = {
        name: decode_binary(binary[begin:end], datatype, shape, where)
        for name, datatype, shape, begin, end, where in head.tensors
    }
    if signature.defaults:
        tensors = signature.completed(tensors)
    return InferRequest(None, tensors, head.outputs, head.parameters, head.timeout_s, head.priority)


def _decode_json(
    json_part: Body | memoryview,
    binary: memoryview,
    signature: Signature,
    limits: RequestLimits,
    regions: SharedMemory | None,
) -> tuple[InferRequest, RequestHead | None]:
    """Return the request of any JSON part, and what can be kept of it: None where it has more than settings.

    Raises:
        See `decode_request`.
    """
    message = parse_object(json_part, limits.max_json_bytes)
    _expect_fields(message, _REQUEST_FIELDS, "request")
    identifier = message.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidRequestError(f"expected a string, received {identifier!r:.64}", where="id")
    parameters = _parameters(message, "parameters", REQUEST_PARAMETERS | signature.parameters)
    refuse_sequences(parameters)
    check_routing_key(parameters)
    binary_outputs = _flag(parameters, "binary_data_output", "parameters", False)
    places: list[_Place] = []
    options: dict[str, OutputOptions] = {}
    inputs = _decode_inputs(message, binary, signature, limits.max_rows, places, regions)
    request = InferRequest(
        identifier,
        inputs,
        _decode_outputs(message.get("outputs"), signature, binary_outputs, options, regions),
        {name: value for name, value in parameters.items() if name in signature.parameters},
        timeout_s_of(parameters),
        priority_of(parameters),
        options,
    )
    if identifier is not None or options or len(places) < len(message["inputs"]):
        return request, None
    settings = request.outputs, request.parameters, request.timeout_s, request.priority
    return request, RequestHead(places, len(binary), *settings)


def routing_key_in(body: Body, header_length: str | None, max_json_bytes: int) -> bytes | None:
    """Return the parameter ``routing_key`` of a request that is not decoded yet.

    Args:
        body: the body, decompressed.
        header_length: see `decode_request`.
        max_json_bytes: largest JSON part.

    Returns:
        The key in UTF-8; None: there is none, or the request cannot be read, which `decode_request` reports.
    """
    try:
        json_part = memoryview(body)[: _json_length(header_length, len(body))]
        if len(json_part) > max_json_bytes or b"routing_key" not in bytes(json_part):
            return None
        parameters = parse_object(json_part, max_json_bytes).get("parameters")
    except (InvalidRequestError, RefusedError):
        return None
    key = parameters.get("routing_key") if isinstance(parameters, dict) else None
    return key.encode() if isinstance(key, str) and key else None


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
    message: dict[str, Any],
    binary: memoryview,
    signature: Signature,
    max_rows: int,
    places: list[_Place],
    regions: SharedMemory | None,
) -> dict[str, Tensor]:
    """Return the inputs; add the places of binary ones to ``places``, see `RequestHead.tensors`."""
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
        parameters = _parameters(entry, f"{where}.parameters", INPUT_PARAMETERS)
        if parameters and not REGION_PARAMETERS.isdisjoint(parameters):
            tensors[spec.name] = _of_region(entry, parameters, spec.datatype, shape, regions, where)
            continue
        size = _binary_size(entry, parameters, where)
        if size is None:
            tensors[spec.name] = decode_json(entry.get("data"), spec.datatype, shape, f"{where}.data")
            continue
        if offset + size > len(binary):
            raise InvalidRequestError(
                f"expected {size} bytes after the JSON, received {len(binary) - offset}",
                where=f"{where}.parameters.binary_data_size",
            )
        tensors[spec.name] = decode_binary(binary[offset : offset + size], spec.datatype, shape, where)
        places.append((spec.name, spec.datatype, shape, offset, offset + size, where))
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


def _of_region(
    entry: dict[str, Any],
    parameters: dict[str, Any],
    datatype: str,
    shape: Sequence[int],
    regions: SharedMemory | None,
    where: str,
) -> Tensor:
    """Return an input that is in shared memory."""
    part = region_part(parameters, regions, where)
    if "data" in entry or "binary_data_size" in parameters:
        raise InvalidRequestError(
            "expected either `data`, the parameter binary_data_size or a shared memory region", where=where
        )
    content = memoryview(b"") if part is None else part.read(where)
    return decode_binary(content, datatype, shape, where)


def _binary_size(entry: dict[str, Any], parameters: dict[str, Any], where: str) -> int | None:
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


def _decode_outputs(
    listed: Any,
    signature: Signature,
    binary: bool,
    options: dict[str, OutputOptions],
    regions: SharedMemory | None,
) -> list[RequestedOutput]:
    """Return the wanted outputs; add further wishes about them to ``options``."""
    specs = signature.outputs
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
        if not parameters.keys() <= _BINARY_ALONE:
            found = options_of(name, parameters, signature, regions, where)
            if found is not None:
                options[name] = found
        wanted[name] = RequestedOutput(name, _flag(parameters, "binary_data", f"{where}.parameters", binary))
    return list(wanted.values())


def encode_response(
    model: str, version: str, request: InferRequest, tensors: Mapping[str, Tensor], rows_sequence: int = 0
) -> InferResponse:
    """Return the response with the outputs the request asked for, in its order.

    A model version with row updates has the number of the last one as the parameter ``rows_sequence``.
    """
    pieces: list[bytes | memoryview] = []
    outputs: list[dict[str, Any]] = []
    placed: frozenset[str] = _NOTHING
    if request.options:
        tensors, placed = delivered(tensors, request.options)
    for wanted in request.outputs:
        tensor = tensors[wanted.name]
        entry: dict[str, Any] = {
            "name": wanted.name,
            "datatype": datatype_of(tensor.dtype),
            "shape": list(tensor.shape),
        }
        if wanted.name in placed:  # the client knows where
            pass
        elif wanted.binary:
            raw = encode_binary(tensor)
            entry["parameters"] = {"binary_data_size": len(raw)}
            pieces.append(raw)
        else:
            entry["data"] = encode_json(tensor)
        outputs.append(entry)
    message: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id is not None:
        message["id"] = request.id
    if rows_sequence:
        message["parameters"] = {"rows_sequence": rows_sequence}
    header = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
    return InferResponse([header, *pieces], len(header) if pieces else None)


def compress(body: bytes, accept_encoding: str) -> tuple[bytes, str | None]:
    """Return the body in an encoding the client accepts, and its name; None when left as it is."""
    if not accept_encoding or len(body) < _COMPRESS_FROM_BYTES:
        return body, None
    if accepts("gzip", accept_encoding):
        return gzip.compress(body, 1, mtime=0), "gzip"
    if accepts("deflate", accept_encoding):
        return zlib.compress(body, 1), "deflate"
    return body, None
