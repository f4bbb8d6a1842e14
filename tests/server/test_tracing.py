"""Traces: spans of requests over REST and gRPC, as a receiver of OTLP gets them."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from graphbox.errors import BackendMissingError
from graphbox.server.tracing import Tracing
from tests.server.sample_models import write_encoder
from tests.server.server_process import StartServer

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class Receiver:
    """A receiver of OTLP over HTTP.

    Attributes:
        spans: that were received.
        resource: attributes of their resource.
    """

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource |= {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> Any:
        """Return the only span of a name."""
        (span,) = [each for each in self.spans if each.name == name]
        return span

    def children(self, parent: Any) -> list[Any]:
        return [span for span in self.spans if span.parent_span_id == parent.span_id]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
    for variable in ("OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(variable, raising=False)
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join(10)


def traced(*, sampled: bool = True) -> dict[str, str]:
    return {"traceparent": f"00-{TRACE}-{PARENT}-0{int(sampled)}"}


def attributes(span: Any) -> dict[str, Any]:
    return {
        each.key: each.value.string_value if each.value.HasField("string_value") else each.value.int_value
        for each in span.attributes
    }


def test_spans_of_requests(receiver: Receiver, start_server: StartServer, tmp_path: Path) -> None:
    write_encoder(tmp_path / "models" / "companion" / "1")
    server = start_server(models=[tmp_path / "models"], grpc_port=0, otel=True)
    server.wait_until_ready()
    body = {"inputs": [{"name": "id", "datatype": "BYTES", "shape": [1], "data": ["zsh"]}]}
    with server.client() as client:
        path = "/v2/models/companion/infer"
        answer = client.post(path, json=body, headers=traced())
        assert answer.status_code == 200
        assert client.post(path, json=body, headers=traced(sampled=False)).status_code == 200
        assert (
            client.get("/api/v1/models/companion/ids", headers={"traceparent": "broken"}).status_code == 200
        )
        assert client.post("/v2/models/absent/infer", json=body).status_code == 404
    tensor = triton.InferInput("id", [1], "BYTES").set_data_from_numpy(np.array([b"zsh"], object))
    answers: list[Any] = []
    done = threading.Event()

    def received(result: Any, error: Any) -> None:
        answers.append(error or result)
        if len(answers) == 2:
            done.set()

    with triton.InferenceServerClient(server.grpc_address) as grpc_client:
        grpc_client.infer("companion", [tensor], headers=traced())
        grpc_client.start_stream(received, headers=traced())
        for _ in range(2):
            grpc_client.async_stream_infer("companion", [tensor])
        assert done.wait(30)
        grpc_client.stop_stream()
    assert server.stop() == 0, "spans are exported before the end"
    assert receiver.resource["service.name"] == "graphbox"
    infers = [span for span in receiver.spans if span.name == "POST /v2/models/{model}/infer"]
    assert len(infers) == 2, "the one whose parent is not sampled has no span"
    (infer,) = [span for span in infers if span.trace_id.hex() == TRACE]
    call = receiver.named(INFER)
    streamed = [span for span in receiver.spans if span.name == f"{STREAM} request"]
    assert len(streamed) == 2
    for request in (infer, call, *streamed):
        assert request.trace_id.hex() == TRACE
        assert request.parent_span_id.hex() == PARENT
        assert request.kind == request.SPAN_KIND_SERVER
        assert {key: attributes(request)[f"graphbox.{key}"] for key in ("model", "version")} == {
            "model": "companion",
            "version": "1",
        }
        children = {span.name: span for span in receiver.children(request)}
        queue, execute = children["queue"], children["execute"]
        assert len(children) == 2
        times = [
            *(request.start_time_unix_nano, queue.start_time_unix_nano, queue.end_time_unix_nano),
            *(execute.start_time_unix_nano, execute.end_time_unix_nano, request.end_time_unix_nano),
        ]
        # Sums of two clocks: a microsecond of rounding.
        assert all(later - earlier > -1000 for earlier, later in pairwise(times))
    assert attributes(infer)["http.response.status_code"] == 200
    assert attributes(infer)["graphbox.request_id"] == answer.headers["x-request-id"]
    root = receiver.named("GET /api/v1/models/{name}/ids")
    assert root.parent_span_id == b""
    (refused,) = [span for span in infers if span.trace_id.hex() != TRACE]
    assert receiver.children(refused) == []
    assert "Traceback" not in server.log.read_text()


def test_a_receiver_that_is_away_disturbs_nothing(
    receiver: Receiver, start_server: StartServer, tmp_path: Path
) -> None:
    receiver.server.shutdown()
    receiver.server.server_close()
    (tmp_path / "models").mkdir()
    server = start_server(models=[tmp_path / "models"], otel=True)
    assert [httpx.get(f"{server.base}/v2").status_code for _ in range(5)] == [200] * 5
    assert server.stop() == 0


def test_nothing_is_imported_without_the_option() -> None:
    # FastAPI imports the interface where it is installed.
    code = "import sys, graphbox.server.process; print([n for n in sys.modules if 'opentelemetry.sdk' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(BackendMissingError) as caught:
        Tracing()
    assert "pip install 'graphbox[otel]'" in str(caught.value)
