"""Plans of trainings on a GPU: what is kept in its memory, and errors where there is no room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from graphbox.bandwidth import Bandwidths
from graphbox.config import ModelSection, RunConfig
from graphbox.device import device_in_words
from graphbox.train.plan.accesses import DegreeClasses, DegreeModel
from graphbox.train.plan.counts import GraphCounts
from graphbox.train.plan.footprint import footprint_of, part_of_batches
from graphbox.train.plan.placement import KINDS, DataPart, Kind, PlacedPart, Rates, place
from graphbox.words import counted_bytes

ASSUMED_BANDWIDTHS = Bandwidths(
    device="assumed: a GPU of the kind of an H200 on PCIe 5, not measured",
    device_sectors=1.5e12,
    pinned_sectors=2.0e10,
    device_rows=(1.8e12, 3.0e12, 3.8e12),
    pinned_rows=(2.5e10, 4.0e10, 5.0e10),
    host_to_device=5.3e10,
    device_to_host=5.3e10,
    device_to_device=2.0e12,
)
"""Bandwidths for placement where nothing was measured; only their ratios matter then."""

ASSUMED_SSD_BYTES_PER_S = 2.5e9

_ASSUMED = Rates(ASSUMED_BANDWIDTHS, ASSUMED_SSD_BYTES_PER_S)

_SHARE_OF_FREE = 0.95
"""Usable share of free memory: the rest is lost to fragmentation of PyTorch's allocator."""
_LEAST_DIM = 8


@dataclass(frozen=True)
class Gpu:
    """A GPU that trainings are planned for; each of several processes has one like it.

    Attributes:
        name: shown to people.
        hbm_bytes: memory that a training may take.
        rates: bandwidths.
    """

    name: str
    hbm_bytes: int
    rates: Rates = _ASSUMED

    @classmethod
    def of(cls, device: torch.device, count: int = 1) -> Gpu:
        """Return a GPU of this machine as it is now.

        Args:
            device: which.
            count: how many processes have one each, from the first on; then what the fullest has is free.
        """
        there = [torch.device("cuda", number) for number in range(min(count, torch.cuda.device_count()))]
        free = min(torch.cuda.mem_get_info(each)[0] for each in (there if count > 1 else [device]))
        name = device_in_words(device)
        return cls(name if count == 1 else f"each of {count} GPUs like {name}", int(_SHARE_OF_FREE * free))


@dataclass(frozen=True, eq=False)
class DevicePlan:
    """Placement of one training on a GPU.

    Attributes:
        model: name in the run file.
        kind: kind of the model.
        gpu: the GPU.
        working_bytes: GPU memory for computing.
        parts: placement of everything else.
        pinned_bytes: host memory beyond that of a training on the CPU.
    """

    model: str
    kind: str
    gpu: Gpu
    working_bytes: int
    parts: tuple[PlacedPart, ...]
    pinned_bytes: int = 0

    @property
    def budgets(self) -> dict[Kind, int]:
        """Bytes of the GPU's memory that are for each kind of part."""
        return {
            kind: sum(each.bytes("HBM") for each in self.parts if each.part.kind == kind) for kind in KINDS
        }

    @property
    def is_whole(self) -> bool:
        """Whether all that can be in the GPU's memory is there."""
        return all(each.is_near for each in self.parts if not each.part.not_in_hbm)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            "kind": self.kind,
            "gpu": self.gpu.name,
            "hbm_bytes": self.gpu.hbm_bytes,
            "working_bytes": self.working_bytes,
            "pinned_bytes": self.pinned_bytes,
            "bandwidths": self.gpu.rates.gpu.device,
            "parts": [each.as_dict() for each in self.parts],
        }


def plan_devices(
    config: RunConfig, counts: GraphCounts, degrees: Mapping[str, DegreeClasses], gpu: Gpu
) -> dict[str, DevicePlan | None]:
    """Return what each model of a run file keeps where by name; None where its kind has no plan.

    Args:
        config: the run file; its budgets in ``memory`` and ``memory.hbm`` are kept.
        counts: how large its graph is.
        degrees: by node type; of types that are left out all nodes are taken for alike.
        gpu: where models are trained.
    """
    return {name: _plan(name, model, config, counts, degrees, gpu) for name, model in config.models.items()}


def device_problems(
    config: RunConfig, counts: GraphCounts, plans: Mapping[str, DevicePlan | None]
) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Return the trainings that have no room on the GPU.

    Args:
        config: the run file.
        counts: how large its graph is.
        plans: of its models.

    Returns:
        Those that `device: auto` therefore trains on the CPU, with the reason, by the model's name; and those
        that cannot be trained: each model's name, what has no room, and what would have.
    """
    on_cpu: dict[str, str] = {}
    found = []
    for name, plan in plans.items():
        if plan is None:
            continue
        room = plan.gpu.hbm_bytes
        asked = _given(config)
        if plan.working_bytes > room:
            message = (
                f"expected {counted_bytes(plan.working_bytes)} of the memory of {plan.gpu.name} "
                f"to train `{name}`, received {counted_bytes(room)}"
            )
            if config.device == "auto":
                on_cpu[name] = message
                continue
            found.append((name, message, "; ".join(_ways(config, counts, plan))))
        elif plan.working_bytes + sum(asked.values()) > room:
            keys = ", ".join(f"`memory.hbm.{kind}`" for kind in asked)
            message = (
                f"expected {counted_bytes(plan.working_bytes + sum(asked.values()))} of the memory of "
                f"{plan.gpu.name} to train `{name}` with its budgets, received {counted_bytes(room)}"
            )
            hint = f"leave {keys} out, or let them be {counted_bytes(room - plan.working_bytes)} together"
            found.append((name, message, hint))
        else:
            footprint = footprint_of(config.models[name], counts, config)
            problem = None if footprint is None else footprint.row_problem(plan.budgets["tables"])
            if problem is not None and config.device == "auto":
                on_cpu[name] = problem[0]
            elif problem is not None:
                found.append((name, *problem))
    return on_cpu, found


def _plan(
    name: str,
    model: ModelSection,
    config: RunConfig,
    counts: GraphCounts,
    degrees: Mapping[str, DegreeClasses],
    gpu: Gpu,
) -> DevicePlan | None:
    processes, memory = config.processes, config.memory
    whole = footprint_of(model, counts, config)
    batch_part = footprint_of(part_of_batches(model, processes), counts, config)
    if whole is None or batch_part is None:
        return None
    working = batch_part.device_bytes()
    degree_model = DegreeModel(counts, degrees, in_tiers=memory.topology is not None)
    parts = [_of_each(part, processes) for part in whole.parts(degree_model)]
    on_disk: dict[Kind, int | None] = {
        "topology": memory.topology,
        "features": memory.features,
        "tables": whole.pinned_row_budget(),
    }
    placed = place(
        parts,
        gpu.rates,
        hbm_bytes=gpu.hbm_bytes - working,
        hbm_budgets=_given(config),
        mem_budgets={kind: size // processes for kind, size in on_disk.items() if size is not None},
    )
    plan = DevicePlan(name, model.kind, gpu, working, tuple(placed))
    pinned = 0
    if memory.topology is None:  # else that is the budget of pinned lists, too
        pinned = sum(each.part.bytes for each in placed if each.part.kind == "topology" and not each.is_near)
    return replace(plan, pinned_bytes=pinned + whole.pinned_row_bytes(plan.budgets["tables"]))


def _of_each(part: DataPart, processes: int) -> DataPart:
    """Return what one of several processes has of a part: its rows for all, the rest for itself."""
    if processes == 1:
        return part
    if part.kind == "tables":
        ends = -(-np.cumsum(part.items) // processes)
        return replace(part, items=np.diff(ends, prepend=0))
    return replace(part, accesses=part.accesses / processes)


def _given(config: RunConfig) -> dict[Kind, int]:
    hbm = config.memory.hbm
    budgets: dict[Kind, int | None] = {
        "topology": hbm.topology,
        "features": hbm.features,
        "tables": hbm.tables,
    }
    return {kind: size for kind, size in budgets.items() if size is not None}


def _ways(config: RunConfig, counts: GraphCounts, plan: DevicePlan) -> Iterator[str]:
    """Yield what makes a training fit the GPU, or lets it begin elsewhere."""
    model = config.models[plan.model]
    for key, least in (("dim", _LEAST_DIM), ("batch_size", 1)):
        value = getattr(model, key, 0) // 2
        while value >= least:
            section = part_of_batches(model.model_copy(update={key: value}), config.processes)
            footprint = footprint_of(section, counts, config)
            smaller = None if footprint is None else footprint.device_bytes()
            if smaller is not None and smaller <= plan.gpu.hbm_bytes:
                yield f"with `models.{plan.model}.{key}={value}` it takes {counted_bytes(smaller)}"
                break
            value //= 2
    if getattr(model, "num_neighbors", 0) is None:
        yield f"`models.{plan.model}.num_neighbors=[10,10]` trains on parts of the graph"
    yield "`device=cpu` trains in host memory"
