"""`graphbox doctor`: what this machine has, what is missing, for oneself and for bug reports."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import tempfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import byte_size, table

if TYPE_CHECKING:
    from rich.console import Console

    from graphbox.bandwidth import Bandwidths
    from graphbox.device_report import DeviceReport, GpuReport

_PACKAGES = (
    "numpy",
    "pyarrow",
    "onnxruntime",
    "fastapi",
    "uvloop",
    "pydantic",
    "sqlalchemy",
    "torch",
    "torch-geometric",
    "triton",
    "onnx",
    "scikit-learn",
    "safetensors",
)
_PROBE_BYTES, _PROBE_BUDGET_BYTES = 4096, 1 << 20
_NO_LIBURING = "built without liburing"


def doctor(
    session: Session,
    device: Annotated[
        str | None,
        typer.Option("--device", help="End with exit code 5 unless this can be used: cuda, cuda:1, ..."),
    ] = None,
    bandwidths: Annotated[
        bool,
        typer.Option("--bandwidths/--no-bandwidths", help="Measure what each GPU reads and copies."),
    ] = True,
) -> None:
    """Show versions, processor, memory, disk, GPUs, targets, what is missing; print this in bug reports."""
    from graphbox.deploy import targets
    from graphbox.deploy.onnx_runtime import onnxruntime_owners, telemetry
    from graphbox.device_report import gpu_report, usable_device
    from graphbox.pipeline.failure import EXTRAS

    gpu = gpu_report(bandwidths=bandwidths)
    document = {
        "graphbox": metadata.version("graphbox"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "native_core": _native_core(),
        "cpu": {"name": _cpu_name(), "usable": len(os.sched_getaffinity(0)), "present": os.cpu_count()},
        "memory": _memory(),
        "disk": _disk(session.workspace_path),
        "gpu": gpu.as_dict(),
        "missing_extras": {
            extra: missing
            for extra, modules in EXTRAS.items()
            if (missing := [name for name in modules if importlib.util.find_spec(name) is None])
        },
        # In this order: `targets` runs a model on each runtime.
        "targets": [asdict(target) for target in targets()],
        "telemetry": [asdict(telemetry())],
        "onnxruntime_owners": onnxruntime_owners(),
        "web_page": (Path(__file__).parent.parent / "server" / "static" / "index.html").is_file(),
    }
    session.answer(document, lambda console: _show(document, gpu, console))
    if device is not None:
        usable_device(device, gpu)


def _show(document: dict[str, Any], gpu: GpuReport, console: Console) -> None:
    cpu, memory, disk = document["cpu"], document["memory"], document["disk"]
    facts = [
        ("graphbox", f"{document['graphbox']} on Python {document['python']}, {document['platform']}"),
        ("native core", document["native_core"]["detail"]),
        *_file_reads(document["native_core"]),
        ("web page", "built" if document["web_page"] else "not built: `make web` in a checkout builds it"),
        ("processor", f"{cpu['name']}, {cpu['usable']} of {cpu['present']} CPUs usable"),
        ("memory", f"{byte_size(memory['total_bytes'])}, {byte_size(memory['available_bytes'])} available"),
        ("disk", f"{byte_size(disk['free_bytes'])} free at {disk['path']}"),
        *_gpu_facts(gpu),
        *(("telemetry", _telemetry_text(each)) for each in document["telemetry"]),
    ]
    owners = document["onnxruntime_owners"]
    if len(owners) > 1:
        text = f"{' and '.join(owners)} install the same files: uninstall them all, then install one"
        facts.append(("CONFLICT", text))
    for extra, missing in document["missing_extras"].items():
        facts.append((f"extra [{extra}]", f"{', '.join(missing)} missing: pip install 'graphbox[{extra}]'"))
    for label, text in facts:
        console.print(f"{label:<14} {text}", markup=False, soft_wrap=True)
    console.print()
    _show_bandwidths(gpu, console)
    packages = [(name, version or "not installed") for name, version in document["packages"].items()]
    console.print(table("Packages", ("package", "version"), packages))
    console.print()
    rows = [
        (
            target["adapter"],
            target["device"]["name"] if target["device"] else "",
            "yes" if target["available"] else "no",
            target["reason"] or target["device"]["description"],
        )
        for target in document["targets"]
    ]
    console.print(table("Targets", ("adapter", "device", "there", "detail"), rows))


def _gpu_facts(gpu: GpuReport) -> list[tuple[str, str]]:
    """Return the lines about GPUs: each, what uses them, or why nothing does."""
    if gpu.problem is not None:
        there = ", ".join(gpu.driver.gpus or ()) if gpu.driver else ""
        text = f"{there} cannot be used: {gpu.problem}" if there else f"none: {gpu.problem}"
        return [("GPU", f"{text}; {gpu.hint}" if gpu.hint else text)]
    facts = [("GPU", _device_text(each)) for each in gpu.devices]
    driver = (gpu.driver and gpu.driver.version) or "of unknown version"
    limit = gpu.locked_memory_limit_bytes
    facts += [
        ("used by", f"driver {driver}, PyTorch {gpu.torch} with CUDA {gpu.torch_cuda}, Triton {gpu.triton}"),
        ("lockable", f"{'any amount' if limit is None else byte_size(limit)} of host memory (ulimit -l)"),
    ]
    return facts + [(each.device, f"not measured: {each.problem}") for each in gpu.devices if each.problem]


def _device_text(device: DeviceReport) -> str:
    total, free = byte_size(device.total_bytes), byte_size(device.free_bytes)
    return f"{device.device}: {device.name}, {total}, {free} free, compute capability {device.capability}"


def _telemetry_text(report: dict[str, Any]) -> str:
    state = "off" if report["off"] else "NOT OFF"
    return f"{report['runtime']}: {state}, {report['how']}; by default it {report['by_default']}"


def _show_bandwidths(gpu: GpuReport, console: Console) -> None:
    measured = [each for each in gpu.devices if each.bandwidths is not None]
    if not measured:
        return
    columns = [_bandwidth_rows(each.bandwidths) for each in measured if each.bandwidths is not None]
    rows = [(label, *(byte_size(column[label]) for column in columns)) for label in columns[0]]
    names = [each.device for each in measured]
    console.print(table("GPU bandwidths, per second", ("random reads and copies", *names), rows, names))
    console.print()


def _bandwidth_rows(bandwidths: Bandwidths) -> dict[str, float]:
    from graphbox.bandwidth import ROW_BYTES

    rows = {
        "sectors of 32 B of GPU memory": bandwidths.device_sectors,
        "sectors of 32 B of pinned memory": bandwidths.pinned_sectors,
    }
    for place, rates in (("GPU", bandwidths.device_rows), ("pinned", bandwidths.pinned_rows)):
        for row_bytes, rate in zip(ROW_BYTES, rates, strict=True):
            rows[f"rows of {row_bytes} B of {place} memory"] = rate
    return {
        **rows,
        "copies from host to GPU": bandwidths.host_to_device,
        "copies from GPU to host": bandwidths.device_to_host,
        "copies within the GPU": bandwidths.device_to_device,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _native_core() -> dict[str, Any]:
    try:
        core = importlib.import_module("graphbox._core")
    except ImportError as error:
        return {"available": False, "detail": f"not there: {error}"}
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(_PROBE_BYTES))
        file.flush()
        store = core.Store([(file.name, _PROBE_BYTES)], None, _PROBE_BUDGET_BYTES, "auto", 1, False)
    return {"available": True, "detail": str(core.__file__), "file_reads": store.backend.rpartition(", ")[0]}


def _file_reads(core: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the line about how graphs and tables on SSD are read, and the cost where io_uring is missing."""
    backend = core.get("file_reads")
    if backend is None or backend.startswith("io_uring"):
        return [] if backend is None else [("file reads", backend)]
    text = f"{backend}; each thread waits for one read, so graphs and tables on SSD are read more slowly"
    if _NO_LIBURING in backend:
        text += ": install liburing (Debian: liburing-dev) and build graphbox again"
    return [("file reads", text)]


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"}:
            return value.strip()
    return platform.processor() or platform.machine()


def _memory() -> dict[str, int]:
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        values[name] = int(value.split()[0]) * 1024
    return {"total_bytes": values["MemTotal"], "available_bytes": values["MemAvailable"]}


def _disk(path: Path) -> dict[str, Any]:
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    return {"path": str(existing), "free_bytes": shutil.disk_usage(existing).free}


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app, "doctor")(doctor)
