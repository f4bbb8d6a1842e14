"""The kit passes good adapters, and finds each way of being wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphbox.deploy.conformance import check_adapter
from graphbox.deploy.conformance_report import write_report
from graphbox.errors import BackendMissingError, NotFoundError

REFERENCE = (Path(__file__).parents[2] / "examples" / "adapter" / "graphbox_onnx_reference.py").read_text()

# An adapter over ONNX Runtime in which one thing is wrong at a time.
WRONG = """
import numpy as np
from graphbox.deploy.adapters.onnxruntime import OnnxRuntime
from graphbox.deploy import Device, Support
from graphbox.errors import InvalidRequestError

FAULT = "{fault}"

class Wrong(OnnxRuntime):
    name = "wrong"

    def __init__(self):
        self.probes = 0

    def probe(self):
        self.probes += 1
        if FAULT == "vanishes" and self.probes > 1:
            return [Device("cpu", "cpu", "gone", available=False)]
        return super().probe()

    def supports(self, model, device):
        return Support(supported=True) if FAULT == "boasts" else super().supports(model, device)

    def load(self, package):
        program = super().load(package)
        effective, run = dict(program.effective), program.run
        if FAULT == "silent":
            del effective["threads"]
        if FAULT == "greedy":
            effective["threads"] = 64
        if FAULT == "elsewhere":
            effective["device"] = "gpu:0"
        program.effective = effective
        if FAULT == "imprecise":
            program.run = lambda feeds, out=None: {{
                name: value.astype(np.float16).astype(value.dtype) if value.dtype == np.float32 else value
                for name, value in run(feeds, out).items()
            }}
        if FAULT == "cleans":
            program.run = lambda feeds, out=None: {{
                name: np.nan_to_num(value) if value.dtype == np.float32 else value
                for name, value in run(feeds, out).items()
            }}
        if FAULT == "ignores out":
            program.run = lambda feeds, out=None: run(feeds)
        if FAULT == "shares":
            buffers = {{}}
            def shared(feeds, out=None):
                result = run(feeds, out)
                for name, value in result.items():
                    if len(value) == 1:
                        buffer = buffers.setdefault(name, value)
                        buffer[...] = value
                        result[name] = buffer
                return result
            program.run = shared
        if FAULT == "answers anyway":
            last = {{}}
            def answered(feeds, out=None):
                try:
                    last.update(run(feeds, out))
                except InvalidRequestError:
                    if not last:
                        raise
                return dict(last)
            program.run = answered
        if FAULT == "leaks":
            LEAK.append(np.ones(1 << 20, np.uint8))
        return program

LEAK = []
adapter = Wrong()
"""

FOUND_BY = {
    "vanishes": "probe is truthful",
    "boasts": "supports says no to unknown operators",
    "silent": "effective is complete",
    "greedy": "threads as asked",
    "elsewhere": "effective is complete",
    "imprecise": "operator Gemm",
    "cleans": "passes NaN and infinity on",
    "ignores out": "writes into out",
    "answers anyway": "an inference that fails raises, each time",
    "leaks": "300 programs leave no memory behind",
}


def test_onnxruntime_on_the_cpu_passes() -> None:
    report = check_adapter("onnxruntime", cycles=300)
    assert [case for case in report.cases if case.outcome != "passed"] == []
    assert report.passed
    assert len(report.cases) > 45
    assert json.loads(json.dumps(report.as_dict()))["passed"] is True


def test_an_adapter_of_another_package_passes(install: Any) -> None:
    install("onnx_reference", "graphbox_onnx_reference", REFERENCE)
    report = check_adapter("onnx_reference", cycles=300)
    assert [case for case in report.cases if case.outcome != "passed"] == []


@pytest.mark.parametrize(
    "name",
    [
        "openvino",
        pytest.param("iree", marks=(pytest.mark.stress, pytest.mark.timeout(1200))),
        pytest.param("aotinductor", marks=(pytest.mark.stress, pytest.mark.timeout(3600))),  # 60 compilations
    ],
)
def test_adapters_that_build_ahead_pass(name: str, tmp_path: Path) -> None:
    report = check_adapter(name, cycles=60)
    assert [case for case in report.cases if case.outcome == "failed"] == []
    refused = [case.case for case in report.cases if case.outcome == "refused"]
    expected = {
        "iree": ["operator MatMulInteger"],
        "openvino": ["operator QuantizeLinear rows"],
        "aotinductor": ["an inference that fails raises, each time"],
    }
    assert refused == expected.get(name, [])
    assert report.cases[-1].case == "killed while it builds, it builds again"
    for path in write_report(report, tmp_path):
        assert report.digest in path.read_text()


@pytest.mark.parametrize("fault", FOUND_BY)
def test_each_fault_is_found_by_its_case(install: Any, fault: str) -> None:
    install("wrong", "wrong_adapter", WRONG.format(fault=fault))
    failed = [case.case for case in check_adapter("wrong", cycles=300).cases if case.outcome == "failed"]
    assert FOUND_BY[fault] in failed


def test_there_has_to_be_a_target() -> None:
    with pytest.raises(NotFoundError):
        check_adapter("no_such_adapter")


def test_it_has_to_be_available(install: Any) -> None:
    text = WRONG.format(fault="").replace(
        "super().probe()", '[Device("x", "npu", "X", available=False, reason="no X")]'
    )
    install("wrong", "wrong_adapter", text)
    with pytest.raises(BackendMissingError, match="no X"):
        check_adapter("wrong")
