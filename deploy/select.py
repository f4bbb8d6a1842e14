"""Tells what devices are there and why not, and chooses one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from graphbox.deploy.packages import adapters_with_packages
from graphbox.deploy.protocol import Adapter, Device
from graphbox.deploy.registry import adapter_names, distribution_of, load_adapter, registered_as
from graphbox.errors import BackendMissingError, GraphboxError, NotFoundError, UnsupportedError, did_you_mean

__all__ = [
    "Target",
    "available_of",
    "candidates_of",
    "choose",
    "no_target",
    "targets",
]

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


def targets(adapter: str | None = None) -> list[Target]:
    """Return every device that the adapters looked for just now, with the reason when it is not there.

    They come in the order of preference; see `choose`.

    Args:
        adapter: look with this one only.

    Raises:
        NotFoundError: when no such adapter is registered.
    """
    names = adapter_names() if adapter is None else [registered_as(adapter).name]
    return sorted((target for name in names for target in _targets_of(name)), key=_order)


def _targets_of(name: str, *, ready: Collection[str] | None = None) -> list[Target]:
    """Return the devices that an adapter looked for.

    Args:
        name: of the adapter.
        ready: adapters that build ahead and are to look for devices; None: all are.
    """
    distribution = distribution_of(name)
    try:
        adapter = load_adapter(name)
        if ready is not None and adapter.builds_ahead and name not in ready:
            return []
        devices = adapter.probe()
    except GraphboxError as error:
        return [Target(name, distribution, None, available=False, reason=error.message)]
    except Exception as error:  # noqa: BLE001 - a broken adapter must not hide the others
        reason = f"its probe failed: {type(error).__name__}: {error}"
        return [Target(name, distribution, None, available=False, reason=reason)]
    if not devices:
        return [Target(name, distribution, None, available=False, reason="it found no device")]
    return [Target(name, distribution, device, device.available, device.reason) for device in devices]


def choose(target: str = "auto", model: bytes | None = None) -> tuple[Adapter, Device]:
    """Return the adapter and the device for a target.

    Args:
        target: an adapter's name, ``adapter/device``, or ``auto``: the first available device that
            supports the model, GPUs before NPUs before CPUs, then ONNX Runtime, then by name; never one of
            kind ``other``, nor of an adapter that builds ahead and has built nothing yet. An adapter's name
            means its devices of kind ``other`` only where it has no others.
        model: an ONNX file's content that the device has to support.

    Raises:
        NotFoundError: when no such target is registered.
        BackendMissingError: when it is not available, with the reason.
        UnsupportedError: when it cannot run the model, with the reason.
    """
    reasons: list[str] = []
    candidates = candidates_of(target, model)
    for adapter, device in available_of(candidates, reasons):
        support = adapter.supports(model, device) if model is not None else None
        if support is None or support.supported:
            return adapter, device
        reasons.append(f"{adapter.name}/{device.name} cannot run this model: {support.reason}")
    raise no_target(target, candidates, reasons)


def candidates_of(target: str, model: bytes | None = None) -> list[Target]:
    """Return what a target may mean, in order of preference; see `choose`.

    Args:
        target: an adapter's name, ``adapter/device``, or ``auto``.
        model: of adapters that build ahead, ``auto`` means those that have built it; None: any model.

    Raises:
        NotFoundError: when no such target is registered.
    """
    if target == "auto":
        ready = adapters_with_packages(model)
        found = [each for name in adapter_names() for each in _targets_of(name, ready=ready)]
        return sorted((t for t in found if t.device is None or t.device.kind != "other"), key=_order)
    name, _, device_name = target.partition("/")
    candidates = targets(name)
    if device_name:
        return _named(candidates, target, device_name)
    devices = [each for each in candidates if each.device is None or each.device.kind != "other"]
    return devices or candidates


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
