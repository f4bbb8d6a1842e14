"""Malformed requests of REST, and how each has to be answered.

The list follows what was measured on Triton 2.51; where Triton answers 500, or accepts what it should
not, the expected status is the one a client's mistake deserves.
"""

from __future__ import annotations

import base64
import copy
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.server.sample_models import DIM

INFER = "/v2/models/companion.onnx/infer"
HEADER_LENGTH = "Inference-Header-Content-Length"
Json = Any


def good_request() -> dict[str, Json]:
    """A request every case differs from in one way."""
    rows = np.arange(5 * DIM, dtype=np.float32) / 8
    return {
        "inputs": [
            {"name": "rows", "datatype": "FP32", "shape": [5, DIM], "data": rows.tolist()},
            {"name": "own", "datatype": "INT64", "shape": [2], "data": [1, 2]},
            {"name": "neighbors", "datatype": "INT64", "shape": [2, 1, 3], "data": [1, 2, 0, 3, 4, 0]},
            {"name": "weights", "datatype": "FP32", "shape": [2, 1, 3], "data": [0.5, 0.5, 0, 0.5, 0.5, 0]},
        ]
    }


@dataclass
class Case:
    """A request, and how it has to be answered."""

    name: str
    status: int
    says: str = ""
    change: Callable[[dict[str, Json]], Any] | None = None
    body: bytes | None = None
    method: str = "POST"
    path: str = INFER
    headers: dict[str, str] = field(default_factory=dict)

    def content(self) -> bytes:
        if self.body is not None:
            return self.body
        request = good_request()
        if self.change is not None:
            changed = self.change(request)
            request = request if changed is None else changed
        return json.dumps(request).encode()


def rows_become(**values: Json) -> Callable[[dict[str, Json]], None]:
    def change(request: dict[str, Json]) -> None:
        request["inputs"][0].update(values)

    return change


def request_gets(**values: Json) -> Callable[[dict[str, Json]], None]:
    return lambda request: request.update(values)


def with_binary_rows(size: Json, raw: bytes, header_length: str | None = None) -> dict[str, Any]:
    """Arguments of a case whose tensor `rows` follows the JSON."""
    request = good_request()
    del request["inputs"][0]["data"]
    request["inputs"][0]["parameters"] = {"binary_data_size": size}
    header = json.dumps(request).encode()
    return {
        "body": header + raw,
        "headers": {HEADER_LENGTH: str(len(header)) if header_length is None else header_length},
    }


def with_binary_ids(raw: bytes, count: int = 2) -> dict[str, Any]:
    entry = {
        "name": "id",
        "datatype": "BYTES",
        "shape": [count],
        "parameters": {"binary_data_size": len(raw)},
    }
    header = json.dumps({"inputs": [entry]}).encode()
    return {
        "path": "/v2/models/companion/infer",
        "body": header + raw,
        "headers": {HEADER_LENGTH: str(len(header))},
    }


def with_ids(data: Json, **values: Json) -> dict[str, Any]:
    entry = {"name": "id", "datatype": "BYTES", "shape": [len(data)], "data": data} | values
    return {"path": "/v2/models/companion/infer", "body": json.dumps({"inputs": [entry]}).encode()}


def repeat_input(request: dict[str, Json]) -> None:
    request["inputs"].append(copy.deepcopy(request["inputs"][0]))


def drop_input(request: dict[str, Json]) -> None:
    del request["inputs"][1]


RAW_ROWS = np.ones((5, DIM), np.float32).tobytes()
GOOD = json.dumps(good_request()).encode()
TEXT = GOOD.decode()
DEEP = "[" * 5000 + "]" * 5000

CASES = [
    Case("ok", 200),
    Case("nested data", 200, change=rows_become(data=[[1, 2, 3, 4]] * 5)),
    Case("empty body", 400, "empty body", body=b""),
    Case("not JSON", 400, "not JSON", body=b"{inputs"),
    Case("truncated JSON", 400, "not JSON", body=GOOD[:-20]),
    Case("JSON array", 400, "expected a JSON object", body=b"[1, 2]"),
    Case("byte order mark", 400, "not JSON", body=b"\xef\xbb\xbf" + GOOD),
    Case("lone surrogate", 400, "not JSON", body=TEXT.replace('"rows"', '"\\ud800"').encode()),
    Case("invalid UTF-8", 400, "not JSON", body=TEXT.encode().replace(b'"rows"', b'"\xff\xfe"')),
    Case("no inputs", 400, "rows, own, neighbors, weights", change=lambda request: {}),
    Case("empty inputs", 400, "rows, own, neighbors, weights", change=request_gets(inputs=[])),
    Case("inputs no list", 400, "expected a list", change=request_gets(inputs={"rows": 1})),
    Case("input no object", 400, "expected an object", change=request_gets(inputs=[1])),
    Case("unknown input", 400, "did you mean `rows`", change=rows_become(name="rowz")),
    Case("NUL in the name", 400, "received `rows\x00`", change=rows_become(name="rows\x00")),
    Case("name no string", 400, "inputs[0].name", change=rows_become(name=3)),
    Case("missing input", 400, "missing: own", change=drop_input),
    Case("duplicate input", 400, "`rows` twice", change=repeat_input),
    Case("unknown field", 400, "did you mean `outputs`", change=request_gets(output=[])),
    Case("unknown field of an input", 400, "did you mean `data`", change=rows_become(dat=[])),
    Case("wrong datatype", 400, "expected datatype FP32, received FP64", change=rows_become(datatype="FP64")),
    Case("bogus datatype", 400, "received FLOAT", change=rows_become(datatype="FLOAT")),
    Case("no datatype", 400, "inputs[0].datatype", change=rows_become(datatype=None)),
    Case("wrong rank", 400, "expected shape [-1, 4]", change=rows_become(shape=[20])),
    Case("wrong size", 400, "expected shape [-1, 4]", change=rows_become(shape=[4, 5])),
    Case("data short", 400, "expected 20 elements", change=rows_become(data=[1.0] * 19)),
    Case("data long", 400, "received 21", change=rows_become(data=[1.0] * 21)),
    Case("no data", 400, "expected `data`", change=lambda request: request["inputs"][0].pop("data") and None),
    Case("nested wrongly", 400, "nested as shape", change=rows_become(data=[[1, 2, 3, 4]] * 4 + [[1, 2, 3]])),
    Case("nested too short", 400, "expected 5 lists", change=rows_become(data=[[1, 2, 3, 4]] * 4)),
    Case("negative size", 400, "integers from 0", change=rows_become(shape=[-5, -4])),
    Case("free size", 400, "integers from 0", change=rows_become(shape=[-1, 4])),
    Case(
        "empty batch",
        200,
        change=request_gets(
            inputs=[
                {"name": "rows", "datatype": "FP32", "shape": [1, DIM], "data": [0] * DIM},
                {"name": "own", "datatype": "INT64", "shape": [0], "data": []},
                {"name": "neighbors", "datatype": "INT64", "shape": [0, 1, 3], "data": []},
                {"name": "weights", "datatype": "FP32", "shape": [0, 1, 3], "data": []},
            ]
        ),
    ),
    Case(
        "no rows of a huge size",
        400,
        "whose product is at most 1099511627776, received [0, 1, 4611686018427387904]",
        change=lambda request: request["inputs"][2].update(shape=[0, 1, 2**62], data=[]),
    ),
    Case(
        "no rows of a large size",
        200,
        change=request_gets(
            inputs=[
                {"name": "rows", "datatype": "FP32", "shape": [1, DIM], "data": [0] * DIM},
                {"name": "own", "datatype": "INT64", "shape": [0], "data": []},
                {"name": "neighbors", "datatype": "INT64", "shape": [0, 1, 2**20], "data": []},
                {"name": "weights", "datatype": "FP32", "shape": [0, 1, 2**20], "data": []},
            ]
        ),
    ),
    Case("huge sizes", 400, "expected shape", change=rows_become(shape=[2**62, 4, 4])),
    Case("huge size that overflows", 400, "rows in one request", change=rows_become(shape=[2**62 + 2, 4])),
    Case("size beyond 64 bits", 400, body=TEXT.replace("[5, 4]", "[99999999999999999999, 4]").encode()),
    Case("fraction as size", 400, "integers from 0", change=rows_become(shape=[5.0, 4])),
    Case("true as size", 400, "integers from 0", change=rows_become(shape=[True, 4])),
    Case("shape no list", 400, "integers from 0", change=rows_become(shape=20)),
    Case("strings as data", 400, "received a string", change=rows_become(data=["1"] * 20)),
    Case("null as data", 400, "received null", change=rows_become(data=[None] * 20)),
    Case("one null", 400, "received null", change=rows_become(data=[1.0] * 19 + [None])),
    Case("booleans as data", 400, "received true or false", change=rows_become(data=[True] * 20)),
    Case("data no list", 400, "received an object", change=rows_become(data={"0": 1})),
    Case("NaN literal", 400, "not JSON", body=TEXT.replace("0.125", "NaN").encode()),
    Case("infinite literal", 400, "not JSON", body=TEXT.replace("0.125", "Infinity").encode()),
    Case("1e999", 400, body=TEXT.replace("0.125", "1e999").encode()),
    Case("beyond FP32", 400, "out of range", change=rows_become(data=[1e39] + [0.0] * 19)),
    Case("fractions as INT64", 400, "with a fraction", change=lambda r: r["inputs"][1].update(data=[0.5, 1])),
    Case("beyond INT64", 400, change=lambda r: r["inputs"][1].update(data=[2**63, 1])),
    Case("position out of range", 400, change=lambda r: r["inputs"][1].update(data=[5, 1])),
    Case("negative position", 400, "at least 0", change=lambda r: r["inputs"][1].update(data=[-1, 1])),
    Case(
        "negative position behind a Split",
        400,
        "at least 0",
        change=lambda r: r["inputs"][2].update(data=[1, 2, 0, 3, -1, 0]),
    ),
    Case(
        "one row that would be broadcast",
        400,
        "expected 1 as the size of `batch`, as in input `own`, received 2",
        change=lambda r: r["inputs"][1].update(shape=[1], data=[1]),
    ),
    Case("key twice", 400, "`id` twice", body=TEXT.replace("{", '{"id": "1", "id": "2", ', 1).encode()),
    Case(
        "key twice in an input",
        400,
        "`shape` twice",
        body=TEXT.replace('"shape": [5, 4]', '"shape": [5, 4], "shape": [5, 4]').encode(),
    ),
    Case("unknown parameter", 400, "did you mean `timeout`", change=request_gets(parameters={"timout": 5})),
    Case(
        "unknown parameter of an input", 400, "binary_data_size", change=rows_become(parameters={"size": 5})
    ),
    Case(
        "unknown parameter of an output",
        400,
        "binary_data, classification",
        change=request_gets(outputs=[{"name": "embedding", "parameters": {"binary": True}}]),
    ),
    Case("a sequence", 400, "sequences are not offered", change=request_gets(parameters={"sequence_id": 7})),
    Case("no sequence", 200, change=request_gets(parameters={"sequence_id": 0, "sequence_start": False})),
    Case("a priority", 200, change=request_gets(parameters={"priority": 1})),
    Case("a priority below 0", 400, "integer from 1", change=request_gets(parameters={"priority": -1})),
    Case("a priority as text", 400, "integer from 1", change=request_gets(parameters={"priority": "1"})),
    Case("a priority of 2^64", 400, "integer from 1", change=request_gets(parameters={"priority": 1 << 64})),
    Case("default priority", 200, change=request_gets(parameters={"priority": 0})),
    Case("timeout of a minute", 200, change=request_gets(parameters={"timeout": 60_000_000})),
    Case("timeout that has passed", 504, "within 1e-06 s", change=request_gets(parameters={"timeout": 1})),
    Case("timeout as text", 400, "microseconds", change=request_gets(parameters={"timeout": "1 s"})),
    Case("negative timeout", 400, "microseconds", change=request_gets(parameters={"timeout": -1})),
    Case("many dimensions", 400, "at most 8 sizes", change=rows_become(shape=[1] * 9)),
    Case(
        "inputs that do not fit together",
        400,
        change=lambda r: r["inputs"][1].update(shape=[3], data=[1, 2, 3]),
    ),
    Case(
        "more rows than allowed",
        400,
        "at most 100 rows",
        change=rows_become(shape=[101, 4], data=[0.0] * 404),
    ),
    Case(
        "unknown output", 400, "did you mean `embedding`", change=request_gets(outputs=[{"name": "embeding"}])
    ),
    Case("duplicate output", 400, "twice", change=request_gets(outputs=[{"name": "embedding"}] * 2)),
    Case("outputs no list", 400, change=request_gets(outputs={"name": "embedding"})),
    Case("output no object", 400, change=request_gets(outputs=["embedding"])),
    Case(
        "classification",
        400,
        "classification",
        change=request_gets(outputs=[{"name": "embedding", "parameters": {"classification": "2"}}]),
    ),
    Case(
        "binary_data no boolean",
        400,
        "true or false",
        change=request_gets(outputs=[{"name": "embedding", "parameters": {"binary_data": "yes"}}]),
    ),
    Case("parameters no object", 400, change=request_gets(parameters=[1])),
    Case("parameter is an object", 400, change=request_gets(parameters={"a": {"b": 1}})),
    Case("deep nesting in data", 400, body=TEXT.replace("[1, 2]", DEEP).encode()),
    Case(
        "deep nesting elsewhere",
        400,
        body=TEXT.replace("{", '{"x": ' + "[" * 500 + "]" * 500 + ",", 1).encode(),
    ),
    Case(
        "deep nesting below the parser's limit",
        400,
        body=TEXT.replace("[1, 2]", "[" * 900 + "]" * 900).encode(),
    ),
    Case("id no string", 400, "expected a string", change=request_gets(id=7)),
    Case(
        "unregistered shared memory",
        404,
        "shared memory",
        change=rows_become(parameters={"shared_memory_region": "x", "shared_memory_byte_size": 8}),
    ),
    # Binary tensors
    Case("binary", 200, **with_binary_rows(80, RAW_ROWS)),
    Case("binary size too small", 400, "expected 80 bytes for FP32", **with_binary_rows(76, RAW_ROWS)),
    Case("binary size too large", 400, "after the JSON", **with_binary_rows(84, RAW_ROWS)),
    Case("binary size of other shape", 400, "expected 80 bytes", **with_binary_rows(76, RAW_ROWS[:76])),
    Case("binary size negative", 400, "number of bytes", **with_binary_rows(-80, RAW_ROWS)),
    Case("binary size no number", 400, "number of bytes", **with_binary_rows("80", RAW_ROWS)),
    Case("binary size true", 400, "number of bytes", **with_binary_rows(True, RAW_ROWS)),
    Case("binary size a fraction", 400, "number of bytes", **with_binary_rows(80.0, RAW_ROWS)),
    Case("binary bytes left over", 400, "received 84", **with_binary_rows(80, RAW_ROWS + b"1234")),
    Case(
        "binary bytes without a tensor",
        400,
        "received 3",
        body=GOOD + b"abc",
        headers={HEADER_LENGTH: str(len(GOOD))},
    ),
    Case("binary and data", 400, "received both", change=rows_become(parameters={"binary_data_size": 80})),
    Case("binary size without header length", 400, "after the JSON", body=with_binary_rows(80, b"")["body"]),
    Case("header length beyond the body", 400, "at most", **with_binary_rows(80, RAW_ROWS, "9999999")),
    Case("header length -1", 400, "number of bytes", **with_binary_rows(80, RAW_ROWS, "-1")),
    Case("header length 2^64", 400, "at most", **with_binary_rows(80, RAW_ROWS, str(2**64))),
    Case("header length text", 400, "number of bytes", **with_binary_rows(80, RAW_ROWS, "ten")),
    Case("header length in other digits", 400, **with_binary_rows(80, RAW_ROWS, "\u00b2")),
    Case("header length of 5000 digits", 400, "at most", **with_binary_rows(80, RAW_ROWS, "9" * 5000)),
    Case("header length 0", 400, "names the inputs rows", **with_binary_rows(80, RAW_ROWS, "0")),
    Case("raw id", 200, path="/v2/models/companion/infer", body=b"zsh", headers={HEADER_LENGTH: "0"}),
    Case(
        "raw id that is unknown",
        400,
        "`zssh`",
        path="/v2/models/companion/infer",
        body=b"zssh",
        headers={HEADER_LENGTH: "0"},
    ),
    Case(
        "raw integers",
        200,
        path="/v2/models/numbers/infer",
        body=struct.pack("<qq", -5, 123),
        headers={HEADER_LENGTH: "0"},
    ),
    Case(
        "raw bytes that are no integers",
        400,
        "received 12 bytes",
        path="/v2/models/numbers/infer",
        body=b"\0" * 12,
        headers={HEADER_LENGTH: "0"},
    ),
    Case(
        "more raw rows than allowed",
        400,
        "at most 100 rows",
        path="/v2/models/numbers/infer",
        body=b"\0" * 8 * 101,
        headers={HEADER_LENGTH: "0"},
    ),
    Case("header length cuts the JSON", 400, "not JSON", **with_binary_rows(80, RAW_ROWS, "50")),
    # Strings
    Case("ids", 200, **with_ids(["zsh", "nginx"])),
    Case("id in NFD", 400, "cafe\u0301", **with_ids(["cafe\u0301"])),
    Case("empty id", 400, "``", **with_ids([""])),
    Case("id with NUL", 400, **with_ids(["zsh\x00"])),
    Case("numbers as ids", 400, "received an integer", **with_ids([1, 2])),
    Case("ids of two ranks", 400, "expected shape [-1]", **with_ids(["zsh", "git"], shape=[2, 1])),
    Case("too many ids", 400, "at most 100 rows", **with_ids(["zsh"] * 101)),
    Case(
        "id beyond the table",
        400,
        "99",
        path="/v2/models/numbers/infer",
        body=json.dumps(
            {"inputs": [{"name": "id", "datatype": "INT64", "shape": [2], "data": [0, 99]}]}
        ).encode(),
    ),
    Case("binary ids", 200, **with_binary_ids(struct.pack("<I", 3) + b"zsh" + struct.pack("<I", 3) + b"git")),
    Case(
        "binary ids truncated",
        400,
        "expected 9 bytes for element 0, received 3",
        **with_binary_ids(struct.pack("<I", 9) + b"zsh", 1),
    ),
    Case(
        "binary ids huge length",
        400,
        "elements of at most 1048576 bytes",
        **with_binary_ids(b"\xff\xff\xff\xffzsh", 1),
    ),
    Case("more binary ids than the shape says", 400, "4 bytes after them", **with_binary_ids(b"\0" * 12)),
    Case("48 MB of empty binary ids", 400, "expected 2 BYTES", **with_binary_ids(b"\0" * 48_000_000)),
    Case(
        "binary id of 60 MB",
        400,
        "elements of at most 1048576 bytes",
        **with_binary_ids(struct.pack("<I", 60_000_000) + b"x" * 60_000_000, 1),
    ),
    Case(
        "binary id of a megabyte",
        400,
        "texts of at most 1024 bytes",
        **with_binary_ids(struct.pack("<I", 1 << 20) + b"x" * (1 << 20), 1),
    ),
    Case("id of 1 MB", 413, "of JSON in one request", **with_ids(["x" * (1 << 20)])),
    Case("id of 60 MB", 413, "of JSON in one request", **with_ids(["x" * 60_000_000])),
    Case("id of 2 kB", 400, "texts of at most 1024 bytes", **with_ids(["x" * 2000])),
    Case(
        "many lists",
        400,
        "lists and objects in one request",
        body=b'{"inputs": [' + b"[], " * 200_000 + b"[]]}",
    ),
    Case(
        "binary ids cut in a length",
        400,
        "4-byte length",
        **with_binary_ids(struct.pack("<I", 3) + b"zsh\x00", 2),
    ),
    Case(
        "binary ids of other count",
        400,
        "expected 2 BYTES",
        **with_binary_ids(struct.pack("<I", 3) + b"zsh", 2),
    ),
    Case("binary ids no UTF-8", 400, "UTF-8", **with_binary_ids(struct.pack("<I", 2) + b"\xff\xfe", 1)),
    # Encodings
    Case("gzip", 200, body=gzip.compress(GOOD), headers={"Content-Encoding": "gzip"}),
    Case("deflate", 200, body=zlib.compress(GOOD), headers={"Content-Encoding": "deflate"}),
    Case("gzip garbage", 400, "gzip", body=b"not gzip at all", headers={"Content-Encoding": "gzip"}),
    Case(
        "gzip truncated",
        400,
        "truncated",
        body=gzip.compress(GOOD)[:-9],
        headers={"Content-Encoding": "gzip"},
    ),
    Case(
        "gzip with a tail",
        400,
        "after its end",
        body=gzip.compress(GOOD) + b"x",
        headers={"Content-Encoding": "gzip"},
    ),
    Case("encoding br", 415, "gzip or deflate", headers={"Content-Encoding": "br"}),
    Case("two encodings", 415, headers={"Content-Encoding": "gzip, gzip"}),
    # Names, versions, methods, paths
    Case("unknown model", 404, "GET /api/v1/models lists what there is", path="/v2/models/companio/infer"),
    Case("unknown version", 404, "no version 9", path="/v2/models/companion/versions/9/infer"),
    Case("version text", 404, "versions are numbers", path="/v2/models/companion/versions/latest/infer"),
    Case("version 0", 404, path="/v2/models/companion/versions/0/infer"),
    Case("version -1", 404, path="/v2/models/companion/versions/-1/infer"),
    Case("model without ONNX part", 404, "no ONNX part", path="/v2/models/section.onnx/infer"),
    Case("GET infer", 405, "expected the method POST", method="GET"),
    Case("PUT infer", 405, method="PUT"),
    Case("unknown path", 404, path="/v2/model"),
    Case("path below infer", 404, path=INFER + "/more"),
    Case("trailing slash", 404, path=INFER + "/"),
    Case("two slashes", 404, path="/v2//models/companion"),
    Case("only /v2/", 404, method="GET", path="/v2/"),
    Case("ready of an unknown model", 404, method="GET", path="/v2/models/absent/ready"),
    Case("health", 200, method="GET", path="/v2/health/live"),
    Case("index", 200, path="/v2/repository/index", body=b'{"ready": true}'),
    Case("index without body", 200, path="/v2/repository/index", body=b""),
    Case("index of garbage", 400, path="/v2/repository/index", body=b"{"),
    Case("index with text", 400, path="/v2/repository/index", body=b'{"ready": "yes"}'),
    Case("GET index", 405, method="GET", path="/v2/repository/index"),
    Case("load ..", 400, path="/v2/repository/models/../load", body=b""),
    Case("load ..%2f..%2fetc", 400, path="/v2/repository/models/..%2f..%2fetc/load", body=b""),
    Case("load %2e%2e%2fx", 400, path="/v2/repository/models/%2e%2e%2fx/load", body=b""),
    Case("load ..\\..\\x", 400, path="/v2/repository/models/..%5c..%5cx/load", body=b""),
    Case("load %252e%252e", 400, path="/v2/repository/models/%252e%252e/load", body=b""),
    Case("load a/b", 404, path="/v2/repository/models/a/b/load", body=b""),
    Case("load .", 400, path="/v2/repository/models/./load", body=b""),
    Case("load with a line end", 400, "control characters", path="/v2/repository/models/a%0A/load", body=b""),
    Case("load %00", 400, path="/v2/repository/models/%00/load", body=b""),
    Case("load a long name", 400, path=f"/v2/repository/models/{'x' * 300}/load", body=b""),
    Case(
        "load an ONNX part",
        400,
        "part of `companion`",
        path="/v2/repository/models/companion.onnx/load",
        body=b"",
    ),
    Case(
        "unload an ONNX part",
        400,
        "unloaded with it",
        path="/v2/repository/models/companion.onnx/unload",
        body=b"",
    ),
    Case("load with a key twice", 400, path="/v2/repository/models/companion/load", body=b'{"a": 1, "a": 2}'),
    Case("load with 17 kB", 413, path="/v2/repository/models/companion/load", body=b" " * 17_000),
    Case("load unknown", 404, path="/v2/repository/models/absent/load", body=b""),
    Case(
        "load a file",
        400,
        path="/v2/repository/models/companion/load",
        body=json.dumps(
            {"parameters": {"config": "{}", "file:../../x.onnx": base64.b64encode(b"x").decode()}}
        ).encode(),
    ),
    Case(
        "load a file at a root path",
        400,
        path="/v2/repository/models/companion/load",
        body=json.dumps({"parameters": {"file:/etc/passwd": ""}}).encode(),
    ),
    Case("model name ..", 400, method="GET", path="/v2/models/.."),
    Case("model name in other letters", 400, method="GET", path="/v2/models/%c3%a9"),
    Case("shared memory without key", 400, path="/v2/systemsharedmemory/region/x/register", body=b"{}"),
    Case(
        "shared memory elsewhere",
        400,
        path="/v2/systemsharedmemory/region/x/register",
        body=json.dumps({"key": "../../etc/passwd", "offset": 0, "byte_size": 8}).encode(),
    ),
    Case(
        "shared memory reserved",
        400,
        path="/v2/systemsharedmemory/region/x/register",
        body=json.dumps({"key": "triton_python_backend_shm", "offset": 0, "byte_size": 8}).encode(),
    ),
    Case("log file", 501, path="/v2/logging", body=b'{"log_file": "/tmp/x"}'),
    Case("trace file", 501, path="/v2/trace/setting", body=b'{"trace_file": "/tmp/x"}'),
]

# Inputs of the table that was measured on Triton, by the case that sends each; some differ by their status.
GOLDEN: dict[str, str] = {
    "ok": "ok",
    "nested data": "nested data",
    "empty body": "empty body",
    "not json": "not JSON",
    "json array": "JSON array",
    "no inputs": "no inputs",
    "empty inputs": "empty inputs",
    "unknown input": "unknown input",
    "wrong dtype": "wrong datatype",
    "bogus dtype": "bogus datatype",
    "shape mismatch rank": "wrong rank",
    "shape wrong dim": "wrong size",
    "data short": "data short",
    "data long": "data long",
    "negative dim": "negative size",
    "zero batch": "empty batch",
    "huge dims overflow": "huge size that overflows",
    "float shape": "fraction as size",
    "string data": "strings as data",
    "null data": "null as data",
    "bool data": "booleans as data",
    "NaN literal": "NaN literal",
    "1e999": "1e999",
    "dup input": "duplicate input",
    "batch>max": "more rows than allowed",
    "unknown output": "unknown output",
    "dup output": "duplicate output",
    "deep nest": "deep nesting in data",
    "id int": "id no string",
    "binary ok": "binary",
    "binary size too small": "binary size too small",
    "binary size too big": "binary size too large",
    "binary negative": "binary size negative",
    "binary size string": "binary size no number",
    "binary trailing bytes": "binary bytes left over",
    "header len > body": "header length beyond the body",
    "header len -1": "header length -1",
    "header len 2^64": "header length 2^64",
    "header len text": "header length text",
    "header len 0": "header length 0",
    "truncated": "truncated JSON",
    "gzip garbage": "gzip garbage",
    "encoding br": "encoding br",
    "model 404": "unknown model",
    "version 404": "unknown version",
    "version text": "version text",
    "GET infer": "GET infer",
    "PUT": "PUT infer",
    "unknown path": "unknown path",
    "/": "only /v2/",
    "trailing slash": "trailing slash",
    "ready of unknown model": "ready of an unknown model",
    "index body": "index",
    "index empty": "index without body",
    "GET index": "GET index",
    "load ..": "load ..",
    "load ..%2f..%2fetc": "load ..%2f..%2fetc",
    "load %2e%2e%2fx": "load %2e%2e%2fx",
    "load a/b": "load a/b",
    "load .": "load .",
    "load %00": "load %00",
    "load <long name>": "load a long name",
    "load file traversal": "load a file",
    "load file abs": "load a file at a root path",
    "shm register missing key": "shared memory without key",
    "shm traversal": "shared memory elsewhere",
    "shm reserved": "shared memory reserved",
    "infer unregistered shm": "unregistered shared memory",
    "log file write": "log file",
    "trace file write": "trace file",
    "health ok": "health",
}
