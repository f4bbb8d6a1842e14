"""Features of the edges of nodes that a model was never given: values of a request as the model's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from graphbox.artifact import EdgeFeature
from graphbox.deploy.field_columns import RequestColumn, column_of_cells
from graphbox.errors import InvalidRequestError, did_you_mean

__all__ = ["category_codes", "columns_of_cells", "columns_of_edges", "standardized"]

Float = npt.NDArray[np.float32]


def standardized(values: npt.NDArray[Any], mean: float, deviation: float) -> Float:
    """Return numbers on the scale of training: float32 [n], 0 (the mean) where missing."""
    numbers = values.astype(np.float64)
    scaled = (np.sign(numbers) * np.log1p(np.abs(numbers)) - mean) / deviation
    return np.nan_to_num(scaled).astype(np.float32)


def category_codes(categories: Sequence[str], column: RequestColumn) -> npt.NDArray[np.int64]:
    """Return the codes of a column's categories, int64 [n]: 1 + the place in ``categories``, 0 of others."""
    number = {text: code for code, text in enumerate(categories, 1)}
    names = [] if column.categories is None else column.categories.to_pylist()
    codes = np.array([0, *(number.get(name, 0) for name in names)], np.int64)
    return np.asarray(codes[column.values + 1])


def columns_of_edges(
    features: Sequence[EdgeFeature], edges: Sequence[Mapping[str, Any] | None], width: int, where: str
) -> Float:
    """Return the columns of edges given by their features: float32 [n, width].

    Args:
        features: of the relation.
        edges: value of each feature by name; names left out, null values, and None for an edge are missing.
        width: columns of a slot; those behind the relation's own are 0.
        where: the relation in the request, for errors.

    Raises:
        InvalidRequestError: an unknown feature, or a value that cannot be read.
    """
    known = [each.name for each in features]
    for number, edge in enumerate(edges):
        if not isinstance(edge, Mapping | None):
            raise InvalidRequestError(
                f"expected values by name of the feature, or None, received {type(edge).__name__}",
                where=f"{where}, edge {number}",
            )
        for name in edge or {}:
            if name not in known:
                raise InvalidRequestError(
                    f"expected one of the features {', '.join(f'`{each}`' for each in known)}, received "
                    f"`{str(name)[:64]}`",
                    where=f"{where}, edge {number}",
                    hint=did_you_mean(name, known),
                )

    def column(feature: EdgeFeature) -> Float:
        cells = [(edge or {}).get(feature.name) for edge in edges]
        given = [number for number, cell in enumerate(cells) if cell is not None]
        found = np.zeros((len(cells), feature.columns), np.float32)
        read = column_of_cells(
            feature,
            [cells[number] for number in given],
            lambda row: f"{where}, edge {given[row]}, feature `{feature.name}`",
        )
        found[given] = _columns(feature, read)
        return found

    return _side_by_side(features, column, len(edges), width)


def columns_of_cells(
    features: Sequence[EdgeFeature], columns: Mapping[str, RequestColumn], count: int, width: int
) -> Float:
    """Return the columns of edges given as a tensor for each feature: float32 [n, width].

    Args:
        features: of the relation.
        columns: of each feature, by name.
        count: number of edges.
        width: see :func:`columns_of_edges`.
    """
    return _side_by_side(features, lambda each: _columns(each, columns[each.name]), count, width)


def _side_by_side(
    features: Sequence[EdgeFeature], column: Callable[[EdgeFeature], Float], count: int, width: int
) -> Float:
    """Return the columns of all features, those of categories first."""
    found, start = np.zeros((count, width), np.float32), 0
    for feature in sorted(features, key=lambda each: each.kind != "categorical"):
        found[:, start : start + feature.columns] = column(feature)
        start += feature.columns
    return found


def _columns(feature: EdgeFeature, column: RequestColumn) -> Float:
    """Return the columns of a feature: float32 [n, columns]."""
    if feature.kind == "categorical":
        return category_codes(feature.categories, column)[:, None].astype(np.float32)
    if feature.kind == "vector":
        return np.nan_to_num(column.values.astype(np.float32)).reshape(-1, feature.columns)
    values = column.values
    if feature.latest is not None:
        # In the numbers of Python, which no timestamp overflows.
        ages = [max(feature.latest - int(each), 0) for each in values.tolist()]
        values = np.array(ages, np.float64)
    return standardized(values, feature.mean, feature.deviation)[:, None]
