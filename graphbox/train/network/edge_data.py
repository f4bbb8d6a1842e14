"""Features of a graph's edges as layers read them: learnt of training edges, then read of any graph alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphbox.config.edge_features import OWN_COLUMN_HINT, OWN_COLUMNS, own_column_refusal
from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import EdgeType, FeatureSpec, edge_type_from_text, edge_type_text
from graphbox.models.edge_inputs import TIMESTAMP
from graphbox.models.features import LearntFeature
from graphbox.train.view import GraphView

LearntEdges = Mapping[EdgeType, Mapping[str, LearntFeature]]
"""Learnt properties of the features that are read, by edge type with edges of its own and name, in order."""

_MOST_CATEGORIES = 1 << 24
"""Codes up to which float32 has every whole number."""


def learnt_edges(
    view: GraphView, names: Mapping[str, Sequence[str]]
) -> dict[EdgeType, dict[str, LearntFeature]]:
    """Return what there is to know of the features of the edges that a view shows.

    Args:
        view: the graph without what is held out.
        names: of the features, by edge type as text.

    Raises:
        UsageError: there is no such edge type or feature, it is of another kind, or has too many categories.
    """
    found: dict[EdgeType, dict[str, LearntFeature]] = {}
    for text, wanted in names.items():
        edge_type = edge_type_from_text(text)
        own = [each for each in view.edge_types if view.own_type(each) == each]
        if edge_type not in own:
            raise UsageError(
                f"there is no edge type `{text}`",
                where="edge_features",
                hint=f"there are: {', '.join(map(edge_type_text, own))}",
            )
        known = view.edge_features(edge_type)
        found[edge_type] = {}
        for name in wanted:
            if name in OWN_COLUMNS and view.has_own_feature(edge_type, name):
                raise UsageError(own_column_refusal(name, text), where="edge_features", hint=OWN_COLUMN_HINT)
            if name not in known or known[name].kind == "slots":
                raise UsageError(
                    f"there is no feature `{name}` of edges of type `{text}` that layers read",
                    where="edge_features",
                    hint=did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}",
                )
            spec, values = _read(view, edge_type, name)
            if (count := len(spec.categories or ())) >= _MOST_CATEGORIES:
                raise UsageError(
                    f"expected fewer than {_MOST_CATEGORIES} categories, received {count}",
                    where=f"feature `{name}` of edges of type `{text}`",
                )
            found[edge_type][name] = LearntFeature.of(spec, values)
    return found


def edge_columns(view: GraphView, edge_type: EdgeType, learnt: Mapping[str, LearntFeature]) -> Tensor:
    """Return the features of all edges of a type: float32 [edges, columns], in the order of its CSC.

    What is missing counts as for nodes: a number as the mean of training, a value of a vector as 0, a
    category as one of its own.

    Args:
        view: the graph.
        edge_type: the type, or one that has its edges backwards.
        learnt: what is known of the features, by name.
    """
    codes: list[NDArray[np.float32]] = []
    numbers: list[NDArray[np.float32]] = []
    for name, feature in learnt.items():
        spec, values = _read(view, edge_type, name)
        if feature.kind == "categorical":
            codes.append(feature.codes(spec, values)[:, None].astype(np.float32))
        elif feature.kind == "vector":
            numbers.append(np.nan_to_num(values.astype(np.float32)))
        else:
            numbers.append(feature.standardized(values)[:, None])
    return torch.from_numpy(np.concatenate([*codes, *numbers], axis=1))


def latest_timestamp(view: GraphView, edge_type: EdgeType) -> int:
    """Return when the latest edge that a view shows of a type came to be; 0 without edges."""
    return _latest(view.edge_feature(edge_type, TIMESTAMP))


def _read(view: GraphView, edge_type: EdgeType, name: str) -> tuple[FeatureSpec, NDArray[np.generic]]:
    """Return what a feature holds, and its values; of timestamps the ages of the edges."""
    spec, values = view.edge_features(edge_type)[name], view.edge_feature(edge_type, name)
    if name == TIMESTAMP:
        values = _latest(values) - values.astype(np.int64)
    return spec, values


def _latest(timestamps: NDArray[Any]) -> int:
    return int(timestamps.max()) if len(timestamps) else 0
