"""Layers of an ONNX model that dense methods convert, and how much each of them matters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import DenseMethod, OutputError
from graphbox.compress.dense.onnx_graph import Graph
from graphbox.compress.dense.values import OpenProgram, compare, open_on_cpu, outputs_of
from graphbox.errors import UnsupportedError, UsageError

__all__ = ["Layer", "layers_of", "sensitivity"]


@dataclass(frozen=True)
class Layer:
    """A constant that matrix products multiply with.

    Attributes:
        name: of the constant, as `DenseMethod.convert` takes it in ``layers``.
        operators: types of the nodes that use it, in order.
        rows: length of the vectors that go in.
        columns: length of the vectors that come out.
        weight_bytes: of the constant in float32.
    """

    name: str
    operators: tuple[str, ...]
    rows: int
    columns: int
    weight_bytes: int


def layers_of(model: bytes) -> tuple[Layer, ...]:
    """Return the float32 matrices that a model multiplies with, in the order of computation."""
    found: dict[str, Layer] = {}
    for product in Graph(model).products():
        earlier = found[product.weight].operators if product.weight in found else ()
        found[product.weight] = Layer(
            name=product.weight,
            operators=(*earlier, product.operator),
            rows=product.rows,
            columns=product.columns,
            weight_bytes=4 * product.rows * product.columns,
        )
    return tuple(found.values())


def sensitivity(
    model: bytes,
    method: DenseMethod,
    calibration: Calibration,
    *,
    layers: Collection[str] | None = None,
    open_program: OpenProgram = open_on_cpu,
) -> Mapping[str, OutputError]:
    """Return the error of the outputs when one layer alone is converted, the largest first.

    Layers that the method cannot convert are left out.

    Args:
        model: a float32 ONNX file's content.
        method: the conversion.
        calibration: feeds to compare the outputs on.
        layers: names of the layers to try; None: all.
        open_program: compiles a model for the device to compare on; ONNX Runtime on the CPU by default.

    Raises:
        UnsupportedError: the method converts none of the layers.
        UsageError: the feeds are not those of the model.
    """
    with open_program(model) as program:
        expected = outputs_of(program, calibration)
    errors: dict[str, OutputError] = {}
    for name in [each.name for each in layers_of(model)] if layers is None else layers:
        try:
            converted = method.convert(model, calibration, (name,))
        except UsageError:
            if layers is not None:
                raise
            continue
        with open_program(converted.model) as program:
            errors[name] = compare(expected, outputs_of(program, calibration), calibration.rows)
    if not errors:
        raise UnsupportedError(
            f"expected at least one layer that {method.name} can convert, received none",
            hint="`layers_of` lists the layers of a model",
        )
    return dict(sorted(errors.items(), key=lambda item: -item[1].rms_relative))
