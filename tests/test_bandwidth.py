"""The probes read what they count, and no more; what was measured is kept, handed on and looked up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest
import torch
import triton

from graphbox import bandwidth as bandwidth_module
from graphbox import bandwidth_gpu
from graphbox.bandwidth import ROW_BYTES, Bandwidths, measured_bandwidths
from graphbox.bandwidth_gpu import copy_bandwidth, row_bandwidth, sector_bandwidth
from graphbox.errors import BackendMissingError, DataError, DoesNotFitError, UsageError
from tests.bandwidth_probes import BandwidthProbes

CPU = torch.device("cpu")
BANDWIDTHS = Bandwidths("a GPU", 1.0, 2.0, (64.0, 128.0, 256.0), (32.0, 64.0, 128.0), 5.0, 6.0, 7.0)


@pytest.mark.gpu_kernel
class TestInterpreted(BandwidthProbes):
    @pytest.fixture
    def device(self) -> torch.device:
        return CPU


@pytest.mark.gpu_kernel
def test_probes_compile(compiling: Callable[..., AbstractContextManager[None]]) -> None:
    with compiling("graphbox.bandwidth_gpu"):
        sector_bandwidth("device", CPU, size_bytes=1 << 10)
        for row_bytes in (12, 512, 6000):
            row_bandwidth("device", row_bytes, CPU, size_bytes=8 * row_bytes)


@pytest.mark.gpu_kernel
@pytest.mark.parametrize(
    ("size_bytes", "row_bytes", "counted_bytes"),
    [(32, 32, 32), (1000, 32, 512), (4096, 32, 4096), (1000, 100, 800), (1000, 12, 768)],
)
def test_bytes_that_are_counted(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int, row_bytes: int, counted_bytes: int
) -> None:
    monkeypatch.setattr(bandwidth_gpu, "run_seconds", lambda work, device: [work() is None or 0.5] * 5)
    if row_bytes == 32:
        assert sector_bandwidth("device", CPU, size_bytes=size_bytes) == 2 * counted_bytes
    assert row_bandwidth("pinned", row_bytes, CPU, size_bytes=size_bytes) == 2 * counted_bytes
    assert copy_bandwidth("host_to_device", CPU, size_bytes=counted_bytes) == 2 * counted_bytes


@pytest.mark.gpu_kernel
def test_every_bandwidth_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth_module, "_measured", {})
    measured = measured_bandwidths(CPU)
    assert measured_bandwidths(CPU) is measured
    assert measured.device == "cpu"
    rates = dataclasses.astuple(measured)[1:]
    assert all(rate > 0 for each in rates for rate in (each if isinstance(each, tuple) else [each]))


def test_bandwidths_pass_through_json() -> None:
    assert Bandwidths.from_dict(json.loads(json.dumps(BANDWIDTHS.as_dict()))) == BANDWIDTHS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_bytes": [1]}, "expected the bandwidths of a device"),
        ({"color": 1}, "received .*color"),
        ({"device_rows": [1.0]}, "device_rows: expected 3 numbers"),
        ({"device": 3}, "device: expected the name of a device, received 3"),
        ({"pinned_rows": "abc"}, "pinned_rows: expected 3 numbers"),
        ({"host_to_device": 0}, "host_to_device: expected bytes per second, received 0"),
        ({"device_sectors": "fast"}, "device_sectors: expected bytes per second, received 'fast'"),
        ({"device_rows": [1.0, float("nan"), 1.0]}, "received nan"),
    ],
)
def test_other_documents_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Bandwidths.from_dict({**BANDWIDTHS.as_dict(), **change})


def test_an_empty_document_is_refused() -> None:
    with pytest.raises(DataError, match="received nothing"):
        Bandwidths.from_dict({})


@pytest.mark.parametrize(
    ("row_bytes", "seconds"), [(4, 1), (64, 1), (160, 1.5), (256, 2), (640, 3), (1024, 4), (1792, 6)]
)
def test_rows_of_any_size(row_bytes: int, seconds: float) -> None:
    assert ROW_BYTES == (64, 256, 1024)
    assert BANDWIDTHS.rows("device", row_bytes) == pytest.approx(row_bytes / seconds)
    assert BANDWIDTHS.rows("pinned", row_bytes) == pytest.approx(row_bytes / seconds / 2)


@pytest.mark.gpu_kernel
def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="where: expected device or pinned, received 'disk'"):
        sector_bandwidth(cast("Any", "disk"), CPU)
    with pytest.raises(UsageError, match=r"direction: expected host_to_device, .* received 'up'"):
        copy_bandwidth(cast("Any", "up"), CPU)
    with pytest.raises(UsageError, match="row_bytes: expected a multiple of 4 bytes, received 6"):
        row_bandwidth("device", 6, CPU)
    with pytest.raises(UsageError, match="size_bytes: expected room for a row of 64 bytes, received 40"):
        row_bandwidth("device", 64, CPU, size_bytes=40)
    with pytest.raises(UsageError, match="size_bytes: expected at least 4 bytes, received 0"):
        copy_bandwidth("host_to_device", CPU, size_bytes=0)


@pytest.mark.gpu_kernel
def test_memory_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "randint", refuse)
    with pytest.raises(DoesNotFitError, match=r"expected 4096 bytes of pinned memory(.|\n)*ulimit -l"):
        sector_bandwidth("pinned", CPU, size_bytes=4096)


def test_without_the_interpreter_a_gpu_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    for probe in (
        lambda: sector_bandwidth("device", CPU),
        lambda: row_bandwidth("device", 64, CPU),
        lambda: copy_bandwidth("host_to_device", CPU),
        lambda: measured_bandwidths(CPU),
    ):
        with pytest.raises(BackendMissingError, match="expected a CUDA device, received cpu"):
            probe()
