"""Keys of several slots in one table: the same raw id in two slots gets two rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import UsageError
from graphbox.native import Int64Array, integer_array, like

__all__ = ["salted_keys", "unsalted_keys"]

_FIRST, _SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
"""The multipliers of MurmurHash3's 64-bit finalizer (Appleby, 2011)."""


def salted_keys(keys: Any, salt: str) -> Any:
    """Return the keys by which a table knows the ids of a slot.

    A salted key is ``mix(key) ^ number(salt)``, where ``mix`` is the 64-bit finalizer of MurmurHash3 and
    ``number`` the first 8 bytes of the salt's BLAKE2b digest, little-endian. Within a slot no two ids
    collide, and :func:`unsalted_keys` gives the ids back. Keys of two slots collide as random 64-bit numbers
    do: of a billion ids in all, some two do with a probability below 3 %.

    Args:
        keys: integers of any shape, NumPy or torch.
        salt: any text, such as the name of the slot.

    Returns:
        int64 of the same shape: a torch tensor when ``keys`` is one.

    Raises:
        UsageError: keys that are no integers, or a salt that is no text.
    """
    array = integer_array(keys, "keys", dimensions=None)
    return like(salted(array, salt), keys)


def unsalted_keys(keys: Any, salt: str) -> Any:
    """Return the ids that :func:`salted_keys` made ``keys`` of."""
    array = integer_array(keys, "keys", dimensions=None)
    bits = array.view(np.uint64).copy()
    bits ^= _number(salt)
    _fold(bits)
    bits *= np.uint64(pow(_SECOND, -1, 2**64))
    _fold(bits)
    bits *= np.uint64(pow(_FIRST, -1, 2**64))
    _fold(bits)
    return like(bits.view(np.int64), keys)


def salted(keys: Int64Array, salt: str) -> Int64Array:
    """Return what :func:`salted_keys` does, for an array that was checked."""
    bits = keys.view(np.uint64).copy()
    _fold(bits)
    bits *= np.uint64(_FIRST)
    _fold(bits)
    bits *= np.uint64(_SECOND)
    _fold(bits)
    bits ^= _number(salt)
    return bits.view(np.int64)


def _fold(bits: npt.NDArray[np.uint64]) -> None:
    """Fold the upper half on the lower one, in place; twice gives what was there."""
    bits ^= bits >> np.uint64(33)


def _number(salt: str) -> np.uint64:
    if not isinstance(salt, str):
        raise UsageError(f"expected a text, received {salt!r}", where="salt")
    return np.uint64(int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=8).digest(), "little"))
