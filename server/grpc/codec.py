"""Requests and responses of ModelInfer, to and from messages of gRPC."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from graphbox.deploy.signature import Signature
from graphbox.errors import InvalidRequestError
from graphbox.server.grpc.inference_messages import (
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)
from graphbox.server.kserve.checks import (
    INPUT_PARAMETERS,
    OUTPUT_PARAMETERS,
    REQUEST_PARAMETERS,
    check_all_given,
    check_parameters,
    check_routing_key,
    check_shape,
    priority_of,
    refuse_sequences,
    repeated,
    spec_of,
    timeout_s_of,
)
from graphbox.server.kserve.codec import decompress
from graphbox.server.kserve.outputs import OutputOptions, delivered, options_of
from graphbox.server.kserve.shared_memory import REGION_PARAMETERS, RegionPart, SharedMemory, region_part
from graphbox.server.kserve.tensors import (
    DATATYPES,
    MAX_ELEMENT_BYTES,
    Tensor,
    datatype_of,
    decode_binary,
    encode_binary,
)
from graphbox.server.settings import RequestLimits

__all__ = [
    "InferRequest",
    "compress",
    "decode_request",
    "encode_response",
    "encode_stream_error",
    "encode_stream_response",
    "parse",
    "plain_message",
    "with_rows_sequence",
]

AnyMessage = TypeVar("AnyMessage", bound=Message)

# A parameter of streams, about models that answer a request several times: none of this server does.
_EMPTY_FINAL_RESPONSE = "triton_enable_empty_final_response"
_KNOWN_PARAMETERS = REQUEST_PARAMETERS | {_EMPTY_FINAL_RESPONSE}
_COMPRESS_FROM_BYTES = 1024
_MOST_CACHED_HEADS = 1024
# Keys of fields of ModelInferResponse and ModelStreamInferResponse: number << 3 | 2.
_ID_KEY = b"\x1a"
_RAW_CONTENTS_KEY = b"\x32"
_INFER_RESPONSE_KEY = b"\x12"
_FIELD_OF: dict[str, str] = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_final_response = ModelInferResponse(parameters={"triton_final_response": {"bool_param": True}})  # type: ignore[dict-item]
_FINAL_RESPONSE: bytes = _final_response.SerializeToString()
_heads: dict[tuple[Any, ...], bytes] = {}


@dataclass(slots=True)
class InferRequest:
    """A valid request.

    Attributes:
        id: echoed in the response.
        inputs: a tensor for each input of the model.
        outputs: names of the wanted outputs, in order.
        parameters: those that the model reads.
        timeout_s: time limit, or None.
        priority: requests of a lower one go first; 0: that of no wish.
        options: further wishes about single outputs, by name.
    """

    id: str
    inputs: dict[str, Tensor]
    outputs: Sequence[str]
    parameters: Mapping[str, Any]
    timeout_s: float | None
    priority: int
    options: Mapping[str, OutputOptions] = field(default_factory=dict)


def parse(kind: Callable[[bytes], AnyMessage], message: bytes) -> AnyMessage:
    """Return a parsed message.

    Args:
        kind: ``FromString`` of its class.
        message: its bytes.

    Raises:
        InvalidRequestError: they are none of that class.
    """
    try:
        return kind(message)
    except DecodeError as error:
        raise InvalidRequestError(
            f"expected a message of protocol buffers: {error}", where="message"
        ) from error


def plain_message(message: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Return a compressed message without its compression.

    Raises:
        InvalidRequestError: the call names no compression, or the message is damaged.
        RefusedError: 415 for an unknown compression, 413 when the result exceeds ``limit_bytes``.
    """
    if encoding in {"", "identity"}:
        raise InvalidRequestError(
            "expected the compression of the message, received none", where="grpc-encoding"
        )
    return bytes(decompress(message, encoding, limit_bytes))


def compress(message: bytes, encoding: str) -> tuple[bytes, str]:
    """Return a message in an encoding, ``gzip`` or ``deflate``, and its name; empty: it is left as it is."""
    if encoding not in {"gzip", "deflate"} or len(message) < _COMPRESS_FROM_BYTES:
        return message, ""
    return zlib.compress(message, 1, wbits=31 if encoding == "gzip" else 15), encoding


def decode_request(
    request: ModelInferRequest,
    signature: Signature,
    limits: RequestLimits,
    regions: SharedMemory | None = None,
) -> InferRequest:
    """Return a valid request.

    Args:
        request: the parsed message.
        signature: of the model.
        limits: on the request.
        regions: of shared memory; None: the server offers none.

    Raises:
        InvalidRequestError: any deviation from the protocol or from the signature.
        NotFoundError: a shared memory region is named that is not registered.
    """
    inputs = _decode_inputs(request, signature, limits.max_rows, regions)
    options: dict[str, OutputOptions] = {}
    outputs = (
        _decode_outputs(request, signature, options, regions) if request.outputs else [*signature.outputs]
    )
    if not request.parameters:
        return InferRequest(request.id, inputs, outputs, {}, None, 0, options)
    parameters = _values(request.parameters)
    check_parameters(parameters, "parameters", _KNOWN_PARAMETERS | signature.parameters)
    refuse_sequences(parameters)
    check_routing_key(parameters)
    return InferRequest(
        request.id,
        inputs,
        outputs,
        {name: value for name, value in parameters.items() if name in signature.parameters},
        timeout_s_of(parameters),
        priority_of(parameters),
        options,
    )


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as Python values; one without a value is None."""
    found = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        found[name] = None if kind is None else getattr(parameter, kind)
    return found


def _decode_inputs(
    request: ModelInferRequest, signature: Signature, max_rows: int, regions: SharedMemory | None
) -> dict[str, Tensor]:
    specs = signature.inputs
    if not request.inputs:
        raise InvalidRequestError(
            f"expected a list of the inputs {', '.join(specs)}, received none", where="inputs"
        )
    raw = request.raw_input_contents
    parts: dict[int, RegionPart] = {}
    in_message = len(request.inputs)
    if len(raw) != in_message:
        parts = _parts(request, regions)
        in_message -= len(parts)
    if raw and len(raw) != in_message:
        raise InvalidRequestError(
            f"expected raw contents for each of the {in_message} inputs, or for none, received {len(raw)}",
            where="raw_input_contents",
        )
    tensors: dict[str, Tensor] = {}
    raw_position = 0
    for position, entry in enumerate(request.inputs):
        where = f"inputs[{position}]"
        spec = spec_of(entry.name, specs, where, "input")
        if spec.name in tensors:
            raise repeated(spec.name, where, "input")
        limit = None if spec.name in signature.lists else max_rows
        shape = check_shape(entry.datatype, list(entry.shape), spec, limit, where)
        if entry.parameters:
            parameters = _values(entry.parameters)
            check_parameters(parameters, f"{where}.parameters", INPUT_PARAMETERS)
            if position not in parts and region_part(parameters, regions, where) is not None:
                raise InvalidRequestError(
                    "expected either raw contents or a shared memory region, received both", where=where
                )
            if position in parts:
                content = parts[position].read(where)
                tensors[spec.name] = decode_binary(content, spec.datatype, shape, where)
                continue
        if not raw:
            tensors[spec.name] = _decode_contents(entry.contents, spec.datatype, shape, f"{where}.contents")
            continue
        if entry.HasField("contents"):
            raise InvalidRequestError(
                "expected either contents or raw_input_contents, received both", where=f"{where}.contents"
            )
        tensors[spec.name] = decode_binary(memoryview(raw[raw_position]), spec.datatype, shape, where)
        raw_position += 1
    check_all_given(tensors, signature.required_inputs)
    return signature.completed(tensors) if signature.defaults else tensors


def _parts(request: ModelInferRequest, regions: SharedMemory | None) -> dict[int, RegionPart]:
    """Return the parts of shared memory of the inputs that are in it, by position."""
    parts = {}
    for position, entry in enumerate(request.inputs):
        if not entry.parameters or REGION_PARAMETERS.isdisjoint(entry.parameters):
            continue
        where = f"inputs[{position}]"
        part = region_part(_values(entry.parameters), regions, where)
        if part is not None and entry.HasField("contents"):
            raise InvalidRequestError(
                "expected either contents or a shared memory region, received both", where=where
            )
        if part is not None:
            parts[position] = part
    return parts


def _decode_contents(
    contents: InferTensorContents, datatype: str, shape: Sequence[int], where: str
) -> Tensor:
    """Return the tensor of the elements in the field of its datatype."""
    name = _FIELD_OF.get(datatype)
    if name is None:
        raise InvalidRequestError(
            f"expected raw_input_contents for datatype {datatype}, which contents cannot hold", where=where
        )
    others = [field.name for field, _ in contents.ListFields() if field.name != name]
    if others:
        raise InvalidRequestError(
            f"expected {name} for datatype {datatype}, received {others[0]}", where=where
        )
    elements = getattr(contents, name)
    count = math.prod(shape)
    if len(elements) != count:
        raise InvalidRequestError(
            f"expected {count} elements for shape {list(shape)}, received {len(elements)}",
            where=f"{where}.{name}",
        )
    if datatype == "BYTES":
        return _bytes_tensor(elements, where).reshape(shape)
    dtype = DATATYPES[datatype]
    if dtype.kind in "iu" and dtype.itemsize < 4 and count:
        limits = np.iinfo(dtype)
        lowest, highest = min(elements), max(elements)
        if not limits.min <= lowest <= highest <= limits.max:
            raise InvalidRequestError(
                f"expected {datatype} elements between {limits.min} and {limits.max},"
                f" received {lowest} to {highest}",
                where=f"{where}.{name}",
            )
    return np.array(elements, dtype=dtype).reshape(shape)


def _bytes_tensor(elements: Sequence[bytes], where: str) -> Tensor:
    longest = max(map(len, elements), default=0)
    if longest > MAX_ELEMENT_BYTES:
        raise InvalidRequestError(
            f"expected elements of at most {MAX_ELEMENT_BYTES} bytes, one has {longest}", where=where
        )
    tensor = np.empty(len(elements), dtype=np.object_)
    tensor[:] = elements
    return tensor


def _decode_outputs(
    request: ModelInferRequest,
    signature: Signature,
    options: dict[str, OutputOptions],
    regions: SharedMemory | None,
) -> list[str]:
    """Return the names of the wanted outputs; add further wishes about them to ``options``."""
    wanted: list[str] = []
    for position, entry in enumerate(request.outputs):
        where = f"outputs[{position}]"
        name = spec_of(entry.name, signature.outputs, where, "output").name
        if name in wanted:
            raise repeated(name, where, "output")
        if entry.parameters:
            parameters = _values(entry.parameters)
            check_parameters(parameters, f"{where}.parameters", OUTPUT_PARAMETERS)
            found = options_of(name, parameters, signature, regions, where)
            if found is not None:
                options[name] = found
        wanted.append(name)
    return wanted


def encode_response(model: str, version: str, request: InferRequest, tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a ModelInferResponse with the wanted outputs, in their order.

    What comes before the contents is the same for all responses of a shape, and kept. Fields of a message may
    be written one after the other (https://protobuf.dev/programming-guides/encoding).
    """
    if request.options:
        return _encode_delivered(model, version, request, tensors)
    wanted = [tensors[name] for name in request.outputs]
    key = (
        model,
        version,
        *request.outputs,
        *[tensor.dtype for tensor in wanted],
        *[tensor.shape for tensor in wanted],
    )
    head = _heads.get(key)
    if head is None:
        head = _head(model, version, request.outputs, wanted)
        if len(_heads) >= _MOST_CACHED_HEADS:  # clients choose the number of rows
            _heads.clear()
        _heads[key] = head
    pieces: list[bytes | memoryview] = [head]
    if request.id:
        text = request.id.encode()
        pieces += (_ID_KEY, _varint(len(text)), text)
    for tensor in wanted:
        raw = encode_binary(tensor)
        pieces += (_RAW_CONTENTS_KEY, _varint(len(raw)), raw)
    return b"".join(pieces)


def _encode_delivered(
    model: str, version: str, request: InferRequest, tensors: Mapping[str, Tensor]
) -> bytes:
    """Return the bytes of a ModelInferResponse with classes, or without the contents of what was placed."""
    tensors, placed = delivered(tensors, request.options)
    response = ModelInferResponse(model_name=model, model_version=version, id=request.id)
    for name in request.outputs:
        tensor = tensors[name]
        response.outputs.add(name=name, datatype=datatype_of(tensor.dtype), shape=tensor.shape)
        # One for each output, in their order: empty where the bytes are elsewhere.
        response.raw_output_contents.append(b"" if name in placed else bytes(encode_binary(tensor)))
    encoded: bytes = response.SerializeToString()
    return encoded


def _head(model: str, version: str, names: Sequence[str], tensors: Sequence[Tensor]) -> bytes:
    """Return a ModelInferResponse without id and contents."""
    kind = ModelInferResponse.InferOutputTensor
    outputs = [
        kind(name=name, datatype=datatype_of(tensor.dtype), shape=tensor.shape)
        for name, tensor in zip(names, tensors, strict=True)
    ]
    response = ModelInferResponse(model_name=model, model_version=version, outputs=outputs)
    head: bytes = response.SerializeToString()
    return head


def with_rows_sequence(response: bytes, sequence: int) -> bytes:
    """Return the bytes of a ModelInferResponse with the parameter ``rows_sequence``."""
    further = ModelInferResponse()
    further.parameters["rows_sequence"].int64_param = sequence
    encoded: bytes = further.SerializeToString()
    return response + encoded  # messages written one after the other are merged


def encode_stream_response(response: bytes) -> bytes:
    """Return the bytes of a ModelStreamInferResponse with the only ModelInferResponse to a request."""
    size = _varint(len(response) + len(_FINAL_RESPONSE))
    return b"".join((_INFER_RESPONSE_KEY, size, response, _FINAL_RESPONSE))


def encode_stream_error(message: str, request_id: str) -> bytes:
    """Return the bytes of a ModelStreamInferResponse with the error of one request."""
    response = ModelInferResponse(id=request_id)
    encoded: bytes = ModelStreamInferResponse(
        error_message=message, infer_response=response
    ).SerializeToString()
    return encoded


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
