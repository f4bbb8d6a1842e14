"""The model of one node that a probe compiles and runs, so that an available device is one that works."""

from __future__ import annotations

import numpy as np

from graphbox.deploy.onnx_writer import Node, write_onnx
from graphbox.deploy.protocol import Program

__all__ = ["TRIAL_MODEL", "trial_failure"]

TRIAL_MODEL = write_onnx([Node("Neg", ["x"], ["y"])], {"x": (np.float32, ["n"])}, {"y": (np.float32, ["n"])})
"""Returns the negative of its input ``x`` as ``y``, both FP32 [n]."""


def trial_failure(program: Program) -> str | None:
    """Run a program of `TRIAL_MODEL` and close it; return what is wrong with its answer, or None."""
    answer = program.run({"x": np.array([1.5], np.float32)})["y"].tolist()
    program.close()
    return None if answer == [-1.5] else f"expected -1.5 of the model of the probe, received {answer}"
