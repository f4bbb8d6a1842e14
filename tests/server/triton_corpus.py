"""Requests that are sent to a real Triton and to graphbox, over REST and, as twins, over gRPC.

Two models of one ONNX part each: ``mlp`` (``FP32 [n, 4]`` to ``FP32 [n, 3]``) and ``count`` (``INT32 [n, 3]``
to one more of each). A request has at most 8 rows.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from graphbox.deploy.onnx_writer import Node, write_onnx

__all__ = ["CASES", "MAX_ROWS", "Case", "Compare", "onnx_models"]

Compare = Literal["status", "infer", "json", "keys"]
"""Comparison of two good answers: status alone, tensors, the whole document, or names of its fields."""

MAX_ROWS = 8
INFER = "/v2/models/mlp/infer"
HEADER_LENGTH = "Inference-Header-Content-Length"
WEIGHTS = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
ROWS = (np.arange(8, dtype=np.float32).reshape(2, 4) - 3) / 4
RAW = ROWS.tobytes()


def onnx_models() -> dict[str, bytes]:
    """Return the ONNX files of the models by name; each has one ``input`` and one ``output``."""
    mlp = write_onnx(
        [Node("MatMul", ["input", "weights"], ["product"]), Node("Tanh", ["product"], ["output"])],
        {"input": (np.float32, ["batch", 4])},
        {"output": (np.float32, ["batch", 3])},
        {"weights": WEIGHTS},
    )
    count = write_onnx(
        [Node("Add", ["input", "one"], ["output"])],
        {"input": (np.int32, ["batch", 3])},
        {"output": (np.int32, ["batch", 3])},
        {"one": np.array([1], np.int32)},
    )
    return {"mlp": mlp, "count": count}


@dataclass(frozen=True)
class Case:
    """A request over one or both transports.

    Attributes:
        name: unique.
        path: over REST; None: there is no such request.
        method: of HTTP.
        body: over REST.
        headers: over REST.
        call: method of gRPC; None: there is no twin.
        message: of the call, serialized.
        compare: how far good answers have to be equal.
    """

    name: str
    path: str | None = INFER
    method: str = "POST"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    call: str | None = None
    message: bytes = b""
    compare: Compare = "status"


def _infer(
    name: str,
    *,
    model: str = "mlp",
    version: str = "",
    data: object = None,
    entry: Mapping[str, object] | None = None,
    request: Mapping[str, object] | None = None,
    twin: bool = True,
    compare: Compare = "infer",
) -> Case:
    """Return a request for inference whose input and whole differ from a good one in some fields."""
    tensor: dict[str, Any] = {
        "name": "input",
        "shape": [2, 4],
        "datatype": "FP32",
        "data": ROWS.ravel().tolist() if data is None else data,
        **(entry or {}),
    }
    tensor = {key: value for key, value in tensor.items() if value is not ...}
    body = json.dumps({"inputs": [tensor], **(request or {})}).encode()
    path = f"/v2/models/{model}{f'/versions/{version}' if version else ''}/infer"
    case = Case(name, path, body=body, compare=compare)
    if not twin:
        return case
    message = _message(model, version, tensor, dict(request or {}))
    return Case(name, path, body=body, call="ModelInfer", message=message, compare=compare)


def _message(model: str, version: str, tensor: Mapping[str, Any], request: Mapping[str, Any]) -> bytes:
    """Return the same request as a message, with raw contents."""
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=request.get("id", ""))
    if "inputs" not in request:
        given = message.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        _set(given.parameters, tensor.get("parameters", {}))
        if "data" in tensor:
            dtype = {"INT32": np.int32, "FP64": np.float64}.get(tensor["datatype"], np.float32)
            message.raw_input_contents.append(np.asarray(tensor["data"], dtype).tobytes())
    for wanted in request.get("outputs", []):
        _set(message.outputs.add(name=wanted["name"]).parameters, wanted.get("parameters", {}))
    _set(message.parameters, request.get("parameters", {}))
    encoded: bytes = message.SerializeToString()
    return encoded


def _set(parameters: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            parameters[name].int64_param = value
        else:
            parameters[name].string_param = value


def _binary(name: str, size: object, raw: bytes, length: str | None = None, **options: Any) -> Case:
    """Return a request whose tensor follows the JSON."""
    tensor = {
        "name": "input",
        "shape": [2, 4],
        "datatype": "FP32",
        "parameters": {"binary_data_size": size},
    }
    header = json.dumps({"inputs": [tensor], "outputs": [{"name": "output"}]}).encode()
    headers = {HEADER_LENGTH: str(len(header)) if length is None else length}
    return Case(name, body=header + raw, headers=headers, compare="infer", **options)


def _body(name: str, body: bytes, **headers: str) -> Case:
    return Case(name, body=body, headers={key.replace("_", "-"): value for key, value in headers.items()})


def _get(name: str, path: str, call: str | None = None, message: Any = None, **options: Any) -> Case:
    encoded = b"" if message is None else message.SerializeToString()
    return Case(name, path, "GET", call=call, message=encoded, **options)


def _post(name: str, path: str, body: object = None, call: str | None = None, message: Any = None) -> Case:
    encoded = b"" if message is None else message.SerializeToString()
    content = b"" if body is None else json.dumps(body).encode()
    return Case(name, path, body=content, call=call, message=encoded)


def _output(**parameters: object) -> dict[str, object]:
    return {"outputs": [{"name": "output", "parameters": parameters}]}


_GOOD = _infer("ok").body
_ONE = {"shape": [1, 4]}
_COUNT: dict[str, Any] = {
    "model": "count",
    "data": [5, 9, 5, -2, 0, 7],
    "entry": {"shape": [2, 3], "datatype": "INT32"},
}
_SHM = {"shared_memory_region": "absent", "shared_memory_byte_size": 32}

_INFERENCE = [
    _infer("ok", request={"id": "r-1"}),
    _infer("named version", version="1"),
    _infer("nested data", data=ROWS.tolist()),
    _infer("one row", data=[1, 2, 3, 4], entry=_ONE),
    _infer("integers", **_COUNT),
    _infer("wanted output", request={"outputs": [{"name": "output"}]}),
    _infer("no wanted outputs", request={"outputs": []}),
    _infer("binary output", request=_output(binary_data=True)),
    _infer("binary outputs", request={"parameters": {"binary_data_output": True}}),
    _infer("id with escapes", request={"id": '\u00e9"\\\n'}),
    _binary("binary input", len(RAW), RAW),
    Case("raw body", body=RAW, headers={HEADER_LENGTH: "0"}, compare="infer"),
    Case("raw body of one row", body=RAW[:16], headers={HEADER_LENGTH: "0"}, compare="infer"),
    Case("gzip", body=gzip.compress(_GOOD), headers={"Content-Encoding": "gzip"}, compare="infer"),
    Case("answer in gzip", body=_GOOD, headers={"Accept-Encoding": "gzip"}, compare="infer"),
    _infer("priority", request={"parameters": {"priority": 1}}),
    _infer("timeout", request={"parameters": {"timeout": 10_000_000}}),
    _infer("class of each row", request=_output(classification=1)),
    _infer("all classes", request=_output(classification=3)),
    _infer("more classes than there are", request=_output(classification=9)),
    _infer("no classes", request=_output(classification=0)),
    _infer("classes as bytes", request=_output(classification=2, binary_data=True)),
    _infer("classes of integers", request=_output(classification=2), **_COUNT),
    _infer("negative classes", request=_output(classification=-1)),
    _infer("classes as text", request=_output(classification="2")),
    _infer("sequence", request={"parameters": {"sequence_id": 7, "sequence_start": True}}),
    _infer("custom parameter", request={"parameters": {"anything": "x"}}),
]

_BAD = [
    _body("empty body", b""),
    _body("not JSON", b"{inputs"),
    _body("JSON array", b"[1, 2]"),
    _body("no inputs", b"{}"),
    _infer("empty inputs", request={"inputs": []}),
    _infer("unknown input", entry={"name": "other"}),
    _infer("wrong datatype", entry={"datatype": "FP64"}),
    _infer("bogus datatype", entry={"datatype": "FLOAT"}),
    _infer("wrong rank", entry={"shape": [8]}),
    _infer("wrong size", entry={"shape": [4, 2]}),
    _infer("data short", data=[1.0] * 7),
    _infer("data long", data=[1.0] * 9),
    _infer("negative size", entry={"shape": [-2, 4]}),
    _infer("no rows", data=[], entry={"shape": [0, 4]}),
    _infer("overflowing shape", entry={"shape": [2**62, 4]}),
    _infer("shape with a fraction", entry={"shape": [2.0, 4]}, twin=False),
    _infer("data as text", data=["1"] * 8, twin=False),
    _infer("null in data", data=[None] * 8, twin=False),
    _infer("booleans in data", data=[True] * 8, twin=False),
    _body("NaN", _GOOD.replace(b"[-0.75", b"[NaN")),
    _body("infinity", _GOOD.replace(b"[-0.75", b"[1e999")),
    _infer("too many rows", data=[1.0] * 36, entry={"shape": [9, 4]}),
    _infer("unknown output", request={"outputs": [{"name": "other"}]}),
    _infer("output twice", request={"outputs": [{"name": "output"}, {"name": "output"}]}),
    _body("deep nesting", b'{"inputs":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    _infer("id is a number", request={"id": 7}, twin=False),
    _binary("binary size too small", 16, RAW),
    _binary("binary size too large", 64, RAW),
    _binary("binary size negative", -1, RAW),
    _binary("binary size as text", "32", RAW),
    _binary("bytes after the tensor", 32, RAW + b"\0\0\0\0"),
    _binary("header longer than the body", 32, RAW, "99999"),
    _binary("header length negative", 32, RAW, "-1"),
    _binary("header length of 2^64", 32, RAW, str(2**64)),
    _binary("header length as text", 32, RAW, "some"),
    _body("truncated", _GOOD[:-20]),
    _body("damaged gzip", b"no gzip at all", Content_Encoding="gzip"),
    _body("unknown compression", _GOOD, Content_Encoding="br"),
    _infer("unknown model", model="absent"),
    _infer("unknown version", version="9"),
    _infer("version is a word", version="one"),
    _infer("input in a region that is not there", data=..., entry={"parameters": _SHM}),
    _infer("output in a region that is not there", request=_output(**_SHM)),
]


def _raw_messages() -> list[Case]:
    """Return calls that have no form over REST."""
    given = {"name": "input", "datatype": "FP32", "shape": [2, 4]}
    typed = pb.ModelInferRequest(model_name="mlp")
    typed.inputs.add(**given).contents.fp32_contents.extend(ROWS.ravel().tolist())
    both = pb.ModelInferRequest.FromString(typed.SerializeToString())
    both.raw_input_contents.append(RAW)
    missing = pb.ModelInferRequest(model_name="mlp")
    missing.inputs.add(**given)
    wrong = pb.ModelInferRequest(model_name="mlp")
    wrong.inputs.add(**given).contents.int_contents.extend([1] * 8)
    twice = pb.ModelInferRequest(model_name="mlp")
    for _ in range(2):
        twice.inputs.add(**given)
        twice.raw_input_contents.append(RAW)
    messages = {
        "typed contents": typed,
        "raw and typed contents": both,
        "no contents": missing,
        "contents of another type": wrong,
        "input twice": twice,
    }
    return [
        Case(name, None, call="ModelInfer", message=message.SerializeToString(), compare="infer")
        for name, message in messages.items()
    ] + [
        Case("no message", None, call="ModelInfer", message=b"\xff" * 9),
        Case("unknown method", None, call="Nothing"),
    ]


_SERVER = [
    _get("server live", "/v2/health/live", "ServerLive", compare="json"),
    _get("server ready", "/v2/health/ready", "ServerReady", compare="json"),
    _get("server metadata", "/v2", "ServerMetadata", compare="keys"),
    _get("model ready", "/v2/models/mlp/ready", "ModelReady", pb.ModelReadyRequest(name="mlp")),
    _get("ready of an unknown model", "/v2/models/no/ready", "ModelReady", pb.ModelReadyRequest(name="no")),
    _get(
        "metadata",
        "/v2/models/mlp",
        "ModelMetadata",
        pb.ModelMetadataRequest(name="mlp"),
        compare="keys",
    ),
    _get(
        "metadata of an unknown model", "/v2/models/no", "ModelMetadata", pb.ModelMetadataRequest(name="no")
    ),
    _get("configuration", "/v2/models/mlp/config", "ModelConfig", pb.ModelConfigRequest(name="mlp")),
    _get(
        "statistics",
        "/v2/models/mlp/stats",
        "ModelStatistics",
        pb.ModelStatisticsRequest(name="mlp"),
        compare="keys",
    ),
    _get("statistics of all", "/v2/models/stats", "ModelStatistics", pb.ModelStatisticsRequest()),
    _get("inference by GET", INFER),
    Case("inference by PUT", method="PUT", body=_GOOD),
    _get("unknown path", "/v2/other"),
    _get("another root", "/other"),
    _get("trailing slash", "/v2/models/mlp/"),
]

_REPOSITORY = [
    _post("index", "/v2/repository/index", {"ready": True}, "RepositoryIndex", pb.RepositoryIndexRequest()),
    _post("index without a body", "/v2/repository/index"),
    _get("index by GET", "/v2/repository/index"),
    _post("load a model in another folder", "/v2/repository/models/..%2F..%2Fetc/load"),
    _post("load an encoded path", "/v2/repository/models/%2e%2e%2fx/load"),
    _post("load a path", "/v2/repository/models/a/b/load"),
    _post("load a dot", "/v2/repository/models/./load"),
    _post("load NUL", "/v2/repository/models/%00/load"),
    _post("load a long name", f"/v2/repository/models/{'x' * 300}/load"),
    _post(
        "load an unknown model",
        "/v2/repository/models/absent/load",
        None,
        "RepositoryModelLoad",
        pb.RepositoryModelLoadRequest(model_name="absent"),
    ),
    _post(
        "load a file of the request",
        "/v2/repository/models/mlp/load",
        {"parameters": {"config": "{}", "file:../../x": "eA=="}},
    ),
]


def _part(size: int, offset: int = 0) -> dict[str, object]:
    found: dict[str, object] = {"shared_memory_region": "corpus", "shared_memory_byte_size": size}
    return found | ({"shared_memory_offset": offset} if offset else {})


_MEMORY_PATH = "/v2/systemsharedmemory"
_MEMORY = [
    _get(
        "regions",
        f"{_MEMORY_PATH}/status",
        "SystemSharedMemoryStatus",
        pb.SystemSharedMemoryStatusRequest(),
        compare="json",
    ),
    _get(
        "status of an unknown region",
        f"{_MEMORY_PATH}/region/absent/status",
        "SystemSharedMemoryStatus",
        pb.SystemSharedMemoryStatusRequest(name="absent"),
    ),
    _post(
        "unregister an unknown region",
        f"{_MEMORY_PATH}/region/absent/unregister",
        None,
        "SystemSharedMemoryUnregister",
        pb.SystemSharedMemoryUnregisterRequest(name="absent"),
    ),
    _post(
        "unregister all regions",
        f"{_MEMORY_PATH}/unregister",
        None,
        "SystemSharedMemoryUnregister",
        pb.SystemSharedMemoryUnregisterRequest(),
    ),
    _post("register without a key", f"{_MEMORY_PATH}/region/r/register", {"byte_size": 8}),
    _post("register without a size", f"{_MEMORY_PATH}/region/r/register", {"key": "/graphbox_absent"}),
    *[
        _post(
            f"register {name}",
            f"{_MEMORY_PATH}/region/r/register",
            {"key": key, "offset": offset, "byte_size": size},
            "SystemSharedMemoryRegister",
            pb.SystemSharedMemoryRegisterRequest(name="r", key=key, offset=offset, byte_size=size),
        )
        for name, key, offset, size in (
            ("memory that is not there", "/graphbox_absent", 0, 8),
            ("a path", "/../../etc/passwd", 0, 8),
            ("memory of Triton itself", "/triton_python_backend_shm_region_1", 0, 8),
            ("more than there is", "/graphbox_corpus", 0, 2**20),
            ("an offset beyond the end", "/graphbox_corpus", 2**62, 8),
            ("sizes that overflow", "/graphbox_corpus", 2**63, 2**63),
        )
    ],
    *[
        _post(
            name,
            f"{_MEMORY_PATH}/region/corpus/register",
            {"key": "/graphbox_corpus", "offset": 0, "byte_size": 256},
            "SystemSharedMemoryRegister",
            pb.SystemSharedMemoryRegisterRequest(
                name="corpus", key="/graphbox_corpus", offset=0, byte_size=256
            ),
        )
        for name in ("register", "register again")
    ],
    _get(
        "a region",
        f"{_MEMORY_PATH}/region/corpus/status",
        "SystemSharedMemoryStatus",
        pb.SystemSharedMemoryStatusRequest(name="corpus"),
        compare="json",
    ),
    _infer("input in a region", data=..., entry={"parameters": _part(32)}),
    _infer("input at an offset", data=..., entry={"parameters": _part(32, 64)}),
    _infer("output in a region", request=_output(**_part(64, 128))),
    _infer("output in a part that is too small", request=_output(**_part(8, 128))),
    _infer("input beyond the region", data=..., entry={"parameters": _part(32, 240)}),
    _infer("input of another size", data=..., entry={"parameters": _part(16)}),
    _infer("part of 2^63 bytes", data=..., entry={"parameters": _part(2**63 - 1, 2**63 - 1)}),
    _post(
        "unregister",
        f"{_MEMORY_PATH}/region/corpus/unregister",
        None,
        "SystemSharedMemoryUnregister",
        pb.SystemSharedMemoryUnregisterRequest(name="corpus"),
    ),
    _infer("input in a region of the past", data=..., entry={"parameters": _part(32)}),
    _get(
        "regions of GPUs",
        "/v2/cudasharedmemory/status",
        "CudaSharedMemoryStatus",
        pb.CudaSharedMemoryStatusRequest(),
        compare="json",
    ),
    _post(
        "register memory of a GPU",
        "/v2/cudasharedmemory/region/r/register",
        {"raw_handle": {"b64": "eA=="}, "device_id": 0, "byte_size": 8},
        "CudaSharedMemoryRegister",
        pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"x", device_id=0, byte_size=8),
    ),
]


def _log(name: str, settings: Mapping[str, object]) -> Case:
    message = pb.LogSettingsRequest()
    for key, value in settings.items():
        if isinstance(value, bool):
            message.settings[key].bool_param = value
        elif isinstance(value, int):
            message.settings[key].uint32_param = value
        else:
            message.settings[key].string_param = str(value)
    return Case(
        name,
        "/v2/logging",
        body=json.dumps(settings).encode(),
        call="LogSettings",
        message=message.SerializeToString(),
        compare="json",
    )


def _trace(name: str, settings: Mapping[str, object], model: str = "") -> Case:
    message = pb.TraceSettingRequest(model_name=model)
    for key, value in settings.items():
        message.settings[key].value.extend(value if isinstance(value, list) else [str(value)])
    path = f"/v2/models/{model}/trace/setting" if model else "/v2/trace/setting"
    body = json.dumps(settings).encode()
    encoded = message.SerializeToString()
    return Case(name, path, body=body, call="TraceSetting", message=encoded, compare="json")


_SETTINGS = [
    _get("log settings", "/v2/logging", "LogSettings", compare="json"),
    _log("log more", {"log_verbose_level": 1, "log_info": False}),
    _log("log as before", {"log_verbose_level": 0, "log_info": True}),
    _log("log to a file", {"log_file": "/tmp/graphbox-corpus.log"}),  # noqa: S108 - refused
    _log("unknown log setting", {"log_other": 1}),
    _log("log setting of another type", {"log_info": "yes"}),
    _log("unknown log format", {"log_format": "other"}),
    _get("trace settings", "/v2/trace/setting", "TraceSetting", compare="json"),
    _trace("trace", {"trace_level": ["TIMESTAMPS"], "trace_rate": "3", "trace_count": "2"}),
    _trace("trace a model", {"trace_rate": "1"}, "mlp"),
    _get("trace settings of a model", "/v2/models/mlp/trace/setting", "TraceSetting"),
    _trace("trace an unknown model", {"trace_rate": "1"}, "absent"),
    _trace("no traces", {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1"}),
    _trace("trace to a file", {"trace_file": "/tmp/graphbox-corpus.json"}),  # noqa: S108 - refused
    _trace("unknown trace level", {"trace_level": ["ALL"]}),
    _trace("trace rate of text", {"trace_rate": "often"}),
    _trace("unknown trace setting", {"trace_other": "1"}),
]

CASES = [*_INFERENCE, *_BAD, *_raw_messages(), *_SERVER, *_REPOSITORY, *_MEMORY, *_SETTINGS]
