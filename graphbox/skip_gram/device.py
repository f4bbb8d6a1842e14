"""Trains skip-gram on a device: rows, walks, pairs, negatives and updates are all there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox.device import check_device, on_device
from graphbox.errors import DoesNotFitError
from graphbox.memory import available_bytes
from graphbox.sample.pairs_gpu import DeviceWindows
from graphbox.skip_gram.arrays import GradientArrays
from graphbox.skip_gram.batches import DeviceBatches
from graphbox.skip_gram.group_size import GroupSize, batches_side_by_side, group_bytes
from graphbox.skip_gram.learn_gpu import (
    Learning,
    LearningGroup,
    launch_gradients,
    launch_update,
    shared_bytes,
)
from graphbox.skip_gram.row_bytes import RowRoom
from graphbox.skip_gram.rows import DeviceRows, RowTiers
from graphbox.skip_gram.tile_shapes import tile_shape
from graphbox.skip_gram.walkers import WalkBatches
from graphbox.skip_gram.walks import DeviceWalks
from graphbox.table import EmbeddingTable
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.negative_gpu import DeviceNegatives

_SHARE_OF_FREE = 0.9
"""Of the memory that a device has free, for rows: neighbours and batches have the rest."""


@dataclass(frozen=True)
class SkipGramSettings:
    """Settings of skip-gram.

    Attributes:
        num_keys: number of rows of a table.
        negatives: negatives drawn for each batch.
        negative_weight: number of independent negatives that those of a pair count as.
        learning_rate: learning rate of row-wise Adagrad.
        lock_free: batches are computed side by side, and changes of rows they share may be lost.
        seed: seed of all draws.
    """

    num_keys: int
    negatives: int
    negative_weight: float
    learning_rate: float
    lock_free: bool
    seed: int


class DeviceSkipGram:
    """Rows in the memory of a device, as many as it has room for, others pinned, and what trains them.

    The host starts kernels and waits for the loss of each group of batches, nothing else; the next group is
    made meanwhile. Where rows are changes no bit of them.

    Args:
        tables: the tables by name, the centres' first; one, where contexts are the same rows.
        make_walks: returns what makes the walks, which has the memory that rows leave.
        windows: how windows are laid.
        negatives: draws the negatives.
        settings: what is learned.
        device: where.
        visits: float64 [keys], how often each key is met: rows of those that are met most stand in the memory
            of the device, where it has no room for all.
        row_bytes: the most of that memory for rows; None: see :func:`row_budget_bytes`.

    Raises:
        UnsupportedError: rows longer than kernels have room for.
        UsageError: a table keeps rows otherwise than kernels update them.
        DoesNotFitError: neither the device nor host memory has room for the rows.
    """

    def __init__(
        self,
        tables: Mapping[str, EmbeddingTable],
        make_walks: Callable[[], DeviceWalks],
        windows: DeviceWindows,
        negatives: DeviceNegatives,
        settings: SkipGramSettings,
        device: torch.device,
        *,
        visits: NDArray[np.float64],
        row_bytes: int | None = None,
    ) -> None:
        check_device(device)
        self._device, self._settings = device, settings
        self._windows, self._negatives = windows, negatives
        dim = next(iter(tables.values())).dim
        self._shape = tile_shape(dim, shared_bytes(device))
        budget = row_budget_bytes(device) if row_bytes is None else row_bytes
        self._room = RowRoom(settings.num_keys, len(tables), dim, budget)
        _check_room(self._room, device)
        tiers = RowTiers(settings.num_keys, self._room.hot_keys, visits)
        with on_device(device):
            self._rows = [DeviceRows(table, tiers, device) for table in tables.values()]
            self._positions = tiers.positions(device)
            self._walks = make_walks()
        self._group: _Group | None = None
        self._made: tuple[int, int] | None = None
        self._number_of_groups = 0

    def places(self) -> Mapping[str, str]:
        """Return where rows and neighbours are that are not on the device: for the record of a run."""
        found = {}
        room = self._room
        if room.pinned_bytes:
            found["rows"] = (
                f"pinned host memory, {room.pinned_bytes:,} bytes, and {room.device_bytes:,} on the device"
            )
        if self._walks.lists_in:
            found["neighbors"] = self._walks.lists_in
        return found

    def store(self) -> None:
        """Write the rows that changed back to the tables."""
        with on_device(self._device):
            for rows in self._rows:
                rows.store()

    def begin_epoch(self, walkers: WalkBatches, group: int) -> None:
        """Prepare an epoch whose batches come in groups of ``group``.

        Raises:
            DoesNotFitError: the device has no room for a group.
        """
        size = GroupSize.of(walkers.offsets, group, self._walks.width, self._settings.negatives)
        with on_device(self._device):
            self._walks.begin_epoch()
            if self._group is None or self._group.batches.size != size:
                self._group = None
                self._group = self._room_for(size)
            self._group.batches.begin_epoch(walkers)
        self._number_of_groups = -(-(len(walkers.offsets) - 1) // group)
        self._made = None

    def train(self, epoch: int, number: int) -> tuple[float, int]:
        """Train on a group of batches, up to one whose loss is not finite.

        Returns:
            The sum of the losses of all pairs, and their number.
        """
        if self._group is None:
            raise RuntimeError("begin_epoch comes first")
        with on_device(self._device):
            if self._made != (epoch, number):
                self._group.batches.make(epoch, number)
            self._made = None
            self._group.start()
            if number + 1 < self._number_of_groups:  # while the host looks at what came of this one
                self._group.batches.make(epoch, number + 1)
                self._made = (epoch, number + 1)
            return self._group.result()

    def _room_for(self, size: GroupSize) -> _Group:
        arrays, settings = [rows.arrays for rows in self._rows], self._settings
        dim, side = self._rows[0].dim, batches_side_by_side(size, lock_free=settings.lock_free)
        _check_free(
            group_bytes(size, dim, self._shape, side),
            f"{size.group} batches of {size.batch_places:,} visits and {settings.negatives:,} negatives",
            "lower batch_size or negatives, or train on the CPU with `device: cpu`",
            self._device,
        )
        batches = DeviceBatches(
            self._walks,
            self._windows,
            self._negatives,
            settings.num_keys,
            self._positions,
            settings.seed,
            size,
            self._device,
        )
        learning = Learning(
            batches.reach,
            settings.negative_weight,
            settings.learning_rate,
            self._rows[0].eps,
            settings.num_keys,
            self._shape,
        )
        gradients = _room_for_gradients(size, dim, learning, side, self._device)
        group = LearningGroup(arrays[0], arrays[-1], batches.arrays, gradients, learning)
        return _Group(batches, group, side, self._device)


class _Group:
    """Room for a group of batches, and the launches that train on it.

    Where the device is a GPU, they are one CUDA graph from the second group on: the first compiles kernels,
    which cannot be done while launches are recorded.
    """

    def __init__(
        self, batches: DeviceBatches, learning: LearningGroup, side: int, device: torch.device
    ) -> None:
        self.batches = batches
        self._learning, self._side = learning, side
        self._device, self._is_gpu = device, device.type == "cuda"
        self._result = torch.zeros(2, dtype=torch.float64, pin_memory=self._is_gpu)
        self._is_there = torch.cuda.Event() if self._is_gpu else None  # type: ignore[no-untyped-call]
        self._is_compiled = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def start(self) -> None:
        """Start training on what was made."""
        gradients = self._learning.gradients
        gradients.losses.zero_()
        gradients.stopped.zero_()
        self._launch()
        sums = torch.stack([gradients.losses.sum(), self.batches.arrays.pairs.sum().double()])
        self._result.copy_(sums, non_blocking=True)
        if self._is_there is not None:
            self._is_there.record()

    def result(self) -> tuple[float, int]:
        """Wait for the end of it; return the sum of the losses and the number of pairs."""
        if self._is_there is not None:
            self._is_there.synchronize()
        loss, pairs = self._result.tolist()
        return loss, int(pairs)

    def _launch(self) -> None:
        if not (self._is_gpu and self._is_compiled):
            self._launch_each()
            self._is_compiled = True
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # PyTorch's own stream for it is one of the GPU that was first; other threads may go on.
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._launch_each()
        self._graph.replay()

    def _launch_each(self) -> None:
        for number in range(0, self.batches.size.group, self._side):
            launch_gradients(self._learning, number, self._side)
            launch_update(self._learning, number, self._side)


def _room_for_gradients(
    size: GroupSize, dim: int, learning: Learning, side: int, device: torch.device
) -> GradientArrays:
    walk_tiles, center_tiles = size.tiles(learning.shape.places), size.tiles(learning.shape.centers)

    def empty(*shape: int) -> Tensor:
        return torch.empty(side, *shape, dim, dtype=torch.float32, device=device)

    return GradientArrays(
        empty(2, size.batch_places),
        empty(size.batch_places),
        empty(center_tiles, size.negatives),
        torch.zeros(size.group, walk_tiles + center_tiles, dtype=torch.float64, device=device),
        torch.zeros(1, dtype=torch.int32, device=device),
    )


def row_budget_bytes(device: torch.device) -> int | None:
    """Return the memory of a device for rows that have no budget, as it is free now; None: any on the CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()  # what PyTorch holds for later counts as free
    free, _ = torch.cuda.mem_get_info(device)
    return int(_SHARE_OF_FREE * free)


def _check_room(room: RowRoom, device: torch.device) -> None:
    """Refuse rows that the device, or host memory, has no room for."""
    hot = room.hot_keys
    _check_free(
        room.device_bytes,
        f"{room.tables} x {hot:,} rows of {room.dim} values with their state",
        "lower `memory.hbm.tables`: what has no room there is in pinned host memory",
        device,
    )
    if device.type == "cuda" and room.pinned_bytes > available_bytes():
        raise DoesNotFitError(
            f"{room.tables} x {room.num_keys - hot:,} rows of {room.dim} values, which have no room on "
            f"{device}, take {counted_bytes(room.pinned_bytes)} of host memory, "
            f"{counted_bytes(available_bytes())} are available",
            where="memory",
            hint="lower dim, or train on the CPU with `device: cpu` and `memory.tables`, which keeps rows "
            "on SSD",
        )


def _check_free(needed: int, what: str, hint: str, device: torch.device) -> None:
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()  # what PyTorch holds for later counts as free
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise DoesNotFitError(
            f"{what} take {counted_bytes(needed)}, {counted_bytes(free)} are free on {device}",
            where="device",
            hint=hint,
        )
