"""Negatives drawn by Triton kernels: the twin of ``AliasTable::sample`` in ``csrc/sample/negative.cpp``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl

from graphbox.device import check_device, on_device
from graphbox.native import batch_number, epoch_number
from graphbox.philox_gpu import batch_keys, bounded_word, draw_block

if TYPE_CHECKING:
    from torch import Tensor

    from graphbox.sample.negative import NegativeSampler

_NEGATIVE_STREAM = 3  # Stream::kNegative of csrc/random/philox.h
_BLOCK = 128


@triton.jit
def _item(entries, column, coin, inside, IS_UNIFORM: tl.constexpr):
    """Return what a column of the alias table and a coin mean."""
    item = column.to(tl.int64)
    if not IS_UNIFORM:
        threshold = tl.load(entries + 2 * item, mask=inside, other=0).to(tl.uint32, bitcast=True)
        alias = tl.load(entries + 2 * item + 1, mask=inside, other=0).to(tl.uint32, bitcast=True)
        item = tl.where(coin < threshold, item, alias.to(tl.int64))
    return item


@triton.jit
def _draw(out, entries, keys, items, count, blocks, IS_UNIFORM: tl.constexpr, BLOCK: tl.constexpr):
    """Draw for one batch; a lane draws two, as a block of words has them."""
    program = tl.program_id(0).to(tl.int64)  # of one dimension: others end at 65,535
    batch = program // blocks
    pair = program % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = 2 * pair < count
    key = tl.load(keys + batch).to(tl.uint64, bitcast=True)
    word0, coin0, word2, coin2 = draw_block(key, 0, 0, pair, 0)
    ranges = (tl.zeros_like(word0) + items).to(tl.uint32)
    column0 = bounded_word(word0, ranges, key, 0, 0, pair, inside, 0)
    column2 = bounded_word(word2, ranges, key, 0, 0, pair, inside, 2)
    target = out + batch * count + 2 * pair
    tl.store(target, _item(entries, column0, coin0, inside, IS_UNIFORM), mask=inside)
    has_second = 2 * pair + 1 < count
    tl.store(target + 1, _item(entries, column2, coin2, has_second, IS_UNIFORM), mask=has_second)


class DeviceNegatives:
    """Draws on a device what a :class:`graphbox.sample.NegativeSampler` draws, bit for bit, for nobody.

    Args:
        sampler: the sampler; its table is copied.
        device: where to draw.

    Raises:
        BackendMissingError: kernels do not run there.
    """

    def __init__(self, sampler: NegativeSampler, device: torch.device) -> None:
        check_device(device)
        self._device = device
        self._items = len(sampler)
        self._seed = sampler.seed
        entries = sampler.native.entries
        self._is_uniform = len(entries) == 0
        host = np.zeros((1, 2), np.int32) if self._is_uniform else entries.view(np.int32).copy()
        self._entries = torch.from_numpy(host).to(device)

    @property
    def nbytes(self) -> int:
        """Memory on the device in bytes."""
        return self._entries.nbytes

    def sample(self, count: int, epoch: int = 0, batch: int = 0) -> Tensor:
        """Return int64 [count], what :meth:`graphbox.sample.NegativeSampler.sample` returns for the same."""
        return self.sample_batches(count, epoch, batch, 1)[0]

    def sample_batches(
        self, count: int, epoch: int, first_batch: int, batches: int, out: Tensor | None = None
    ) -> Tensor:
        """Return the draws of batches in a row, in one launch; the host waits for nothing.

        Args:
            count: draws of each.
            epoch: part of their key.
            first_batch: number of the first.
            batches: how many.
            out: int64 [batches, count] on the device; None: a new one.

        Returns:
            int64 [batches, count].
        """
        if out is None:
            out = torch.empty(batches, count, dtype=torch.int64, device=self._device)
        if out.numel():
            key = epoch_number(epoch), batch_number(first_batch)
            blocks = triton.cdiv(count, 2 * _BLOCK)
            with on_device(self._device):
                keys = batch_keys(_NEGATIVE_STREAM, self._seed, *key, batches, self._device)
                _draw[blocks * batches,](
                    out,
                    self._entries,
                    keys,
                    self._items,
                    count,
                    blocks,
                    IS_UNIFORM=self._is_uniform,
                    BLOCK=_BLOCK,
                    enable_fp_fusion=False,
                )
        return out
