"""Probe of an ONNX model: does a row of its outputs depend on that row of its inputs alone?"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.deploy.program import CheckedProgram
from graphbox.deploy.protocol import Feeds

__all__ = ["rows_are_independent"]

_ROWS = 8
_MOST_POSITIONS = 64
_TOLERANCE = 1e-4
_TOLERANCE_OF_PRECISION = {"float16": 1e-2, "bfloat16": 5e-2}
"""Share of an output's largest number by which batches of other sizes may differ, by precision."""
_log = logging.getLogger("graphbox.deploy")


def rows_are_independent(program: CheckedProgram, example: Feeds) -> bool:
    """Run rows together, in reverse order and one by one, and return whether the outputs are equal.

    Equal outputs are evidence and no proof: a model may mix rows of other values only. Rows are those of the
    example with normally distributed noise on floating-point numbers; integers are those of the example,
    since others may be invalid, and positions in a constant table are random.

    Args:
        program: the model; runs ten times at most.
        example: inputs that it accepts.

    Returns:
        False also where nothing can be concluded: the first dimensions of inputs and outputs do not have one
        name, the example has no rows, all rows have the same outputs, an output is not finite, or the model
        fails.
    """
    if program.row_dimension is None or not all(len(array) for array in example.values()):
        return False
    random = np.random.default_rng(0)
    feeds = {name: _varied(program, name, array, random) for name, array in example.items()}
    try:
        together = program.run(feeds)
        reverse = program.run({name: np.ascontiguousarray(array[::-1]) for name, array in feeds.items()})
        alone = [
            program.run({name: array[row : row + 1] for name, array in feeds.items()}) for row in range(_ROWS)
        ]
    except Exception as error:  # noqa: BLE001 - whatever a runtime raises, calls are answered one by one
        _log.debug("rows are not joined: the model failed on rows made up to compare: %s", error)
        return False
    tolerance = _TOLERANCE_OF_PRECISION.get(program.effective["precision"], _TOLERANCE)
    expected = {name: np.concatenate([each[name] for each in alone]) for name in together}
    return any((rows[1:] != rows[:1]).any() for rows in expected.values()) and all(
        _are_close(together[name], rows, tolerance) and _are_close(reverse[name][::-1], rows, tolerance)
        for name, rows in expected.items()
    )


def _varied(
    program: CheckedProgram, name: str, example: npt.NDArray[Any], random: np.random.Generator
) -> npt.NDArray[Any]:
    """Return rows like those of the example, which differ where that is safe."""
    rows = example[random.integers(0, len(example), _ROWS)]
    if rows.dtype.kind == "f":
        return np.asarray((rows + random.standard_normal(rows.shape)).astype(rows.dtype))
    limit = program.constant_rows(name)
    if limit is None:
        return rows
    return random.integers(0, min(limit, _MOST_POSITIONS), rows.shape).astype(rows.dtype)


def _are_close(found: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: float) -> bool:
    if found.shape != expected.shape:
        return False
    if found.dtype.kind != "f":
        return bool((found == expected).all())
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return False
    largest = float(np.abs(expected).max(initial=0))
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0)
    return bool(difference <= tolerance * largest)
