"""Adapters that installed packages register as entry points."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib import metadata

from graphbox.deploy.onnx_runtime import disable_telemetry
from graphbox.deploy.protocol import API_VERSION, Adapter
from graphbox.errors import BackendMissingError, NotFoundError, did_you_mean

__all__ = [
    "ENTRY_POINT_GROUP",
    "adapter_names",
    "distribution_of",
    "load_adapter",
    "registered",
    "registered_as",
]

ENTRY_POINT_GROUP = "graphbox.adapters"
_PARTS = ("probe", "supports", "build", "load")


def registered() -> dict[str, metadata.EntryPoint]:
    """Return the entry points of all adapters, by name."""
    return {name: entry_point for name, (entry_point, _) in _registered_in(_folders()).items()}


@lru_cache(maxsize=1)
def _registered_in(
    folders: tuple[tuple[str, int], ...],  # noqa: ARG001 - what the answer depends on
) -> dict[str, tuple[metadata.EntryPoint, str]]:
    """Return the entry points that the packages in these folders register, and their distributions.

    Opening a model asks some twenty times, and each answer reads a file of every installed package.

    Args:
        folders: those that packages are imported from, and when each changed.
    """
    found = metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {each.name: (each, _distribution_of(each)) for each in found}


def _folders() -> tuple[tuple[str, int], ...]:
    return tuple((folder, _changed_ns(folder)) for folder in sys.path)


def _changed_ns(folder: str) -> int:
    """Return when packages were last installed into a folder or removed from it; 0: it does not exist."""
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - an entry of sys.path
    except OSError:
        return 0


def registered_as(name: str) -> metadata.EntryPoint:
    """Return the entry point of an adapter.

    Raises:
        NotFoundError: no package registers the name.
    """
    found = registered()
    if name not in found:
        raise NotFoundError(
            f"expected one of the targets {sorted(found)}, received `{name}`",
            hint=did_you_mean(name, found) or "`graphbox targets` lists what is there",
        )
    return found[name]


def adapter_names() -> list[str]:
    """Return the names of all registered adapters, whether they can be loaded or not."""
    return sorted(registered())


def load_adapter(name: str) -> Adapter:
    """Return an adapter by the name of its entry point.

    Raises:
        NotFoundError: when no package registers the name.
        BackendMissingError: when it cannot be imported, is no adapter, or is for another graphbox.
    """
    entry_point = registered_as(name)
    disable_telemetry()  # adapters of other packages may import ONNX Runtime themselves
    try:
        adapter = entry_point.load()
    except Exception as error:
        raise BackendMissingError(
            f"the adapter cannot be imported from {entry_point.value}: {type(error).__name__}: {error}",
            where=f"target `{name}`",
        ) from error
    missing = [part for part in _PARTS if not callable(getattr(adapter, part, None))]
    if not isinstance(getattr(adapter, "builds_ahead", None), bool):
        missing.append("builds_ahead")
    if missing or getattr(adapter, "name", None) != name:
        raise BackendMissingError(
            f"expected an adapter named `{name}` with {', '.join(_PARTS)} and builds_ahead, received "
            f"{type(adapter).__name__} named {getattr(adapter, 'name', None)!r} without {missing}",
            where=f"target `{name}`",
        )
    if adapter.api != API_VERSION:
        raise BackendMissingError(
            f"expected an adapter for interface version {API_VERSION}, received one for {adapter.api}",
            where=f"target `{name}`",
            hint=f"install a version of {_distribution_of(entry_point)} for this graphbox",
        )
    checked: Adapter = adapter
    return checked


def distribution_of(name: str) -> str:
    """Return name and version of the distribution that registers an adapter; empty where none does."""
    _, distribution = _registered_in(_folders()).get(name, (None, ""))
    return distribution


def _distribution_of(entry_point: metadata.EntryPoint) -> str:
    return f"{entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist else "unknown"
