"""Adapters come from entry points, and what is not there says why."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphbox.deploy import Options, adapter_names, choose, load_adapter, open_encoder, open_program, targets
from graphbox.deploy.building import build_package
from graphbox.deploy.conformance_models import sum_model
from graphbox.deploy.registry import distribution_of
from graphbox.errors import BackendMissingError, NotFoundError, UnsupportedError
from tests.artifact.sample_model import SampleModel, write_encoder
from tests.deploy.conftest import Install

REFERENCE = (Path(__file__).parents[2] / "examples" / "adapter" / "graphbox_onnx_reference.py").read_text()

ABSENT = """
from graphbox.deploy import Device, Support

class Adapter:
    name = "npu"
    api = 1
    builds_ahead = False
    def probe(self):
        return [Device("npu:0", "npu", "Imaginary 9000", available=False, reason="its driver is not loaded")]
    def supports(self, model, device):
        return Support(supported=True)
    def build(self, model, device, options, folder):
        raise AssertionError("was never available")
    def load(self, package):
        raise AssertionError("was never available")

adapter = Adapter()
"""

PICKY = """
from graphbox.deploy import Device, Support

class Adapter:
    name = "picky"
    api = 1
    builds_ahead = False
    def probe(self):
        return [Device("gpu:0", "gpu", "Picky GPU", available=True)]
    def supports(self, model, device):
        return Support(supported=False, reason="it has no TopK")
    def build(self, model, device, options, folder):
        raise AssertionError("was asked although it supports nothing")
    def load(self, package):
        raise AssertionError("was asked although it supports nothing")

adapter = Adapter()
"""

FICKLE = """
from graphbox.artifact import inspect_onnx
from graphbox.deploy import Device, Support
from graphbox.errors import InvalidRequestError

closed = []

class Program:
    def __init__(self, package):
        summary = inspect_onnx(package.model, "the model")
        self.inputs, self.outputs = summary.input_tensors, summary.output_tensors
        self.effective = {
            "provider": "fickle", "device": "gpu:0", "precision": summary.precision, "threads": 1,
            "fallback_nodes": [], "runtime": "fickle 1",
        }
    def run(self, feeds, out=None):
        raise InvalidRequestError("expected other feeds")
    def close(self):
        closed.append(1)

class Adapter:
    name = "fickle"
    api = 1
    builds_ahead = False
    fault = None
    def probe(self):
        return [Device("gpu:0", "gpu", "Fickle GPU", available=True)]
    def supports(self, model, device):
        return Support(supported=True)
    def build(self, model, device, options, folder):
        raise AssertionError("compiles nothing ahead")
    def load(self, package):
        if self.fault is not None:
            raise self.fault
        return Program(package)

adapter = Adapter()
"""


def test_the_cpu_is_there() -> None:
    assert "onnxruntime" in adapter_names()
    cpu, *gpus = (target for target in targets() if target.adapter == "onnxruntime")
    assert cpu.available
    assert cpu.reason is None
    assert cpu.device is not None
    assert cpu.device.kind == "cpu"
    assert cpu.distribution.startswith("graphbox ")
    assert [gpu.device.name for gpu in gpus if gpu.device] == ["cuda:0", "tensorrt:0"]


def test_packages_installed_while_it_runs_are_found(install: Install) -> None:
    assert "late" not in adapter_names()
    install("late", "late_adapter", "")
    assert "late" in adapter_names()
    assert distribution_of("late") == "late_adapter 1.2"
    install("later", "later_adapter", "")
    assert {"late", "later"} <= set(adapter_names())


def test_only_what_an_adapter_looked_for_is_listed() -> None:
    assert {target.adapter for target in targets()} == set(adapter_names())


def test_unknown_targets_are_suggested() -> None:
    for call in (load_adapter, choose, targets):
        with pytest.raises(NotFoundError) as caught:
            call("onnxruntime_cqu")
        assert caught.value.hint == "did you mean `onnxruntime`?"
    with pytest.raises(NotFoundError) as caught:
        choose("onnxruntime/cpv")
    assert caught.value.hint == "did you mean `cpu`?"


def test_another_package_adds_a_target(install: Any, sample: SampleModel, tmp_path: Path) -> None:
    install("onnx_reference", "graphbox_onnx_reference", REFERENCE)
    (found,) = targets("onnx_reference")
    assert found.distribution == "graphbox_onnx_reference 1.2"
    path = write_encoder(tmp_path / "models" / "1", sample).path
    with open_encoder(path, target="onnx_reference") as model, open_encoder(path) as usual:
        assert model.effective["provider"] == "ReferenceEvaluator"
        assert usual.effective["adapter"] == "onnxruntime"
        nodes = np.arange(40)
        np.testing.assert_allclose(model.encode_indices(nodes), sample.encode(nodes.tolist()), atol=2e-6)
        received, expected = model.neighbors(["package-001"], 5), usual.neighbors(["package-001"], 5)
        np.testing.assert_array_equal(received[0], expected[0])


def test_what_is_absent_says_why(install: Any) -> None:
    install("npu", "imaginary_npu", ABSENT)
    (found,) = targets("npu")
    assert (found.available, found.reason) == (False, "its driver is not loaded")
    with pytest.raises(BackendMissingError, match="npu: its driver is not loaded"):
        choose("npu")
    assert choose("auto")[0].name == "onnxruntime"


def test_a_model_goes_where_it_can_run(install: Any) -> None:
    install("picky", "picky_gpu", PICKY)
    assert choose("auto")[0].name == "picky"
    assert choose("auto", sum_model())[0].name == "onnxruntime"
    with pytest.raises(UnsupportedError, match="picky/gpu:0 cannot run this model: it has no TopK"):
        choose("picky", sum_model())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_vendor_library", "ModuleNotFoundError: No module named 'no_such_vendor_library'"),
        ("adapter = 3", "expected an adapter named `broken`"),
        (
            ABSENT.replace('"npu"\n', '"broken"\n', 1).replace("api = 1", "api = 7"),
            "interface version 1, received one for 7",
        ),
        (ABSENT.replace('"npu"\n', '"other"\n', 1), "named 'other'"),
        (
            ABSENT.replace('"npu"\n', '"broken"\n', 1).replace(
                "return [Device", "raise OSError(5) or [Device"
            ),
            "its probe failed",
        ),
        (
            ABSENT.replace('"npu"\n', '"broken"\n', 1).replace("return [Device", "return [] and [Device"),
            "found no device",
        ),
    ],
)
def test_a_broken_adapter_hides_no_other(install: Any, text: str, reason: str) -> None:
    install("broken", "broken_adapter", text)
    found = {target.adapter: target for target in reversed(targets())}  # the first device of each adapter
    assert not found["broken"].available
    assert reason in (found["broken"].reason or "")
    assert found["onnxruntime"].available
    with pytest.raises(BackendMissingError):
        choose("broken")


def test_auto_takes_what_was_built_and_builds_nothing(
    sample: SampleModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBOX_PACKAGES", str(tmp_path / "packages"))
    path = write_encoder(tmp_path / "models" / "1", sample).path
    with open_encoder(path) as model:
        assert "measured_ms" not in model.effective
        assert not (tmp_path / "packages").exists()
    build_package(path, "openvino")
    with open_encoder(path) as model:
        assert set(model.effective["measured_ms"]) == {"onnxruntime/cpu", "openvino/cpu"}
        assert all(len(times) == 2 for times in model.effective["measured_ms"].values())
    with open_encoder(path, target="openvino") as model:
        assert model.effective["adapter"] == "openvino"
        assert "measured_ms" not in model.effective


@pytest.fixture
def no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out adapters for which another test has built a model."""
    monkeypatch.setenv("GRAPHBOX_PACKAGES", str(tmp_path / "packages"))


@pytest.mark.usefixtures("no_packages")
def test_auto_runs_a_model_although_a_device_disappeared(install: Any) -> None:
    install("fickle", "fickle_adapter", FICKLE)
    load_adapter("fickle").fault = BackendMissingError("the device is gone")  # type: ignore[attr-defined]
    choice = open_program("auto", sum_model(), Options())
    assert choice.adapter.name == "onnxruntime"
    assert choice.refused[0] == "fickle/gpu:0 cannot run this model: the device is gone"
    choice.program.close()
    with pytest.raises(BackendMissingError, match="the device is gone"):
        open_program("fickle", sum_model(), Options())


@pytest.mark.usefixtures("no_packages")
def test_a_target_that_refuses_the_feeds_has_no_times(install: Any) -> None:
    install("fickle", "fickle_adapter", FICKLE)
    choice = open_program("auto", sum_model(), Options())
    assert choice.adapter.name == "onnxruntime"
    assert list(json.loads(json.dumps(choice.effective, allow_nan=False))["measured_ms"]) == [
        "onnxruntime/cpu"
    ]
    choice.program.close()
    assert len(importlib.import_module("fickle_adapter").closed) == 1


def test_programs_are_closed_when_a_later_one_fails(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install("fickle", "fickle_adapter", FICKLE)

    def broken(package: Any) -> Any:
        raise RuntimeError("a defect of the second adapter")

    monkeypatch.setattr(load_adapter("onnxruntime"), "load", broken)
    with pytest.raises(RuntimeError, match="second adapter"):
        open_program("auto", sum_model(), Options())
    assert len(importlib.import_module("fickle_adapter").closed) == 1
