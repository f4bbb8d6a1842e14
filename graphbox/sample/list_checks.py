"""Checks of neighbour lists before kernels read them: these go where they are led."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.errors import DataError
from graphbox.native import Int64Array

_LARGEST_DEGREE = 2**31 - 1


def check_lists(indptr: Int64Array, indices: npt.NDArray[Any], num_columns: int, name: str) -> None:
    """Check compressed rows.

    Raises:
        DataError: ``indptr`` does not lead to lists of fewer than 2^31 edges in ``indices``, or these are not
            from 0 to ``num_columns`` - 1.
    """
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise DataError(
            f"expected indptr to rise from 0 to the number of edges, {len(indices)}",
            where=name,
            hint="the graph is damaged: import it again",
        )
    if len(indices) > _LARGEST_DEGREE:
        check_degrees(np.diff(indptr), 0, name)
    check_neighbors(indices, num_columns, name)


def check_degrees(degrees: Int64Array, first_node: int, name: str) -> None:
    """Check how long the lists of successive nodes are.

    Raises:
        DataError: one has 2^31 edges or more.
    """
    if len(degrees) and degrees.max() > _LARGEST_DEGREE:
        raise DataError(
            f"expected at most {_LARGEST_DEGREE} neighbours of a node on a device, found {degrees.max()}",
            where=f"{name}, node {first_node + int(degrees.argmax())}",
        )


def check_neighbors(values: npt.NDArray[Any], num_columns: int, name: str) -> None:
    """Check that neighbours are nodes.

    Raises:
        DataError: one is not from 0 to ``num_columns`` - 1.
    """
    if len(values) and (values.min() < 0 or values.max() >= num_columns):
        raise DataError(
            f"expected neighbours from 0 to {num_columns - 1}, found {values.min()} to {values.max()}",
            where=name,
            hint="the graph is damaged: import it again",
        )
