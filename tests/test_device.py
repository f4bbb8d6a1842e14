"""Devices by name, with and without GPUs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from graphbox import device as device_module
from graphbox.device import check_device, chosen_device, device_in_words, lacks_for_cuda
from graphbox.errors import BackendMissingError, UsageError


def there_are(monkeypatch: pytest.MonkeyPatch, count: int, current: int = 0) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(device_module, "_fault", lambda device: None)


@pytest.mark.parametrize(
    ("name", "count", "meant"),
    [
        ("auto", 0, "cpu"),
        ("cpu", 0, "cpu"),
        ("cpu", 2, "cpu"),
        ("auto", 2, "cuda:1"),
        ("cuda", 2, "cuda:1"),
        ("cuda:0", 2, "cuda:0"),
    ],
)
def test_names(monkeypatch: pytest.MonkeyPatch, name: str, count: int, meant: str) -> None:
    there_are(monkeypatch, count, current=1)
    assert chosen_device(name) == torch.device(meant)


@pytest.mark.parametrize(
    ("name", "count", "found"),
    [
        ("cuda", 0, "no CUDA device"),
        ("cuda:0", 0, "no CUDA device"),
        ("cuda:1", 1, "cuda:0 alone"),
        ("cuda:7", 4, "cuda:0 to cuda:3"),
    ],
)
def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str, count: int, found: str) -> None:
    there_are(monkeypatch, count)
    with pytest.raises(BackendMissingError, match=f"expected the device {name}, found {found}"):
        chosen_device(name)


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1x", "", " cpu", 0, None])
def test_no_such_name(name: Any) -> None:
    with pytest.raises(UsageError, match="expected auto, cpu, cuda or cuda: and a number, received"):
        chosen_device(name)


def test_without_triton_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, 1)
    monkeypatch.setattr(
        device_module, "find_spec", lambda name: None if name == "triton" else importlib.util.find_spec(name)
    )
    assert chosen_device("auto") == torch.device("cpu")


def test_a_gpu_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, 1)
    monkeypatch.setattr(device_module, "_fault", lambda device: "no kernel image is available")
    assert chosen_device("auto") == torch.device("cpu")
    with pytest.raises(BackendMissingError, match="cuda:0 to work, it says: no kernel image is available"):
        chosen_device("cuda")
    assert lacks_for_cuda() == "a GPU that does not work: no kernel image is available"


@pytest.mark.parametrize(
    ("cuda", "visible", "has_driver", "found"),
    [
        (None, None, True, "is built without CUDA"),
        ("12.8", "", True, "CUDA_VISIBLE_DEVICES='' hides all"),
        ("12.8", "-1", True, "CUDA_VISIBLE_DEVICES='-1' hides all"),
        ("12.8", None, False, "driver is not loaded"),
        ("12.8", "0", True, "though there is a driver"),
    ],
)
def test_why_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, visible: str | None, has_driver: bool, found: str
) -> None:
    there_are(monkeypatch, 0)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(Path, "exists", lambda self: has_driver)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(BackendMissingError, match=f"expected the device cuda, found no CUDA device.*{found}"):
        chosen_device("cuda")
    assert chosen_device("auto") == torch.device("cpu")


def test_devices_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert device_in_words(torch.device("cpu")) == "cpu"
    assert device_in_words(torch.device("cuda", 0)) == "cuda:0 (NVIDIA H200)"


def test_kernels_on_the_cpu_need_the_interpreter() -> None:
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        check_device(torch.device("cpu"))
        triton.knobs.runtime.interpret = False
        check_device(torch.device("cuda", 0))
        with pytest.raises(BackendMissingError, match="expected a CUDA device, received cpu"):
            check_device(torch.device("cpu"))
