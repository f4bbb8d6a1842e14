"""Trains skip-gram on a device: rows, walks, pairs, negatives and updates are all there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from graphbox.device import check_device, on_device
from graphbox.errors import DoesNotFitError
from graphbox.sample.pairs_gpu import DeviceWindows
from graphbox.skip_gram.batches import DeviceBatches, GroupSize, group_bytes
from graphbox.skip_gram.learn_gpu import (
    GradientArrays,
    Learning,
    RowArrays,
    launch_gradients,
    launch_update,
    shared_bytes,
    tile_shape,
)
from graphbox.skip_gram.rows import DeviceRows, device_row_bytes
from graphbox.skip_gram.walkers import WalkBatches
from graphbox.skip_gram.walks import DeviceWalks
from graphbox.table import EmbeddingTable
from graphbox.words import counted_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.negative_gpu import DeviceNegatives

__all__ = ["DeviceSkipGram", "SkipGramSettings"]

_SIDE_BY_SIDE = 8
"""Batches that are computed at once without locks: enough for all multiprocessors of a large GPU."""


@dataclass(frozen=True)
class SkipGramSettings:
    """What is learned.

    Attributes:
        num_keys: number of rows of a table.
        negatives: drawn for each batch.
        negative_weight: how many negatives a pair is worth.
        learning_rate: of row-wise Adagrad.
        lock_free: batches are computed side by side, and changes of rows they share may be lost.
        seed: of all draws.
    """

    num_keys: int
    negatives: int
    negative_weight: float
    learning_rate: float
    lock_free: bool
    seed: int


class DeviceSkipGram:
    """Rows on a device, and what trains them there.

    The host starts kernels and waits for the loss of each group of batches, nothing else; the next group is
    made meanwhile.

    Args:
        tables: the tables by name, the centres' first; one, where contexts are the same rows.
        make_walks: returns what makes the walks, which has the memory that rows leave.
        windows: how windows are laid.
        negatives: draws the negatives.
        settings: what is learned.
        device: where.
        row_bytes: the most memory that rows may take there; None: what is free.

    Raises:
        UnsupportedError: rows longer than kernels have room for.
        UsageError: a table keeps rows otherwise than kernels update them.
        DoesNotFitError: the memory of the device, or ``row_bytes``, has no room for all rows.
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
        row_bytes: int | None = None,
    ) -> None:
        check_device(device)
        self._device, self._settings = device, settings
        self._windows, self._negatives = windows, negatives
        self._shape = tile_shape(next(iter(tables.values())).dim, shared_bytes(device))
        _check_rows(len(tables), next(iter(tables.values())).dim, settings, device, row_bytes)
        with on_device(device):
            self._rows = [DeviceRows(table, settings.num_keys, device) for table in tables.values()]
            self._walks = make_walks()
        self._group: _Group | None = None
        self._made: tuple[int, int] | None = None
        self._number_of_groups = 0

    def places(self) -> Mapping[str, str]:
        """Return where neighbours are, if not with the rows: for the record of a run."""
        return {"neighbors": self._walks.lists_in} if self._walks.lists_in else {}

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
        size = GroupSize(walkers.offsets, group, self._walks.width, self._settings.negatives)
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
        dim, settings = self._rows[0].arrays.values.shape[1], self._settings
        side = min(_SIDE_BY_SIDE, size.group) if settings.lock_free else 1
        tiles = max(1, -(-size.batch_places // self._shape.centers))
        needed = group_bytes(size) + 4 * side * dim * (3 * size.batch_places + tiles * settings.negatives)
        _check_free(
            needed,
            f"{size.group} batches of {size.batch_places:,} visits and {settings.negatives:,} negatives",
            "lower batch_size or negatives, or train on the CPU with `device: cpu`",
            self._device,
        )
        batches = DeviceBatches(
            self._walks,
            self._windows,
            self._negatives,
            settings.num_keys,
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
        return _Group(batches, [rows.arrays for rows in self._rows], learning, side, self._device)


class _Group:
    """Room for a group of batches, and the launches that train on it.

    Where the device is a GPU, they are one CUDA graph from the second group on: the first compiles kernels,
    which cannot be done while launches are recorded.
    """

    def __init__(
        self,
        batches: DeviceBatches,
        rows: Sequence[RowArrays],
        learning: Learning,
        side: int,
        device: torch.device,
    ) -> None:
        self.batches = batches
        self._rows, self._learning, self._side = rows, learning, side
        size, dim = batches.size, rows[0].values.shape[1]
        parts = learning.shape.places, learning.shape.centers
        walk_tiles, center_tiles = (max(1, -(-size.batch_places // each)) for each in parts)

        def empty(*shape: int) -> Tensor:
            return torch.empty(side, *shape, dim, dtype=torch.float32, device=device)

        self._gradients = GradientArrays(
            empty(2, size.batch_places),
            empty(size.batch_places),
            empty(center_tiles, size.negatives),
            torch.zeros(size.group, walk_tiles + center_tiles, dtype=torch.float64, device=device),
            torch.zeros(1, dtype=torch.int32, device=device),
        )
        self._device, self._is_gpu = device, device.type == "cuda"
        self._result = torch.zeros(2, dtype=torch.float64, pin_memory=self._is_gpu)
        self._is_there = torch.cuda.Event() if self._is_gpu else None  # type: ignore[no-untyped-call]
        self._is_compiled = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def start(self) -> None:
        """Start training on what was made."""
        self._gradients.losses.zero_()
        self._gradients.stopped.zero_()
        self._launch()
        sums = torch.stack([self._gradients.losses.sum(), self.batches.arrays.pairs.sum().double()])
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
            for launch in (launch_gradients, launch_update):
                launch(
                    self._rows[0],
                    self._rows[-1],
                    self.batches.arrays,
                    self._gradients,
                    self._learning,
                    number,
                    self._side,
                )


def _check_rows(
    tables: int, dim: int, settings: SkipGramSettings, device: torch.device, row_bytes: int | None
) -> None:
    """Refuse rows that the memory of the device has no room for."""
    needed = tables * settings.num_keys * device_row_bytes(dim)
    what = f"{tables} x {settings.num_keys:,} rows of {dim} values with their state"
    hint = (
        "skip-gram trains on a device only where all rows fit: train on the CPU with `device: cpu`, which "
        "takes rows from memory or SSD; or lower dim"
    )
    if row_bytes is not None and needed > row_bytes:
        raise DoesNotFitError(
            f"{what} take {counted_bytes(needed)}, the budget of rows on the device is "
            f"{counted_bytes(row_bytes)}",
            where="memory.hbm.tables",
            hint=hint,
        )
    _check_free(needed, what, hint, device)


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
