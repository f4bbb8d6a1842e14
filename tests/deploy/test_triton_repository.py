"""Model repositories: what is written, and a real Triton that serves it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from graphbox.deploy import Options, choose, open_encoder, open_program, targets
from graphbox.deploy.adapters import triton_model
from graphbox.deploy.adapters.triton_repository import adapter
from graphbox.deploy.building import build_package
from graphbox.deploy.conformance import check_adapter
from graphbox.deploy.conformance_models import gather_model, sum_model
from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.errors import BackendMissingError, UnsupportedError
from graphbox.package_folder import FOLDER_VARIABLE
from tests.artifact.sample_model import SampleModel, write_encoder
from tests.deploy.triton_server import add_conformance_models, folder_of, triton_server, why_not

VARIABLE = "GRAPHBOX_TRITON"
with_triton = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

CONFIGURATION = """backend: "python"
max_batch_size: 0
input [
  {{ name: "x" data_type: TYPE_FP32 dims: [-1, 3] }}
]
output [
  {{ name: "result" data_type: TYPE_FP32 dims: [-1, 3] }}
]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters {{ key: "model_sha256" value {{ string_value: "{digest}" }} }}
parameters {{ key: "precision" value {{ string_value: "float32" }} }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "2" }} }}
parameters {{ key: "inter_op_thread_count" value {{ string_value: "1" }} }}
"""


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "packages"))


def files_of(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_a_folder_for_the_python_backend() -> None:
    model = sum_model()
    folder = folder_of(model, "python", threads=2)
    assert files_of(folder) == {"config.pbtxt", "1/model.onnx", "1/model.py", "package.json"}
    assert (folder / "1/model.onnx").read_bytes() == model
    assert (folder / "1/model.py").read_bytes() == Path(triton_model.__file__).read_bytes()
    expected = CONFIGURATION.format(digest=hashlib.sha256(model).hexdigest())
    assert (folder / "config.pbtxt").read_text() == expected


def test_a_folder_for_the_onnxruntime_backend() -> None:
    folder = folder_of(sum_model(), "onnxruntime")
    assert files_of(folder) == {"config.pbtxt", "1/model.onnx", "package.json"}
    assert (
        (folder / "config.pbtxt").read_text().startswith('platform: "onnxruntime_onnx"\nmax_batch_size: 0\n')
    )


def test_names_of_tensors_end_no_string() -> None:
    name = 'a"}\\ \n\u00e9'
    model = write_onnx([Node("Neg", [name], ["y"])], {name: (np.float32, ["n"])}, {"y": (np.float32, ["n"])})
    text = (folder_of(model, "python") / "config.pbtxt").read_text()
    assert r'name: "a\042}\134 \012\303\251"' in text


def test_a_tensor_without_dimensions_is_refused() -> None:
    model = write_onnx([Node("Neg", ["x"], ["y"])], {"x": (np.float32, [])}, {"y": (np.float32, [])})
    with pytest.raises(UnsupportedError, match="`x` has none"):
        folder_of(model, "python")


def test_an_operator_that_onnxruntime_lacks_is_refused() -> None:
    model = sum_model("NoSuchOperator")
    _, device = choose("triton_repository")
    assert "NoSuchOperator" in (adapter.supports(model, device).reason or "")
    with pytest.raises(UnsupportedError, match="NoSuchOperator"):
        folder_of(model, "onnxruntime")


def test_auto_never_means_it() -> None:
    opened = open_program("auto", sum_model(), Options())
    with opened.program:
        assert opened.device.kind == "cpu"
        assert not any(name.startswith("triton") for name in opened.measured_ms)


def test_without_a_server_it_builds_and_runs_nothing() -> None:
    for target in targets("triton_repository"):
        assert target.available
        assert target.reason == f"builds files; {VARIABLE} names no server to run them"
    with pytest.raises(UnsupportedError, match=f"expected {VARIABLE} to name a server"):
        open_program("triton_repository/python", sum_model(), Options())


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9")
    (found, _) = targets("triton_repository")
    assert found.available
    assert "cannot connect to http://127.0.0.1:9: Connection refused" in (found.reason or "")
    with pytest.raises(BackendMissingError, match="cannot connect to"):
        open_program("triton_repository/python", sum_model(), Options())


@dataclass
class Served:
    """A server of the kit's models and of the sample encoder, whose version is in a folder."""

    url: str
    encoder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sample: SampleModel) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("triton")
    repository = root / "repository"
    artifact = write_encoder(root / "model" / "1", sample)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(root / "packages"))
        add_conformance_models(repository)
        build_package(artifact.path, "triton_repository/python", out=repository / "encoder")
    with triton_server(repository, root / "log") as url:
        yield Served(url, artifact.path)


@with_triton
def test_a_real_triton_answers_as_onnxruntime(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBOX_REMOTE", f"encoder={served.url}/v2/models/encoder")
    monkeypatch.setenv(VARIABLE, served.url)
    nodes = np.arange(40)
    with open_encoder(served.encoder, target="onnxruntime/cpu") as here:
        expected = here.encode_indices(nodes)
    for target in ("remote/encoder", "triton_repository/python"):
        adapter_name, _, device = target.partition("/")
        with open_encoder(served.encoder, target=target) as there:
            further = there.effective.pop("further")
            assert there.effective == {
                "adapter": adapter_name,
                "provider": "python",
                "device": device,
                "precision": "float32",
                "threads": 1,
                "fallback_nodes": [],
                "runtime": "triton 2.51.0",
                "nearest": {},
            }
            assert further["device"] == "cpu"  # what graphbox brings to rank with is not on that server
            np.testing.assert_allclose(there.encode_indices(nodes), expected, rtol=0, atol=1e-6)


@with_triton
def test_the_kit_is_green_on_a_real_triton(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, served.url)
    report = check_adapter("triton_repository/python", cycles=50)
    assert report.runtime == "triton 2.51.0"
    assert [case for case in report.cases if case.outcome != "passed"] == []


@with_triton
def test_the_kit_on_a_server_of_one_model(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """`remote` means one model: cases that need another one are refused, or say that it is another."""
    monkeypatch.setenv("GRAPHBOX_REMOTE", f"sum={served.url}/v2/models/sum")
    report = check_adapter("remote/sum", cycles=50)
    for case in report.cases:
        is_other = "same ONNX file" in case.detail or "expected a model with the inputs" in case.detail
        assert case.outcome == "passed" or is_other, case
    passed = {case.case for case in report.cases if case.outcome == "passed"}
    assert {"probe is truthful", "effective is complete", "threads as asked", "writes into out"} <= passed
    assert {"8 threads on one program", "50 programs leave no memory behind"} <= passed


@with_triton
def test_a_model_that_it_does_not_serve_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, served.url)
    monkeypatch.setenv("GRAPHBOX_REMOTE", f"sum={served.url}/v2/models/sum")
    with pytest.raises(UnsupportedError, match=r"backend python and 1 threads, the server has \d+ others"):
        open_program("triton_repository/python", sum_model("Mul"), Options())
    with pytest.raises(UnsupportedError, match="expected a server of the same ONNX file"):
        open_program("remote/sum", sum_model("Mul"), Options())


@with_triton
def test_what_the_runtime_refuses_is_an_error_of_one_call(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions beyond the rows pass `run_built`, which checks nothing: ONNX Runtime refuses them there."""
    monkeypatch.setenv(VARIABLE, served.url)
    with open_program("triton_repository/python", gather_model(), Options()).program as program:
        rows = np.arange(6, dtype=np.float32).reshape(3, 2)
        with pytest.raises(Exception, match="indices element out of data bounds"):
            program.run_built({"rows": rows, "positions": np.array([7])})
        found = program.run({"rows": rows, "positions": np.array([2])})["result"]
        np.testing.assert_array_equal(found, [[4, 5]])
