"""Feeds for trying a program out and for measuring it, made from the shapes of its inputs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy.program import CheckedProgram
from graphbox.deploy.protocol import DTYPE_OF

__all__ = ["feeds_of_shapes", "made_up_feeds"]


def made_up_feeds(program: CheckedProgram, size: int) -> dict[str, npt.NDArray[Any]]:
    """Return feeds in which every dimension of any size is ``size``; see `feeds_of_shapes`."""
    shapes = {
        tensor.name: tuple(size if length < 0 else length for length in tensor.shape)
        for tensor in program.inputs
    }
    return feeds_of_shapes(program, shapes)


def feeds_of_shapes(
    program: CheckedProgram, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, npt.NDArray[Any]]:
    """Return feeds of given shapes: normally distributed numbers, positions 0, other integers 1, true.

    Args:
        program: whose inputs are fed.
        shapes: of each input.
    """
    random = np.random.default_rng(0)
    feeds: dict[str, npt.NDArray[Any]] = {}
    for tensor in program.inputs:
        shape, dtype = shapes[tensor.name], DTYPE_OF[tensor.datatype]
        if dtype.kind == "f":
            feeds[tensor.name] = random.standard_normal(shape).astype(dtype)
        elif tensor.name in program.positions:
            feeds[tensor.name] = np.zeros(shape, dtype)
        else:
            feeds[tensor.name] = np.ones(shape, dtype)
    return feeds
