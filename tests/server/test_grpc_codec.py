"""ModelInfer requests and responses against NumPy."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graphbox.artifact import TensorSpec
from graphbox.deploy.signature import Signature
from graphbox.errors import GraphboxError, InvalidRequestError
from graphbox.server.grpc.codec import (
    InferRequest,
    compress,
    decode_request,
    encode_response,
    encode_stream_error,
    encode_stream_response,
    parse,
    plain_message,
)
from graphbox.server.grpc.inference_messages import (
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
)
from graphbox.server.kserve.tensors import DATATYPES, encode_binary
from graphbox.server.problem import RefusedError
from graphbox.server.settings import RequestLimits

LIMITS = RequestLimits(100, 1 << 20)
FIELDS = {
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


def signature(datatype: str = "FP32", shape: tuple[int, ...] = (-1, 2), more: bool = False) -> Signature:
    inputs = [TensorSpec(name="x", datatype=datatype, shape=shape)]  # type: ignore[arg-type]
    if more:
        inputs.append(TensorSpec(name="y", datatype="INT64", shape=(-1,)))
    return Signature(
        platform="test",
        inputs={spec.name: spec for spec in inputs},
        outputs={"out": TensorSpec(name="out", datatype="FP32", shape=(-1, 2))},
        answer=lambda inputs, _parameters: dict(inputs),
        work=lambda _inputs: 1,
        parameters=frozenset({"k"}),
    )


def values_of(datatype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    random = np.random.default_rng(5)
    dtype = DATATYPES[datatype]
    if datatype == "BYTES":
        tensor = np.empty(shape, np.object_)
        tensor.ravel()[:] = [bytes([65 + i]) * i for i in range(tensor.size)]
        return tensor
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def wire(**fields: Any) -> ModelInferRequest:
    """A request with one input of two rows, and changes to it."""
    given: dict[str, Any] = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2]}],
        "raw_input_contents": [np.arange(4, dtype=np.float32).tobytes()],
    }
    return ModelInferRequest(**{**given, **fields})


@pytest.mark.parametrize("datatype", [*DATATYPES])
def test_raw_contents_of_every_datatype(datatype: str) -> None:
    values = values_of(datatype, (3, 2))
    request = wire(
        inputs=[{"name": "x", "datatype": datatype, "shape": [3, 2]}],
        raw_input_contents=[encode_binary(values)],
    )
    decoded = decode_request(request, signature(datatype), LIMITS).inputs["x"]
    assert decoded.dtype == DATATYPES[datatype]
    assert np.array_equal(decoded, values)


@pytest.mark.parametrize("datatype", [*FIELDS])
def test_typed_contents_of_every_datatype(datatype: str) -> None:
    values = values_of(datatype, (3, 2))
    contents = {FIELDS[datatype]: values.ravel().tolist()}
    request = wire(
        inputs=[{"name": "x", "datatype": datatype, "shape": [3, 2], "contents": contents}],
        raw_input_contents=[],
    )
    decoded = decode_request(request, signature(datatype), LIMITS).inputs["x"]
    assert decoded.dtype == DATATYPES[datatype]
    assert np.array_equal(decoded, values)


def test_empty_tensors() -> None:
    request = wire(inputs=[{"name": "x", "datatype": "FP32", "shape": [0, 2]}], raw_input_contents=[b""])
    assert decode_request(request, signature(), LIMITS).inputs["x"].shape == (0, 2)


X = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
RAW = np.arange(4, dtype=np.float32).tobytes()
BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "no inputs": ({"inputs": []}, "expected a list of the inputs x, received none"),
    "too many raw contents": ({"raw_input_contents": [RAW, RAW]}, "raw contents for each of the 1 inputs"),
    "unknown input": ({"inputs": [{**X, "name": "z"}]}, "expected an input of the model"),
    "input twice": ({"inputs": [X, X], "raw_input_contents": [RAW, RAW]}, "each input once"),
    "datatype": ({"inputs": [{**X, "datatype": "FP64"}]}, "expected datatype FP32, received FP64"),
    "no datatype": ({"inputs": [{**X, "datatype": ""}]}, "expected datatype FP32"),
    "rank": ({"inputs": [{**X, "shape": [4]}]}, "expected shape [-1, 2]"),
    "size": ({"inputs": [{**X, "shape": [2, 3]}]}, "expected shape [-1, 2]"),
    "negative size": ({"inputs": [{**X, "shape": [-1, 2]}]}, "sizes, integers from 0"),
    "huge size": ({"inputs": [{**X, "shape": [1 << 62, 2]}]}, "at most 100 rows"),
    "rows": ({"inputs": [{**X, "shape": [101, 2]}]}, "at most 100 rows"),
    "short": ({"raw_input_contents": [RAW[:-1]]}, "expected 16 bytes"),
    "long": ({"raw_input_contents": [RAW + b"x"]}, "expected 16 bytes"),
    "both": ({"inputs": [{**X, "contents": {"fp32_contents": [1.0] * 4}}]}, "received both"),
    "both, empty": ({"inputs": [{**X, "contents": {}}]}, "received both"),
    "neither": ({"raw_input_contents": []}, "expected 4 elements"),
    "other field": (
        {"inputs": [{**X, "contents": {"int_contents": [1] * 4}}], "raw_input_contents": []},
        "expected fp32_contents for datatype FP32, received int_contents",
    ),
    "two fields": (
        {
            "inputs": [{**X, "contents": {"fp32_contents": [1.0] * 4, "bool_contents": [True]}}],
            "raw_input_contents": [],
        },
        "received bool_contents",
    ),
    "few elements": (
        {"inputs": [{**X, "contents": {"fp32_contents": [1.0] * 3}}], "raw_input_contents": []},
        "expected 4 elements for shape [2, 2], received 3",
    ),
    "unknown output": ({"outputs": [{"name": "z"}]}, "expected an output of the model"),
    "output twice": ({"outputs": [{"name": "out"}, {"name": "out"}]}, "each output once"),
    "classification": (
        {"outputs": [{"name": "out", "parameters": {"classification": {"int64_param": -3}}}]},
        "expected a number of classes",
    ),
    "unknown parameter": ({"parameters": {"kk": {"int64_param": 1}}}, "received `kk`"),
    "parameter without a value": ({"parameters": {"k": {}}}, "expected a string, a number"),
    "sequence": ({"parameters": {"sequence_id": {"int64_param": 1}}}, "sequences are not offered"),
    "timeout": ({"parameters": {"timeout": {"int64_param": -1}}}, "expected microseconds"),
    "timeout of a day": ({"parameters": {"timeout": {"uint64_param": 1 << 63}}}, "expected microseconds"),
    "priority": ({"parameters": {"priority": {"string_param": "high"}}}, "expected an integer from 1"),
    "shared memory": (
        {"inputs": [{**X, "parameters": {"shared_memory_region": {"string_param": "r"}}}]},
        "no shared memory region is registered",
    ),
    "shared memory without contents": (
        {
            "inputs": [{**X, "parameters": {"shared_memory_region": {"string_param": "r"}}}],
            "raw_input_contents": [],
        },
        "no shared memory region is registered",
    ),
    "size of shared memory alone": (
        {"inputs": [{**X, "parameters": {"shared_memory_byte_size": {"int64_param": 16}}}]},
        "expected shared_memory_region beside",
    ),
    "shared memory of an output": (
        {"outputs": [{"name": "out", "parameters": {"shared_memory_region": {"string_param": "r"}}}]},
        "no shared memory region is registered",
    ),
}


@pytest.mark.parametrize("case", [*BAD_REQUESTS])
def test_bad_requests(case: str) -> None:
    fields, message = BAD_REQUESTS[case]
    with pytest.raises(GraphboxError) as caught:
        decode_request(wire(**fields), signature(), LIMITS)
    assert message in caught.value.message


def test_missing_inputs() -> None:
    with pytest.raises(InvalidRequestError, match="missing: y"):
        decode_request(wire(), signature(more=True), LIMITS)


def test_contents_out_of_range() -> None:
    for datatype, element in (("INT8", 128), ("INT16", -40_000), ("UINT8", 256), ("UINT16", 1 << 16)):
        entry = {"name": "x", "datatype": datatype, "shape": [1], "contents": {FIELDS[datatype]: [element]}}
        with pytest.raises(InvalidRequestError, match=f"expected {datatype} elements between"):
            decode_request(wire(inputs=[entry], raw_input_contents=[]), signature(datatype, (-1,)), LIMITS)


def test_half_precision_needs_raw_contents() -> None:
    entry = {"name": "x", "datatype": "FP16", "shape": [1], "contents": {"fp32_contents": [1.0]}}
    with pytest.raises(InvalidRequestError, match="expected raw_input_contents for datatype FP16"):
        decode_request(wire(inputs=[entry], raw_input_contents=[]), signature("FP16", (-1,)), LIMITS)


def test_parameters() -> None:
    request = decode_request(
        wire(
            id="a",
            parameters={
                "k": {"int64_param": 3},
                "priority": {"uint64_param": 2},
                "timeout": {"int64_param": 5000},
                "triton_enable_empty_final_response": {"bool_param": True},
                "sequence_id": {"int64_param": 0},
            },
        ),
        signature(),
        LIMITS,
    )
    assert (request.id, request.parameters, request.priority) == ("a", {"k": 3}, 2)
    assert request.timeout_s == 0.005


@pytest.mark.parametrize("identifier", ["", "id", "caf\u00e9" * 100])
def test_responses_are_what_protocol_buffers_would_write(identifier: str) -> None:
    for shape in ((3, 2), (0, 2), (2000, 2)):
        tensors = {"out": values_of("FP32", shape), "names": values_of("BYTES", (3,))}
        for outputs in (["out"], ["names", "out"]):
            request = InferRequest(identifier, {}, outputs, {}, None, 0)
            for _ in range(2):  # the second time, what is the same is kept
                response = ModelInferResponse.FromString(encode_response("m", "3", request, tensors))
                assert (response.model_name, response.model_version, response.id) == ("m", "3", identifier)
                assert [output.name for output in response.outputs] == outputs
                for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
                    tensor = tensors[output.name]
                    assert tuple(output.shape) == tensor.shape
                    assert raw == encode_binary(tensor)


def test_stream_responses() -> None:
    request = InferRequest("a", {}, ["out"], {}, None, 0)
    response = encode_response("m", "3", request, {"out": values_of("FP32", (100, 2))})
    streamed = ModelStreamInferResponse.FromString(encode_stream_response(response))
    assert streamed.infer_response.parameters["triton_final_response"].bool_param
    del streamed.infer_response.parameters["triton_final_response"]
    assert streamed.infer_response == ModelInferResponse.FromString(response)
    failed = ModelStreamInferResponse.FromString(encode_stream_error("no", "a"))
    assert (failed.error_message, failed.infer_response.id) == ("no", "a")


def test_compression() -> None:
    message = b"0123456789" * 1000
    for encoding in ("gzip", "deflate"):
        packed, name = compress(message, encoding)
        assert (name, len(packed) < len(message)) == (encoding, True)
        assert plain_message(packed, encoding, 10_000) == message
        with pytest.raises(RefusedError) as bomb:
            plain_message(packed, encoding, 9_999)
        assert bomb.value.status == 413
        with pytest.raises(InvalidRequestError):
            plain_message(packed[:-9], encoding, 10_000)
    assert compress(b"short", "gzip") == (b"short", "")
    assert compress(message, "identity") == (message, "")
    with pytest.raises(RefusedError) as unknown:
        plain_message(zlib.compress(message), "br", 10_000)
    assert unknown.value.status == 415
    with pytest.raises(InvalidRequestError, match="expected the compression"):
        plain_message(message, "", 10_000)


def test_what_is_no_message() -> None:
    with pytest.raises(InvalidRequestError, match="protocol buffers"):
        parse(ModelInferRequest.FromString, b"\xff" * 10)
