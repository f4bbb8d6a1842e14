"""The only import of ONNX Runtime, with its telemetry disabled.

Official Linux builds send telemetry unless it is disabled (1.31 does; 1.22 and 1.27 have none). The import
creates a device id and an event store in ``~/.cache/Microsoft/DeveloperTools/.onnxruntime`` and a session
file in the temporary folder; seconds later a thread looks up ``mobile.events.data.microsoft.com`` and
uploads. The environment variable ``ORT_DISABLE_TELEMETRY=1`` prevents all of it, but only if it is set before
the import. ``disable_telemetry_events()`` alone does not: it drops optional events, and the thread uploads.

graphbox sends nothing, so the variable is set whatever value the user's environment has. It is set in
``os.environ``, so child processes inherit it.
"""

from __future__ import annotations

import functools
import importlib
import logging
import mmap
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "VARIABLE",
    "Telemetry",
    "disable_telemetry",
    "load_onnxruntime",
    "onnxruntime_owners",
    "telemetry",
]

VARIABLE = "ORT_DISABLE_TELEMETRY"
"""Environment variable that ONNX Runtime reads once, while it is imported."""

_PACKAGE = "onnxruntime"
_TRUE = frozenset({b"1", b"true", b"yes", b"on"})
_HOST = "events.data.microsoft.com"
_STORE = "/.onnxruntime/onnxruntime.db"
_BY_DEFAULT = (
    "creates a device id and an event store in ~/.cache/Microsoft/DeveloperTools/.onnxruntime, "
    "then uploads events to mobile.events.data.microsoft.com"
)
_LOCK = threading.Lock()
_log = logging.getLogger("graphbox.deploy")


@dataclass(frozen=True)
class Telemetry:
    """Telemetry of a runtime in this process.

    Attributes:
        runtime: name and version.
        by_default: behaviour of the runtime unless telemetry is disabled.
        off: True only if telemetry is certain to be disabled in this process.
        how: what disabled it, or why it may be on.
    """

    runtime: str
    by_default: str
    off: bool
    how: str


def disable_telemetry() -> None:
    """Set the variable for this process and its children; call before anything can import ONNX Runtime."""
    with _LOCK:
        _imported_earlier()
        if os.environ.get(VARIABLE) != "1":
            os.environ[VARIABLE] = "1"


def load_onnxruntime() -> Any:
    """Import ONNX Runtime with telemetry disabled and return the module.

    Logs a warning if another module imported it first and its telemetry may be on.

    Raises:
        ImportError: it is not installed or cannot be loaded.
    """
    disable_telemetry()
    module = importlib.import_module(_PACKAGE)
    _finish_import()
    return module


@functools.cache
def onnxruntime_owners() -> list[str]:
    """Return the distributions that installed the folder ``onnxruntime``.

    Of several, the files are of the one that was installed last.
    """
    return sorted(set(metadata.packages_distributions().get(_PACKAGE, [])))


def telemetry() -> Telemetry:
    """Report what ONNX Runtime sends from this process, from its library, open files and import order."""
    module = sys.modules.get(_PACKAGE)
    if module is None:
        return Telemetry(_PACKAGE, _BY_DEFAULT, off=True, how="this process has not imported it")
    runtime = f"{_PACKAGE} {module.__version__}"
    if not _library_contains(module, VARIABLE, _HOST):
        return Telemetry(runtime, "sends nothing", off=True, how="this build has no telemetry")
    return Telemetry(runtime, _BY_DEFAULT, *_state(module))


def _state(module: ModuleType) -> tuple[bool, str]:
    """Return whether telemetry is off for certain, and the reason."""
    store = _open_store()
    if store is not None:
        return False, f"on: its event store {store} is open"
    if not _library_contains(module, VARIABLE):
        return False, f"may be on: this build does not read {VARIABLE}"
    if not _imported_earlier():
        return True, f"graphbox set {VARIABLE}=1 before the import"
    if _set_at_start():
        return True, f"{VARIABLE} was set when this process started"
    return False, f"may be on: another module imported it before graphbox could set {VARIABLE}=1"


@functools.cache
def _finish_import() -> None:
    """Turn off optional events too, and warn if that may not be enough."""
    module = sys.modules[_PACKAGE]
    module.disable_telemetry_events()
    report = telemetry()
    if not report.off:
        _log.warning(
            "telemetry of %s is not disabled: %s; set %s=1 in the environment of the program",
            report.runtime,
            report.how,
            VARIABLE,
        )


@functools.cache
def _imported_earlier() -> bool:
    """Return whether ONNX Runtime was imported before the first call, which precedes setting the variable."""
    return _PACKAGE in sys.modules


@functools.cache
def _library_contains(module: ModuleType, *texts: str) -> bool:
    """Return whether a library of the package contains one of the texts."""
    for path in (Path(str(module.__file__)).parent / "capi").glob("*.so*"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if any(content.find(text.encode()) >= 0 for text in texts):
                return True
    return False


def _open_store() -> str | None:
    """Return the path of the event store that this process has open."""
    for link in Path("/proc/self/fd").iterdir():
        # The descriptor that lists the folder is closed again.
        with suppress(FileNotFoundError):
            target = str(link.readlink())
            if target.endswith(_STORE):
                return target
    return None


def _set_at_start() -> bool:
    """Return whether the variable disabled telemetry in the environment this process started with."""
    for entry in Path("/proc/self/environ").read_bytes().split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == VARIABLE.encode():
            return value.lower() in _TRUE
    return False
