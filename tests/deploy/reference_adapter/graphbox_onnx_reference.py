"""How another package adds a target: an adapter over ONNX's own reference evaluator, slow and exact.

A package makes it known with the entry point
``[graphbox.adapters] onnx_reference = "graphbox_onnx_reference:adapter"``; nothing of graphbox changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from graphbox.deploy import Device, Effective, Options, Package, Support, TensorSpec
from graphbox.deploy.protocol import DTYPE_OF, Feeds
from graphbox.errors import InvalidRequestError, UnsupportedError


class ReferenceProgram:
    """One model; the evaluator keeps no state between calls."""

    def __init__(self, model: bytes, device: Device) -> None:
        try:
            proto = onnx.load_model_from_string(model)
            onnx.checker.check_model(proto, full_check=True)
            self._evaluator = ReferenceEvaluator(proto)
        except Exception as error:
            raise UnsupportedError(f"the reference evaluator cannot load the model: {error}") from error
        self.inputs = [_tensor(value) for value in proto.graph.input]
        self.outputs = [_tensor(value) for value in proto.graph.output]
        operators = {node.op_type for node in proto.graph.node}
        self.effective: Effective = {
            "provider": "ReferenceEvaluator",
            "device": device.name,
            "precision": "int8_dynamic" if "MatMulInteger" in operators else "float32",
            "threads": 1,
            "fallback_nodes": [],
            "runtime": f"onnx {onnx.__version__}",
        }

    def run(self, feeds: Feeds, out: Feeds | None = None) -> dict[str, npt.NDArray[Any]]:
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
        del self._evaluator


class OnnxReference:
    """The adapter."""

    name = "onnx_reference"
    api = 1
    builds_ahead = False

    def probe(self) -> list[Device]:
        return [Device("numpy", "other", "ONNX reference evaluator", available=True)]

    def supports(self, model: bytes, device: Device) -> Support:
        try:
            ReferenceProgram(model, device)
        except UnsupportedError as error:
            return Support(supported=False, reason=error.message)
        return Support(supported=True)

    def build(self, model: bytes, device: Device, options: Options, folder: Path) -> None:
        """The evaluator reads the model itself: there is nothing to write."""

    def load(self, package: Package) -> ReferenceProgram:
        return ReferenceProgram(package.model, package.device)


def _tensor(value: Any) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    datatype: Any = next(name for name, known in DTYPE_OF.items() if known == np.dtype(dtype))
    shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim)
    return TensorSpec(name=value.name, datatype=datatype, shape=shape)


adapter = OnnxReference()
