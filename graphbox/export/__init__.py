"""Turns trained models into artifacts: ONNX in padded-block form, tables beside it, and a proof of parity."""

from __future__ import annotations

from graphbox.export.click import export_click
from graphbox.export.embeddings import embedding_table, export_embeddings
from graphbox.export.knowledge_graph import TriplesSource, export_knowledge_graph
from graphbox.export.links import linked_nodes, links_of, links_of_triples
from graphbox.export.model import EmbeddingSource, export_embedding, export_encoder
from graphbox.export.network import NetworkSource, export_network
from graphbox.export.onnx import export_onnx
from graphbox.export.padded_block import PaddedBlockEncoder, group_relations
from graphbox.export.parity import ParityBounds
from graphbox.export.sequence import SequenceSource, export_sequence
from graphbox.export.version import ExportResult, NewVersion

__all__ = [
    "EmbeddingSource",
    "ExportResult",
    "NetworkSource",
    "NewVersion",
    "PaddedBlockEncoder",
    "ParityBounds",
    "SequenceSource",
    "TriplesSource",
    "embedding_table",
    "export_click",
    "export_embedding",
    "export_embeddings",
    "export_encoder",
    "export_knowledge_graph",
    "export_network",
    "export_onnx",
    "export_sequence",
    "group_relations",
    "linked_nodes",
    "links_of",
    "links_of_triples",
]
