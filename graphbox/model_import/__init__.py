"""Model versions made from files of other programs: ONNX models, and tables of embeddings.

`add_model` reads a file and writes a model version of it, `read_row_file` reads rows to update those of one
with. Needs neither torch nor onnx.
"""

from __future__ import annotations

from graphbox.model_import.add import EmbeddingOptions, add_model
from graphbox.model_import.formats import FORMATS, FileFormat, format_of
from graphbox.model_import.row_file import read_row_file

__all__ = ["FORMATS", "EmbeddingOptions", "FileFormat", "add_model", "format_of", "read_row_file"]
