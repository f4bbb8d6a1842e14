"""Reports of GPUs: of none, of those that cannot be used and why, and of those that can."""

from __future__ import annotations

import ctypes
import json
import resource
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphbox import device_report
from graphbox.bandwidth import Bandwidths
from graphbox.device_report import NvidiaDriver, gpu_report, locked_memory_limit, nvidia_driver
from graphbox.errors import DoesNotFitError

DRIVER = NvidiaDriver("580.1", ("a GPU",))
BANDWIDTHS = Bandwidths("a GPU", 1.0, 2.0, (1.0, 2.0, 3.0), (1.0, 2.0, 3.0), 5.0, 6.0, 7.0)


class ManagementLibrary:
    """Answers as NVML does, for two GPUs."""

    def __init__(self, initialized: int = 0) -> None:
        self._initialized = initialized
        self.is_open = False

    def nvmlInit_v2(self) -> int:  # noqa: N802 (its name there)
        self.is_open = self._initialized == 0
        return self._initialized

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlSystemGetDriverVersion(self, text: Any, size: int) -> int:  # noqa: N802
        text.value = b"580.159.03"
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = number + 1
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: int) -> int:  # noqa: N802
        text.value = f"GPU number {handle.value}".encode()
        return 0


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pretend that there is a GPU which everything can use."""
    properties = SimpleNamespace(name="a GPU", major=9, minor=0)
    monkeypatch.setattr(device_report, "nvidia_driver", lambda: DRIVER)
    monkeypatch.setattr(device_report, "measured_bandwidths", lambda device: BANDWIDTHS)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 10))
    return monkeypatch


def test_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ManagementLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert nvidia_driver() == NvidiaDriver("580.159.03", ("GPU number 1", "GPU number 2"))
    assert not library.is_open
    monkeypatch.setattr(ctypes, "CDLL", lambda name: ManagementLibrary(initialized=9))
    assert nvidia_driver() is None


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    report = gpu_report()
    assert (report.driver, report.devices, report.torch_cuda) == (None, [], None)
    assert (report.problem, report.hint) == ("there is no NVIDIA driver", None)


def test_devices_that_can_be_used(usable: pytest.MonkeyPatch) -> None:
    report = gpu_report()
    assert report.problem is None
    assert [each.device for each in report.devices] == ["cuda:0", "cuda:1"]
    first = report.devices[0]
    assert (first.name, first.capability, first.free_bytes, first.total_bytes) == ("a GPU", "9.0", 7, 10)
    assert first.bandwidths == BANDWIDTHS
    document = json.loads(json.dumps(report.as_dict()))
    assert Bandwidths.from_dict(document["devices"][1]["bandwidths"]) == BANDWIDTHS
    assert gpu_report(bandwidths=False).devices[0].bandwidths is None


def test_bandwidths_that_cannot_be_measured(usable: pytest.MonkeyPatch) -> None:
    def refuse(device: torch.device) -> Bandwidths:
        raise DoesNotFitError("the GPU is full")

    usable.setattr(device_report, "measured_bandwidths", refuse)
    report = gpu_report()
    assert report.problem is None
    assert (report.devices[0].bandwidths, report.devices[0].problem) == (None, "the GPU is full")


def cannot_start() -> None:
    raise RuntimeError("the driver is too old")


@pytest.mark.parametrize(
    ("owner", "name", "value", "problem", "hint"),
    [
        (
            device_report,
            "nvidia_driver",
            lambda: NvidiaDriver("1", ()),
            "the driver has no GPU",
            "--gpus all",
        ),
        (torch.version, "cuda", None, "was built without CUDA", "a build with CUDA"),
        (
            torch.cuda,
            "init",
            cannot_start,
            "CUDA 13.0, cannot use it: the driver is too old",
            "a newer driver",
        ),
        (torch.cuda, "device_count", lambda: 0, "PyTorch sees no GPU", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_devices_that_cannot_be_used(
    usable: pytest.MonkeyPatch, owner: object, name: str, value: object, problem: str, hint: str
) -> None:
    usable.setattr(owner, name, value)
    report = gpu_report()
    assert problem in str(report.problem)
    assert hint in str(report.hint)
    assert report.devices == []


@pytest.mark.parametrize(
    ("package", "problem"), [("torch", "PyTorch is not installed"), ("triton", "Triton is not installed")]
)
def test_packages_that_are_missing(usable: pytest.MonkeyPatch, package: str, problem: str) -> None:
    usable.setattr(device_report, "_version", lambda name: None if name == package else "1.0")
    report = gpu_report()
    assert (report.problem, report.hint) == (problem, "pip install 'graphbox[gpu]'")


def test_the_limit_of_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4096, resource.RLIM_INFINITY))
    assert locked_memory_limit() == 4096
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert locked_memory_limit() is None
