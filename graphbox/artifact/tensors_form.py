"""An ONNX model by itself: what a client sends are its inputs, what it receives are its outputs."""

from __future__ import annotations

from typing import Literal

from graphbox.artifact.manifest import Record


class TensorsForm(Record):
    """Bare tensors: no ids and no tables; inputs and outputs are those of the ONNX file in the manifest.

    Attributes:
        join_calls: calls may be joined where rows are found to be independent
            (`graphbox.deploy.row_independence`); false: never.
    """

    form: Literal["tensors"] = "tensors"
    join_calls: bool = True
