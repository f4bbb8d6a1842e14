"""Runs ONNX models on calibration feeds: their outputs, and values inside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import OutputError
from graphbox.compress.dense.onnx_graph import Graph
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.deploy.protocol import Options
from graphbox.deploy.select import choose
from graphbox.errors import UsageError

__all__ = ["OpenProgram", "compare", "inner_values", "open_on_cpu", "outputs_of"]

Values: TypeAlias = dict[str, npt.NDArray[Any]]
OpenProgram: TypeAlias = Callable[[bytes], CheckedProgram]
"""Compiles a model for the device that outputs are compared on."""


def open_on_cpu(model: bytes) -> CheckedProgram:
    """Compile a model for ONNX Runtime on the CPU."""
    adapter, device = choose("onnxruntime/cpu")
    return compile_model(adapter, model, device, Options())


def outputs_of(program: CheckedProgram, calibration: Calibration) -> list[Values]:
    """Return the outputs for each feed."""
    return [program.run(feed) for feed in calibration.feeds]


def inner_values(model: bytes, names: Collection[str], calibration: Calibration) -> Iterator[Values]:
    """Yield float32 values inside a model by name, for one feed at a time.

    Args:
        model: an ONNX file's content.
        names: of inputs and results of nodes.
        calibration: the feeds.

    Raises:
        UsageError: the feeds are not those of the model.
    """
    import onnx

    graph = Graph(model)
    inputs = {value.name for value in graph.proto.graph.input}
    present = inputs | set(graph.outputs())
    for name in sorted(set(names) - present):
        graph.proto.graph.output.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        )
    unknown = inputs - set(calibration.feeds[0])
    if unknown:
        raise UsageError(
            f"expected calibration feeds with the inputs {sorted(inputs)}, "
            f"received {sorted(calibration.feeds[0])}"
        )
    with open_on_cpu(graph.unchecked()) as program:
        for feed in calibration.feeds:
            found = program.run(feed)
            yield {name: found[name] if name in found else feed[name] for name in names}


def compare(expected: list[Values], received: list[Values], rows: int) -> OutputError:
    """Return how far outputs are from the expected ones; infinite where they are not finite.

    Args:
        expected: outputs for each feed.
        received: outputs of the other model for the same feeds.
        rows: of the feeds.
    """
    worst_max = worst_rms = 0.0
    for name in expected[0]:
        if expected[0][name].dtype.kind not in "fiu":
            continue
        first = np.concatenate([each[name].ravel() for each in expected]).astype(np.float64)
        second = np.concatenate([each[name].ravel() for each in received]).astype(np.float64)
        difference = np.where(first == second, 0.0, first - second)
        if not np.isfinite(difference).all():
            return OutputError(np.inf, np.inf, rows)
        largest, total = np.abs(first).max(initial=0), np.sqrt(np.square(first).sum())
        worst_max = max(worst_max, _ratio(float(np.abs(difference).max(initial=0)), float(largest)))
        worst_rms = max(worst_rms, _ratio(float(np.sqrt(np.square(difference).sum())), float(total)))
    return OutputError(worst_max, worst_rms, rows)


def _ratio(difference: float, size: float) -> float:
    if difference == 0:
        return 0.0
    return difference / size if size else float("inf")
