"""Turns trained models into artifacts: ONNX in padded-block form, tables beside it, and a proof of parity."""

from __future__ import annotations

from graphbox.export.embeddings import export_embeddings
from graphbox.export.links import links_of
from graphbox.export.model import (
    EmbeddingSource,
    ExportResult,
    TrainedEncoder,
    export_embedding,
    export_encoder,
)
from graphbox.export.onnx import ExportedOnnx, export_onnx
from graphbox.export.padded_block import PaddedBlockEncoder, RelationBlock, group_relations
from graphbox.export.parity import ParityReport

__all__ = [
    "EmbeddingSource",
    "ExportResult",
    "ExportedOnnx",
    "PaddedBlockEncoder",
    "ParityReport",
    "RelationBlock",
    "TrainedEncoder",
    "export_embedding",
    "export_embeddings",
    "export_encoder",
    "export_onnx",
    "group_relations",
    "links_of",
]
