"""Comparison of a module that IREE compiled with ONNX Runtime, for a process of its own.

    python -m graphbox.deploy.adapters.iree_answers MODEL.onnx FOLDER

Prints the outputs that differ. The module may end the process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from graphbox.artifact import TensorSpec
from graphbox.deploy.adapters.iree import IreeProgram
from graphbox.deploy.adapters.onnxruntime import OnnxRuntimeProgram
from graphbox.deploy.adapters.processor import processor_name
from graphbox.deploy.protocol import DTYPE_OF, Device, Feeds, Options, Package
from graphbox.errors import InvalidRequestError

__all__ = ["wrong_outputs"]

_SIZES: Final = (1, 2, 3, 5)
_SHARE_OF_LARGEST: Final = 1e-2
"""Difference of an answer, as a share of its largest number, up to which it is rounding."""


def wrong_outputs(model: bytes, folder: Path) -> list[str]:
    """Return the names of floating-point outputs that differ, for feeds of a few sizes.

    Args:
        model: the ONNX file's content.
        folder: has the module that was compiled of it for this processor.
    """
    device = Device("cpu", "cpu", processor_name(), available=True)
    compiled = IreeProgram(Package(model, device, Options(), folder))
    reference = OnnxRuntimeProgram(model, device, Options())
    wrong: set[str] = set()
    for size in _SIZES:
        feeds = _feeds(reference.inputs, size)
        try:
            expected, received = reference.run(feeds), compiled.run(feeds)
        except InvalidRequestError:  # feeds that are made up need not be ones that a model accepts
            continue
        wrong |= {name for name in expected if not _are_near(received[name], expected[name])}
    return sorted(wrong)


def _feeds(inputs: Sequence[TensorSpec], size: int) -> Feeds:
    """Return random feeds: dimensions of any size have ``size``, integers are positions in such."""
    random = np.random.default_rng(size)
    feeds: dict[str, npt.NDArray[Any]] = {}
    for tensor in inputs:
        shape = tuple(size if length < 0 else length for length in tensor.shape)
        dtype = DTYPE_OF[tensor.datatype]
        made = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, size, shape)
        feeds[tensor.name] = np.asarray(made).astype(dtype)
    return feeds


def _are_near(received: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    if expected.dtype.kind != "f":
        return True
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    near = received.shape == expected.shape
    return near and np.allclose(
        received, expected, rtol=0.0, atol=_SHARE_OF_LARGEST * largest, equal_nan=True
    )


if __name__ == "__main__":
    names = wrong_outputs(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]))
    sys.stdout.write(", ".join(f"`{name}`" for name in names))
