"""Codecs of served embedding tables: one file each, found by the name that a table's manifest has.

Tables are encoded in NumPy, in blocks, and decoded by the native core, which is loaded when a table is
opened. Neither torch nor training is needed.
"""

from graphbox.row_codecs.clustered import ClusteredCodec
from graphbox.row_codecs.codec import (
    ArrayPart,
    ArrayRows,
    Arrays,
    ArraySpec,
    RowCodec,
    RowSource,
    TableShape,
    open_rows,
)
from graphbox.row_codecs.float16 import Float16Codec
from graphbox.row_codecs.float32 import Float32Codec
from graphbox.row_codecs.int8_rowwise import Int8RowwiseCodec
from graphbox.row_codecs.mean import MeanCodec
from graphbox.row_codecs.registry import CODEC_NAMES, row_codec
from graphbox.row_codecs.residual import ResidualCodec, can_train_codebooks
from graphbox.row_codecs.rotated import RotatedCodec
from graphbox.row_codecs.tiered import TieredCodec

__all__ = [
    "CODEC_NAMES",
    "ArrayPart",
    "ArrayRows",
    "ArraySpec",
    "Arrays",
    "ClusteredCodec",
    "Float16Codec",
    "Float32Codec",
    "Int8RowwiseCodec",
    "MeanCodec",
    "ResidualCodec",
    "RotatedCodec",
    "RowCodec",
    "RowSource",
    "TableShape",
    "TieredCodec",
    "can_train_codebooks",
    "open_rows",
    "row_codec",
]
