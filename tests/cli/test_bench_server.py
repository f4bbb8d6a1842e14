"""`graphbox bench --url` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import call_main
from tests.server.sample_models import PACKAGES, build_workspace
from tests.server.server_process import TOKEN, ServerProcess, start_process

FORMATS = Path(__file__).parents[1] / "formats" / "artifact-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    workspace = build_workspace(folder / "debian")
    settings = {
        "port": 0,
        "grpc_port": 0,
        "token": TOKEN,
        "workspace": workspace.root,
        "models": [FORMATS / "tensors" / "1", FORMATS / "click" / "1"],
    }
    running = start_process(settings, folder / "server.log")
    running.wait_until_ready()
    yield running
    assert running.stop() == 0
    assert running.process.stdout is not None
    running.process.stdout.close()


def bench(server: ServerProcess, *arguments: str) -> list[dict[str, Any]]:
    options = ["--url", server.base, "--token", TOKEN, "--seconds", "0.3", "--json"]
    outcome = call_main(["bench", *arguments, *options])
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)["load"][arguments[0]]
    assert isinstance(document, list)
    return document


def count_of(server: ServerProcess, model: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    (found,) = httpx.get(f"{server.base}/v2/models/{model}/stats", headers=headers).json()["model_stats"]
    count: int = found["inference_stats"]["success"]["count"]
    return count


@pytest.mark.parametrize("model", ["companion", "tensors", "click"])
@pytest.mark.parametrize("protocol", ["json", "binary"])
def test_the_example_of_every_model_is_sent(server: ServerProcess, model: str, protocol: str) -> None:
    before = count_of(server, model)
    (report,) = bench(server, model, "--protocol", protocol)
    assert report["accepted"] == report["sent"] > 20
    assert report["refused"] == report["failed"] == report["unsent"] == 0
    assert report["loop"] == "closed"
    latency = report["latency"]
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
    # The server counts the warm-up and the request before it, too.
    assert count_of(server, model) - before > report["accepted"]


def test_batches(server: ServerProcess) -> None:
    reports = bench(server, "companion", "--batch", "1,7")
    assert [report["batch"] for report in reports] == [1, 7]
    assert all(report["accepted"] > 0 and not report["failed"] for report in reports)


def test_an_open_loop(server: ServerProcess) -> None:
    (report,) = bench(server, "tensors", "--rate", "200", "--arrivals", "constant", "--connections", "8")
    assert report["loop"] == "open"
    assert report["sent"] == pytest.approx(60, abs=2)


def test_several_processes(server: ServerProcess) -> None:
    (report,) = bench(server, "tensors", "--processes", "2", "--connections", "3")
    assert report["connections"] == 6
    assert report["accepted"] == report["sent"] > 20


def test_grpc(server: ServerProcess) -> None:
    (report,) = bench(
        server, "companion", "--protocol", "grpc", "--grpc-port", server.grpc_address.rpartition(":")[2]
    )
    assert report["accepted"] == report["sent"] > 20
    (report,) = bench(
        server,
        "tensors",
        "--protocol",
        "grpc",
        "--grpc-port",
        server.grpc_address.rpartition(":")[2],
        "--rate",
        "100",
    )
    assert report["accepted"] == report["sent"] == pytest.approx(30, abs=25)


def test_requests_of_a_file(server: ServerProcess, tmp_path: Path) -> None:
    ids = [{"name": "id", "datatype": "BYTES", "shape": [1], "data": [package]} for package in PACKAGES]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(json.dumps({"inputs": [each]}) for each in ids))
    (report,) = bench(server, "companion", "--request", str(file))
    assert report["accepted"] == report["sent"] > len(PACKAGES)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["companion", "--token", "wrong-token-long-enough"], 1, "status 401"),
        (["absent"], 2, "absent"),
        (["companion", "--protocol", "soap"], 2, "expected json, binary or grpc, received `soap`"),
        (["companion", "--protocol", "grpc"], 2, "expected --grpc-port and --protocol grpc together"),
        (["companion", "--arrivals", "constant"], 2, "expected --rate with --arrivals"),
        (["companion", "--target", "onnxruntime"], 2, "expected no --url with --target"),
        (["companion", "--connections", "0"], 2, "connections: expected at least 1"),
        (["companion", "--seconds", "-1"], 2, "seconds: expected a positive number"),
        (["companion", "--request", "absent.json"], 2, "absent.json: expected a file with a request"),
        (["companion", "--version", "1", "--version", "2"], 2, "expected at most one version"),
    ],
)
def test_mistakes(server: ServerProcess, arguments: list[str], code: int, message: str) -> None:
    token = [] if "--token" in arguments else ["--token", TOKEN]
    outcome = call_main(["bench", *arguments, "--url", server.base, *token])
    assert outcome.code == code, outcome.err
    assert message in " ".join(outcome.err.split())


def test_a_request_the_model_refuses(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"inputs": [{"name": "no", "datatype": "FP32", "shape": [1], "data": [1]}]}')
    outcome = call_main(
        ["bench", "companion", "--url", server.base, "--token", TOKEN, "--request", str(file)]
    )
    assert outcome.code == 1
    assert "status 400" in outcome.err
    file.write_text("{}")
    outcome = call_main(
        ["bench", "companion", "--url", server.base, "--token", TOKEN, "--request", str(file)]
    )
    assert outcome.code == 4
    assert "expected an infer request" in outcome.err


@pytest.mark.parametrize("option", ["--rate", "--connections", "--processes"])
def test_options_of_a_load_test_need_a_server(option: str) -> None:
    outcome = call_main(["bench", "companion", option, "5"])
    assert outcome.code == 2
    assert f"expected --url with {option}" in outcome.err


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a/b", "nothing", "http://u:p@a"])
def test_a_url_of_another_form(url: str) -> None:
    outcome = call_main(["bench", "companion", "--url", url])
    assert outcome.code == 2
    assert "expected http://HOST:PORT" in outcome.err
