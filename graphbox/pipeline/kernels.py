"""Throughput of each GPU kernel, relative to a bandwidth probe measured beside it on the same GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphbox.bandwidth_gpu import (
    SECTOR_BYTES,
    Direction,
    Place,
    copy_bandwidth,
    run_seconds,
    sector_bandwidth,
)
from graphbox.device import check_device
from graphbox.sample import DeviceGraph, random_walk
from graphbox.sample.neighbor_gpu import DeviceRelation, sample_hop
from graphbox.sample.sectors import hop_sectors, step_sectors
from graphbox.table import EmbeddingTable
from graphbox.table.gather_gpu import gather_rows
from graphbox.table.optimizer_gpu import DeviceOptimizer

if TYPE_CHECKING:
    from graphbox.native import Int64Array
    from graphbox.sample.adjacency import EdgeType

_EDGE_TYPE: EdgeType = ("node", "to", "node")
_NUM_NEIGHBORS = 10
_WALK_STEPS = 40
_DIM = 64
_GATHERED_BYTES = 512
_PLACES: tuple[Place, ...] = ("device", "pinned")


@dataclass(frozen=True, slots=True)
class KernelShare:
    """Throughput of one kernel, relative to its limit.

    Attributes:
        kernel: operation of the kernel.
        rate: throughput, in ``unit``.
        unit: unit of the rate.
        limit: the probe that bounds it.
        limit_rate: rate of a kernel that did nothing but the accesses of the probe.
        share: rate / limit_rate.
    """

    kernel: str
    rate: float
    unit: str
    limit: str
    limit_rate: float
    share: float


class _RandomGraph:
    """Every node has as many in-neighbours, drawn at random; they are its out-neighbours as well."""

    node_types = ("node",)
    edge_types = (_EDGE_TYPE,)

    def __init__(self, nodes: int, degree: int) -> None:
        self.indptr: Int64Array = np.arange(0, nodes * degree + 1, degree, dtype=np.int64)
        self.indices = np.random.default_rng(0).integers(0, nodes, nodes * degree, dtype=np.int32)

    def num_nodes(self, node_type: str) -> int:  # noqa: ARG002 (there is one)
        """Return the number of nodes."""
        return len(self.indptr) - 1

    def csc(self, edge_type: EdgeType) -> _RandomGraph:  # noqa: ARG002 (there is one)
        """Return the lists."""
        return self

    csr = csc


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Input sizes: beyond the caches of a GPU, or small for the interpreter."""

    nodes: int
    degree: int
    frontier: int
    walkers: int
    rows: int


_LARGE = _Sizes(nodes=1 << 22, degree=16, frontier=1 << 20, walkers=1 << 20, rows=1 << 21)
_SMALL = _Sizes(nodes=1 << 6, degree=16, frontier=16, walkers=16, rows=1 << 6)


def kernel_shares(device: torch.device) -> Iterator[KernelShare]:
    """Yield what kernels reach, one after the other as they are measured; medians of five runs.

    A graph of 67 million random edges takes 0.3 GB of host memory and as much of pinned memory, rows 1 GB of
    pinned memory and up to 3 GB of the GPU's.

    Args:
        device: a GPU, or the CPU with Triton's interpreter, which says nothing of speed.

    Raises:
        BackendMissingError: Triton or the device is not there.
        DoesNotFitError: memory is missing.
    """
    check_device(device)
    sizes = _LARGE if device.type == "cuda" else _SMALL
    graph = _RandomGraph(sizes.nodes, sizes.degree)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for where in _PLACES:
        yield _sampling(DeviceGraph(graph, device, indices_in=where), sizes, where)
    yield _walks(DeviceGraph(graph, device, indices_in="device"), sizes)
    for where in _PLACES:
        yield _gather(device, sizes, where)
    yield _push(device, sizes)


def _sampling(graph: DeviceGraph, sizes: _Sizes, where: Place) -> KernelShare:
    relation = DeviceRelation(graph.csc(_EDGE_TYPE), None, 0, 0, [_NUM_NEIGHBORS])
    frontier = torch.randperm(sizes.nodes, device=graph.device)[: sizes.frontier]
    sample = partial(sample_hop, relation, frontier, replace=False, key=(0, 0, 0))
    sampled = sample()
    sectors = hop_sectors(relation, frontier, sampled, replace=False, where=where)
    return _share(
        f"sampling {_NUM_NEIGHBORS} of {sizes.degree} neighbours, {where}",
        sample,
        len(sampled.edge_ids),
        "edges/s",
        graph.device,
        where,
        sectors * SECTOR_BYTES,
        relation.adjacency.indices.nbytes,
    )


def _walks(graph: DeviceGraph, sizes: _Sizes) -> KernelShare:
    start = torch.arange(sizes.walkers, device=graph.device)
    steps = sizes.walkers * _WALK_STEPS
    return _share(
        f"walks of {_WALK_STEPS} steps, device",
        partial(random_walk, graph, start, _WALK_STEPS),
        steps,
        "steps/s",
        graph.device,
        "device",
        steps * step_sectors() * SECTOR_BYTES,
        graph.csr(_EDGE_TYPE).indices.nbytes,
    )


def _gather(device: torch.device, sizes: _Sizes, where: Place) -> KernelShare:
    rows = torch.rand(sizes.rows, _GATHERED_BYTES // 4, device=device)
    if where == "pinned" and device.type == "cuda":
        rows = rows.cpu().pin_memory()
    index = torch.randperm(sizes.rows, device=device)[: sizes.rows // 2]
    direction: Direction = "device_to_device" if where == "device" else "host_to_device"
    work = partial(gather_rows, rows, index)
    return _copy_share(
        f"gathering rows of {_GATHERED_BYTES} bytes, {where}",
        work,
        len(index),
        device,
        direction,
        _GATHERED_BYTES,
    )


def _push(device: torch.device, sizes: _Sizes) -> KernelShare:
    table = EmbeddingTable(_DIM, optimizer="rowwise_adagrad")
    optimizer = DeviceOptimizer(table._current.optimizer)
    values = torch.rand(sizes.rows, _DIM, device=device)
    state = optimizer.initial_state(sizes.rows, _DIM, device)
    slots = torch.randperm(sizes.rows, device=device)[: sizes.rows // 2]
    gradients = torch.rand(len(slots), _DIM, device=device)

    def pull_and_push() -> None:
        gather_rows(values, slots)
        optimizer.push(values, state, slots, gradients)

    kernel = f"pull and push of rows of {_DIM}, row-wise Adagrad"
    return _copy_share(kernel, pull_and_push, len(slots), device, "device_to_device", values[0].nbytes)


def _share(
    kernel: str,
    work: Callable[[], object],
    units: int,
    unit: str,
    device: torch.device,
    where: Place,
    touched_bytes: float,
    size_bytes: int,
) -> KernelShare:
    """Return the share of the probe of random sectors in a block of ``size_bytes``."""
    rate = units / statistics.median(run_seconds(work, device))
    limit = sector_bandwidth(where, device, size_bytes=size_bytes) * units / touched_bytes
    return KernelShare(kernel, rate, unit, f"{where} sectors", limit, rate / limit)


def _copy_share(
    kernel: str,
    work: Callable[[], object],
    rows: int,
    device: torch.device,
    direction: Direction,
    row_bytes: int,
) -> KernelShare:
    """Return the share of copying the rows: each is read once and written once."""
    rate = rows / statistics.median(run_seconds(work, device))
    limit = copy_bandwidth(direction, device) / row_bytes
    return KernelShare(kernel, rate, "rows/s", f"copy {direction}".replace("_", " "), limit, rate / limit)
