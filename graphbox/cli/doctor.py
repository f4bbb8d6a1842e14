"""`graphbox doctor`: what this machine has, what is missing, for oneself and for bug reports."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphbox.cli.session import Session, command
from graphbox.cli.text import byte_size, table

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["register"]

_PACKAGES = (
    "numpy",
    "pyarrow",
    "onnxruntime",
    "fastapi",
    "uvicorn",
    "pydantic",
    "sqlalchemy",
    "torch",
    "torch-geometric",
    "onnx",
    "scikit-learn",
    "safetensors",
)


def doctor(session: Session) -> None:
    """Show versions, processor, memory, disk, targets and what is missing; print this in bug reports."""
    from graphbox.deploy import targets
    from graphbox.pipeline.failure import EXTRAS

    document = {
        "graphbox": metadata.version("graphbox"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "native_core": _native_core(),
        "cpu": {"name": _cpu_name(), "usable": len(os.sched_getaffinity(0)), "present": os.cpu_count()},
        "memory": _memory(),
        "disk": _disk(session.workspace_path),
        "missing_extras": {
            extra: missing
            for extra, modules in EXTRAS.items()
            if (missing := [name for name in modules if importlib.util.find_spec(name) is None])
        },
        "targets": [asdict(target) for target in targets()],
        "web_page": (Path(__file__).parent.parent / "server" / "static" / "index.html").is_file(),
    }
    session.answer(document, lambda console: _show(document, console))


def _show(document: dict[str, Any], console: Console) -> None:
    cpu, memory, disk = document["cpu"], document["memory"], document["disk"]
    facts = [
        ("graphbox", f"{document['graphbox']} on Python {document['python']}, {document['platform']}"),
        ("native core", document["native_core"]["detail"]),
        ("web page", "built" if document["web_page"] else "not built: `make web` in a checkout builds it"),
        ("processor", f"{cpu['name']}, {cpu['usable']} of {cpu['present']} CPUs usable"),
        ("memory", f"{byte_size(memory['total_bytes'])}, {byte_size(memory['available_bytes'])} available"),
        ("disk", f"{byte_size(disk['free_bytes'])} free at {disk['path']}"),
    ]
    for extra, missing in document["missing_extras"].items():
        facts.append((f"extra [{extra}]", f"{', '.join(missing)} missing: pip install 'graphbox[{extra}]'"))
    for label, text in facts:
        console.print(f"{label:<14} {text}", markup=False, soft_wrap=True)
    console.print()
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
    return {"available": True, "detail": str(core.__file__)}


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
