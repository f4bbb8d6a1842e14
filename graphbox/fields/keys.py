"""Numbers that stand for values: of texts, and of values within a slot."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

__all__ = ["FIRST", "SECOND", "digest_number", "fold", "plain_integer", "salt", "slot_number", "text_hash"]

FIRST, SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
"""The multipliers of MurmurHash3's 64-bit finalizer (Appleby, 2011)."""

_BITS = (1 << 64) - 1
_INT64 = range(-(2**63), 2**63)
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_BLOCK_BYTES = 32


def digest_number(text: bytes) -> np.uint64:
    """Return the first 8 bytes of the BLAKE2b digest of a text, little-endian."""
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def salt(keys: npt.NDArray[np.int64], number: np.uint64) -> npt.NDArray[np.int64]:
    """Return ``mix(key) ^ number`` of each key; ``mix`` is the 64-bit finalizer of MurmurHash3."""
    bits = keys.view(np.uint64).copy()
    fold(bits)
    bits *= np.uint64(FIRST)
    fold(bits)
    bits *= np.uint64(SECOND)
    fold(bits)
    bits ^= number
    return bits.view(np.int64)


def fold(bits: npt.NDArray[np.uint64]) -> None:
    """Fold the upper half on the lower one, in place; twice gives what was there."""
    bits ^= bits >> np.uint64(33)


def plain_integer(text: str) -> int | None:
    """Return the integer of 64 bits that a text spells as it would be printed; None: it spells none."""
    if len(text) > 20 or not text.removeprefix("-").isdecimal() or not text.isascii():
        return None
    number = int(text)
    return number if str(number) == text and number in _INT64 else None


def slot_number(text: str) -> int:
    """Return the number of a slot's value in a cell of text: of a plain integer itself, else its hash."""
    number = plain_integer(text)
    return text_hash(text.encode()) if number is None else number


def text_hash(text: bytes) -> int:
    """Return the number of a slot's value that is a text: XXH64 (Collet, 2014) with seed 0, as int64.

    The native core computes the same of whole columns (``graphbox.graph.convert``); this serves without it.
    """
    first, second, third, fourth, fifth = _PRIMES
    position = 0
    if len(text) >= _BLOCK_BYTES:
        lanes = [(first + second) & _BITS, second, 0, -first & _BITS]
        while position + _BLOCK_BYTES <= len(text):
            for lane in range(4):
                start = position + 8 * lane
                lanes[lane] = _round(lanes[lane], int.from_bytes(text[start : start + 8], "little"))
            position += _BLOCK_BYTES
        number = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _BITS
        for lane in lanes:
            number = ((number ^ _round(0, lane)) * first + fourth) & _BITS
    else:
        number = fifth
    number = (number + len(text)) & _BITS
    while position + 8 <= len(text):
        number ^= _round(0, int.from_bytes(text[position : position + 8], "little"))
        number = (_rotated(number, 27) * first + fourth) & _BITS
        position += 8
    if position + 4 <= len(text):
        number ^= int.from_bytes(text[position : position + 4], "little") * first & _BITS
        number = (_rotated(number, 23) * second + third) & _BITS
        position += 4
    for byte in text[position:]:
        number = _rotated(number ^ (byte * fifth & _BITS), 11) * first & _BITS
    number = (number ^ number >> 33) * second & _BITS
    number = (number ^ number >> 29) * third & _BITS
    number ^= number >> 32
    return number - (1 << 64) if number >> 63 else number


def _round(lane: int, block: int) -> int:
    return _rotated((lane + block * _PRIMES[1]) & _BITS, 31) * _PRIMES[0] & _BITS


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> 64 - by) & _BITS
