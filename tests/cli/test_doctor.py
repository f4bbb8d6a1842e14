"""`graphbox doctor` with and without GPUs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphbox import device_report
from graphbox.bandwidth import Bandwidths
from graphbox.device_report import DeviceReport, GpuReport, NvidiaDriver
from tests.cli.conftest import Call

DRIVER = NvidiaDriver("580.1", ("NVIDIA H200",))
BANDWIDTHS = Bandwidths("NVIDIA H200", 2e12, 2e10, (2e12, 3e12, 4e12), (1e10, 4e10, 5e10), 5e10, 6e10, 2e12)
DEVICE = DeviceReport("cuda:0", "NVIDIA H200", "9.0", 150 * 10**9, 149 * 10**9, BANDWIDTHS, None)
NONE = GpuReport(None, "2.13.0+cpu", None, "3.9.0", 8 << 20, [], "there is no NVIDIA driver", None)
USABLE = GpuReport(DRIVER, "2.13.0", "13.0", "3.9.0", None, [DEVICE], None, None)
UNUSABLE = GpuReport(
    DRIVER, "2.13.0+cpu", None, "3.9.0", None, [], "PyTorch was built without CUDA", "get one"
)


def reports(monkeypatch: pytest.MonkeyPatch, report: GpuReport) -> list[bool]:
    """Have `report` found; return the list of whether bandwidths were asked for."""
    asked: list[bool] = []

    def answer(*, bandwidths: bool) -> GpuReport:
        asked.append(bandwidths)
        return report

    monkeypatch.setattr(device_report, "gpu_report", answer)
    return asked


def test_without_a_gpu(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    reports(monkeypatch, NONE)
    outcome = graphbox("doctor")
    assert outcome.code == 0
    assert "GPU            none: there is no NVIDIA driver\n" in outcome.out
    assert "bandwidths" not in outcome.out
    refused = graphbox("doctor", "--device", "cuda")
    assert refused.code == 5
    assert "expected the device cuda: there is no NVIDIA driver" in refused.err
    assert graphbox("doctor", "--device", "auto").code == 0
    assert graphbox("doctor", "--device", "gpu").code == 2


def test_how_files_are_read_is_said(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    reports(monkeypatch, NONE)
    backend = graphbox("doctor", "--json").json["native_core"]["file_reads"]
    assert backend.startswith(("io_uring", "threads (no io_uring: "))
    (line,) = [each for each in graphbox("doctor").out.splitlines() if each.startswith("file reads")]
    assert backend in line
    assert ("read more slowly" in line) == backend.startswith("threads")
    assert ("install liburing" in line) == ("built without liburing" in backend)


def test_with_a_gpu(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reports(monkeypatch, USABLE)
    outcome = graphbox("doctor")
    assert outcome.code == 0
    for line in (
        "GPU            cuda:0: NVIDIA H200, 150 GB, 149 GB free, compute capability 9.0",
        "used by        driver 580.1, PyTorch 2.13.0 with CUDA 13.0, Triton 3.9.0",
        "lockable       any amount of host memory (ulimit -l)",
        "rows of 1024 B of pinned memory",
    ):
        assert line in outcome.out
    document = graphbox("doctor", "--json", "--no-bandwidths").json
    assert asked == [True, False]
    assert Bandwidths.from_dict(document["gpu"]["devices"][0]["bandwidths"]) == BANDWIDTHS


def test_with_a_gpu_that_is_full(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    full = dataclasses.replace(DEVICE, bandwidths=None, problem="expected 1 GiB")
    reports(monkeypatch, dataclasses.replace(USABLE, devices=[full]))
    assert "cuda:0         not measured: expected 1 GiB" in graphbox("doctor").out


def test_with_a_gpu_that_cannot_be_used(graphbox: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    reports(monkeypatch, UNUSABLE)
    expected = "NVIDIA H200 cannot be used: PyTorch was built without CUDA; get one\n"
    assert f"GPU            {expected}" in graphbox("doctor").out
    refused = graphbox("doctor", "--device", "cuda:1")
    assert refused.code == 5
    assert "get one" in refused.err


def doctor_in_a_process(program: str, home: Path, *arguments: str) -> str:
    """Return the output of a program that runs the command, without the variables of CI services."""
    code = f"{program}\nimport sys\nfrom graphbox.cli.app import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "doctor", "--no-bandwidths", *arguments]
    environment = {"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home), "ORT_DISABLE_TELEMETRY": "0"}
    result = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=120, check=True
    )
    return result.stdout


def test_telemetry_is_off(tmp_path: Path) -> None:
    (report,) = json.loads(doctor_in_a_process("", tmp_path, "--json"))["telemetry"]
    assert report["runtime"].startswith("onnxruntime ")
    assert "mobile.events.data.microsoft.com" in report["by_default"]
    assert (report["off"], report["how"]) == (True, "graphbox set ORT_DISABLE_TELEMETRY=1 before the import")
    line = telemetry_line(doctor_in_a_process("", tmp_path))
    assert ": off, graphbox set ORT_DISABLE_TELEMETRY=1 before the import; by default it creates a" in line


def test_telemetry_of_a_runtime_that_another_module_imported(tmp_path: Path) -> None:
    program = "import onnxruntime"
    report: dict[str, Any]
    (report,) = json.loads(doctor_in_a_process(program, tmp_path, "--json"))["telemetry"]
    assert not report["off"]
    assert report["how"].startswith("on: its event store ")
    assert ": NOT OFF, on: its event store " in telemetry_line(doctor_in_a_process(program, tmp_path))


def telemetry_line(output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith("telemetry")]
    return line
