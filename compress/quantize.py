"""Dynamic int8 of an ONNX model's matrix products, and a report of what really became int8.

Weights are quantized to uint8 with one scale for each output column; activations when they are known, at run
time. Both unsigned: the faster signed weights overflow on processors without VNNI instructions, where the
same file would silently give other answers.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphbox.errors import UnsupportedError, missing_extra

__all__ = ["QuantizationReport", "QuantizedOnnx", "quantize_onnx"]

_PRODUCTS = ("MatMul", "Gemm")


@dataclass(frozen=True)
class QuantizationReport:
    """What became of the constant operands of matrix products.

    Attributes:
        quantized: names of the weights that are int8 now.
        kept_float: names of the weights that still are float32.
        weight_bytes_before: of all of them.
        weight_bytes_after: of all of them, scales included.
    """

    quantized: tuple[str, ...]
    kept_float: tuple[str, ...]
    weight_bytes_before: int
    weight_bytes_after: int


@dataclass(frozen=True)
class QuantizedOnnx:
    """A quantized ONNX file, and what was quantized in it."""

    model: bytes
    report: QuantizationReport


def quantize_onnx(model: bytes) -> QuantizedOnnx:
    """Quantize a model's matrix products dynamically to int8.

    Args:
        model: a float32 ONNX file's content.

    Raises:
        UnsupportedError: when nothing in it can be quantized.
        BackendMissingError: when the package onnx is missing.
    """
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.quant_utils import add_pre_process_metadata
    except ImportError as error:
        raise missing_extra(error.name or "onnx", "train") from error
    proto = onnx.load_model_from_string(model)
    before = _weights(proto)
    # The quantizer transposes the weights of a Gemm and then trips over the shapes noted for the old ones.
    proto.graph.ClearField("value_info")
    # Its pre-processing is not needed (symbolic shape inference even fails on such graphs); say it was done.
    add_pre_process_metadata(proto)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantize_dynamic(
            proto, path, op_types_to_quantize=list(_PRODUCTS), per_channel=True, weight_type=QuantType.QUInt8
        )
        quantized = onnx.load(path)
    _drop_unused_initializers(quantized)
    _strip_notes(quantized)
    onnx.checker.check_model(quantized, full_check=True)
    return QuantizedOnnx(quantized.SerializeToString(), _report(before, quantized))


def _weights(proto: Any) -> dict[str, int]:
    """Return the bytes of each constant matrix that a product multiplies with."""
    sizes = {tensor.name: _bytes(tensor) for tensor in proto.graph.initializer}
    found = {}
    for node in proto.graph.node:
        if node.op_type in _PRODUCTS:
            found.update({name: sizes[name] for name in node.input[:2] if name in sizes})
    return found


def _report(before: dict[str, int], quantized: Any) -> QuantizationReport:
    sizes = {tensor.name: _bytes(tensor) for tensor in quantized.graph.initializer}
    done = {name for name in before if f"{name}_quantized" in sizes}
    if not done:
        raise UnsupportedError(
            f"expected a matrix product with a constant to quantize, received {sorted(before) or 'none'}",
            hint="set `dense: float32` for this model",
        )
    after = sum(
        sizes.get(f"{name}{suffix}", 0) for name in done for suffix in ("_quantized", "_scale", "_zero_point")
    )
    kept = sorted(set(before) - done)
    return QuantizationReport(
        quantized=tuple(sorted(done)),
        kept_float=tuple(kept),
        weight_bytes_before=sum(before.values()),
        weight_bytes_after=after + sum(before[name] for name in kept),
    )


def _bytes(tensor: Any) -> int:
    import onnx

    return int(onnx.numpy_helper.to_array(tensor).nbytes)


def _drop_unused_initializers(proto: Any) -> None:
    """Remove constants that no node reads: a float copy left behind would undo the saving."""
    used = {name for node in proto.graph.node for name in node.input}
    kept = [tensor for tensor in proto.graph.initializer if tensor.name in used]
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(kept)


def _strip_notes(proto: Any) -> None:
    proto.ClearField("metadata_props")
    proto.graph.ClearField("value_info")
    proto.producer_name = "graphbox"
    proto.ClearField("producer_version")
