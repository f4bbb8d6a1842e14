"""Weights in float16, cast to float32 where they are used: half the file, on every runtime.

Inputs, outputs and computation stay float32. ONNX Runtime casts the weights once, when it loads the model:
the model is as fast as before and takes as much memory.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.compress.dense.calibration import Calibration
from graphbox.compress.dense.method import ConvertedOnnx, Rounding
from graphbox.compress.dense.onnx_graph import Graph
from graphbox.errors import UnsupportedError

__all__ = ["METHOD", "Float16"]

_LARGEST = float(np.finfo(np.float16).max)
_SMALL_VECTOR = 1024
"""Vectors of fewer elements (biases, scales) stay float32: they take no room."""


class Float16:
    """Weights in float16; for every runtime."""

    name = "float16"
    user_name = "float16"
    needs_calibration = False
    default_on: frozenset[str] = frozenset()
    is_coarse = False

    def convert(
        self,
        model: bytes,
        calibration: Calibration | None = None,  # noqa: ARG002 - weights are rounded, nothing is measured
        layers: Collection[str] | None = None,
    ) -> ConvertedOnnx:
        """Convert a model; see `graphbox.compress.dense.DenseMethod`.

        Without ``layers`` all constants with two dimensions and more are converted, those of Gather too.

        Raises:
            UnsupportedError: a weight is beyond float16.
        """
        graph = Graph(model)
        weights = [product.weight for product in graph.products()]
        if layers is None:
            names = [name for name, array in graph.float_constants().items() if _is_weight(array)]
            if not names:
                graph.selected(self.name, (), None)
        else:
            names = list(
                dict.fromkeys(each.weight for each in graph.selected(self.name, graph.products(), layers))
            )
        casts, bytes_after = [], {}
        for name in names:
            array = _halved(name, graph.array(name))
            half = graph.add_constant(f"{name}_float16", array)
            graph.drop_constant(name)
            casts.append(graph.node("Cast", [half], name, to=1))
            bytes_after[name] = array.nbytes
        graph.replace_nodes([*casts, *graph.nodes])
        return graph.converted(self.name, bytes_after, [name for name in weights if name not in bytes_after])

    def roundings(
        self,
        model: bytes,  # noqa: ARG002 - eleven bits are as good as float32 to training
        calibration: Calibration | None = None,  # noqa: ARG002
        layers: Collection[str] | None = None,  # noqa: ARG002
    ) -> dict[str, Rounding]:
        """Return nothing; see `graphbox.compress.dense.DenseMethod`."""
        return {}


def _is_weight(array: npt.NDArray[Any]) -> bool:
    return array.ndim >= 2 or array.size >= _SMALL_VECTOR


def _halved(name: str, array: npt.NDArray[Any] | None) -> npt.NDArray[np.float16]:
    assert array is not None  # noqa: S101 - the graph listed it
    largest = float(np.abs(array).max(initial=0))
    if largest > _LARGEST:
        raise UnsupportedError(
            f"expected weights within {_LARGEST:g}, the largest of float16, received {largest:g}",
            where=f"constant `{name}`",
            hint="choose `int8`, or name the other layers",
        )
    return array.astype(np.float16)


METHOD = Float16()
