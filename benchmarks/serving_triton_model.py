"""Model of Triton's Python backend that joins the requests of one batch into one execution of ONNX Runtime.

The serving benchmark copies this file into the model repository of the Triton that it measures.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


class TritonPythonModel:
    """Runs ``model.onnx`` beside this file; one input, one output."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the ONNX file; ``args`` are Triton's."""
        onnxruntime = import_module("onnxruntime")
        self._backend: Any = import_module("triton_python_backend_utils")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        file = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session: Any = onnxruntime.InferenceSession(
            file.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        self._joins = json.loads(args["model_config"])["parameters"]["joins"]["string_value"] == "true"

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests of one batch."""
        backend = self._backend
        inputs = [backend.get_input_tensor_by_name(request, "input").as_numpy() for request in requests]
        if self._joins and len(inputs) > 1:
            ends = np.cumsum([len(values) for values in inputs])[:-1]
            outputs = np.split(self._run(np.concatenate(inputs)), ends)
        else:
            outputs = [self._run(values) for values in inputs]
        return [backend.InferenceResponse([backend.Tensor("output", values)]) for values in outputs]

    def _run(self, values: Any) -> Any:
        return self._session.run(None, {"input": values})[0]
