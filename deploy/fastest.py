"""``auto``: the fastest of the devices that run a model as precisely as it says."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from graphbox.deploy.made_up_feeds import made_up_feeds
from graphbox.deploy.packages import is_built
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.deploy.protocol import Adapter, Device, Options
from graphbox.deploy.select import available_of, candidates_of, no_target
from graphbox.errors import (
    BackendMissingError,
    DoesNotFitError,
    InvalidRequestError,
    TimeLimitError,
    UnsupportedError,
)

__all__ = ["Choice", "open_program"]

_SIZES = (1, 32)
_CALLS = 7
_CLEARLY_FASTER = 0.9
"""Of the time of a device that is preferred, for another to be taken instead: less is noise."""
_ABSENCES = (BackendMissingError, DoesNotFitError, TimeLimitError)
"""Errors of one target after which ``auto`` tries the others."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A model on the device that was chosen for it.

    Attributes:
        adapter: of the device.
        device: where it runs.
        program: the model, compiled.
        measured_ms: by target, the median times of a call with each of the sizes, in milliseconds; empty
            where there was nothing to choose from. A target that refused the feeds is not among them.
        refused: why other targets do not run it.
    """

    adapter: Adapter
    device: Device
    program: CheckedProgram
    measured_ms: Mapping[str, tuple[float, ...]]
    refused: tuple[str, ...]

    @property
    def effective(self) -> dict[str, Any]:
        """The adapter, the program's `Effective`, and under ``measured_ms`` the times of all targets."""
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
    candidates = candidates_of(target, model)
    refused: list[str] = []
    refusals = _ABSENCES if target == "auto" else (UnsupportedError,)
    with ExitStack() as stack:
        opened: list[tuple[Adapter, Device, CheckedProgram]] = []
        for adapter, device in available_of(candidates, refused):
            if target == "auto" and adapter.builds_ahead and not is_built(adapter, model, device, options):
                continue
            try:
                program = compile_model(adapter, model, device, options)
            except refusals as error:
                refused.append(f"{adapter.name}/{device.name} cannot run this model: {error.message}")
                continue
            stack.callback(program.close)
            opened.append((adapter, device, program))
        if not opened:
            raise no_target(target, candidates, refused)
        choice = _fastest(opened, tuple(refused))
        stack.pop_all()
    for _, _, program in opened:
        if program is not choice.program:
            program.close()
    return choice


def _fastest(opened: list[tuple[Adapter, Device, CheckedProgram]], refused: tuple[str, ...]) -> Choice:
    best, best_ms = 0, float("inf")
    measured: dict[str, tuple[float, ...]] = {}
    if len(opened) > 1:
        for number, (adapter, device, program) in enumerate(opened):
            try:
                times_ms = tuple(_call_ms(program, size) for size in _SIZES)
            except InvalidRequestError:  # feeds that are made up need not be ones that a model accepts
                continue
            measured[f"{adapter.name}/{device.name}"] = times_ms
            if sum(times_ms) < _CLEARLY_FASTER * best_ms:
                best, best_ms = number, sum(times_ms)
    adapter, device, program = opened[best]
    return Choice(adapter, device, program, measured, refused)


def _call_ms(program: CheckedProgram, size: int) -> float:
    """Return the median time of a call.

    Raises:
        InvalidRequestError: the program refuses the feeds.
    """
    feeds = made_up_feeds(program, size)
    times_s = []
    program.run(feeds)
    for _ in range(_CALLS):
        began = time.perf_counter()
        program.run(feeds)
        times_s.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(times_s), 4)
