"""Models exported on this machine answer alike on ARM."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphbox.deploy import open_model
from graphbox.deploy.building import build_package
from tests.arm.machine import Machine, assert_close, results_of

pytestmark = pytest.mark.arm


def test_every_kind_through_onnx_runtime(emulated: Machine, here: Machine, models: Path) -> None:
    folders = sorted(models.glob("*/1"))
    assert len(folders) == 4
    answers = results_of(here, "model_answers", "onnxruntime", *folders)
    assert {name.partition(":")[0] for name in answers} == {path.parent.name for path in folders}
    assert_close(results_of(emulated, "model_answers", "onnxruntime", *folders), answers)


def test_auto_takes_onnx_runtime(emulated: Machine, models: Path) -> None:
    program = (
        "import json, sys; from graphbox.deploy import open_model\n"
        "with open_model(sys.argv[1]) as model: print(json.dumps(model.effective))"
    )
    effective = json.loads(emulated.run("-c", program, models / "sage" / "1"))
    assert effective["runtime"].startswith("onnxruntime ")
    assert effective["precision"] == "float32"


def test_the_conformance_kit(emulated: Machine) -> None:
    report = json.loads(emulated.run("-m", "graphbox", "targets", "test", "onnxruntime", "--json"))
    assert [case for case in report["cases"] if case["outcome"] != "passed"] == []


def test_iree_compiled_here_runs_there(emulated: Machine, models: Path, tmp_path: Path) -> None:
    pytest.importorskip("iree.compiler")
    model = models / "sage" / "1" / "model.onnx"
    build_package(model.parent, "iree/aarch64", out=tmp_path / "compiled")
    with open_model(model.parent, "onnxruntime") as opened:
        feeds = opened.feeds(np.arange(9))  # type: ignore[attr-defined]  # an encoder
        expected = opened.run(feeds)
    np.savez(tmp_path / "feeds.npz", **feeds)
    answers = results_of(emulated, "iree_answers", model, tmp_path / "compiled", tmp_path / "feeds.npz")
    assert_close(answers, dict(expected))
