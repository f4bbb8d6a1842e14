"""Static int8: ranges of calibration feeds, fused by ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from graphbox.compress.dense import Calibration, convert_dense, dense_method
from graphbox.compress.dense.int8_static import Int8Static
from graphbox.compress.dense.weight_codes import weight_codes
from graphbox.errors import UsageError
from tests.compress.dense.onnx_models import calibration, mlp, relative_error, rows, run


def test_answers_are_those_of_the_plain_codec() -> None:
    network, feeds = mlp(40, 24, seed=3), calibration(40)
    x = feeds.feeds[0]["x"]
    model = dense_method("int8_static").convert(network.onnx(), feeds).model
    step = np.float32((x.max() - x.min()) / 255)
    zero = np.clip(np.rint(-x.min() / step), 0, 255)
    codes = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    weights = weight_codes(network.weights[0])
    expected = step * (codes @ weights.codes) * weights.scale + network.biases[0]
    level = 2 * step * float(np.abs(network.weights[0]).max())
    assert float(np.abs(run(model, x) - expected).max()) <= level


def test_onnx_runtime_computes_integers_alone(tmp_path: Path) -> None:
    model = dense_method("int8_static").convert(mlp(64, 32, 16).onnx(), calibration(64)).model
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    operators = [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    assert operators == ["QuantizeLinear", "QGemm", "QGemm"]


def test_percentiles_leave_outliers_out() -> None:
    network = mlp(32, 64, 16)
    x = rows(400, 32)
    x[0, 0] = 2000
    feeds = Calibration.of_feeds([{"x": x}])
    typical = rows(200, 32, seed=9)
    errors = [
        relative_error(run(method.convert(network.onnx(), feeds).model, typical), network.answer(typical))
        for method in (Int8Static(), Int8Static(ranges="percentile", percentile=99.8))
    ]
    assert errors[0] > 0.3
    assert errors[1] < 0.06


def test_it_needs_feeds_of_the_model() -> None:
    with pytest.raises(UsageError, match="expected calibration feeds for int8_static, received none"):
        convert_dense(dense_method("int8_static"), mlp(4, 20).onnx())
    with pytest.raises(UsageError, match=r"with the inputs \['x'\], received \['z'\]"):
        dense_method("int8_static").convert(mlp(4, 20).onnx(), Calibration.of_feeds([{"z": rows(3, 4)}]))
    with pytest.raises(UsageError, match="expected a percentile above 50"):
        Int8Static(percentile=3)


def test_large_biases_fit_into_int32() -> None:
    network = mlp(16, 32)
    network.biases[0][:] = 3e6
    network.weights[0][:, 3] *= 1e-7
    x = rows(20, 16)
    model = dense_method("int8_static").convert(network.onnx(), calibration(16)).model
    np.testing.assert_allclose(run(model, x), network.answer(x), rtol=1e-4)


_WITHOUT_VNNI = """
import sys, tempfile
import os
import subprocess
import sys
from pathlib import Path
import numpy as np
from graphbox.deploy import Options, choose
from graphbox.deploy.protocol import Package

model, x = Path(sys.argv[1]).read_bytes(), np.load(sys.argv[2])
adapter, device = choose("openvino/cpu")
with tempfile.TemporaryDirectory() as folder:
    adapter.build(model, device, Options(), Path(folder))
    program = adapter.load(Package(model, device, Options(), Path(folder)))
    np.save(sys.argv[3], program.run({"x": x})["y"])
"""


def test_processors_without_vnni_give_the_same(tmp_path: Path) -> None:
    """Weights of one sign and large activations make sums of 16 bits saturate, if codes allow it."""
    network = mlp(256, 512, 64, seed=4)
    for weight in network.weights:
        np.abs(weight, out=weight)
    x = np.abs(rows(64, 256))
    model = dense_method("int8_static").convert(network.onnx(), Calibration.of_feeds([{"x": x}])).model
    (tmp_path / "model.onnx").write_bytes(model)
    np.save(tmp_path / "x.npy", x)
    found = tmp_path / "y.npy"
    files = [str(tmp_path / "model.onnx"), str(tmp_path / "x.npy"), str(found)]
    subprocess.run(
        [sys.executable, "-c", _WITHOUT_VNNI, *files],
        check=True,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
    )
    assert relative_error(np.load(found), network.answer(x)) < 0.0015  # 0.003 with saturated sums
