"""The draws of ``csrc/random/philox.h`` in Triton kernels, bit for bit."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from graphbox.device import on_device

_KEYS_BLOCK = 128


@triton.jit
def draw_words(key, place, first_block, position, attempt, DRAWS: tl.constexpr):
    """Return the words of ``DRAWS`` draws of each position, uint32 [positions, DRAWS].

    Args:
        key: uint64, of :func:`graphbox._core.philox_key`.
        place: hop | relation << 8.
        first_block: the number of the first draw, divided by 4.
        position: int64 [positions].
        attempt: 0, or how often draws of bounded integers were rejected.
        DRAWS: a power of two, 4 or more.
    """
    blocks = (tl.arange(0, DRAWS // 4)[None, :] + first_block).to(tl.uint32)
    low = position.to(tl.uint32, bitcast=False)[:, None]
    high = (position >> 32).to(tl.uint32)[:, None]
    zeros = tl.zeros_like(low) + tl.zeros_like(blocks)
    word0, word1, word2, word3 = tl.philox(
        key, blocks + zeros, (zeros + (place | attempt << 24)).to(tl.uint32), low + zeros, high + zeros
    )
    words = tl.join(tl.join(word0, word2), tl.join(word1, word3))
    return tl.reshape(words, (position.shape[0], DRAWS))


@triton.jit
def bounded(words, ranges, key, place, first_block, position, wanted, DRAWS: tl.constexpr):
    """Return unbiased integers in [0, range) from the first words of draws, uint32 [positions, DRAWS].

    Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019, with the attempts of
    ``DrawSequence::bounded``: a rejection moves no other draw.

    Args:
        words: uint32 [positions, DRAWS], of :func:`draw_words`.
        ranges: uint32 [positions, DRAWS], 1 or more.
        key: as in :func:`draw_words`.
        place: as in :func:`draw_words`.
        first_block: as in :func:`draw_words`.
        position: as in :func:`draw_words`.
        wanted: bool [positions, DRAWS], which draws matter.
        DRAWS: as in :func:`draw_words`.
    """
    draw = first_block * 4 + tl.arange(0, DRAWS)[None, :]
    return _unbiased(words, ranges, key, place, draw, position[:, None], wanted)


@triton.jit
def draw_block(key, place, block, position, attempt):
    """Return the four words of a block of each position, uint32 [positions] each.

    Args:
        key: as in :func:`draw_words`.
        place: as in :func:`draw_words`.
        block: the number of its first draw, divided by 4.
        position: int64 [positions].
        attempt: as in :func:`draw_words`.
    """
    low = position.to(tl.uint32)
    high = (position >> 32).to(tl.uint32)
    zeros = tl.zeros_like(low)
    words = (zeros + block).to(tl.uint32), (zeros + (place | attempt << 24)).to(tl.uint32)
    return tl.philox(key, words[0], words[1], low, high)


@triton.jit
def bounded_word(word, ranges, key, place, block, position, wanted, WORD: tl.constexpr):
    """Return an unbiased integer in [0, range) for each position: see :func:`bounded`.

    Args:
        word: uint32 [positions], number ``WORD`` of the block.
        ranges: uint32 [positions], 1 or more.
        key: as in :func:`draw_words`.
        place: as in :func:`draw_words`.
        block: as in :func:`draw_block`.
        position: int64 [positions].
        wanted: bool [positions], which draws matter.
        WORD: 0 to 3.
    """
    draw = tl.zeros_like(position) + block * 4 + WORD
    return _unbiased(word, ranges, key, place, draw, position, wanted)


@triton.jit
def words_at(key, place, draw, position):
    """Return the word of each draw of each position, uint32 [positions, draws].

    Args:
        key: uint64 [positions].
        place: hop | relation << 8 | attempt << 24.
        draw: int [draws], the numbers of the draws.
        position: int64 [positions].
    """
    return _words(key[:, None], place, draw[None, :], position[:, None])


@triton.jit
def bounded_at(word, range_, key, draw, position, wanted):
    """Return an unbiased integer in [0, range_) for each draw of each position: see :func:`bounded`.

    Args:
        word: uint32 [positions, draws], of :func:`words_at` at place 0.
        range_: int, 1 to 2^32 - 1.
        key: as in :func:`words_at`.
        draw: as in :func:`words_at`.
        position: as in :func:`words_at`.
        wanted: bool [positions, draws], which draws matter.
    """
    ranges = (tl.zeros_like(word) + range_).to(tl.uint32)
    return _unbiased(word, ranges, key[:, None], 0, draw[None, :], position[:, None], wanted)


@triton.jit
def _words(key, place, draw, position):
    """Return the word of each draw, of the shape that the arguments have together."""
    block = (draw // 4).to(tl.uint32)
    low = position.to(tl.uint32)
    zeros = tl.zeros_like(low) + tl.zeros_like(block)
    word0, word1, word2, word3 = tl.philox(
        key, zeros + block, (zeros + place).to(tl.uint32), zeros + low, zeros + (position >> 32).to(tl.uint32)
    )
    number = draw % 4
    return tl.where(number < 2, tl.where(number == 0, word0, word1), tl.where(number == 2, word2, word3))


@triton.jit
def _unbiased(words, ranges, key, place, draw, position, wanted):
    """Return what :func:`bounded` does, of any shape: the draws' first words are given, others made here."""
    results = tl.umulhi(words, ranges)
    rest = words * ranges
    # Few draws fall below the range, and of those hardly any below the threshold, which costs a division.
    suspects = wanted & (rest < ranges)
    attempt = 1
    while tl.max(suspects.to(tl.int32)) > 0:
        rejected = suspects & (rest < (0 - ranges) % ranges)
        if tl.max(rejected.to(tl.int32)) > 0:
            again = _words(key, place | (attempt & 0xFF) << 24, draw, position)
            results = tl.where(rejected, tl.umulhi(again, ranges), results)
            rest = tl.where(rejected, again * ranges, rest)
        suspects = rejected
        attempt += 1
    return results


@triton.jit
def _derive_keys(out, size, purpose, seed, epoch, first_batch, BLOCK: tl.constexpr):
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    batch = (number.to(tl.int64) + first_batch).to(tl.uint64)
    low = batch.to(tl.uint32)
    zeros = tl.zeros_like(low)
    word0, word1, _, _ = tl.philox(
        seed, (zeros + purpose).to(tl.uint32), (zeros + epoch).to(tl.uint32), low, (batch >> 32).to(tl.uint32)
    )
    key = word1.to(tl.int64) << 32 | word0.to(tl.int64)
    tl.store(out + number, key, mask=number < size)


def batch_keys(
    stream: int, seed: int, epoch: int, first_batch: int, count: int, device: torch.device
) -> torch.Tensor:
    """Return the keys of batches in a row: the bits of :func:`graphbox._core.philox_key`, int64 [count].

    Args:
        stream: what is drawn, a ``Stream`` of ``csrc/random/philox.h``.
        seed: 0 to 2^64 - 1.
        epoch: 0 to 2^32 - 1.
        first_batch: number of the first, below 2^64.
        count: how many.
        device: where they are wanted.
    """
    keys = torch.empty(count, dtype=torch.int64, device=device)
    if count:
        with on_device(device):
            _derive_keys[triton.cdiv(count, _KEYS_BLOCK),](
                keys,
                count,
                stream,
                seed,
                epoch,
                first_batch,
                BLOCK=_KEYS_BLOCK,
                enable_fp_fusion=False,
            )
    return keys
