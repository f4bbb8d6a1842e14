"""Model versions made from files of other programs: ONNX models, and tables of embeddings.

`add_model` reads a file and writes a model version of it. Needs neither torch nor onnx.
"""

from __future__ import annotations

from graphbox.model_import.add import EmbeddingOptions, add_model
from graphbox.model_import.formats import FORMATS, FileFormat, format_of

__all__ = ["FORMATS", "EmbeddingOptions", "FileFormat", "add_model", "format_of"]
