"""Codecs by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from graphbox.errors import UsageError, did_you_mean
from graphbox.row_codecs.clustered import ClusteredCodec
from graphbox.row_codecs.codec import RowCodec
from graphbox.row_codecs.float16 import Float16Codec
from graphbox.row_codecs.float32 import Float32Codec
from graphbox.row_codecs.int8_rowwise import Int8RowwiseCodec
from graphbox.row_codecs.mean import MeanCodec
from graphbox.row_codecs.residual import ResidualCodec
from graphbox.row_codecs.rotated import RotatedCodec
from graphbox.row_codecs.tiered import TieredCodec

__all__ = ["CODEC_NAMES", "row_codec"]

_PLAIN: Final[dict[str, RowCodec]] = {
    codec.name: codec
    for codec in (
        Float32Codec(),
        Float16Codec(),
        Int8RowwiseCodec(),
        RotatedCodec(4),
        RotatedCodec(3),
        RotatedCodec(2),
        MeanCodec(),
    )
}
_OF_PARAMETERS: Final[dict[str, Callable[[list[str]], RowCodec]]] = {
    "clustered": lambda parameters: _clustered(*parameters),
    "residual": lambda parameters: _residual(*parameters),
    "tiered": lambda parameters: _tiered(*parameters),
}

CODEC_NAMES: Final = (*_PLAIN, "clustered(rest)", "residual(m)", "tiered(hot,cold)")
"""Names as users read them."""

_WITH_PARAMETERS: Final = re.compile(r"(\w+)\((.*)\)")
_LONGEST_NAME: Final = 200


def row_codec(name: str) -> RowCodec:
    """Return a codec by its name, such as ``int8_rowwise`` or ``tiered(int4_rotated,int2_rotated)``.

    Raises:
        UsageError: there is no such codec.
    """
    found = _PLAIN.get(name)
    if found is not None:
        return found
    match = _WITH_PARAMETERS.fullmatch(name[:_LONGEST_NAME])
    if match is not None and match[1] in _OF_PARAMETERS:
        try:
            codec = _OF_PARAMETERS[match[1]](_parameters(match[2]))
        except (TypeError, ValueError) as error:
            raise _unknown(name) from error
        if codec.name == name:
            return codec
    raise _unknown(name)


def _parameters(text: str) -> list[str]:
    """Return parameters between commas that are in no parentheses of their own."""
    return re.findall(r"[^,()]+(?:\((?:[^()]|\([^()]*\))*\))?", text)


def _clustered(rest: str) -> RowCodec:
    return ClusteredCodec(row_codec(rest))


def _residual(books: str) -> RowCodec:
    return ResidualCodec(int(books))


def _tiered(hot: str, cold: str) -> RowCodec:
    return TieredCodec(row_codec(hot), row_codec(cold))


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"expected one of the row codecs {', '.join(CODEC_NAMES)}, received `{name[:_LONGEST_NAME]}`",
        hint=did_you_mean(name[:_LONGEST_NAME], _PLAIN),
    )
