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
_REPLACED = 0.5
_TOLERANCE = 1e-4
_TOLERANCE_OF_PRECISION = {"float16": 1e-2, "bfloat16": 5e-2}
"""Share of an output's largest number by which batches of other sizes may differ, by precision."""
_log = logging.getLogger("graphbox.deploy")


def rows_are_independent(program: CheckedProgram, example: Feeds) -> bool:
    """Run rows together, in reverse order and one by one, and return whether the outputs are equal.

    Equal outputs are evidence and no proof: a model may mix rows of other values only. Rows are those of the
    example with normally distributed noise on floating-point numbers; about half of the integers are replaced
    by others that the model is likely to accept, and positions in rows of a known number are random.

    Args:
        program: the model; runs ten times at most.
        example: inputs that it accepts.

    Returns:
        False also where nothing can be concluded: the first dimensions of inputs and outputs do not have one
        name, the example has no rows, no other value of an integer input is likely to be accepted, all rows
        have the same outputs, an output is not finite, or the model fails.
    """
    if program.row_dimension is None or not all(len(array) for array in example.values()):
        return False
    random = np.random.default_rng(0)
    feeds = {}
    for name in example:
        varied = _varied(program, name, example, random)
        if varied is None:
            return False
        feeds[name] = varied
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
    program: CheckedProgram, name: str, example: Feeds, random: np.random.Generator
) -> npt.NDArray[Any] | None:
    """Return rows like those of the example, which differ; None: no other values are known to be accepted.

    Positions below a known number of rows are accepted. Of other integers, those from 1 to the largest of the
    example are likely to be (0 is no length); where that is one value, 0 and 1 are tried.
    """
    rows = example[name][random.integers(0, len(example[name]), _ROWS)]
    if rows.dtype.kind == "f":
        return np.asarray((rows + random.standard_normal(rows.shape)).astype(rows.dtype))
    if not rows.size:
        return rows
    limit = program.position_limit(name, example)
    lowest, highest = int(example[name].min()), int(example[name].max())
    if limit is not None:
        lowest, highest = 0, max(1, min(limit, _MOST_POSITIONS)) - 1
    elif name in program.positions:
        lowest = 0
    else:
        lowest, highest = min(lowest, 1), max(highest, 1)
        lowest = 0 if lowest == highest else lowest
    if lowest >= highest:
        return rows if limit is not None else None
    drawn = random.integers(lowest, highest, rows.shape, rows.dtype, endpoint=True)
    if limit is None:
        drawn = np.where(random.random(rows.shape) < _REPLACED, drawn, rows)
    drawn[:1].flat[0], drawn[1:2].flat[0] = lowest, highest  # whatever else was drawn, rows differ
    return drawn


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
