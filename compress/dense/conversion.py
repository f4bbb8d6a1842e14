"""Converts a model and compares the outputs of both files on the same feeds."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import ConvertedOnnx, DenseMethod, OutputError
from graphbox.compress.dense.values import compare, open_on_cpu, outputs_of
from graphbox.errors import DataError, GateError, InvalidRequestError

__all__ = ["MAX_RMS_ERROR", "convert_dense", "output_error"]

MAX_RMS_ERROR: Final = 1.0
"""Relative error at which outputs have nothing in common with the original's; the task's metric, which
`graphbox.compress.compress` measures, has the finer limit."""


def convert_dense(
    method: DenseMethod,
    model: bytes,
    calibration: Calibration | None = None,
    layers: Collection[str] | None = None,
) -> ConvertedOnnx:
    """Convert a model and reject a result with other outputs.

    Args:
        method: of `graphbox.compress.dense.dense_methods`, or another one.
        model: a float32 ONNX file's content.
        calibration: feeds of real requests; without them outputs are compared on made-up feeds, or not at all
            where the model refuses these.
        layers: names of the weights to convert; None: all that are worth it.

    Raises:
        GateError: outputs are not finite, or have nothing in common with those of the original.
        UnsupportedError: nothing in it can be converted.
        UsageError: a layer is unknown, or the method needs a calibration.
        DataError: a weight or an output of the original is not finite.
        BackendMissingError: a package is missing.
    """
    converted = method.convert(model, calibration, layers)
    feeds = calibration or _made_up(model)
    if feeds is None:
        return converted
    error = output_error(model, converted.model, feeds)
    if not math.isfinite(error.rms_relative) or error.rms_relative >= MAX_RMS_ERROR:
        raise GateError(
            f"expected outputs like those of the original model, {method.name} gives outputs with a relative "
            f"error of {error.rms_relative:g} on {feeds.rows} rows",
            hint="choose another method, or convert fewer layers",
        )
    return ConvertedOnnx(converted.model, replace(converted.report, error=error, notes=feeds.notes))


def output_error(original: bytes, converted: bytes, calibration: Calibration) -> OutputError:
    """Return how far a model's outputs are from the original's, both run by ONNX Runtime.

    Raises:
        DataError: an output of the original is not finite.
    """
    with open_on_cpu(original) as program:
        expected = outputs_of(program, calibration)
    if not math.isfinite(compare(expected, expected, calibration.rows).rms_relative):
        raise DataError(
            "expected finite outputs of the original model on the calibration feeds, received NaN or infinity"
        )
    with open_on_cpu(converted) as program:
        return compare(expected, outputs_of(program, calibration), calibration.rows)


def _made_up(model: bytes) -> Calibration | None:
    """Return feeds for a model without any; None: it refuses those that can be made up."""
    with open_on_cpu(model) as program:
        try:
            feeds = Calibration.made_up(program)
            program.run(feeds.feeds[0])
        except InvalidRequestError:
            return None
    return feeds
