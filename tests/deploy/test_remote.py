"""Models of other servers: a real graphbox server, and servers that answer wrongly."""

from __future__ import annotations

import concurrent.futures
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphbox
from graphbox.artifact import Artifact
from graphbox.deploy import Device, Options, Package, open_encoder, open_program, targets
from graphbox.deploy.adapters.kserve import KServeProgram, KServeServer
from graphbox.deploy.conformance_models import sum_model
from graphbox.errors import (
    BackendMissingError,
    GraphboxError,
    InvalidRequestError,
    TimeLimitError,
    UnsupportedError,
    UsageError,
)
from graphbox.package_folder import FOLDER_VARIABLE
from tests.server.sample_models import PACKAGES, build_workspace, expected_embeddings
from tests.server.server_process import TOKEN, ServerProcess, start_process

VARIABLE = "GRAPHBOX_REMOTE"
DEVICE = Device("here", "other", "a server", available=True)
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("GRAPHBOX_REMOTE_TOKEN", raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "packages"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_workspace(tmp_path_factory.mktemp("served")).root


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from running(models, tmp_path_factory.mktemp("log") / "server.log")


def running(models: Path, log: Path, **settings: Any) -> Iterator[ServerProcess]:
    server = start_process({"port": 0, "workspace": models, **settings}, log)
    server.wait_until_ready()
    yield server
    server.stop()
    if server.process.stdout is not None:
        server.process.stdout.close()


def encoder(models: Path) -> Artifact:
    (manifest,) = models.rglob("models/companion/1/manifest.json")
    return Artifact.open(manifest.parent)


def name_it(monkeypatch: pytest.MonkeyPatch, server: ServerProcess, model: str = "companion.onnx") -> None:
    monkeypatch.setenv(VARIABLE, f"here={server.base}/v2/models/{model}")


# A real server


def test_a_model_of_another_graphbox_answers_the_same(
    models: Path, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_it(monkeypatch, server)
    path = encoder(models).path
    nodes = np.arange(len(PACKAGES))
    with open_encoder(path, target="onnxruntime/cpu") as here, open_encoder(path, target="remote") as there:
        assert there.effective.pop("further")["device"] == "cpu"
        assert there.effective == {
            "adapter": "remote",
            "provider": "onnxruntime_onnx",
            "device": "here",
            "precision": "float32",
            "threads": 1,
            "fallback_nodes": [],
            "runtime": f"graphbox {graphbox.__version__}",
            "nearest": {},
        }
        np.testing.assert_array_equal(there.encode_indices(nodes), here.encode_indices(nodes))
        np.testing.assert_allclose(there.encode_indices(nodes), expected_embeddings(PACKAGES), atol=1e-5)


def test_a_version_can_be_named(models: Path, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    name_it(monkeypatch, server, "companion.onnx/versions/1")
    open_program("remote/here", encoder(models).onnx_bytes(), Options()).program.close()
    name_it(monkeypatch, server, "companion.onnx/versions/7")
    (found,) = targets("remote")
    assert not found.available
    assert "/v2/models/companion.onnx/versions/7/ready is not ready: 404" in (found.reason or "")


def test_several_calls_at_a_time_have_connections_of_their_own(
    models: Path, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_it(monkeypatch, server)
    with (
        open_encoder(encoder(models).path, target="remote") as there,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        expected = expected_embeddings(PACKAGES)
        found = list(pool.map(lambda i: there.encode_indices(np.array([i % 8, i // 8 % 8])), range(200)))
    for number, rows in enumerate(found):
        np.testing.assert_allclose(rows, expected[[number % 8, number // 8 % 8]], atol=1e-5)


def test_auto_never_means_a_server(
    server: ServerProcess, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_it(monkeypatch, server)
    assert [target.available for target in targets("remote")] == [True]
    opened = open_program("auto", encoder(models).onnx_bytes(), Options())
    opened.program.close()
    assert opened.adapter.name != "remote"
    assert not any(name.startswith("remote") for name in opened.measured_ms)


def test_another_model_is_refused(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    name_it(monkeypatch, server)
    with pytest.raises(
        UnsupportedError, match=r"expected a model with the inputs x FP32 \[-1, 3\]"
    ) as caught:
        open_program("remote", sum_model(), Options())
    assert "neighbors INT64 [-1, 1, -1]" in caught.value.message
    name_it(monkeypatch, server, "absent")
    (found,) = targets("remote")
    assert not found.available


def test_another_file_with_the_same_tensors_is_refused(
    server: ServerProcess, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_it(monkeypatch, server)
    other = encoder(models).onnx_bytes() + b"\x32\x01x"  # doc_string
    with pytest.raises(UnsupportedError, match="expected a server of the same ONNX file"):
        open_program("remote", other, Options())


def test_what_the_server_refuses_is_told(
    server: ServerProcess, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run_built` checks nothing, so that the server does."""
    name_it(monkeypatch, server)
    with open_program("remote", encoder(models).onnx_bytes(), Options()).program as program:
        feeds = {
            "rows": np.zeros((2, 4), np.float32),
            "own": np.array([5]),
            "neighbors": np.zeros((1, 1, 1), np.int64),
            "weights": np.ones((1, 1, 1), np.float32),
        }
        with pytest.raises(InvalidRequestError, match=r"the server refused the request: 400 .*below 2"):
            program.run_built(feeds)
        feeds["own"] = np.array([1])
        assert program.run(feeds)["embedding"].tolist() == [[0.0] * 4]
        with pytest.raises(InvalidRequestError, match="expected an array of shape"):
            program.run_built(feeds, {"embedding": np.zeros((2, 4), np.float32)})


def test_a_server_with_a_token(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for server in running(models, tmp_path / "log", token=TOKEN):
        name_it(monkeypatch, server)
        (found,) = targets("remote")
        assert not found.available
        assert "the server refuses access: 401" in (found.reason or "")
        monkeypatch.setenv("GRAPHBOX_REMOTE_TOKEN", TOKEN)
        open_program("remote", encoder(models).onnx_bytes(), Options()).program.close()


def test_a_server_that_stops_is_named(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for server in running(models, tmp_path / "log"):
        name_it(monkeypatch, server)
        with open_encoder(encoder(models).path, target="remote") as there:
            there.encode_indices(np.array([0]))
            server.stop()
            with pytest.raises(BackendMissingError, match=r"cannot connect to .*: Connection refused"):
                there.encode_indices(np.array([0]))
            (found,) = targets("remote")
            assert not found.available


# What the environment says


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "GRAPHBOX_REMOTE names none"),
        ("http://127.0.0.1:1/v2/models/m", "received 'http://127.0.0.1:1/v2/models/m'"),
        ("a=http://127.0.0.1:1/models/m", "expected NAME=http://HOST:PORT/v2/models/MODEL"),
        ("a=ftp://127.0.0.1/v2/models/m", "expected NAME=http://HOST:PORT/v2/models/MODEL"),
        ("a=http://127.0.0.1:1/v2/models/m/infer", "expected NAME="),
        ("a=http://127.0.0.1:1/v2/models/m\r\nHost: x", "expected NAME="),
        ("a=http://user:secret@127.0.0.1/v2/models/m", "received a password"),
        ("a=http://127.0.0.1:99999/v2/models/m", "Port out of range"),
        ("a=http://127.0.0.1:1/v2/models/m", "cannot connect to http://127.0.0.1:1: Connection refused"),
        ("a=http://no..such/v2/models/m", "cannot connect to http://no..such"),
        ("a=http://127.0.0.1:1/v2/models/m,a=http://127.0.0.1:2/v2/models/m", "received `a` twice"),
    ],
)
def test_why_a_server_is_not_there(text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    (found,) = targets("remote")
    assert not found.available
    assert reason in (found.reason or "")
    assert "secret" not in (found.reason or "")


def test_a_token_with_a_line_break_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_REMOTE_TOKEN", "a\nX-Other: b")
    with pytest.raises(UsageError, match="expected a token of printable ASCII characters"):
        KServeServer("http://127.0.0.1:1")


# Servers that answer wrongly

METADATA = {
    "name": "m",
    "platform": "theirs",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "result", "datatype": "FP32", "shape": [-1, 3]}],
}
SUM = (2 * VALUES).tobytes()


class Scripted:
    """A server without the configuration extension; ``infer`` is what it answers to that.

    Attributes:
        calls: how many of them.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls = 0
        self.metadata: Any = METADATA
        self.infer: Callable[[BaseHTTPRequestHandler], None] = answer()

    def reply(self, handler: BaseHTTPRequestHandler) -> None:
        match handler.path:
            case "/v2":
                send(handler, 200, b'{"name": "theirs", "version": "9"}')
            case "/v2/models/m":
                send(handler, 200, json.dumps(self.metadata).encode())
            case "/v2/models/m/infer":
                handler.rfile.read(int(handler.headers["content-length"]))
                self.calls += 1
                self.infer(handler)
            case _:
                send(handler, 404, b'{"error": "no such path"}')


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def answer(
    data: bytes = SUM, header_length: str | None = None, **changes: Any
) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a function that answers with one output; ``changes`` are of its fields."""
    output = {
        "name": "result",
        "datatype": "FP32",
        "shape": [2, 3],
        "parameters": {"binary_data_size": len(data)},
        **changes,
    }
    header = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    length = header_length or str(len(header))
    return lambda handler: send(
        handler, 200, header + data, Inference_Header_Content_Length=length, content_type="x"
    )


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            script.reply(self)

        def do_POST(self) -> None:
            script.reply(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        script = Scripted(f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        yield script
        http.shutdown()
        thread.join()


def opened(script: Scripted, timeout_s: float = 20.0) -> KServeProgram:
    server = KServeServer(script.url, timeout_s)
    try:
        return KServeProgram(server, "/v2/models/m", Package(sum_model(), DEVICE, Options()))
    except GraphboxError:
        server.close()
        raise


def test_a_right_answer_is_taken(scripted: Scripted) -> None:
    program = opened(scripted)
    for _ in range(3):
        np.testing.assert_array_equal(program.run({"x": VALUES})["result"], 2 * VALUES)
    out = np.zeros_like(VALUES)
    assert program.run({"x": VALUES}, {"result": out})["result"] is out
    np.testing.assert_array_equal(out, 2 * VALUES)
    program.close()


def test_a_precision_that_is_not_told_is_not_taken_for_the_right_one(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = opened(scripted)
    assert program.effective["precision"] == "unknown"
    assert program.effective["threads"] == 0
    assert program.effective["runtime"] == "theirs 9"
    program.close()
    monkeypatch.setenv(VARIABLE, f"here={scripted.url}/v2/models/m")
    monkeypatch.setattr(KServeServer, "check_ready", lambda *_: None)
    with pytest.raises(UnsupportedError, match="expected to compute in float32, remote does not report its"):
        open_program("remote", sum_model(), Options())
    with open_program("remote", sum_model(), Options(allow_lower_precision=True)).program as allowed:
        np.testing.assert_array_equal(allowed.run({"x": VALUES})["result"], 2 * VALUES)


@pytest.mark.parametrize(
    ("infer", "text"),
    [
        (answer(name="other"), "`other` FP32"),
        (answer(datatype="FP64"), "`result` FP64"),
        (answer(shape=[2, 4]), r"\[2, 4\]"),
        (answer(shape=[6]), r"\[6\]"),
        (answer(shape=[-2, 3]), r"\[-2, 3\]"),
        (answer(shape=[1 << 40, 3]), "with 24 bytes"),
        (answer(data=SUM[:-4]), "with 20 bytes"),
        (answer(parameters={"binary_data_size": 1 << 62}), "with 4611686018427387904 bytes"),
        (answer(parameters={"binary_data_size": -24}), "binary_data_size: Input should be greater"),
        (answer(parameters={}, data=b""), "with no bytes"),
        (answer(header_length="9999"), "expected at most the"),
        (answer(header_length="-1"), "expected at most the"),
        (answer(header_length="5"), "expected an answer of the KServe protocol v2"),
        (answer(data=SUM + b"more", parameters={"binary_data_size": 24}), "received .* bytes"),
        (lambda handler: send(handler, 200, b'{"outputs": []}'), r"expected the outputs \['result'\]"),
        (lambda handler: send(handler, 200, b"<html>"), "expected an answer of the KServe protocol v2"),
    ],
)
def test_a_wrong_answer_is_refused(
    scripted: Scripted, infer: Callable[[BaseHTTPRequestHandler], None], text: str
) -> None:
    program = opened(scripted)
    scripted.infer = infer
    with pytest.raises(UnsupportedError, match=text):
        program.run({"x": VALUES})
    scripted.infer = answer()
    np.testing.assert_array_equal(program.run({"x": VALUES})["result"], 2 * VALUES)
    program.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, BackendMissingError),
        (404, BackendMissingError),
        (500, GraphboxError),
        (503, BackendMissingError),
    ],
)
def test_a_refusal_says_what_the_server_says(
    scripted: Scripted, status: int, kind: type[GraphboxError]
) -> None:
    program = opened(scripted)
    scripted.infer = lambda handler: send(handler, status, b'{"error": "it is\\nnot so"}')
    with pytest.raises(kind, match=f"{status} it is not so") as caught:
        program.run({"x": VALUES})
    assert type(caught.value) is kind
    assert caught.value.where == f"{scripted.url}/v2/models/m/infer"
    program.close()


@pytest.mark.parametrize("metadata", [[], {"inputs": []}, {**METADATA, "inputs": [{"name": "x"}]}])
def test_metadata_that_is_none_is_refused(scripted: Scripted, metadata: Any) -> None:
    scripted.metadata = metadata
    with pytest.raises(UnsupportedError, match="expected an answer of the KServe protocol v2"):
        opened(scripted)


def test_a_slow_answer_says_what_was_waited_for(scripted: Scripted) -> None:
    program = opened(scripted, timeout_s=0.3)
    scripted.infer = lambda _: time.sleep(1.0)
    with pytest.raises(TimeLimitError, match=r"waited 0.3 s for the answer to POST http.*/v2/models/m/infer"):
        program.run({"x": VALUES})
    program.close()


def test_a_connection_that_was_closed_meanwhile_is_made_again(scripted: Scripted) -> None:
    program = opened(scripted)

    def closes_unsaid(handler: BaseHTTPRequestHandler) -> None:
        answer()(handler)
        handler.close_connection = True

    scripted.infer = closes_unsaid
    for _ in range(3):
        np.testing.assert_array_equal(program.run({"x": VALUES})["result"], 2 * VALUES)
        time.sleep(0.05)
    assert scripted.calls == 3
    program.close()


def test_an_answer_that_breaks_off_is_told(scripted: Scripted) -> None:
    def breaks_off(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.close_connection = True

    program = opened(scripted)
    scripted.infer = breaks_off
    with pytest.raises(BackendMissingError, match="received IncompleteRead"):
        program.run({"x": VALUES})
    assert scripted.calls == 2  # once on a connection that was open before, once on a new one
    program.close()
