"""Runs ``model.onnx`` beside this file by ONNX Runtime, in Triton's Python backend.

graphbox copies this file into model repositories as it is: nothing in it comes from a model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_THREADS = "intra_op_thread_count"


class TritonPythonModel:
    """A model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the ONNX file; ``args`` are Triton's."""
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read while ONNX Runtime is imported
        onnxruntime = import_module("onnxruntime")
        self._backend: Any = import_module("triton_python_backend_utils")
        parameters = json.loads(args["model_config"])["parameters"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters[_THREADS]["string_value"])
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session: Any = onnxruntime.InferenceSession(
            file.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = [value.name for value in self._session.get_inputs()]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer each request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        backend = self._backend
        names = list(request.requested_output_names())
        try:
            feeds = {
                name: backend.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs
            }
            values = self._session.run(names, feeds)
        except Exception as error:  # noqa: BLE001 - the client gets the reason, other requests their answers
            return backend.InferenceResponse(error=backend.TritonError(str(error)))
        return backend.InferenceResponse(
            [backend.Tensor(name, value) for name, value in zip(names, values, strict=True)]
        )
