"""Placement: where a training computes and keeps its data, who decided it, and why.

The section `memory` and the key `device` of a run file are what was asked for, and stay as they are; what
was decided from them is here. Both are in the record of a run, and on ``graphbox plan``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

from graphbox.bandwidth import measured_bandwidths
from graphbox.config import HbmConfig, ModelSection, RunConfig
from graphbox.device import device_in_words
from graphbox.errors import DoesNotFitError
from graphbox.graph import Graph
from graphbox.train.plan.accesses import DegreeClasses
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.device_plan import (
    ASSUMED_SSD_BYTES_PER_S,
    DevicePlan,
    Gpu,
    device_problems,
    plan_devices,
)
from graphbox.train.plan.placement import KINDS, TIERS, Kind, Rates
from graphbox.train.processes import check_gpus
from graphbox.words import counted_bytes

_CPU = torch.device("cpu")

Decider: TypeAlias = Literal["run file", "graphbox"]


@dataclass(frozen=True)
class Decision:
    """One thing that was decided.

    Attributes:
        what: `device`, `topology`, `features` or `tables`.
        where: where that is, in words.
        by: who decided: the run file, which asked for it, or graphbox.
        why: key of the run file, or the reason.
    """

    what: str
    where: str
    by: Decider
    why: str


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a training computes and keeps its data.

    Attributes:
        device: where it computes.
        decisions: about the device, and each kind of data that may be on disk or a GPU.
        plan: what is kept where on a GPU; None on the CPU, and of kinds whose data is not planned.
    """

    device: torch.device
    decisions: tuple[Decision, ...]
    plan: DevicePlan | None = None

    @property
    def hbm(self) -> HbmConfig | None:
        """Budgets of the GPU's memory that were decided; None: those of the run file."""
        return None if self.plan is None else HbmConfig(**self.plan.budgets)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json`` and the record of a run."""
        return {
            "device": str(self.device),
            "decisions": [asdict(each) for each in self.decisions],
            "gpu": None if self.plan is None else self.plan.as_dict(),
        }


def place_trainings(config: RunConfig, graph: Graph, device: torch.device) -> dict[str, Placement]:
    """Return where models are trained by name, and what is kept where, before any training begins.

    With `device: auto` models that have no room on the GPU are trained on the CPU. Bandwidths are measured,
    and degrees counted, where not everything fits.

    Args:
        config: the run file.
        graph: what they are trained on.
        device: of this machine, which `device` of the run file means.

    Raises:
        DoesNotFitError: one has no room on the GPU that was asked for.
        UsageError: a GPU was named that is not the first, for several processes.
        BackendMissingError: there are too few GPUs for them.
    """
    if device.type == "cpu":
        return {name: placement_of(model, config, device) for name, model in config.models.items()}
    if config.processes > 1:
        check_gpus(config.processes, device)
    counts, gpu = GraphCounts.of(graph), Gpu.of(device, config.processes)
    plans = plan_devices(config, counts, {}, gpu)
    if not all(plan is None or plan.is_whole for plan in plans.values()):
        gpu = replace(gpu, rates=Rates(measured_bandwidths(device), ASSUMED_SSD_BYTES_PER_S))
        plans = plan_devices(config, counts, DegreeClasses.of(graph), gpu)
    on_cpu, found = device_problems(config, counts, plans)
    for model, message, hint in found:
        raise DoesNotFitError(message, where=f"models.{model}", hint=hint)
    return placements(config, device, plans, on_cpu)


def placements(
    config: RunConfig, device: torch.device, plans: Mapping[str, DevicePlan | None], on_cpu: Mapping[str, str]
) -> dict[str, Placement]:
    """Return the placement of each model of a run file by name.

    Args:
        config: the run file.
        device: where models compute that are not in ``on_cpu``.
        plans: what they keep where on it; those that are left out are not planned.
        on_cpu: why models are on the CPU though `device: auto` found a GPU, by name.
    """
    return {
        name: placement_of(model, config, _CPU, why_on_cpu=on_cpu[name])
        if name in on_cpu
        else placement_of(model, config, device, plans.get(name))
        for name, model in config.models.items()
    }


def placement_of(
    model: ModelSection,
    config: RunConfig,
    device: torch.device,
    plan: DevicePlan | None = None,
    why_on_cpu: str | None = None,
) -> Placement:
    """Return the placement of a training.

    Args:
        model: the model's section of the run file.
        config: the run file.
        device: where it computes.
        plan: what it keeps where on that device.
        why_on_cpu: why it is on the CPU though `device: auto` found a GPU.
    """
    decisions = (_device(config, device, plan, why_on_cpu), *_data(model, config, plan))
    return Placement(device, decisions, plan)


def _device(config: RunConfig, device: torch.device, plan: DevicePlan | None, why: str | None) -> Decision:
    where = device_in_words(device) if plan is None else plan.gpu.name
    if config.device != "auto":
        return Decision("device", where, "run file", f"`device: {config.device}`")
    found = "there is no usable GPU" if device.type == "cpu" else "`device: auto` found it"
    return Decision("device", where, "graphbox", why or found)


def _data(model: ModelSection, config: RunConfig, plan: DevicePlan | None) -> Iterator[Decision]:
    for kind in KINDS:
        on_gpu = None if plan is None else _on_gpu(kind, config, plan)
        if on_gpu is not None:
            yield on_gpu
        elif kind in model.BUDGETS:
            yield _in_host(kind, config)
        elif kind in model.IN_MEMORY:
            yield Decision(kind, "memory", "graphbox", model.IN_MEMORY[kind])


def _in_host(kind: Kind, config: RunConfig) -> Decision:
    budget: int | None = getattr(config.memory, kind)
    if budget is None:
        return Decision(kind, "memory", "graphbox", f"there is no `memory.{kind}`")
    where = f"{counted_bytes(budget)} in memory, the rest on SSD"
    return Decision(kind, where, "run file", f"`memory.{kind}`")


def _on_gpu(kind: Kind, config: RunConfig, plan: DevicePlan) -> Decision | None:
    """Return what was decided of a kind of data; None: the training has none of it."""
    parts = [each for each in plan.parts if each.part.kind == kind]
    if not parts:
        return None
    sizes = {tier: sum(each.bytes(tier) for each in parts) for tier in TIERS}
    where = ", ".join(f"{counted_bytes(size)} in {tier}" for tier, size in sizes.items() if size)
    keys = [f"`memory.{kind}`"] if getattr(config.memory, kind) is not None else []
    if getattr(config.memory.hbm, kind) is not None:
        return Decision(kind, where, "run file", " and ".join([f"`memory.hbm.{kind}`", *keys]))
    why = "; ".join(dict.fromkeys(each.why for each in parts))
    return Decision(kind, where or "HBM", "graphbox", "; ".join([why, *keys]))
