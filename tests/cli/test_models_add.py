"""Models of other programs, added on the command line and served by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from graphbox.deploy import open_model
from tests.cli.conftest import Call
from tests.model_import.onnx_files import linear, value
from tests.server.server_process import wait_until

ROWS = np.random.default_rng(5).standard_normal((40, 8)).astype(np.float32)


@pytest.fixture
def files(folder: Path) -> Path:
    """Files of other programs in the working directory."""
    (folder / "model.onnx").write_bytes(linear().SerializeToString())
    np.save(folder / "rows.npy", ROWS)
    (folder / "ids.txt").write_text("".join(f"w{number}\n" for number in range(len(ROWS))))
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the workspace; give the address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "graphbox", "serve", "--port", "0", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def ask(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})  # noqa: S310 (loopback)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 (loopback)
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_an_onnx_model_is_served_listed_and_measured(graphbox: Call, files: Path) -> None:
    outcome = graphbox("models", "add", "layer", "model.onnx", "--json")
    assert outcome.code == 0, outcome.err
    document = outcome.json
    assert (document["version"], document["active"], document["kind"]) == (1, True, "tensors")
    assert document["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}]
    assert document["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 300]}]
    path = Path(document["path"])
    (files / "model.onnx").unlink()
    example = json.loads((path / "example_request.json").read_text())
    session = onnxruntime.InferenceSession(path / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = np.array(example["inputs"][0]["data"], np.float32).reshape(2, 8)
    with served(files) as url:
        status, answer = ask(f"{url}v2/models/layer/infer", example)
        assert (status, answer["outputs"][0]["shape"]) == (200, [2, 300])
        expected = session.run(["y"], {"x": feeds})[0]
        np.testing.assert_allclose(answer["outputs"][0]["data"], expected.ravel(), rtol=1e-6)
        metadata = ask(f"{url}v2/models/layer")[1]
        assert (metadata["inputs"], metadata["outputs"]) == (document["inputs"], document["outputs"])
        wrong = {"name": "x", "datatype": "FP32", "shape": [1, 7], "data": [0.5] * 7}
        status, answer = ask(f"{url}v2/models/layer/infer", {"inputs": [wrong]})
        assert (status, answer["error"][:15]) == (400, "inputs[0].shape")
        for noun in ("neighbors?id=1", "ids", "relations", "answers?relation=a&head=b"):
            status, answer = ask(f"{url}api/v1/models/layer/{noun}")
            assert status == 400
            assert "received `layer` of kind tensors" in answer["message"]
            assert answer["hint"] == "use /v2/models/layer/infer for this model"
        assert ask(f"{url}api/v1/models/layer/predict", {"rows": [{"x": 1}]})[0] == 400
        (listed,) = ask(f"{url}api/v1/models")[1]
        assert (listed["versions"][0]["kind"], listed["versions"][0]["served"]) == ("tensors", True)
    outcome = graphbox("bench", "layer", "--batch", "1,4", "--seconds", "0.1", "--json")
    assert outcome.code == 0, outcome.err
    (version,) = outcome.json["bench"]["layer"]
    assert [(each["operation"], each["batch"]) for each in version["batches"]] == [
        ("infer", 1),
        ("infer", 4),
        ("program", 1),
        ("program", 4),
    ]
    assert "tensors" in graphbox("models", "list").out
    assert "tensors" in graphbox("models", "show", "layer").out
    outcome = graphbox("predict", "layer", "--input", "ids.txt")
    assert outcome.code == 5
    assert "received `layer` of kind tensors" in outcome.err


def test_a_model_of_a_fixed_size_is_measured_with_that_size(graphbox: Call, files: Path) -> None:
    model = linear(inputs=[value("x", [3, 8])], outputs=[value("y", [3, 300])])
    (files / "model.onnx").write_bytes(model.SerializeToString())
    assert graphbox("models", "add", "layer", "model.onnx").code == 0
    outcome = graphbox("bench", "layer", "--seconds", "0.1")
    assert outcome.code == 2
    assert "expected a batch of 3" in outcome.err
    assert "--batch 3" in outcome.err
    outcome = graphbox("bench", "layer", "--seconds", "0.1", "--batch", "3", "--json")
    assert outcome.code == 0, outcome.err
    assert [each["batch"] for each in outcome.json["bench"]["layer"][0]["batches"]] == [3, 3]


def test_joining_of_requests_is_switched_off(graphbox: Call, files: Path) -> None:
    for name, options, joinable in (("one", (), True), ("two", ("--no-join",), False)):
        outcome = graphbox("models", "add", name, "model.onnx", *options, "--json")
        assert outcome.code == 0, outcome.err
        with open_model(outcome.json["path"], "onnxruntime") as model:
            assert model.signature("").joinable is joinable
    outcome = graphbox("models", "add", "words", "rows.npy", "--no-join")
    assert outcome.code == 2
    assert "expected a file of the format onnx with --no-join, received npy" in outcome.err


def test_rows_are_served_with_their_neighbours(graphbox: Call, files: Path) -> None:
    given = ("models", "add", "words", "rows.npy", "--ids", "ids.txt", "--score", "dot", "--type", "word")
    outcome = graphbox(*given)
    assert outcome.code == 0, outcome.err
    assert "rows    40 x 8, float32" in outcome.out
    with served(files) as url:
        status, answer = ask(f"{url}api/v1/models/words/neighbors?id=w3&k=4")
        scores = ROWS @ ROWS[3]
        best = [number for number in np.argsort(-scores).tolist() if number != 3][:4]
        assert status == 200
        assert [each["id"] for each in answer["neighbors"]] == [f"w{number}" for number in best]
        assert [each["score"] for each in answer["neighbors"]] == pytest.approx(
            scores[best].tolist(), abs=1e-5
        )
        asked = {"name": "id", "datatype": "BYTES", "shape": [1], "data": ["w7"]}
        answer = ask(f"{url}v2/models/words/infer", {"inputs": [asked]})[1]
        np.testing.assert_array_equal(np.array(answer["outputs"][0]["data"], np.float32), ROWS[7])


def test_unknown_ids_are_answered_as_the_option_says(graphbox: Call, files: Path) -> None:
    given = ("models", "add", "words", "rows.npy", "--ids", "ids.txt", "--unknown-ids")
    for unknown_ids, row in (("zero", np.zeros(8)), ("mean", ROWS.mean(axis=0, dtype=np.float64))):
        outcome = graphbox(*given, unknown_ids, "--promote", "--json")
        assert outcome.code == 0, outcome.err
        assert [output["name"] for output in outcome.json["outputs"]] == ["embedding", "known"]
        with served(files) as url:
            asked = {"name": "id", "datatype": "BYTES", "shape": [2], "data": ["w7", "none"]}
            vectors, known = ask(f"{url}v2/models/words/infer", {"inputs": [asked]})[1]["outputs"]
        assert known["data"] == [True, False]
        np.testing.assert_allclose(np.reshape(vectors["data"], (2, 8)), [ROWS[7], row], rtol=1e-6, atol=1e-7)
    assert graphbox(*given, "median").code == 2
    outcome = graphbox("models", "add", "layer", "model.onnx", "--unknown-ids", "zero")
    assert outcome.code == 2
    assert "with --unknown-ids, received onnx" in outcome.err


def test_a_later_version_is_active_only_if_asked_for(graphbox: Call, files: Path) -> None:
    assert graphbox("models", "add", "words", "rows.npy").code == 0
    outcome = graphbox("models", "add", "words", "rows.npy", "--ids", "ids.txt")
    assert "`graphbox models promote words --version 2` serves it" in outcome.out
    assert graphbox("models", "add", "words", "rows.npy", "--promote", "--json").json["active"] is True
    active = [each["active"] for each in graphbox("models", "list", "--json").json]
    assert active == [False, False, True]


def test_what_is_refused_leaves_nothing(graphbox: Call, files: Path) -> None:
    (files / "model.onnx").write_bytes(b"no model")
    (files / "rows.pt").write_bytes(b"PK\x03\x04")
    (files / "rows.txt").write_text("a 1 2\nb 1 x\n")
    refused: list[tuple[tuple[str, ...], int, str]] = [
        (("model.onnx",), 4, "expected an ONNX model"),
        (("rows.pt",), 5, "received a pickle"),
        (("rows.txt",), 4, "rows.txt:2: expected a number in column 3, received 'x'"),
        (("none.npy",), 2, "found none"),
        (("rows.npy", "--score", "euclid"), 2, "euclid"),
        (("rows.npy", "--tensor", "x"), 2, "with --tensor, received npy"),
        (("rows.npy", "--target", "openvino"), 2, "with --target, received npy"),
    ]
    for arguments, code, message in refused:
        outcome = graphbox("models", "add", "words", *arguments)
        assert outcome.code == code, (arguments, outcome.err)
        assert message in outcome.err
        assert "Traceback" not in outcome.err
    assert graphbox("models", "add", "../words", "rows.npy").code == 2
    assert graphbox("models", "list", "--json").json == []
    assert not (files / "workspace" / "models" / "words").exists()


def test_what_a_killed_process_left_is_removed_by_the_next(graphbox: Call, files: Path) -> None:
    assert graphbox("models", "add", "words", "rows.npy").code == 0
    models = files / "workspace" / "models" / "words"
    os.mkfifo(files / "slow.txt")
    process = subprocess.Popen(
        [sys.executable, "-m", "graphbox", "models", "add", "words", "slow.txt"], cwd=files
    )
    # Opening it waits for the reader, which waits for a whole block then.
    with (files / "slow.txt").open("w") as stream:
        stream.write("a 1 2\n")
        stream.flush()
        wait_until(lambda: any(models.glob(".*.partial-*")), what="the hidden folder")
        process.kill()
        process.wait(60)
    assert [each["version"] for each in graphbox("models", "list", "--json").json] == [1]
    assert any(models.glob(".*.partial-*"))
    assert graphbox("models", "add", "words", "rows.npy").code == 0
    assert not any(models.glob(".*.partial-*"))
    assert [each["version"] for each in graphbox("models", "list", "--json").json] == [1, 3]
