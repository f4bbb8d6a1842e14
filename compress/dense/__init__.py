"""Smaller and faster ONNX parts of models.

A method converts the constant matrices that a model multiplies with; `convert_dense` compares the outputs.
`default_dense` chooses a method for a target, `sensitivity` measures each layer, `prune_neurons` removes
hidden neurons, of each layer as many as `measure_hidden_layers` says, `fine_tune` trains what these leave to
answer like the original.
"""

from __future__ import annotations

from graphbox.compress.dense.calibration import Calibration, Queries
from graphbox.compress.dense.conversion import convert_dense, output_error
from graphbox.compress.dense.default import convert_for_target, default_dense
from graphbox.compress.dense.fine_tuning import FineTuned, can_fine_tune, fine_tune
from graphbox.compress.dense.layers import Layer, layers_of, sensitivity
from graphbox.compress.dense.method import ConversionReport, ConvertedOnnx, DenseMethod, OutputError, Rounding
from graphbox.compress.dense.prune import PrunedOnnx, PruneReport, prune_neurons
from graphbox.compress.dense.registry import dense_method, dense_methods
from graphbox.compress.dense.widths import HiddenLayers, measure_hidden_layers

__all__ = [
    "Calibration",
    "ConversionReport",
    "ConvertedOnnx",
    "DenseMethod",
    "FineTuned",
    "HiddenLayers",
    "Layer",
    "OutputError",
    "PruneReport",
    "PrunedOnnx",
    "Queries",
    "Rounding",
    "can_fine_tune",
    "convert_dense",
    "convert_for_target",
    "default_dense",
    "dense_method",
    "dense_methods",
    "fine_tune",
    "layers_of",
    "measure_hidden_layers",
    "output_error",
    "prune_neurons",
    "sensitivity",
]
