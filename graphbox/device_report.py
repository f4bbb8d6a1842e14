"""Report of GPU support on this machine: driver, PyTorch, Triton, devices; missing parts, with remedies."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from graphbox.bandwidth import Bandwidths, measured_bandwidths
from graphbox.device import chosen_device
from graphbox.errors import BackendMissingError, GraphboxError

if TYPE_CHECKING:
    import torch

_NVML = "libnvidia-ml.so.1"
_NVML_TEXT_BYTES = 96
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg")  # Linux, and Linux on Windows
_INSTALL = "pip install 'graphbox[gpu]'"


@dataclass(frozen=True, slots=True)
class NvidiaDriver:
    """The driver, which is there without PyTorch.

    Attributes:
        version: of it; None: its management library is not there to ask.
        gpus: the names of what it drives; None likewise.
    """

    version: str | None
    gpus: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A GPU that kernels run on.

    Attributes:
        device: ``cuda:0`` ...
        name: of the model.
        capability: the version of its instructions.
        total_bytes: of its memory.
        free_bytes: of that.
        bandwidths: measured; None: not asked for, or not possible.
        problem: why they could not be measured.
    """

    device: str
    name: str
    capability: str
    total_bytes: int
    free_bytes: int
    bandwidths: Bandwidths | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class GpuReport:
    """Whether kernels run on a GPU here.

    Attributes:
        driver: None: there is no NVIDIA driver.
        torch: version of PyTorch; None: not installed.
        torch_cuda: version of CUDA that it was built with; None: without, or nobody asked.
        triton: version of Triton; None: not installed.
        locked_memory_limit_bytes: what this process may lock (``ulimit -l``); None: any amount.
        devices: what kernels run on.
        problem: why they do not; None: they do.
        hint: what to do about that; None: nothing is wrong, there is just no GPU.
    """

    driver: NvidiaDriver | None
    torch: str | None
    torch_cuda: str | None
    triton: str | None
    locked_memory_limit_bytes: int | None
    devices: Sequence[DeviceReport]
    problem: str | None
    hint: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON holds."""
        devices = [
            {**asdict(each), "bandwidths": each.bandwidths.as_dict() if each.bandwidths else None}
            for each in self.devices
        ]
        return {**asdict(self), "devices": devices}


def gpu_report(*, bandwidths: bool = True) -> GpuReport:
    """Look for GPUs and for what uses them; PyTorch is loaded only where there is a driver.

    Args:
        bandwidths: measure them too: some seconds for each GPU, with up to 2 GiB of its memory and 1 GiB of
            pinned memory.
    """
    driver, torch_version, triton_version = nvidia_driver(), _version("torch"), _version("triton")
    torch_cuda = None
    devices: list[DeviceReport] = []
    problem, hint = _missing(driver, torch_version)
    if problem is None:
        import torch

        torch_cuda = torch.version.cuda
        problem, hint = _unusable(torch_version, torch_cuda, triton_version)
        if problem is None:
            numbers = range(torch.cuda.device_count())
            devices = [_device(torch.device("cuda", number), bandwidths) for number in numbers]
    return GpuReport(
        driver, torch_version, torch_cuda, triton_version, locked_memory_limit(), devices, problem, hint
    )


def usable_device(name: str, report: GpuReport | None = None) -> torch.device:
    """Return the device that ``name`` means, as :func:`graphbox.device.chosen_device`; or what a GPU lacks.

    Args:
        name: as there.
        report: of this machine, where there is one already.

    Raises:
        UsageError: no such name.
        BackendMissingError: it cannot be used, for the reason of the report.
    """
    if name.startswith("cuda"):
        report = report or gpu_report(bandwidths=False)
        if report.problem is not None:
            raise BackendMissingError(
                f"expected the device {name}: {report.problem}", where="--device", hint=report.hint
            )
    return chosen_device(name)


def nvidia_driver() -> NvidiaDriver | None:
    """Return the driver as its management library (NVML) tells it, or None."""
    try:
        nvml = ctypes.CDLL(_NVML)
    except OSError:
        return NvidiaDriver(None, None) if any(map(os.path.exists, _DEVICE_FILES)) else None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        text = ctypes.create_string_buffer(_NVML_TEXT_BYTES)
        count, handle = ctypes.c_uint(), ctypes.c_void_p()
        if nvml.nvmlSystemGetDriverVersion(text, len(text)) != 0:
            return None
        version, names = text.value.decode(), []
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for number in range(count.value):
            if nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) == 0:
                nvml.nvmlDeviceGetName(handle, text, len(text))
                names.append(text.value.decode())
        return NvidiaDriver(version, tuple(names))
    finally:
        nvml.nvmlShutdown()


def locked_memory_limit() -> int | None:
    """Return how many bytes this process may lock in memory; None: as many as there are."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _missing(driver: NvidiaDriver | None, torch_version: str | None) -> tuple[str | None, str | None]:
    """Return what is missing before PyTorch can be asked, and what to do."""
    if driver is None:
        return "there is no NVIDIA driver", None
    if driver.gpus is not None and not driver.gpus:
        return "the driver has no GPU", "a container must be started with its GPUs: docker run --gpus all ..."
    if torch_version is None:
        return "PyTorch is not installed", _INSTALL
    return None, None


def _unusable(
    torch_version: str | None, torch_cuda: str | None, triton_version: str | None
) -> tuple[str | None, str | None]:
    """Return why PyTorch or Triton cannot use the GPUs that are there, and what to do."""
    import torch

    if torch_cuda is None:
        return (
            f"PyTorch {torch_version} was built without CUDA",
            "install a build with CUDA: pytorch.org/get-started says which",
        )
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return (
            f"PyTorch {torch_version}, built with CUDA {torch_cuda}, cannot use it: {error}",
            "a newer driver, or PyTorch for an older CUDA: pytorch.org/get-started says which",
        )
    if torch.cuda.device_count() == 0:
        return "PyTorch sees no GPU", "CUDA_VISIBLE_DEVICES hides them: unset it"
    if triton_version is None:
        return "Triton is not installed", _INSTALL
    return None, None


def _device(device: torch.device, measured: bool) -> DeviceReport:
    import torch

    properties = torch.cuda.get_device_properties(device)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    bandwidths, problem = None, None
    if measured:
        try:
            bandwidths = measured_bandwidths(device)
        except GraphboxError as error:
            problem = error.message
    return DeviceReport(
        device=str(device),
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        bandwidths=bandwidths,
        problem=problem,
    )
