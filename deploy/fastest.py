"""``auto``: the fastest of the devices that run a model as precisely as it says."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphbox.deploy.packages import is_built
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.deploy.protocol import DTYPE_OF, Adapter, Device, Feeds, Options
from graphbox.deploy.select import available_of, candidates_of, no_target
from graphbox.errors import GraphboxError, UnsupportedError

__all__ = ["Choice", "open_program"]

_SIZES = (1, 32)
_CALLS = 7
_CLEARLY_FASTER = 0.9
"""Of the time of a device that is preferred, for another to be taken instead: less is noise."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A model on the device that was chosen for it.

    Attributes:
        adapter: of the device.
        device: where it runs.
        program: the model, compiled.
        measured_ms: by target, the median times of a call with each of the sizes, in milliseconds; empty
            where there was nothing to choose from.
        refused: why other targets do not run it.
    """

    adapter: Adapter
    device: Device
    program: CheckedProgram
    measured_ms: Mapping[str, tuple[float, ...]]
    refused: tuple[str, ...]

    @property
    def effective(self) -> dict[str, Any]:
        """What really runs the model: the adapter, the program's `Effective`, and what was measured."""
        measured = {"measured_ms": dict(self.measured_ms)} if self.measured_ms else {}
        return {"adapter": self.adapter.name, **self.program.effective, **measured}


def open_program(target: str, model: bytes, options: Options) -> Choice:
    """Compile a model for a target; of several devices that it may mean, for the fastest.

    Each device that supports the model runs it with feeds of 1 and of 32 rows. One that comes earlier in the
    order of preference (see `graphbox.deploy.choose`) is taken unless a later one is clearly faster. Of
    adapters that build ahead, ``auto`` means those that have built the model: nothing that takes long is done
    unasked.

    Args:
        target: an adapter's name, ``adapter/device``, or ``auto``.
        model: an ONNX file's content.
        options: threads and precision.

    Raises:
        NotFoundError: when no such target is registered.
        BackendMissingError: when it is not available, with the reason.
        UnsupportedError: when it cannot run the model, with the reason.
        FormatError: the model is damaged or refers to other files.
    """
    candidates = candidates_of(target)
    refused: list[str] = []
    opened: list[tuple[Adapter, Device, CheckedProgram]] = []
    for adapter, device in available_of(candidates, refused):
        if target == "auto" and adapter.builds_ahead and not is_built(adapter, model, device, options):
            continue
        try:
            opened.append((adapter, device, compile_model(adapter, model, device, options)))
        except UnsupportedError as error:
            refused.append(f"{adapter.name}/{device.name} cannot run this model: {error.message}")
    if not opened:
        raise no_target(target, candidates, refused)
    return _fastest(opened, tuple(refused))


def _fastest(opened: list[tuple[Adapter, Device, CheckedProgram]], refused: tuple[str, ...]) -> Choice:
    if len(opened) == 1:
        adapter, device, program = opened[0]
        return Choice(adapter, device, program, {}, refused)
    measured: dict[str, tuple[float, ...]] = {}
    best, best_ms = 0, float("inf")
    for number, (adapter, device, program) in enumerate(opened):
        times_ms = tuple(_call_ms(program, size) for size in _SIZES)
        measured[f"{adapter.name}/{device.name}"] = times_ms
        if sum(times_ms) < _CLEARLY_FASTER * best_ms:
            best, best_ms = number, sum(times_ms)
    for number, (_, _, program) in enumerate(opened):
        if number != best:
            program.close()
    adapter, device, program = opened[best]
    return Choice(adapter, device, program, measured, refused)


def _call_ms(program: CheckedProgram, size: int) -> float:
    """Return the median time of a call; infinity: the program cannot run it."""
    feeds = _feeds(program, size)
    times_s = []
    try:
        program.run(feeds)
        for _ in range(_CALLS):
            began = time.perf_counter()
            program.run(feeds)
            times_s.append(time.perf_counter() - began)
    except GraphboxError:
        return float("inf")
    return round(1e3 * statistics.median(times_s), 4)


def _feeds(program: CheckedProgram, size: int) -> Feeds:
    """Return feeds in which every dimension of any size is ``size``, and positions are 0."""
    random = np.random.default_rng(0)
    feeds = {}
    for tensor in program.inputs:
        shape = tuple(size if length < 0 else length for length in tensor.shape)
        dtype = DTYPE_OF[tensor.datatype]
        if dtype.kind == "f":
            feeds[tensor.name] = random.standard_normal(shape).astype(dtype)
        else:
            feeds[tensor.name] = np.zeros(shape, dtype)
    return feeds
