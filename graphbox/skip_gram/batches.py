"""Makes groups of skip-gram's batches on a device: walks, windows, negatives, and which gradients meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphbox.philox_gpu import batch_keys
from graphbox.sample.negative_gpu import DeviceNegatives
from graphbox.sample.pairs_gpu import (
    WINDOW_STREAM,
    DeviceWindows,
    WalkPlaces,
    count_pairs,
    places_of_walks,
)
from graphbox.sample.walk_gpu import WALK_STREAM, WalkerDraws
from graphbox.skip_gram.arrays import BatchArrays
from graphbox.skip_gram.group_size import GroupSize
from graphbox.skip_gram.walkers import WalkBatches
from graphbox.skip_gram.walks import DeviceWalks

if TYPE_CHECKING:
    from torch import Tensor


class _Walkers(NamedTuple):
    """The walkers of an epoch; all but ``host_offsets`` on the device."""

    host_offsets: NDArray[np.int64]
    offsets: Tensor
    start: Tensor
    second: Tensor | None
    path_of: Tensor | None


class DeviceBatches:
    """The groups of the batches of an epoch. Arrays stay where they are, so that kernels can be replayed.

    Args:
        walks: makes the walks.
        windows: how windows are laid.
        negatives: draws the negatives.
        num_keys: number of keys.
        positions: int32 or int64 [keys] on the device, where the row of each is; None: each at its number.
        seed: of walks and windows.
        size: the most that a group holds.
        device: where all of it is.
    """

    def __init__(
        self,
        walks: DeviceWalks,
        windows: DeviceWindows,
        negatives: DeviceNegatives,
        num_keys: int,
        positions: Tensor | None,
        seed: int,
        size: GroupSize,
        device: torch.device,
    ) -> None:
        self._walks, self._windows, self._negatives = walks, windows, negatives
        self._num_keys, self._positions = num_keys, positions
        self._seed, self.size, self._device = seed, size, device

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        self.arrays = BatchArrays(
            position=zeros(size.places),
            first=zeros(size.places),
            last=zeros(size.places),
            uses=zeros(size.places),
            begins=zeros(size.group + 1),
            pairs=zeros(size.group),
            negatives=zeros(size.group, size.negatives),
            items=zeros(size.items),
            sources=zeros(size.items),
        )
        self._unsorted = zeros(size.items)
        self._pairs_before = zeros(size.places + 1)
        self._walkers: _Walkers | None = None
        self._numbers = torch.arange(max(size.places, size.walkers, size.group), device=device)

    @property
    def reach(self) -> int:
        """The most places between a centre and its context."""
        return min(self._windows.window, max(self.size.width - 1, 1))

    def begin_epoch(self, batches: WalkBatches) -> None:
        """Bring the walkers of an epoch to the device."""
        self._walkers = None  # those of the last epoch leave before others come
        # A last group that is not full has batches without walkers.
        padding = np.full(self.size.group, batches.offsets[-1])
        offsets = np.concatenate([batches.offsets, padding])
        offsets_there, start = (torch.from_numpy(each).to(self._device) for each in (offsets, batches.start))
        second, path_of = (
            None if each is None else torch.from_numpy(each).to(self._device)
            for each in (batches.second, batches.path_of)
        )
        self._walkers = _Walkers(batches.offsets, offsets_there, start, second, path_of)

    def make(self, epoch: int, number: int) -> None:
        """Make a group of batches, in place of the last one; the host waits for nothing."""
        if self._walkers is None:
            raise RuntimeError("begin_epoch comes first")
        first = number * self.size.group
        walkers = self._walkers
        last = min(first + self.size.group, len(walkers.host_offsets) - 1)
        begin, end = int(walkers.host_offsets[first]), int(walkers.host_offsets[last])
        offsets = walkers.offsets[first : first + self.size.group + 1] - begin
        places = self._places(walkers, epoch, first, slice(begin, end), offsets)
        arrays = self.arrays
        torch.index_select(places.begins, 0, offsets, out=arrays.begins)
        count_pairs(places, self.reach, skip_equal=True, out=arrays.uses)
        torch.cumsum(arrays.uses, 0, out=self._pairs_before[1:])
        torch.diff(self._pairs_before[arrays.begins], out=arrays.pairs)
        self._negatives.sample_batches(self.size.negatives, epoch, first, self.size.group, arrays.negatives)
        if self._positions is not None:
            for keys in (arrays.position, arrays.negatives):
                keys.copy_(torch.take(self._positions, keys))
        self._sort()

    def _places(self, walkers: _Walkers, epoch: int, first: int, part: slice, offsets: Tensor) -> WalkPlaces:
        """Walk, and lay windows over the walks."""
        walker = self._numbers[: part.stop - part.start]
        batch_of = torch.searchsorted(offsets[1:], walker, right=True)
        position = walker - offsets[batch_of]

        def draws(stream: int) -> WalkerDraws:
            keys = batch_keys(stream, self._seed, epoch, first, self.size.group, self._device)
            return WalkerDraws(keys[batch_of], position)

        second, path_of = (None if each is None else each[part] for each in (walkers.second, walkers.path_of))
        walks = self._walks.walk(walkers.start[part], second, path_of, draws(WALK_STREAM))
        arrays = self.arrays
        out = WalkPlaces(offsets, arrays.position, arrays.first, arrays.last)
        return places_of_walks(walks, self._windows, draws(WINDOW_STREAM), path_of, out)

    def _sort(self) -> None:
        """Bring together what has gradients of one row in one batch: its places, then the negatives."""
        arrays, places = self.arrays, self.size.places
        batch_of = torch.searchsorted(arrays.begins[1:], self._numbers[:places], right=True)
        torch.add(arrays.position, batch_of, alpha=self._num_keys, out=self._unsorted[:places])
        first_items = self._numbers[: self.size.group, None] * self._num_keys
        torch.add(arrays.negatives, first_items, out=self._unsorted[places:].view_as(arrays.negatives))
        torch.sort(self._unsorted, stable=True, out=(arrays.items, arrays.sources))
