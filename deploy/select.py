"""Finds adapters through entry points, tells what is there and why not, and chooses one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

from graphbox.deploy.onnx_runtime import disable_telemetry
from graphbox.deploy.protocol import API_VERSION, Adapter, Device
from graphbox.errors import BackendMissingError, GraphboxError, NotFoundError, UnsupportedError, did_you_mean

__all__ = [
    "ENTRY_POINT_GROUP",
    "Target",
    "adapter_names",
    "available_of",
    "candidates_of",
    "choose",
    "distribution_of",
    "load_adapter",
    "no_target",
    "targets",
]

ENTRY_POINT_GROUP = "graphbox.adapters"
_PARTS = ("probe", "supports", "build", "load")
_PREFERENCE = {"gpu": 0, "npu": 1, "cpu": 2, "other": 3}
_FIRST = "onnxruntime"
"""Of several adapters for devices of one kind: it compiles nothing ahead."""


@dataclass(frozen=True)
class Target:
    """An adapter and a device it looked for; without a device when the adapter could not be loaded.

    Attributes:
        adapter: name of the adapter.
        distribution: name and version of the package it comes from.
        device: what was found, or None.
        available: whether models can run there now.
        reason: why not.
    """

    adapter: str
    distribution: str
    device: Device | None
    available: bool
    reason: str | None


def adapter_names() -> list[str]:
    """Return the names of all registered adapters, whether they can be loaded or not."""
    return sorted(_entry_points())


def load_adapter(name: str) -> Adapter:
    """Return an adapter by the name of its entry point.

    Raises:
        NotFoundError: when no package registers the name.
        BackendMissingError: when it cannot be imported, is no adapter, or is for another graphbox.
    """
    entry_point = _entry_point(name)
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
            hint=f"install a version of {_distribution(entry_point)} for this graphbox",
        )
    checked: Adapter = adapter
    return checked


def distribution_of(name: str) -> str:
    """Return name and version of the distribution that registers an adapter; empty where none does."""
    found = _entry_points().get(name)
    return "" if found is None else _distribution(found)


def targets(adapter: str | None = None) -> list[Target]:
    """Return every device that the adapters looked for just now, with the reason when it is not there.

    They come in the order of preference; see `choose`.

    Args:
        adapter: look with this one only.

    Raises:
        NotFoundError: when no such adapter is registered.
    """
    entry_points = _entry_points() if adapter is None else {adapter: _entry_point(adapter)}
    found: list[Target] = []
    for name, entry_point in sorted(entry_points.items()):
        distribution = _distribution(entry_point)
        try:
            devices = load_adapter(name).probe()
        except GraphboxError as error:
            found.append(Target(name, distribution, None, available=False, reason=error.message))
            continue
        except Exception as error:  # noqa: BLE001 - a broken adapter must not hide the others
            reason = f"its probe failed: {type(error).__name__}: {error}"
            found.append(Target(name, distribution, None, available=False, reason=reason))
            continue
        found += [Target(name, distribution, device, device.available, device.reason) for device in devices]
        if not devices:
            found.append(Target(name, distribution, None, available=False, reason="it found no device"))
    return sorted(found, key=_order)


def choose(target: str = "auto", model: bytes | None = None) -> tuple[Adapter, Device]:
    """Return the adapter and the device for a target.

    Args:
        target: an adapter's name, ``adapter/device``, or ``auto``: the first available device that
            supports the model, GPUs before NPUs before CPUs, then ONNX Runtime, then by name.
        model: an ONNX file's content that the device has to support.

    Raises:
        NotFoundError: when no such target is registered.
        BackendMissingError: when it is not available, with the reason.
        UnsupportedError: when it cannot run the model, with the reason.
    """
    reasons: list[str] = []
    candidates = candidates_of(target)
    for adapter, device in available_of(candidates, reasons):
        support = adapter.supports(model, device) if model is not None else None
        if support is None or support.supported:
            return adapter, device
        reasons.append(f"{adapter.name}/{device.name} cannot run this model: {support.reason}")
    raise no_target(target, candidates, reasons)


def candidates_of(target: str) -> list[Target]:
    """Return what a target may mean, in order of preference; see `choose`.

    Raises:
        NotFoundError: when no such target is registered.
    """
    name, _, device_name = target.partition("/")
    candidates = targets(None if name == "auto" else name)
    if device_name:
        candidates = _named(candidates, target, device_name)
    return candidates


def available_of(candidates: Iterable[Target], reasons: list[str]) -> Iterator[tuple[Adapter, Device]]:
    """Give the candidates that are there; ``reasons`` gets why the others are not."""
    for candidate in candidates:
        if candidate.device is not None and candidate.available:
            yield load_adapter(candidate.adapter), candidate.device
        else:
            reasons.append(f"{candidate.adapter}: {candidate.reason}")


def no_target(target: str, candidates: Iterable[Target], reasons: Iterable[str]) -> GraphboxError:
    """Return the error that nothing of a target runs a model."""
    available = any(candidate.available for candidate in candidates)
    error = UnsupportedError if available else BackendMissingError
    return error(
        f"expected a target that can run this; {'; '.join(reasons) or 'no adapter is registered'}",
        where=f"target `{target}`",
        hint="`graphbox targets` lists what is there and why not",
    )


def _named(candidates: Iterable[Target], target: str, device_name: str) -> list[Target]:
    devices = {t.device.name: t for t in candidates if t.device is not None}
    if device_name not in devices:
        raise NotFoundError(
            f"expected one of the devices {sorted(devices)}, received `{device_name}`",
            where=f"target `{target}`",
            hint=did_you_mean(device_name, devices),
        )
    return [devices[device_name]]


def _order(target: Target) -> tuple[bool, int, bool, str, str]:
    device = target.device
    return (
        not target.available,
        _PREFERENCE[device.kind] if device else len(_PREFERENCE),
        target.adapter != _FIRST,
        target.adapter,
        device.name if device else "",
    )


def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {entry_point.name: entry_point for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _entry_point(name: str) -> metadata.EntryPoint:
    entry_points = _entry_points()
    if name not in entry_points:
        raise NotFoundError(
            f"expected one of the targets {sorted(entry_points)}, received `{name}`",
            hint=did_you_mean(name, entry_points) or "`graphbox targets` lists what is there",
        )
    return entry_points[name]


def _distribution(entry_point: metadata.EntryPoint) -> str:
    return f"{entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist else "unknown"
