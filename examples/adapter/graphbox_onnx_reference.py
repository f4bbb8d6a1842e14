"""Adapter for ONNX's own reference evaluator, which computes with NumPy: slow and exact.

The entry point ``onnx_reference`` of the group ``graphbox.adapters`` in ``pyproject.toml`` registers it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from graphbox.artifact import inspect_onnx
from graphbox.deploy import Device, Effective, Options, Package, Support, TensorSpec
from graphbox.deploy.protocol import API_VERSION, DTYPE_OF, Feeds
from graphbox.errors import InvalidRequestError, UnsupportedError


class ReferenceProgram:
    """One model; the evaluator keeps no state between calls."""

    def __init__(self, model: bytes, device: Device) -> None:
        try:
            proto = onnx.load_model_from_string(model)
            onnx.checker.check_model(proto, full_check=True)
            self._evaluator: Any = ReferenceEvaluator(proto)
        except Exception as error:
            raise UnsupportedError(f"the reference evaluator cannot load the model: {error}") from error
        self.inputs = [_tensor(value) for value in proto.graph.input]
        self.outputs = [_tensor(value) for value in proto.graph.output]
        self.effective: Effective = {
            "provider": "ReferenceEvaluator",
            "device": device.name,
            "precision": inspect_onnx(model, "the model").precision,  # NumPy keeps the types of the model
            "threads": 1,
            "fallback_nodes": [],
            "runtime": f"onnx {onnx.__version__}",
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
        """Run the model; see `graphbox.deploy.Program.run`."""
        names = [tensor.name for tensor in self.outputs]
        try:
            values = dict(zip(names, self._evaluator.run(names, dict(feeds)), strict=True))
            for name, array in (out or {}).items():
                if array.shape != values[name].shape:
                    raise ValueError(f"out has the shape {array.shape}, the result {values[name].shape}")
                array[...] = values[name]
                values[name] = array
        except (IndexError, ValueError, RuntimeError) as error:
            raise InvalidRequestError(f"the reference evaluator refused the feeds: {error}") from error
        return values

    def close(self) -> None:
        """Drop the model."""
        self._evaluator = None


class OnnxReference:
    """Adapter with one device; it compiles nothing ahead."""

    name = "onnx_reference"
    api = API_VERSION
    builds_ahead = False

    def probe(self) -> list[Device]:
        """Return the evaluator, which is there wherever this module can be imported."""
        return [Device("numpy", "other", "ONNX reference evaluator", available=True)]

    def supports(self, model: bytes, device: Device) -> Support:
        """Return whether the evaluator loads the model."""
        try:
            ReferenceProgram(model, device)
        except UnsupportedError as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """Write nothing: the evaluator reads the model itself."""

    def load(self, package: Package) -> ReferenceProgram:
        """Return a model ready to run."""
        return ReferenceProgram(package.model, package.device)


def _tensor(value: Any) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    datatype: Any = next(name for name, known in DTYPE_OF.items() if known == np.dtype(dtype))
    shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim)
    return TensorSpec(name=value.name, datatype=datatype, shape=shape)


adapter = OnnxReference()
