"""Keys of ids that are texts, and of several slots in one table: the same id in two slots gets two rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from graphbox.errors import UsageError
from graphbox.fields.keys import FIRST, SECOND, digest_number, fold
from graphbox.fields.keys import salt as salt_with
from graphbox.native import Int64Array, integer_array, like

if TYPE_CHECKING:
    import torch

_LOW_31: Final = (1 << 31) - 1


def hashed_keys(ids: Any) -> Int64Array:
    """Return keys of ids that are texts: the same on every machine and for ever.

    A key is the first 8 bytes of the BLAKE2b digest of the text in UTF-8, little-endian, and cannot be turned
    back. Of a billion texts some two get the same key with a probability below 3 %. A text has the same key
    in every slot: where slots are to have rows of their own in one table, salt them (:func:`salted_keys`).

    Args:
        ids: texts, or bytes, of any shape: a list, a NumPy array, a column of a data frame.

    Returns:
        int64 of the same shape.

    Raises:
        UsageError: an id that is no text.
    """
    array = np.asarray(ids)
    texts = array.ravel().tolist()
    numbers: dict[Any, int] = {}
    for position, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise UsageError(
                f"expected texts, received {text!r} at position {position}",
                where="ids",
                hint="integers are keys as they are; give what is missing a text of its own, or leave it out",
            )
        if text not in numbers:
            numbers[text] = int(
                digest_number(text.encode() if isinstance(text, str) else text).view(np.int64)
            )
    keys = np.fromiter((numbers[text] for text in texts), np.int64, len(texts))
    return keys.reshape(array.shape)


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
    fold(bits)
    bits *= np.uint64(pow(SECOND, -1, 2**64))
    fold(bits)
    bits *= np.uint64(pow(FIRST, -1, 2**64))
    fold(bits)
    return like(bits.view(np.int64), keys)


def salted(keys: Int64Array, salt: str) -> Int64Array:
    """Return what :func:`salted_keys` does, for an array that was checked."""
    return salt_with(keys, _number(salt))


def salted_tensor(keys: torch.Tensor, salt: str) -> torch.Tensor:
    """Return what :func:`salted_keys` does, for int64 on any device."""
    import torch

    if keys.device.type == "cpu":
        return torch.from_numpy(salted(keys.numpy(), salt))

    def folded(bits: torch.Tensor) -> torch.Tensor:
        return bits ^ ((bits >> 33) & _LOW_31)  # as graphbox.fields.keys.fold()

    bits = folded(folded(folded(keys) * _signed(FIRST)) * _signed(SECOND))
    return bits ^ int(_number(salt).view(np.int64))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _number(salt: str) -> np.uint64:
    if not isinstance(salt, str):
        raise UsageError(f"expected a text, received {salt!r}", where="salt")
    return digest_number(salt.encode())
